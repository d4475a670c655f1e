package app

import (
	"maps"
	"slices"
)

// Release is what the instances of a process were started from at the last start,
// restart or deployment: a wish as it was then. It is never changed.
type Release struct {
	Revision    string            `json:"revision,omitempty"` // guid; empty: revisions were off
	Droplet     string            `json:"droplet,omitempty"`  // guid
	Stack       string            `json:"stack,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Command     string            `json:"command,omitempty"`
	MemoryMB    int               `json:"memory_mb"`
	DiskMB      int               `json:"disk_mb"`
	LogRate     *int64            `json:"log_rate,omitempty"`
	HealthCheck HealthCheck       `json:"health_check"`
	Readiness   HealthCheck       `json:"readiness"`
	Ports       []int             `json:"ports,omitempty"`
	Sidecars    []Sidecar         `json:"sidecars,omitempty"` // of the process type
	Version     string            `json:"version"`
}

// Apply gives an app and its process what they had in the release.
func (rel Release) Apply(a App, p Process) (App, Process) {
	a.Droplet, a.Stack, a.Env = rel.Droplet, rel.Stack, maps.Clone(rel.Env)
	p.Command, p.MemoryMB, p.DiskMB, p.LogRate = rel.Command, rel.MemoryMB, rel.DiskMB, rel.LogRate
	p.HealthCheck, p.Readiness, p.Ports, p.Version = rel.HealthCheck, rel.Readiness, slices.Clone(rel.Ports), rel.Version
	return a, p
}
