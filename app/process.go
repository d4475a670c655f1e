package app

import (
	"slices"
	"strings"
	"time"
)

// Web is the process type that every app has and that gets the default route.
const Web = "web"

// Defaults of a process.
const (
	DefaultMemoryMB = 1024
	DefaultDiskMB   = 1024
)

// Process is the desired state of one process type of an app. The web process has the
// guid of its app.
type Process struct {
	GUID        string      `json:"guid"`
	App         string      `json:"app"` // guid
	Type        string      `json:"type"`
	Command     string      `json:"command,omitempty"` // empty: the droplet's command for this type
	Instances   int         `json:"instances"`
	MemoryMB    int         `json:"memory_mb"` // memory of the whole container, including sidecars
	DiskMB      int         `json:"disk_mb"`
	LogRate     *int64      `json:"log_rate,omitempty"` // bytes per second of an instance (nil: no limit)
	HealthCheck HealthCheck `json:"health_check"`
	Readiness   HealthCheck `json:"readiness"`
	Ports       []int       `json:"ports,omitempty"` // empty: the default port
	Version     string      `json:"version"`         // set by the Registry
	// Current are the versions since the last start or restart. Version is the last
	// of them. Instances of these versions keep running, because a change alone
	// replaces nothing. Older ones are replaced. Set by the Registry.
	Current    []string `json:"current"`
	Generation int      `json:"generation"`       // generation of the desired instances, set by deployments
	Newest     int      `json:"newest,omitempty"` // the highest generation so far (0: Generation)
	// Started is the release of the last start; nil: it is not known. Instances of a
	// process that is Held start from it again, without later changes, until the
	// next start, restart or deployment. Set by the Registry.
	Started   *Release  `json:"started,omitempty"`
	Held      bool      `json:"held,omitempty"`
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Keeps reports whether an instance of version can keep running. Otherwise it is
// older than the last start or restart and must be replaced.
func (p Process) Keeps(version string) bool { return slices.Contains(p.Current, version) }

// Clone returns a copy that shares nothing with p that can change.
func (p Process) Clone() Process {
	p.Ports = slices.Clone(p.Ports)
	p.Current = slices.Clone(p.Current)
	p.Metadata = p.Metadata.Clone()
	if p.LogRate != nil {
		rate := *p.LogRate
		p.LogRate = &rate
	}
	return p
}

// WithDefaults returns p with defaults for missing values.
func (p Process) WithDefaults() Process {
	if p.MemoryMB == 0 {
		p.MemoryMB = DefaultMemoryMB
	}
	if p.DiskMB == 0 {
		p.DiskMB = DefaultDiskMB
	}
	if p.HealthCheck.Type == "" {
		p.HealthCheck.Type = CheckProcess
		if p.Type == Web {
			p.HealthCheck.Type = CheckPort
		}
	}
	p.HealthCheck = p.HealthCheck.withDefaults()
	p.Readiness = p.Readiness.withDefaults()
	return p
}

// KeepIdentity returns p with the fields of old that only the Registry changes.
func (p Process) KeepIdentity(old Process) Process {
	p.Version, p.Current = old.Version, old.Current
	p.Generation, p.Newest, p.Started, p.Held = old.Generation, old.Newest, old.Started, old.Held
	return p
}

// maxCurrent bounds Process.Current. If an app changes more often than that without a
// restart, its oldest instances are replaced.
const maxCurrent = 500

// WithVersion returns p with a new version. Instances of the current versions keep
// running.
func (p Process) WithVersion(version string) Process {
	p.Version = version
	p.Current = append(slices.Clone(p.Current), version)
	if n := len(p.Current) - maxCurrent; n > 0 {
		p.Current = slices.Clone(p.Current[n:])
	}
	return p
}

// Restarted returns p with a new version. Instances of all other versions are replaced.
func (p Process) Restarted(version string) Process {
	p.Version = version
	p.Current = []string{version}
	return p
}

// The types of health checks.
const (
	CheckPort    = "port"
	CheckHTTP    = "http"
	CheckProcess = "process"
	CheckNone    = "" // only for readiness
)

// healthType is a type of health check.
type healthType struct {
	name     string
	endpoint string // default path for requests; empty: it sends none
}

// healthTypes is the table of all types, in the order in which messages list them. A
// type that sends requests to the instance also has a probe in package health.
var healthTypes = []healthType{
	{name: CheckPort},
	{name: CheckHTTP, endpoint: "/"},
	{name: CheckProcess},
}

// CheckTypes returns the types of health checks.
func CheckTypes() []string {
	return healthTypeNames(func(healthType) bool { return true })
}

func healthTypeNames(match func(healthType) bool) (out []string) {
	for _, t := range healthTypes {
		if match(t) {
			out = append(out, t.name)
		}
	}
	return out
}

// findHealthType returns the row of a type.
func findHealthType(name string) (t healthType, ok bool) {
	i := slices.IndexFunc(healthTypes, func(t healthType) bool { return t.name == name })
	if i < 0 {
		return t, false
	}
	return healthTypes[i], true
}

// HealthCheck describes a health check of instances. Durations of 0 stand for the
// defaults of Cloud Foundry.
type HealthCheck struct {
	Type              string        `json:"type,omitempty"`
	Endpoint          string        `json:"endpoint,omitempty"` // path, only for type http
	Port              int           `json:"port,omitempty"`     // 0: the process's first port
	Timeout           time.Duration `json:"timeout,omitempty"`  // until first healthy
	InvocationTimeout time.Duration `json:"invocation_timeout,omitempty"`
	Interval          time.Duration `json:"interval,omitempty"`
}

func (h HealthCheck) withDefaults() HealthCheck {
	if t, ok := findHealthType(h.Type); ok && h.Endpoint == "" {
		h.Endpoint = t.endpoint
	}
	return h
}

func checkHealth(ps *Violations, key string, h HealthCheck) {
	t, ok := findHealthType(h.Type)
	if !ok {
		ps.Add(key+"-type", "must be %s, not %q", alternatives(CheckTypes()), h.Type)
	}
	if t.endpoint == "" && h.Endpoint != "" {
		ps.Add(key+"-http-endpoint", "is allowed only for the type %s", alternatives(healthTypeNames(func(t healthType) bool { return t.endpoint != "" })))
	}
	if t.endpoint != "" && (!strings.HasPrefix(h.Endpoint, "/") || strings.ContainsFunc(h.Endpoint, notInPath)) {
		ps.Add(key+"-http-endpoint", "must be a path such as /health, not %q", h.Endpoint)
	}
	if h.Port != 0 {
		ps.Port(key+"-port", h.Port)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"timeout", h.Timeout}, {"invocation-timeout", h.InvocationTimeout}, {"interval", h.Interval},
	} {
		if d.value < 0 {
			ps.Add(key+"-"+d.field, "must be 0 or more, not %v", d.value)
		}
	}
}

// alternatives lists words: a, b or c.
func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
