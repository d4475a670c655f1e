package registry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// AppStore stores apps with their processes and sidecars.
type AppStore struct{ *tables }

// Listen calls fn with the guid of every process whose desired state changed, after
// the commit. This includes changes of its app and its sidecars, and its deletion.
// See store.Bucket.Listen for what fn can do.
func (r *AppStore) Listen(fn func(process string)) { r.processes.Listen(fn) }

// PutApp stores a: it replaces the app with the same guid, or creates one with a web
// process. It returns the stored app, with guid, state and times filled in.
func (r *AppStore) PutApp(a app.App) (app.App, error) {
	a = a.Clone()
	err := r.update(func(r *Registry) (err error) {
		a, err = r.putApp(a)
		return err
	})
	return a, err
}

// UpdateApp changes an app in one transaction.
func (r *AppStore) UpdateApp(guid string, fn func(a *app.App) error) (a app.App, err error) {
	err = r.update(func(r *Registry) error {
		if a, err = r.App(guid); err != nil {
			return err
		}
		if err := fn(&a); err != nil {
			return err
		}
		a.GUID = guid
		a, err = r.putApp(a)
		return err
	})
	return a, err
}

// App returns the app with guid.
func (r *AppStore) App(guid string) (app.App, error) { return get(r.apps, "app", guid) }

// AppByName returns the app with the name, if there is only one in all spaces.
func (r *AppStore) AppByName(name string) (app.App, error) {
	found, err := r.apps.By("name", name)
	if err != nil {
		return app.App{}, fmt.Errorf("cannot look up app %q: %w", name, err)
	}
	switch len(found) {
	case 0:
		return app.App{}, fmt.Errorf("app %q: %w", name, app.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return app.App{}, fmt.Errorf("cannot choose app %q: %d spaces have an app with this name: specify the space", name, len(found))
}

// AppIn returns the app with the name in a space.
func (r *AppStore) AppIn(space, name string) (app.App, error) {
	found, err := r.apps.By("space and name", space+"\x00"+name)
	if err != nil {
		return app.App{}, fmt.Errorf("cannot look up app %q: %w", name, err)
	}
	if len(found) == 0 {
		return app.App{}, fmt.Errorf("app %q: %w", name, app.ErrNotFound)
	}
	return found[0], nil
}

// Apps returns all apps by name.
func (r *AppStore) Apps() ([]app.App, error) { return r.AppsWhere(nil) }

// AppsWhere returns the apps for which keep returns true, by name and space. keep does not
// change an app.
func (r *AppStore) AppsWhere(keep func(app.App) bool) ([]app.App, error) {
	return sortedWhere(r.apps, "apps", func(a, b app.App) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Space, b.Space))
	}, keep)
}

// DeleteApp deletes an app with its processes and sidecars, and its destinations in
// routes.
func (r *AppStore) DeleteApp(guid string) error {
	return r.update(func(r *Registry) error {
		a, err := r.App(guid)
		if err != nil {
			return err
		}
		if err := r.noteStates(a, a.AsStopped()); err != nil {
			return err
		}
		processes, err := r.Processes(guid)
		if err != nil {
			return err
		}
		sidecars, err := r.Sidecars(guid)
		if err != nil {
			return err
		}
		if err := errors.Join(r.unmap(guid), r.deleteTasks(guid), r.forgetDeployments(guid)); err != nil {
			return err
		}
		for _, p := range processes {
			if err := r.processes.Delete(p.GUID); err != nil {
				return fmt.Errorf("cannot delete process %s: %w", p.GUID, err)
			}
		}
		for _, s := range sidecars {
			if err := r.sidecars.Delete(s.GUID); err != nil {
				return fmt.Errorf("cannot delete sidecar %s: %w", s.GUID, err)
			}
		}
		if err := r.apps.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete app %s: %w", guid, err)
		}
		return nil
	})
}

// Restart requests new instances in place of all running ones: every process of the app
// gets a new version that is the only current one. It does not start a stopped app.
func (r *AppStore) Restart(guid string) error {
	return r.update(func(r *Registry) error {
		a, err := r.App(guid)
		if err != nil {
			return err
		}
		if err := r.renewOthers(guid); err != nil {
			return err
		}
		return r.eachProcess(guid, func(p app.Process) (app.Process, error) { return r.restarted(a, p) })
	})
}

func (r *AppStore) putApp(a app.App) (app.App, error) {
	all := r.registry()
	old, err := find(r.apps, a.GUID)
	if err != nil {
		return a, err
	}
	fresh := old.GUID == ""
	if a.GUID == "" {
		a.GUID = uuid.NewString()
	}
	if a.State == "" {
		a.State = cmp.Or(old.State, app.Stopped)
	}
	a.UpdatedAt = app.Now()
	a.CreatedAt = a.UpdatedAt
	if !fresh {
		a.CreatedAt = old.CreatedAt
	}
	if err := app.ValidateApp(a); err != nil {
		return a, err
	}
	err = r.apps.Put(a.GUID, a)
	if errors.Is(err, store.ErrTaken) {
		return a, &app.Invalid{Key: "name", Message: fmt.Sprintf("%q is taken by another app of this space: choose another name", a.Name)}
	}
	if err != nil {
		return a, fmt.Errorf("cannot store app %s: %w", a.GUID, err)
	}
	if fresh {
		_, err := r.putProcess(app.Process{App: a.GUID, Type: app.Web, Instances: 1})
		return a, err
	}
	if starts(old, a) {
		if err := all.renewOthers(a.GUID); err != nil {
			return a, err
		}
	}
	if err := all.noteStates(old, a); err != nil {
		return a, err
	}
	return a, r.eachProcess(a.GUID, func(p app.Process) (app.Process, error) {
		switch {
		case starts(old, a):
			return all.restarted(a, p)
		case appDiffers(old, a):
			return p.WithVersion(uuid.NewString()), nil
		}
		return p, nil
	})
}

// appDiffers reports whether containers of the app would differ from those started
// before. Buildpacks do not count until they produce another droplet. The name counts,
// because every container has it in VCAP_APPLICATION.
func appDiffers(old, a app.App) bool {
	return old.Name != a.Name ||
		old.Space != a.Space ||
		old.Stack != a.Stack ||
		old.Droplet != a.Droplet ||
		!maps.Equal(old.Env, a.Env)
}

// starts reports whether the change starts the app.
func starts(old, a app.App) bool { return old.State == app.Stopped && a.State == app.Started }

// AppsIn returns the apps of a space by name.
func (r *AppStore) AppsIn(space string) ([]app.App, error) {
	return r.AppsWhere(func(a app.App) bool { return a.Space == space })
}
