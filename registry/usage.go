package registry

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// UsageStore stores usage events and counts the resources that orgs and spaces use.
type UsageStore struct{ *tables }

// Limits of stored usage events, by age and by number: whichever is reached first.
const (
	usageAge   = 31 * 24 * time.Hour
	usageMost  = 20_000
	usageDrops = 100 // maximum number of deleted events per new event
)

// RecordUsage stores a usage event in a space, and fills in guid and time. Call it in
// the transaction of the change that the event describes.
func (r *UsageStore) RecordUsage(u app.Usage, space string) error {
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

// keepUsage adds an event and deletes some of the oldest beyond the limits.
func (r *UsageStore) keepUsage(u app.Usage) error {
	last, err := r.usage.Last("")
	if err == nil {
		u.Number = last.Number
	}
	u.Number++
	if err := r.usage.Put(usageKey(u.Number), u); err != nil {
		return fmt.Errorf("cannot store usage event: %w", err)
	}
	for range usageDrops {
		first, err := r.usage.Range("", 1) // mostly there is nothing to delete
		if err != nil {
			return fmt.Errorf("cannot read usage events: %w", err)
		}
		old := first[0] // at least the new one
		if u.Number-old.Number < usageMost && time.Since(old.CreatedAt) < usageAge {
			return nil
		}
		if err := r.usage.Delete(usageKey(old.Number)); err != nil {
			return fmt.Errorf("cannot delete usage event: %w", err)
		}
	}
	return nil
}

func usageKey(n int64) string { return fmt.Sprintf("%020d", n) }

// AppUsage returns the usage events of apps, oldest first.
func (r *UsageStore) AppUsage() ([]app.Usage, error) {
	return r.usageOf(func(u app.Usage) bool { return u.Service == nil })
}

// ServicesUsage returns the usage events of services, oldest first.
func (r *UsageStore) ServicesUsage() ([]app.Usage, error) {
	return r.usageOf(func(u app.Usage) bool { return u.Service != nil })
}

func (r *UsageStore) usageOf(among func(u app.Usage) bool) ([]app.Usage, error) {
	all, err := r.usage.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list usage events: %w", err)
	}
	return slices.DeleteFunc(all, func(u app.Usage) bool { return !among(u) }), nil
}

