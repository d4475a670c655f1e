package app

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dewrun/dew/yamlfile"
)

// Manifest is what an app manifest says. A key that is not given is nil, and
// applying the manifest keeps the present value.
type Manifest struct {
	Applications []ManifestApp
}

// ManifestApp is one entry of applications.
type ManifestApp struct {
	Name string
	Path string // where the CLI finds the bits; nothing to the daemon
	// Env has nil for a variable that is to be removed.
	Env        map[string]*string
	Buildpacks []string // nil: not given; empty: find out
	Stack      *string
	Docker     *ManifestDocker // nil: the app is made of files
	Lifecycle  string          // buildpack or docker; empty: not given
	// The keys of a process at app level are the web process's, unless Processes
	// says otherwise. Type is empty here.
	ManifestProcess
	Processes []ManifestProcess
	Sidecars  []ManifestSidecar
	Routes    []ManifestRoute
	Services  []ManifestService
	Metadata  MetadataChange
	// DependsOn names the apps of the manifest that must run before this one starts.
	// Who pushes sees to that: it is not sent.
	DependsOn []string

	NoRoute, RandomRoute, DefaultRoute bool

	lines map[string]int // where a key was written
}

// ManifestProcess is one entry of processes, or the same keys at app level.
type ManifestProcess struct {
	Type      string
	Command   *string // empty: back to the droplet's
	Instances *int
	MemoryMB  *int
	DiskMB    *int
	LogRate   *int64         // bytes per second; -1: no limit
	Timeout   *time.Duration // until first healthy

	HealthCheckType              *string
	HealthCheckHTTPEndpoint      *string
	HealthCheckInvocationTimeout *time.Duration
	HealthCheckInterval          *time.Duration

	ReadinessHealthCheckType              *string
	ReadinessHealthCheckHTTPEndpoint      *string
	ReadinessHealthCheckInvocationTimeout *time.Duration
	ReadinessHealthCheckInterval          *time.Duration
}

// ManifestSidecar is one entry of sidecars.
type ManifestSidecar struct {
	Name         string
	ProcessTypes []string
	Command      string
	MemoryMB     *int
}

// ManifestRoute is one entry of routes.
type ManifestRoute struct {
	Route    string // host.domain/path
	Protocol string // empty: http1
	// Options are nil when not given: those of the route stay.
	Options map[string]string
}

// Web returns where the keys of the web process are: its entry of processes, or
// the app level if it has none.
func (m *ManifestApp) Web() *ManifestProcess {
	for i := range m.Processes {
		if m.Processes[i].Type == Web {
			return &m.Processes[i]
		}
	}
	return &m.ManifestProcess
}

// ManifestError says what is wrong with a manifest, where, and what is allowed.
// Several of them come joined; see ManifestProblems.
type ManifestError struct {
	App     string // its name; empty when the app has none, or it is about no app
	Key     string // "sidecars[config server].memory"
	Line    int    // 0: not from a text
	Message string
}

func (e *ManifestError) Error() string {
	var where []string
	if e.App != "" {
		where = append(where, fmt.Sprintf("app %q", e.App))
	}
	if e.Line > 0 {
		where = append(where, fmt.Sprintf("line %d", e.Line))
	}
	out := e.Message
	if e.Key != "" {
		out = e.Key + ": " + out
	}
	if len(where) > 0 {
		out = strings.Join(where, ", ") + ": " + out
	}
	return out
}

// ManifestProblems returns all ManifestErrors in err, in the order they were found.
func ManifestProblems(err error) []*ManifestError { return collect[*ManifestError](err) }

// collect returns all errors of a type in the tree of err.
func collect[E error](err error) []E {
	if err == nil {
		return nil
	}
	if one, ok := err.(E); ok { //nolint:errorlint // it walks the tree itself
		return []E{one}
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []E
		for _, one := range many.Unwrap() {
			all = append(all, collect[E](one)...)
		}
		return all
	}
	return collect[E](errors.Unwrap(err))
}

// Difference is one thing that applying a manifest would change.
type Difference struct {
	Op    string `json:"op"`   // "add", "replace" or "remove"
	Path  string `json:"path"` // "/applications/0/memory"
	Was   any    `json:"was,omitempty"`
	Value any    `json:"value,omitempty"`
}

// readYAML reads a manifest, or a file of variables for one. The error is a
// *ManifestError.
func readYAML(b []byte) (*yamlfile.Node, error) {
	n, err := yamlfile.Read(b, yamlfile.MaxBytes)
	if e, ok := errors.AsType[*yamlfile.Error](err); ok {
		return nil, &ManifestError{Key: e.Key, Line: e.Line, Message: e.Message}
	}
	return n, err
}

// shorten returns the start of a text that is too long for a message.
