package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Invalid says which key of a wish cannot be had, and what is allowed. Several of
// them come joined; see Problems.
type Invalid struct {
	Key     string // "sidecars[config server].memory"
	Message string
}

func (e *Invalid) Error() string { return e.Key + ": " + e.Message }

// Refusal says that something cannot be had, in words that clients of the platform
// know.
type Refusal struct{ Text string }

func (e *Refusal) Error() string { return e.Text }

func refusal(format string, args ...any) error {
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

// problems collects what is wrong with one wish.
type problems []error

func (ps *problems) add(key, format string, args ...any) {
	*ps = append(*ps, &Invalid{Key: key, Message: fmt.Sprintf(format, args...)})
}

func (ps problems) err() error { return errors.Join(ps...) }

// name checks what the platform calls a name: any printable text, spaces too.
func (ps *problems) name(key, s string) {
	switch {
	case strings.TrimSpace(s) == "":
		ps.add(key, "must not be empty")
	case !utf8.ValidString(s):
		ps.add(key, "must be valid UTF-8")
	case strings.ContainsFunc(s, unprintable):
		ps.add(key, "must not have control characters or line breaks, %q has", s)
	case utf8.RuneCountInString(s) > maxName:
		ps.add(key, "must have at most %d characters, not %d", maxName, utf8.RuneCountInString(s))
	}
}

func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp)
}

// command checks a line for the shell; it may have several lines.
func (ps *problems) command(key, s string) {
	switch {
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		ps.add(key, "must be valid UTF-8 without zero bytes")
	case utf8.RuneCountInString(s) > maxCommand:
		ps.add(key, "must have at most %d characters, not %d", maxCommand, utf8.RuneCountInString(s))
	}
}

// amount checks a number of megabytes that must be there.
func (ps *problems) amount(key string, mb int) {
	if mb < 1 || mb > maxMB {
		ps.add(key, "must be 1 to %d MB, not %d", maxMB, mb)
	}
}

func (ps *problems) port(key string, n int) {
	if n < 1 || n > 65535 {
		ps.add(key, "must be 1 to 65535, not %d", n)
	}
}

func checkApp(a App) error {
	var ps problems
	ps.name("name", a.Name)
	if a.State != Started && a.State != Stopped {
		ps.add("state", "must be %s or %s, not %q", Started, Stopped, a.State)
	}
	for _, k := range slices.Sorted(maps.Keys(a.Env)) {
		checkEnv(&ps, k, a.Env[k])
	}
	for i, b := range a.Buildpacks {
		if strings.TrimSpace(b) == "" || strings.ContainsFunc(b, unprintable) {
			ps.add(fmt.Sprintf("buildpacks[%d]", i), "must be the name, the URL or the folder of a buildpack, not %q", b)
		}
	}
	if err := a.Metadata.Validate(); err != nil {
		ps = append(ps, err)
	}
	return ps.err()
}

// checkEnv refuses what the platform refuses: names that it sets itself.
func checkEnv(ps *problems, k, v string) {
	key := "env[" + k + "]"
	upper := strings.ToUpper(k)
	switch {
	case k == "":
		ps.add("env", "has a variable without a name")
	case !utf8.ValidString(k) || strings.ContainsRune(k, '=') || strings.ContainsFunc(k, unprintable):
		ps.add(key, "the name of a variable must not have = or control characters")
	case upper == "PORT":
		ps.add(key, "PORT is set by the platform")
	case strings.HasPrefix(upper, "VCAP_") || strings.HasPrefix(upper, "VMC_"):
		ps.add(key, "names that start with VCAP_ or VMC_ are set by the platform")
	}
	if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
		ps.add(key, "must be valid UTF-8 without zero bytes")
	}
}

func processKey(p Process, field string) string {
	return "processes[" + p.Type + "]." + field
}

