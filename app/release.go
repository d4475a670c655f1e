package app

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
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

// apply gives an app and its process what they had in the release.
func (rel Release) apply(a App, p Process) (App, Process) {
	a.Droplet, a.Stack, a.Env = rel.Droplet, rel.Stack, maps.Clone(rel.Env)
	p.Command, p.MemoryMB, p.DiskMB, p.LogRate = rel.Command, rel.MemoryMB, rel.DiskMB, rel.LogRate
	p.HealthCheck, p.Readiness, p.Ports, p.Version = rel.HealthCheck, rel.Readiness, slices.Clone(rel.Ports), rel.Version
	return a, p
}

// release is the present wish for a process.
func (r *Registry) release(a App, p Process) (Release, error) {
	sidecars, err := r.SidecarsOf(a.GUID, p.Type)
	if err != nil {
		return Release{}, err
	}
	rel := Release{
		Droplet: a.Droplet, Stack: a.Stack, Env: maps.Clone(a.Env), Command: p.Command, MemoryMB: p.MemoryMB, DiskMB: p.DiskMB,
		LogRate: p.LogRate, HealthCheck: p.HealthCheck, Readiness: p.Readiness, Ports: slices.Clone(p.Ports),
		Sidecars: sidecars, Version: p.Version,
	}
	if a.NoRevisions {
		return rel, nil
	}
	latest, found, err := r.latestRevision(a.GUID)
	if found {
		rel.Revision = latest.GUID
	}
	return rel, err
}

// started is what the instances of p run now: the release of their last start, or
// where nobody kept it the present wish.
func (r *Registry) started(a App, p Process) (Release, error) {
	if p.Started != nil {
		return *p.Started, nil
	}
	return r.release(a, p)
}

// startAnew wishes for new instances of p in the place of all that run.
func (r *Registry) startAnew(a App, p Process) (Process, error) {
	p = p.restarted(uuid.NewString())
	rel, err := r.release(a, p)
	p.Started, p.Held = &rel, false
	return p, err
}

// WishAt is what an instance of a generation is to be, in one reading: the app, the
// process and its sidecars. It is ErrNotFound when the generation is not wished.
func (r *Registry) WishAt(process string, generation int) (a App, p Process, sidecars []Sidecar, err error) {
	err = r.view(func(r *Registry) error {
		if p, err = r.Process(process); err != nil {
			return err
		}
		if a, err = r.App(p.App); err != nil {
			return err
		}
		if generation == p.Generation {
			if p.Held && p.Started != nil {
				a, p = p.Started.apply(a, p)
				sidecars = p.Started.Sidecars
				return nil
			}
			sidecars, err = r.SidecarsOf(a.GUID, p.Type)
			return err
		}
		share, err := r.shareOf(p, generation)
		if err != nil {
			return err
		}
		a, p = share.Release.apply(a, p)
		p.Current, sidecars = slices.Clone(share.Current), share.Release.Sidecars
		return nil
	})
	return a, p, sidecars, err
}

// shareOf finds a generation beside the process's own.
func (r *Registry) shareOf(p Process, generation int) (Share, error) {
	d, active, err := r.ActiveDeployment(p.App)
	if err != nil {
		return Share{}, err
	}
	if active && p.Type == Web {
		for _, s := range d.Others {
			if s.Generation == generation {
				return s, nil
			}
		}
	}
	return Share{}, fmt.Errorf("generation %d of process %s: %w", generation, p.GUID, ErrNotFound)
}
