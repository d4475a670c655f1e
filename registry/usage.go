package registry

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// How long usage events are kept: whichever bound is met first.
const (
	usageAge   = 31 * 24 * time.Hour
	usageMost  = 20_000
	usageDrops = 100 // at most so many go with each that comes
)

// RecordUsage keeps an event about something in a space, with guid and time. It
// belongs into the transaction of what it tells of.
func (r *Registry) RecordUsage(u app.Usage, space string) error {
	return r.update(func(r *Registry) error {
		s, err := r.Space(space)
		if err != nil && !errors.Is(err, app.ErrNotFound) {
			return err
		}
		u.Space, u.Org = app.Named{GUID: space, Name: s.Name}, s.Org
		u.GUID, u.CreatedAt = uuid.NewString(), app.Now()
		return r.keepUsage(u)
	})
}

// keepUsage adds an event and drops some of the oldest beyond the bounds.
func (r *Registry) keepUsage(u app.Usage) error {
	last, err := r.records.usage.Last("")
	if err == nil {
		u.Number = last.Number
	}
	u.Number++
	if err := r.records.usage.Put(usageKey(u.Number), u); err != nil {
		return fmt.Errorf("cannot keep usage event: %w", err)
	}
	first, err := r.records.usage.Range("", usageDrops)
	if err != nil {
		return fmt.Errorf("cannot read usage events: %w", err)
	}
	for _, old := range first {
		if u.Number-old.Number < usageMost && time.Since(old.CreatedAt) < usageAge {
			break
		}
		if err := r.records.usage.Delete(usageKey(old.Number)); err != nil {
			return fmt.Errorf("cannot drop usage event: %w", err)
		}
	}
	return nil
}

func usageKey(n int64) string { return fmt.Sprintf("%020d", n) }

// AppUsage returns the usage events of apps, oldest first.
func (r *Registry) AppUsage() ([]app.Usage, error) {
	return r.usageOf(func(u app.Usage) bool { return u.Service == nil })
}

// ServicesUsage returns the usage events of services, oldest first.
func (r *Registry) ServicesUsage() ([]app.Usage, error) {
	return r.usageOf(func(u app.Usage) bool { return u.Service != nil })
}

func (r *Registry) usageOf(among func(u app.Usage) bool) ([]app.Usage, error) {
	all, err := r.records.usage.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list usage events: %w", err)
	}
	return slices.DeleteFunc(all, func(u app.Usage) bool { return !among(u) }), nil
}

// PurgeAppUsage forgets all events of apps, and begins anew with one for each
// process that is started.
func (r *Registry) PurgeAppUsage() error {
	return r.update(func(r *Registry) error {
		if err := r.dropUsage(func(u app.Usage) bool { return u.Service == nil }); err != nil {
			return err
		}
		apps, err := r.Apps()
		if err != nil {
			return err
		}
		for _, a := range apps {
			if a.State != app.Started {
				continue
			}
			ps, err := r.Processes(a.GUID)
			if err != nil {
				return err
			}
			for _, p := range ps {
				if err := r.noteProcess(a, a, p, p); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// PurgeServicesUsage forgets all events of services and begins anew with those.
func (r *Registry) PurgeServicesUsage(anew []app.Usage) error {
	return r.update(func(r *Registry) error {
		if err := r.dropUsage(func(u app.Usage) bool { return u.Service != nil }); err != nil {
			return err
		}
		for _, u := range anew {
			if err := r.RecordUsage(u, u.Space.GUID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Registry) dropUsage(among func(u app.Usage) bool) error {
	some, err := r.usageOf(among)
	for _, u := range some {
		err = errors.Join(err, r.records.usage.Delete(usageKey(u.Number)))
	}
	return err
}

// noteProcess keeps that a process takes more or less than before.
func (r *Registry) noteProcess(wasApp, a app.App, was, p app.Process) error {
	return r.RecordUsage(app.Usage{
		State: string(a.State), Previous: string(wasApp.State), App: app.Named{GUID: a.GUID, Name: a.Name}, Process: p.GUID, Type: p.Type,
		Memory: app.Change{Now: p.MemoryMB, Before: was.MemoryMB}, Instances: app.Change{Now: p.Instances, Before: was.Instances},
	}, a.Space)
}

// noteStates keeps that an app was started or stopped, for each of its processes.
func (r *Registry) noteStates(old, a app.App) error {
	if old.State == a.State {
		return nil
	}
	ps, err := r.Processes(a.GUID)
	for _, p := range ps {
		err = errors.Join(err, r.noteProcess(old, a, p, p))
	}
	return err
}

// noteScale keeps that a process of a started app has another size.
func (r *Registry) noteScale(a app.App, old, p app.Process) error {
	if a.State != app.Started || old.Instances == p.Instances && old.MemoryMB == p.MemoryMB {
		return nil
	}
	return r.noteProcess(a, a, old, p)
}

// noteTask keeps that a task begins to run, or does so no more.
func (r *Registry) noteTask(old, t app.Task) error {
	state := ""
	switch {
	case old.State == app.TaskPending && t.State == app.TaskRunning:
		state = app.UsageTaskStarted
	case old.State.HasContainer() && !t.State.HasContainer():
		state = app.UsageTaskStopped
	default:
		return nil
	}
	a, err := r.App(t.App)
	if err != nil {
		return err
	}
	return r.RecordUsage(app.Usage{
		State: state, Previous: string(old.State), App: app.Named{GUID: a.GUID, Name: a.Name}, Task: app.Named{GUID: t.GUID, Name: t.Name},
		Memory: app.Change{Now: t.MemoryMB, Before: t.MemoryMB}, Instances: app.Change{Now: 1, Before: 1},
	}, a.Space)
}
