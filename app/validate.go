package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dewrun/dew/app/routeoptions"
)

// Invalid says which key has a value that is not allowed, and which values are. Several
// of them come joined; see Problems.
type Invalid struct {
	Key     string // "sidecars[config server].memory"
	Message string
}

func (e *Invalid) Error() string { return e.Key + ": " + e.Message }

// Refusal says why a request is refused, in the words of Cloud Foundry, which its clients
// know.
type Refusal struct{ Text string }

func (e *Refusal) Error() string { return e.Text }

// NewRefusal returns a Refusal with a formatted text.
func NewRefusal(format string, args ...any) error {
	return &Refusal{Text: fmt.Sprintf(format, args...)}
}

// Problems returns all Invalids in err, in the order they were found.
func Problems(err error) []*Invalid { return collect[*Invalid](err) }

// Limits of the platform.
const (
	maxName      = 255
	maxCommand   = 4096
	maxInstances = 10_000
)

// Violations collects the errors of one value.
type Violations []error

// Add adds an Invalid with a formatted message.
func (ps *Violations) Add(key, format string, args ...any) {
	*ps = append(*ps, &Invalid{Key: key, Message: fmt.Sprintf(format, args...)})
}

// Err returns all errors joined, or nil.
func (ps Violations) Err() error { return errors.Join(ps...) }

// RouteOptions adds the problems that check finds with the options of a route.
func (ps *Violations) RouteOptions(key string, check func(routeoptions.Problem)) {
	check(func(option, message string) { ps.Add(strings.TrimSuffix(key+"."+option, "."), "%s", message) })
}

// Name checks a name, which is any printable text and can have spaces.
func (ps *Violations) Name(key, s string) {
	switch {
	case strings.TrimSpace(s) == "":
		ps.Add(key, "must not be empty")
	case !utf8.ValidString(s):
		ps.Add(key, "must be valid UTF-8")
	case strings.ContainsFunc(s, unprintable):
		ps.Add(key, "must not contain control characters or line breaks, but is %q", s)
	case utf8.RuneCountInString(s) > maxName:
		ps.Add(key, "must have at most %d characters, not %d", maxName, utf8.RuneCountInString(s))
	}
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp)
}

// Command checks a shell command, which can have several lines.
func (ps *Violations) Command(key, s string) {
	switch {
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		ps.Add(key, "must be valid UTF-8 without zero bytes")
	case utf8.RuneCountInString(s) > maxCommand:
		ps.Add(key, "must have at most %d characters, not %d", maxCommand, utf8.RuneCountInString(s))
	}
}

// Amount checks a required number of megabytes.
func (ps *Violations) Amount(key string, mb int) {
	if mb < 1 || mb > MaxMB {
		ps.Add(key, "must be 1 to %d MB, not %d", MaxMB, mb)
	}
}

// Port checks a port number.
func (ps *Violations) Port(key string, n int) {
	if n < 1 || n > 65535 {
		ps.Add(key, "must be 1 to 65535, not %d", n)
	}
}

// ValidateApp checks an app.
func ValidateApp(a App) error {
	var ps Violations
	ps.Name("name", a.Name)
	if a.State != Started && a.State != Stopped {
		ps.Add("state", "must be %s or %s, not %q", Started, Stopped, a.State)
	}
	for _, k := range slices.Sorted(maps.Keys(a.Env)) {
		ValidateEnv(&ps, k, a.Env[k])
	}
	for i, b := range a.Buildpacks {
		if strings.TrimSpace(b) == "" || strings.ContainsFunc(b, unprintable) {
			ps.Add(fmt.Sprintf("buildpacks[%d]", i), "must be the name, the URL or the folder of a buildpack, not %q", b)
		}
	}
	if a.K8sBindings && a.VCAPBindings {
		ps.Add("features", OneBindingForm)
	}
	if err := a.Metadata.Validate(); err != nil {
		ps = append(ps, err)
	}
	return ps.Err()
}

// ValidateEnv refuses the environment variables that Cloud Foundry refuses, because it
// sets them itself.
func ValidateEnv(ps *Violations, k, v string) {
	key := "env[" + k + "]"
	upper := strings.ToUpper(k)
	switch {
	case k == "":
		ps.Add("env", "has a variable without a name")
	case !utf8.ValidString(k) || strings.ContainsRune(k, '=') || strings.ContainsFunc(k, unprintable):
		ps.Add(key, "the name of a variable must not contain = or control characters")
	case upper == "PORT":
		ps.Add(key, "PORT is set by the platform")
	case strings.HasPrefix(upper, "VCAP_") || strings.HasPrefix(upper, "VMC_"):
		ps.Add(key, "names that start with VCAP_ or VMC_ are set by the platform")
	}
	if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
		ps.Add(key, "must be valid UTF-8 without zero bytes")
	}
}