// PurgeAppUsage deletes all usage events of apps, and adds one for each started
// process.
func (r *UsageStore) PurgeAppUsage() error {
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

// PurgeServicesUsage replaces all usage events of services by the given ones.
func (r *UsageStore) PurgeServicesUsage(present []app.Usage) error {
	return r.update(func(r *Registry) error {
		if err := r.dropUsage(func(u app.Usage) bool { return u.Service != nil }); err != nil {
			return err
		}
		for _, u := range present {
			if err := r.RecordUsage(u, u.Space.GUID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *UsageStore) dropUsage(among func(u app.Usage) bool) error {
	some, err := r.usageOf(among)
	for _, u := range some {
		err = errors.Join(err, r.usage.Delete(usageKey(u.Number)))
	}
	return err
}

// noteProcess records a change in the resources of a process.
func (r *UsageStore) noteProcess(wasApp, a app.App, was, p app.Process) error {
	return r.RecordUsage(app.Usage{
		State: string(a.State), Previous: string(wasApp.State), App: app.Named{GUID: a.GUID, Name: a.Name}, Process: p.GUID, Type: p.Type,
		Memory: app.Change{Now: p.MemoryMB, Before: was.MemoryMB}, Instances: app.Change{Now: p.Instances, Before: was.Instances},
	}, a.Space)
}

// noteStates records for each process of an app that the app was started or stopped.
func (r *UsageStore) noteStates(old, a app.App) error {
	if old.State == a.State {
		return nil
	}
	ps, err := r.registry().Processes(a.GUID)
	for _, p := range ps {
		err = errors.Join(err, r.noteProcess(old, a, p, p))
	}
	return err
}

// noteScale records that a process of a started app was scaled.
func (r *UsageStore) noteScale(a app.App, old, p app.Process) error {
	if a.State != app.Started || old.Instances == p.Instances && old.MemoryMB == p.MemoryMB {
		return nil
	}
	return r.noteProcess(a, a, old, p)
}

// noteTask records that a task starts or stops running.
func (r *UsageStore) noteTask(old, t app.Task) error {
	state := ""
	switch {
	case old.State == app.TaskPending && t.State == app.TaskRunning:
		state = app.UsageTaskStarted
	case old.State.HasContainer() && !t.State.HasContainer():
		state = app.UsageTaskStopped
	default:
		return nil
	}
	a, err := r.registry().App(t.App)
	if err != nil {
		return err
	}
	return r.RecordUsage(app.Usage{
		State: state, Previous: string(old.State), App: app.Named{GUID: a.GUID, Name: a.Name}, Task: app.Named{GUID: t.GUID, Name: t.Name},
		Memory: app.Change{Now: t.MemoryMB, Before: t.MemoryMB}, Instances: app.Change{Now: 1, Before: 1},
	}, a.Space)
}

// UsedBySpace returns the resources that a space uses.
func (r *UsageStore) UsedBySpace(guid string) (u app.Used, err error) {
	err = r.view(func(r *Registry) error {
		u, err = r.used(map[string]bool{guid: true})
		return err
	})
	return u, err
}

// UsedByOrg returns the resources that all spaces of an org use.
func (r *UsageStore) UsedByOrg(guid string) (u app.Used, err error) {
	err = r.view(func(r *Registry) error {
		spaces, err := r.SpacesOf(guid)
		if err != nil {
			return err
		}
		u, err = r.usedWithDomains(spaces, func(d app.Domain) bool { return d.Org == guid })
		return err
	})
	return u, err
}

// UsedByAll returns the resources that all orgs use.
func (r *UsageStore) UsedByAll() (u app.Used, err error) {
	err = r.view(func(r *Registry) error {
		spaces, err := r.Spaces()
		if err != nil {
			return err
		}
		u, err = r.usedWithDomains(spaces, func(d app.Domain) bool { return d.Org != "" })
		return err
	})
	return u, err
}

// usedWithDomains returns the resources that spaces use, and counts domains.
func (r *UsageStore) usedWithDomains(spaces []app.Space, counts func(d app.Domain) bool) (app.Used, error) {
	inside := map[string]bool{}
	for _, s := range spaces {
		inside[s.GUID] = true
	}
	u, err := r.used(inside)
	if err != nil {
		return u, err
	}
	domains, err := r.registry().Domains()
	for _, d := range domains {
		if counts(d) {
			u.Domains++
		}
	}
	return u, err
}

func (r *UsageStore) used(spaces map[string]bool) (u app.Used, err error) {
	if err := r.usedByApps(&u, spaces); err != nil {
		return u, err
	}
	routes, err := r.registry().Routes()
	for _, rt := range routes {
		if !spaces[rt.Space] {
			continue
		}
		u.Routes++
		if rt.TCP() {
			u.Ports++
		}
	}
	return u, err
}

// usedByApps adds the resources that apps in the spaces use.
func (r *UsageStore) usedByApps(u *app.Used, spaces map[string]bool) error {
	all := r.registry()
	apps, err := all.Apps()
	if err != nil {
		return err
	}
	in := map[string]app.App{}
	for _, a := range apps {
		if spaces[a.Space] {
			in[a.GUID] = a
		}
	}
	ps, err := all.AllProcesses()
	if err != nil {
		return err
	}
	for _, p := range ps {
		if in[p.App].State == app.Started {
			u.Instances += p.Instances
			u.Memory += p.Instances * p.MemoryMB
		}
	}
	ts, err := all.ActiveTasks()
	for _, t := range ts {
		if in[t.App].GUID != "" && t.State != app.TaskCanceling {
			u.Tasks++
			u.Memory += t.MemoryMB
		}
	}
	return err
}
