package registry

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// release is the present wish for a process.
func (r *Registry) release(a app.App, p app.Process) (app.Release, error) {
	sidecars, err := r.SidecarsOf(a.GUID, p.Type)
	if err != nil {
		return app.Release{}, err
	}
	rel := app.Release{
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
func (r *Registry) started(a app.App, p app.Process) (app.Release, error) {
	if p.Started != nil {
		return *p.Started, nil
	}
	return r.release(a, p)
}

// startAnew wishes for new instances of p in the place of all that run.
func (r *Registry) startAnew(a app.App, p app.Process) (app.Process, error) {
	p = p.Restarted(uuid.NewString())
	rel, err := r.release(a, p)
	p.Started, p.Held = &rel, false
	return p, err
}

// WishAt is what an instance of a generation is to be, in one reading: the app, the
// process and its sidecars. It is ErrNotFound when the generation is not wished.
func (r *Registry) WishAt(process string, generation int) (a app.App, p app.Process, sidecars []app.Sidecar, err error) {
	err = r.view(func(r *Registry) error {
		if p, err = r.Process(process); err != nil {
			return err
		}
		if a, err = r.App(p.App); err != nil {
			return err
		}
		if generation == p.Generation {
			if p.Held && p.Started != nil {
				a, p = p.Started.Apply(a, p)
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
		a, p = share.Release.Apply(a, p)
		p.Current, sidecars = slices.Clone(share.Current), share.Release.Sidecars
		return nil
	})
	return a, p, sidecars, err
}

// shareOf finds a generation beside the process's own.
func (r *Registry) shareOf(p app.Process, generation int) (app.Share, error) {
	d, active, err := r.ActiveDeployment(p.App)
	if err != nil {
		return app.Share{}, err
	}
	if active && p.Type == app.Web {
		for _, s := range d.Others {
			if s.Generation == generation {
				return s, nil
			}
		}
	}
	return app.Share{}, fmt.Errorf("generation %d of process %s: %w", generation, p.GUID, app.ErrNotFound)
}