// KeyOfProcess returns the key of a field of a process in messages.
func KeyOfProcess(p Process, field string) string {
	return "processes[" + p.Type + "]." + field
}

// ValidateProcess checks a process without its sidecars.
func ValidateProcess(p Process) error {
	var ps Violations
	ValidateProcessType(&ps, KeyOfProcess(p, "type"), p.Type)
	ps.Command(KeyOfProcess(p, "command"), p.Command)
	if p.Instances < 0 || p.Instances > maxInstances {
		ps.Add(KeyOfProcess(p, "instances"), "must be 0 to %d, not %d", maxInstances, p.Instances)
	}
	ps.Amount(KeyOfProcess(p, "memory"), p.MemoryMB)
	ps.Amount(KeyOfProcess(p, "disk_quota"), p.DiskMB)
	if r := p.LogRate; r != nil && (*r < 0 || *r > MaxMB<<20) {
		ps.Add(KeyOfProcess(p, "log-rate-limit-per-second"), "must be 0 to %d bytes, not %d", int64(MaxMB)<<20, *r)
	}
	for i, n := range p.Ports {
		ps.Port(KeyOfProcess(p, "ports"), n)
		if slices.Contains(p.Ports[:i], n) {
			ps.Add(KeyOfProcess(p, "ports"), "lists %d twice", n)
		}
	}
	checkHealth(&ps, KeyOfProcess(p, "health-check"), p.HealthCheck)
	if p.Readiness.Type != CheckNone {
		checkHealth(&ps, KeyOfProcess(p, "readiness-health-check"), p.Readiness)
	}
	if err := p.Metadata.Validate(); err != nil {
		ps = append(ps, err)
	}
	return ps.Err()
}

// ValidateProcessType refuses a type that cannot be part of a log source.
func ValidateProcessType(ps *Violations, key, s string) {
	ps.Name(key, s)
	if strings.ContainsFunc(s, func(r rune) bool { return r == '/' || unicode.IsSpace(r) }) {
		ps.Add(key, "a process type must not contain spaces or slashes, but is %q", s)
	}
}

func notInPath(r rune) bool { return unicode.IsSpace(r) || unprintable(r) }

// SidecarKey returns the key of a field of a sidecar in messages.
func SidecarKey(s Sidecar, field string) string {
	return "sidecars[" + s.Name + "]." + field
}

// ValidateSidecar checks a sidecar without its processes.
func ValidateSidecar(s Sidecar) error {
	var ps Violations
	ps.Name(SidecarKey(s, "name"), s.Name)
	if strings.TrimSpace(s.Command) == "" {
		ps.Add(SidecarKey(s, "command"), "must not be empty")
	}
	ps.Command(SidecarKey(s, "command"), s.Command)
	if len(s.ProcessTypes) == 0 {
		ps.Add(SidecarKey(s, "process_types"), "must name at least one process type, such as %s", Web)
	}
	for i, t := range s.ProcessTypes {
		ValidateProcessType(&ps, SidecarKey(s, "process_types"), t)
		if slices.Contains(s.ProcessTypes[:i], t) {
			ps.Add(SidecarKey(s, "process_types"), "lists %q twice", t)
		}
	}
	if s.MemoryMB != 0 {
		ps.Amount(SidecarKey(s, "memory"), s.MemoryMB)
	}
	if s.Origin != OriginUser && s.Origin != OriginBuildpack {
		ps.Add(SidecarKey(s, "origin"), "must be %s or %s, not %q", OriginUser, OriginBuildpack, s.Origin)
	}
	return ps.Err()
}

// ValidateProcessMemory refuses sidecars that leave the main process no memory.
func ValidateProcessMemory(p Process, sidecars []Sidecar) error {
	sum := DeclaredMB(sidecars, p.Type)
	if sum < p.MemoryMB {
		return nil
	}
	return &Invalid{Key: KeyOfProcess(p, "memory"), Message: fmt.Sprintf("must be more than %dM, the memory of its sidecars together, not %dM", sum, p.MemoryMB)}
}

// ValidateSidecarMemory is the same rule for one sidecar among others.
func ValidateSidecarMemory(s Sidecar, others []Sidecar, processes []Process) error {
	if s.MemoryMB <= 0 {
		return nil
	}
	var ps Violations
	for _, p := range processes {
		sum := DeclaredMB(others, p.Type) + s.MemoryMB
		if s.AttachesTo(p.Type) && sum >= p.MemoryMB {
			ps.Add(SidecarKey(s, "memory"), "the sidecars of process %s would have %dM together, but this must be less than the memory of the process, %dM", p.Type, sum, p.MemoryMB)
		}
	}
	return ps.Err()
}
