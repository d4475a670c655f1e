package registry

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/dewrun/dew/app"
)

// ApplyManifest makes the apps of a space as m says, in one transaction, and
// returns them. It adds and changes, and removes nothing that m does not mention.
// Apps that are not there are made, stopped. When anything is wrong nothing is
// applied, and the error is one or more ManifestErrors.
func (r *Registry) ApplyManifest(space string, m app.Manifest) (apps []app.App, err error) {
	err = r.update(func(r *Registry) error {
		var wrong []error
		for i := range m.Applications {
			a, err := r.applyApp(space, &m.Applications[i])
			if len(app.ManifestProblems(err)) > 0 {
				wrong = append(wrong, err)
				continue
			}
			if err != nil {
				return err
			}
			apps = append(apps, a)
		}
		return errors.Join(wrong...)
	})
	if err != nil {
		return nil, err
	}
	return apps, nil
}

func (r *Registry) applyApp(space string, m *app.ManifestApp) (app.App, error) {
	old, err := r.wishOf(space, m.Name)
	if err != nil {
		return app.App{}, err
	}
	next, err := app.PlanManifest(old, m)
	if err != nil {
		return app.App{}, err
	}
	a, err := r.applyWish(old, next)
	if err != nil {
		return a, m.Explain(err)
	}
	if m.NoRoute {
		return a, r.unmap(a.GUID)
	}
	routes, err := r.missingRoutes(a, m)
	if err != nil {
		return a, err
	}
	for _, w := range routes {
		if err := r.mapRoute(w, a.GUID); err != nil {
			return a, m.Explain(err)
		}
	}
	return a, nil
}

// wishOf reads an app of a space, or what one that is not there would begin as.
func (r *Registry) wishOf(space, name string) (w app.Desired, err error) {
	if _, err := r.Space(space); err != nil {
		return w, err
	}
	w.App, err = r.AppIn(space, name)
	if errors.Is(err, app.ErrNotFound) {
		w.App = app.App{Name: name, Space: space, State: app.Stopped}
		w.Processes = []app.Process{app.Process{Type: app.Web, Instances: 1}.WithDefaults()}
		return w, nil
	}
	if err != nil {
		return w, err
	}
	if w.Processes, err = r.Processes(w.App.GUID); err != nil {
		return w, err
	}
	w.Sidecars, err = r.Sidecars(w.App.GUID)
	return w, err
}

// applyWish writes what differs, and nothing else: who listens hears of changes
// only.
func (r *Registry) applyWish(old, next app.Desired) (a app.App, err error) {
	a = next.App
	if old.IsNew() || !sameApp(old.App, next.App) {
		if a, err = r.putApp(next.App); err != nil {
			return a, err
		}
	}
	for _, p := range next.Processes {
		same := func(o app.Process) bool { return reflect.DeepEqual(o, p) }
		if slices.ContainsFunc(old.Processes, same) && !old.IsNew() {
			continue
		}
		p.App = a.GUID
		if p.Type == app.Web {
			p.GUID = a.GUID
		}
		if _, err := r.keepProcess(p); err != nil {
			return a, err
		}
	}
	for _, s := range next.Sidecars {
		same := func(o app.Sidecar) bool { return reflect.DeepEqual(o, s) }
		if slices.ContainsFunc(old.Sidecars, same) {
			continue
		}
		s.App = a.GUID
		if _, err := r.keepSidecar(s); err != nil {
			return a, err
		}
	}
	return a, nil
}

// sameApp compares what a manifest may change.
func sameApp(old, a app.App) bool {
	return old.Name == a.Name && old.Stack == a.Stack && old.Lifecycle == a.Lifecycle && maps.Equal(old.Env, a.Env) && slices.Equal(old.Buildpacks, a.Buildpacks) &&
		old.Metadata.Equal(a.Metadata)
}
