package app

import (
	"slices"
	"strings"
	"time"
)

// The types of health checks.
const (
	CheckPort    = "port"
	CheckHTTP    = "http"
	CheckProcess = "process"
	CheckNone    = "" // readiness only
)

// healthType is a type of health check.
type healthType struct {
	name     string
	endpoint string // the default path that it requests; empty: it requests none
}

// healthTypes is the table of all types, in the order in which messages list them. A
// type that asks the instance something also has a probe in package health.
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

// HealthCheck is how to ask an instance whether it works. Durations of 0 are the
// platform's defaults.
type HealthCheck struct {
	Type              string        `json:"type,omitempty"`
	Endpoint          string        `json:"endpoint,omitempty"` // path, with http only
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
		ps.Add(key+"-http-endpoint", "is for the type %s only", alternatives(healthTypeNames(func(t healthType) bool { return t.endpoint != "" })))
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
			ps.Add(key+"-"+d.field, "must not be negative, not %v", d.value)
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
