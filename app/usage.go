package app

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// How long usage events are kept: whichever bound is met first.
const (
	usageAge   = 31 * 24 * time.Hour
	usageMost  = 20_000
	usageDrops = 100 // at most so many go with each that comes
)

// The states of usage events.
const (
	UsageStarted        = "STARTED"
	UsageStopped        = "STOPPED"
	UsageBuildpackSet   = "BUILDPACK_SET"
	UsageStagingStarted = "STAGING_STARTED"
	UsageStagingStopped = "STAGING_STOPPED"
	UsageTaskStarted    = "TASK_STARTED"
	UsageTaskStopped    = "TASK_STOPPED"
	UsageCreated        = "CREATED" // of services, as the next two
	UsageUpdated        = "UPDATED"
	UsageDeleted        = "DELETED"
)

// Usage is one change in what an app, or a service instance, takes, for those who
// count it.
type Usage struct {
	Number   int64  `json:"number"` // from 1 on; in the order of time
	GUID     string `json:"guid"`
	State    string `json:"state"`
	Previous string `json:"previous,omitempty"`

	Space Named  `json:"space"`
	Org   string `json:"org"` // guid

	App       Named  `json:"app,omitzero"`
	Process   string `json:"process,omitempty"` // guid
	Type      string `json:"type,omitempty"`    // of the process
	Task      Named  `json:"task,omitzero"`
	Buildpack string `json:"buildpack,omitempty"`
	Memory    Change `json:"memory,omitzero"` // MB of one instance
	Instances Change `json:"instances,omitzero"`

	Service *ServiceUsage `json:"service,omitempty"` // nil: it is about an app

	CreatedAt time.Time `json:"created_at"`
}

// Named is something that may be gone when somebody reads of it.
type Named struct {
	GUID string `json:"guid,omitempty"`
	Name string `json:"name,omitempty"`
}

// Change is a number before and after.
type Change struct {
	Now    int `json:"now"`
	Before int `json:"before"`
}

// ServiceUsage is the service instance that a usage event is about.
type ServiceUsage struct {
	Instance Named  `json:"instance"`
	Type     string `json:"type"` // "managed_service_instance"
	Plan     Named  `json:"plan,omitzero"`
	Offering Named  `json:"offering,omitzero"`
	Broker   Named  `json:"broker,omitzero"`
}

// RecordUsage keeps an event about something in a space, with guid and time. It
// belongs into the transaction of what it tells of.
func (r *Registry) RecordUsage(u Usage, space string) error {
	return r.update(func(r *Registry) error {
		s, err := r.Space(space)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		u.Space, u.Org = Named{GUID: space, Name: s.Name}, s.Org
		u.GUID, u.CreatedAt = uuid.NewString(), now()
		return r.keepUsage(u)
	})
}

// keepUsage adds an event and drops some of the oldest beyond the bounds.
func (r *Registry) keepUsage(u Usage) error {
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
func (r *Registry) AppUsage() ([]Usage, error) {
	return r.usageOf(func(u Usage) bool { return u.Service == nil })
}

// ServicesUsage returns the usage events of services, oldest first.
func (r *Registry) ServicesUsage() ([]Usage, error) {
	return r.usageOf(func(u Usage) bool { return u.Service != nil })
}

func (r *Registry) usageOf(among func(u Usage) bool) ([]Usage, error) {
	all, err := r.records.usage.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list usage events: %w", err)
	}
	return slices.DeleteFunc(all, func(u Usage) bool { return !among(u) }), nil
}

// PurgeAppUsage forgets all events of apps, and begins anew with one for each
// process that is started.
func (r *Registry) PurgeAppUsage() error {
	return r.update(func(r *Registry) error {
		if err := r.dropUsage(func(u Usage) bool { return u.Service == nil }); err != nil {
			return err
		}
		apps, err := r.Apps()
		if err != nil {
			return err
		}
		for _, a := range apps {
			if a.State != Started {
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
func (r *Registry) PurgeServicesUsage(anew []Usage) error {
	return r.update(func(r *Registry) error {
		if err := r.dropUsage(func(u Usage) bool { return u.Service != nil }); err != nil {
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

func (r *Registry) dropUsage(among func(u Usage) bool) error {
	some, err := r.usageOf(among)
	for _, u := range some {
		err = errors.Join(err, r.records.usage.Delete(usageKey(u.Number)))
	}
	return err
}

// noteProcess keeps that a process takes more or less than before.
func (r *Registry) noteProcess(wasApp, a App, was, p Process) error {
	return r.RecordUsage(Usage{
		State: string(a.State), Previous: string(wasApp.State), App: Named{a.GUID, a.Name}, Process: p.GUID, Type: p.Type,
		Memory: Change{p.MemoryMB, was.MemoryMB}, Instances: Change{p.Instances, was.Instances},
	}, a.Space)
}

// noteStates keeps that an app was started or stopped, for each of its processes.
func (r *Registry) noteStates(old, a App) error {
	if old.State == a.State {
		return nil
	}
	ps, err := r.Processes(a.GUID)
	for _, p := range ps {
		err = errors.Join(err, r.noteProcess(old, a, p, p))
	}
	return err
}

func (a App) stopped() App {
	a.State = Stopped
	return a
}

// noteScale keeps that a process of a started app has another size.
func (r *Registry) noteScale(a App, old, p Process) error {
	if a.State != Started || old.Instances == p.Instances && old.MemoryMB == p.MemoryMB {
		return nil
	}
	return r.noteProcess(a, a, old, p)
}

// noteTask keeps that a task begins to run, or does so no more.
func (r *Registry) noteTask(old, t Task) error {
	state := ""
	switch {
	case old.State == TaskPending && t.State == TaskRunning:
		state = UsageTaskStarted
	case old.State.runs() && !t.State.runs():
		state = UsageTaskStopped
	default:
		return nil
	}
	a, err := r.App(t.App)
	if err != nil {
		return err
	}
	return r.RecordUsage(Usage{
		State: state, Previous: string(old.State), App: Named{a.GUID, a.Name}, Task: Named{t.GUID, t.Name},
		Memory: Change{t.MemoryMB, t.MemoryMB}, Instances: Change{1, 1},
	}, a.Space)
}

// runs tells whether a task may have a container. One that is canceled before it
// ran counts as one that did not fail in running: nobody knows better.
func (s TaskState) runs() bool { return s == TaskRunning || s == TaskCanceling }
