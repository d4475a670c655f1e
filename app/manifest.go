package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/yamlfile"
)

// Manifest is the content of an app manifest. A key that is not given is nil, and
// applying the manifest keeps the present value.
type Manifest struct {
	Applications []ManifestApp
}

// ManifestApp is one entry of applications.
type ManifestApp struct {
	Name string
	Path string // path of the bits, only for the CLI
	// Env has nil for a variable to remove.
	Env        map[string]*string
	Buildpacks []string // nil: not given, empty: detect them
	Stack      *string
	Docker     *ManifestDocker // nil: the app is staged from files
	Lifecycle  string          // buildpack or docker (empty: not given)
	// The keys of a process at app level belong to the web process, unless Processes
	// overrides them. Type is empty here.
	ManifestProcess
	Processes []ManifestProcess
	Sidecars  []ManifestSidecar
	Routes    []ManifestRoute
	Services  []ManifestService
	Metadata  MetadataChange
	Features  map[string]bool // nil: not given
	// DependsOn names the apps of the manifest that must run before this one starts.
	// dew push orders the apps: the key is not sent to the daemon.
	DependsOn []string

	NoRoute, RandomRoute, DefaultRoute bool

	lines map[string]int // line of each key
}

// ManifestProcess is one entry of processes, or the same keys at app level.
type ManifestProcess struct {
	Type      string
	Command   *string // empty: reset to the droplet's command
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
	// Options is nil if not given; then the route keeps its options.
	Options map[string]string
}

// ManifestDocker is the key docker: the image of an app. The password is never in a
// manifest.
type ManifestDocker struct {
	Image    string
	Username string
}

// ManifestService is one entry of services: a service instance of the space to bind to
// the app. The registry ignores it; the caller that applies the manifest binds it.
type ManifestService struct {
	Name        string
	BindingName string          // empty: the name of the service instance
	Parameters  json.RawMessage // an object; nil: none
}

// Web returns the settings of the web process: its entry of processes, or the app level
// if it has none.
func (m *ManifestApp) Web() *ManifestProcess {
	for i := range m.Processes {
		if m.Processes[i].Type == Web {
			return &m.Processes[i]
		}
	}
	return &m.ManifestProcess
}

// ManifestError says what is wrong with a manifest, where, and what is allowed. Several
// errors are joined; see ManifestProblems.
type ManifestError struct {
	App     string // name of the app; empty: it has none, or the error is about no app
	Key     string // "sidecars[config server].memory"
	Line    int    // 0: it was not read from a text
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

// Difference is one change that applying a manifest would make.
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
	return n, ofManifest(err)
}

// ofManifest turns errors about a file into errors about a manifest.
func ofManifest(err error) error {
	found := collect[*yamlfile.Error](err)
	if len(found) == 0 {
		return err
	}
	errs := make([]error, len(found))
	for i, e := range found {
		errs[i] = &ManifestError{Key: e.Key, Line: e.Line, Message: e.Message}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

var (
	// manifestPlace is the start of the text of a ManifestError: the app, the line or
	// both.
	manifestPlace = regexp.MustCompile(`^(?:app ("(?:[^"\\]|\\.)*")(?:, line ([0-9]+))?|line ([0-9]+)): `)
	// manifestPath is the key in the text of a ManifestError.
	manifestPath = regexp.MustCompile(`^([\w<>-]+(?:\[[^\]]*\])?(?:\.[\w-]+(?:\[[^\]]*\])?)*): `)
	// platformPlace is the start of a Cloud Foundry error about an app of a manifest.
	platformPlace = regexp.MustCompile(`^For application '([^']*)': `)
	// platformService is the service that such an error is about.
	platformService = regexp.MustCompile(`^(?:For service|Service instance) '([^']*)'`)
)

// ReadManifestError reads the text of a ManifestError that names an app or a line: the
// opposite of its method Error.
func ReadManifestError(text string) (e ManifestError, ok bool) {
	place := manifestPlace.FindStringSubmatch(text)
	if place == nil {
		return e, false
	}
	e.Message = text[len(place[0]):]
	if place[1] != "" {
		var err error
		if e.App, err = strconv.Unquote(place[1]); err != nil {
			return e, false
		}
	}
	if line := cmp.Or(place[2], place[3]); line != "" {
		var err error
		if e.Line, err = strconv.Atoi(line); err != nil {
			return e, false
		}
	}
	if path := manifestPath.FindStringSubmatch(e.Message); path != nil {
		e.Key, e.Message = path[1], e.Message[len(path[0]):]
	}
	return e, true
}

// Locate finds the line of the manifest file that an error of the daemon is about. The
// daemon sees other lines: those of the manifest as it was sent. Locate returns the
// line, 0 if there is none, and the text without the line of the daemon.
func (m Manifest) Locate(text string) (line int, rest string) {
	if e, ok := ReadManifestError(text); ok {
		e.Line = 0
		for i := range m.Applications {
			if a := &m.Applications[i]; a.Name == e.App {
				line = a.Line(e.Key)
			}
		}
		return line, e.Error()
	}
	place := platformPlace.FindStringSubmatch(text)
	if place == nil {
		return 0, text
	}
	for i := range m.Applications {
		if a := &m.Applications[i]; a.Name == place[1] {
			line = a.Line(a.keyOf(text[len(place[0]):]))
		}
	}
	return line, text
}

// keyOf returns the key that a Cloud Foundry error is about, or nothing.
func (m *ManifestApp) keyOf(words string) string {
	switch {
	case strings.HasPrefix(words, "Stack must be "):
		return "stack"
	case strings.HasPrefix(strings.ToLower(words), "buildpack "):
		return "buildpacks"
	}
	named := platformService.FindStringSubmatch(words)
	if named == nil {
		return ""
	}
	for i, s := range m.Services {
		if s.Name != named[1] {
			continue
		}
		if key := "services[" + s.Name + "]"; m.lines[key] > 0 {
			return key
		}
		return fmt.Sprintf("services[%d]", i)
	}
	return "services"
}

// In returns the error with the file of the manifest, as file:line.
func (e ManifestError) In(file string) string {
	if e.Line > 0 {
		file = fmt.Sprintf("%s:%d", file, e.Line)
	}
	e.Line = 0
	return file + ": " + e.Error()
}

// Explain turns errors about the desired state into errors about keys of the manifest.
// Errors of another kind stay as they are.
func (m *ManifestApp) Explain(err error) error {
	if err == nil || len(Problems(err)) == 0 {
		return err
	}
	var errs []error
	for _, inv := range Problems(err) {
		errs = append(errs, m.at(inv))
	}
	return errors.Join(errs...)
}

// at turns an error about the desired state into one about a key of the manifest.
func (m *ManifestApp) at(inv *Invalid) *ManifestError {
	key := inv.Key
	if rest, ok := strings.CutPrefix(key, "processes["+Web+"]."); ok && m.lines[key] == 0 {
		key = rest // it is at app level, or not in the manifest
	}
	return &ManifestError{App: m.Name, Key: key, Line: m.Line(key), Message: inv.Message}
}

// Line returns the line of a key in the manifest, otherwise of the map it belongs to. It is
// 0 if neither is in the manifest.
func (m *ManifestApp) Line(key string) int {
	for {
		if n, ok := m.lines[key]; ok {
			return n
		}
		i := strings.LastIndexAny(key, ".[")
		if i < 0 {
			return m.lines[""]
		}
		key = key[:i]
	}
}
