package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// PutProcess stores p: it replaces the process with the same guid, or creates one.
// It returns the stored process. Only the Registry sets Version, Generation and
// the fields that belong to them.
func (r *AppStore) PutProcess(p app.Process) (app.Process, error) {
	p = p.Clone()
	err := r.update(func(r *Registry) (err error) {
		p, err = r.putProcess(p)
		return err
	})
	return p, err
}

// UpdateProcess changes a process in one transaction.
func (r *AppStore) UpdateProcess(guid string, fn func(p *app.Process) error) (p app.Process, err error) {
	err = r.update(func(r *Registry) error {
		if p, err = r.Process(guid); err != nil {
			return err
		}
		if err := fn(&p); err != nil {
			return err
		}
		p.GUID = guid
		p, err = r.putProcess(p)
		return err
	})
	return p, err
}

// Process returns the process with guid.
func (r *AppStore) Process(guid string) (app.Process, error) {
	return get(r.processes, "process", guid)
}

// Processes returns the processes of an app by type, web first.
func (r *AppStore) Processes(appGUID string) ([]app.Process, error) {
	ps, err := r.processes.By("app", appGUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes of app %s: %w", appGUID, err)
	}
	slices.SortFunc(ps, func(a, b app.Process) int {
		if (a.Type == app.Web) != (b.Type == app.Web) {
			return cmp.Compare(rank(a.Type), rank(b.Type))
		}
		return cmp.Compare(a.Type, b.Type)
	})
	return ps, nil
}

// AllProcesses returns the processes of all apps, read in one transaction.
func (r *AppStore) AllProcesses() ([]app.Process, error) {
	return sorted(r.processes, "processes", func(a, b app.Process) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(rank(a.Type), rank(b.Type)), cmp.Compare(a.Type, b.Type))
	})
}

func rank(processType string) int {
	if processType == app.Web {
		return 0
	}
	return 1
}

// eachProcess stores the result of fn for every process of an app. Listeners are called
// for all of them, because the app's state is part of their desired state.
func (r *AppStore) eachProcess(appGUID string, fn func(p app.Process) (app.Process, error)) error {
	ps, err := r.Processes(appGUID)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if p, err = fn(p); err != nil {
			return err
		}
		if err := r.processes.Put(p.GUID, p); err != nil {
			return fmt.Errorf("cannot store process %s: %w", p.GUID, err)
		}
	}
	return nil
}

func (r *AppStore) putProcess(p app.Process) (app.Process, error) {
	sidecars, err := r.Sidecars(p.App)
	if err != nil {
		return p, err
	}
	return r.keepProcess(p, func(p app.Process) error { return app.ValidateProcessMemory(p, sidecars) })
}

// keepProcess is putProcess without the rules about sidecars, for callers that change
// both.
func (r *AppStore) keepProcess(p app.Process, rules ...func(p app.Process) error) (app.Process, error) {
	a, err := r.App(p.App)
	if err != nil {
		return p, err
	}
	if p.GUID == "" {
		p.GUID = uuid.NewString()
		if p.Type == app.Web {
			p.GUID = p.App
		}
	}
	old, err := find(r.processes, p.GUID)
	if err != nil {
		return p, err
	}
	p = p.WithDefaults()
	p.UpdatedAt = app.Now()
	p.CreatedAt = p.UpdatedAt
	p = p.KeepIdentity(old)
	if old.GUID != "" {
		p.CreatedAt = old.CreatedAt
	}
	errs := []error{app.ValidateProcess(p), checkIdentity(old, p)}
	for _, rule := range rules {
		errs = append(errs, rule(p))
	}
	if err := errors.Join(errs...); err != nil {
		return p, err
	}
	if old.GUID == "" || processDiffers(old, p) {
		p = p.WithVersion(uuid.NewString())
	}
	err = r.processes.Put(p.GUID, p)
	if errors.Is(err, store.ErrTaken) {
		return p, &app.Invalid{Key: app.KeyOfProcess(p, "type"), Message: "the app already has a process of this type: change that process"}
	}
	if err != nil {
		return p, fmt.Errorf("cannot store process %s: %w", p.GUID, err)
	}
	return p, r.registry().noteScale(a, old, p)
}

// processChanged gives a new version to a process, if there is one of the type.
func (r *AppStore) processChanged(appGUID, processType string) error {
	found, err := r.processes.By("app and type", appGUID+"\x00"+processType)
	if err != nil {
		return fmt.Errorf("cannot look up process %s of app %s: %w", processType, appGUID, err)
	}
	for _, p := range found {
		if err := r.processes.Put(p.GUID, p.WithVersion(uuid.NewString())); err != nil {
			return fmt.Errorf("cannot store process %s: %w", p.GUID, err)
		}
	}
	return nil
}

// checkIdentity checks the fields of a process that never change.
func checkIdentity(old, p app.Process) error {
	var ps app.Violations
	if (p.Type == app.Web) != (p.GUID == p.App) {
		ps.Add(app.KeyOfProcess(p, "guid"), "the %s process must have the guid of its app, and no other process can have it", app.Web)
	}
	if old.GUID == "" {
		return ps.Err()
	}
	if old.App != p.App {
		ps.Add(app.KeyOfProcess(p, "app"), "cannot be changed: a process belongs to one app")
	}
	if old.Type != p.Type {
		ps.Add(app.KeyOfProcess(p, "type"), "cannot be changed from %q: create another process", old.Type)
	}
	return ps.Err()
}

// processDiffers reports whether a container of the process would differ from one
// started before. Health checks and the number of instances do not count, because
// they are not part of a container.
func processDiffers(old, p app.Process) bool {
	return old.Command != p.Command ||
		old.MemoryMB != p.MemoryMB ||
		old.DiskMB != p.DiskMB ||
		!sameRate(old.LogRate, p.LogRate) ||
		!slices.Equal(old.Ports, p.Ports)
}

func sameRate(a, b *int64) bool {
	return a == b || a != nil && b != nil && *a == *b
}