func checkProcess(p Process) error {
	var ps problems
	checkType(&ps, processKey(p, "type"), p.Type)
	ps.command(processKey(p, "command"), p.Command)
	if p.Instances < 0 || p.Instances > maxInstances {
		ps.add(processKey(p, "instances"), "must be 0 to %d, not %d", maxInstances, p.Instances)
	}
	ps.amount(processKey(p, "memory"), p.MemoryMB)
	ps.amount(processKey(p, "disk_quota"), p.DiskMB)
	if r := p.LogRate; r != nil && (*r < 0 || *r > maxMB<<20) {
		ps.add(processKey(p, "log-rate-limit-per-second"), "must be 0 to %d bytes, not %d", int64(maxMB)<<20, *r)
	}
	for i, n := range p.Ports {
		ps.port(processKey(p, "ports"), n)
		if slices.Contains(p.Ports[:i], n) {
			ps.add(processKey(p, "ports"), "has %d twice", n)
		}
	}
	checkHealth(&ps, processKey(p, "health-check"), p.HealthCheck)
	if p.Readiness.Type != CheckNone {
		checkHealth(&ps, processKey(p, "readiness-health-check"), p.Readiness)
	}
	if err := p.Metadata.Validate(); err != nil {
		ps = append(ps, err)
	}
	return ps.err()
}

// checkType refuses what could not be part of a log source.
func checkType(ps *problems, key, s string) {
	ps.name(key, s)
	if strings.ContainsFunc(s, func(r rune) bool { return r == '/' || unicode.IsSpace(r) }) {
		ps.add(key, "a process type has no spaces and no slashes, %q has", s)
	}
}

func notInPath(r rune) bool { return unicode.IsSpace(r) || unprintable(r) }

// checkIdentity guards what never changes about a process.
func checkIdentity(old, p Process) error {
	var ps problems
	if (p.Type == Web) != (p.GUID == p.App) {
		ps.add(processKey(p, "guid"), "the %s process, and no other, has the guid of its app", Web)
	}
	if old.GUID == "" {
		return ps.err()
	}
	if old.App != p.App {
		ps.add(processKey(p, "app"), "a process stays with its app")
	}
	if old.Type != p.Type {
		ps.add(processKey(p, "type"), "a process stays %q: make another one", old.Type)
	}
	return ps.err()
}

func sidecarKey(s Sidecar, field string) string {
	return "sidecars[" + s.Name + "]." + field
}

func checkSidecar(s Sidecar) error {
	var ps problems
	ps.name(sidecarKey(s, "name"), s.Name)
	if strings.TrimSpace(s.Command) == "" {
		ps.add(sidecarKey(s, "command"), "must not be empty")
	}
	ps.command(sidecarKey(s, "command"), s.Command)
	if len(s.ProcessTypes) == 0 {
		ps.add(sidecarKey(s, "process_types"), "must name at least one process type, such as %s", Web)
	}
	for i, t := range s.ProcessTypes {
		checkType(&ps, sidecarKey(s, "process_types"), t)
		if slices.Contains(s.ProcessTypes[:i], t) {
			ps.add(sidecarKey(s, "process_types"), "has %q twice", t)
		}
	}
	if s.MemoryMB != 0 {
		ps.amount(sidecarKey(s, "memory"), s.MemoryMB)
	}
	if s.Origin != OriginUser && s.Origin != OriginBuildpack {
		ps.add(sidecarKey(s, "origin"), "must be %s or %s, not %q", OriginUser, OriginBuildpack, s.Origin)
	}
	return ps.err()
}

func checkSidecarApp(old, s Sidecar) error {
	if old.GUID == "" || old.App == s.App {
		return nil
	}
	return &Invalid{Key: sidecarKey(s, "app"), Message: "a sidecar stays with its app"}
}

// checkProcessMemory keeps something of the process's memory for main.
func checkProcessMemory(p Process, sidecars []Sidecar) error {
	sum := declaredMB(sidecars, p.Type)
	if sum < p.MemoryMB {
		return nil
	}
	return &Invalid{Key: processKey(p, "memory"), Message: fmt.Sprintf("must be more than the %dM of its sidecars together, not %dM", sum, p.MemoryMB)}
}

// checkSidecarMemory is the same rule, seen from a sidecar among others.
func checkSidecarMemory(s Sidecar, others []Sidecar, processes []Process) error {
	if s.MemoryMB <= 0 {
		return nil
	}
	var ps problems
	for _, p := range processes {
		sum := declaredMB(others, p.Type) + s.MemoryMB
		if s.attaches(p.Type) && sum >= p.MemoryMB {
			ps.add(sidecarKey(s, "memory"), "the sidecars of process %s would have %dM together, which must be less than its memory of %dM", p.Type, sum, p.MemoryMB)
		}
	}
	return ps.err()
}
