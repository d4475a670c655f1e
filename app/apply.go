package app

import (
	"errors"
	"maps"
	"reflect"
	"slices"
)

// wish is everything about one app that a manifest may change, except its routes.
type wish struct {
	app       App
	processes []Process
	sidecars  []Sidecar
}

// fresh tells whether the app is still to be made.
func (w wish) fresh() bool { return w.app.GUID == "" }

// ApplyManifest makes the apps of a space as m says, in one transaction, and
// returns them. It adds and changes, and removes nothing that m does not mention.
// Apps that are not there are made, stopped. When anything is wrong nothing is
// applied, and the error is one or more ManifestErrors.
func (r *Registry) ApplyManifest(space string, m Manifest) (apps []App, err error) {
	err = r.update(func(r *Registry) error {
		var wrong []error
		for i := range m.Applications {
			a, err := r.applyApp(space, &m.Applications[i])
			if len(ManifestProblems(err)) > 0 {
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

func (r *Registry) applyApp(space string, m *ManifestApp) (App, error) {
	old, err := r.wishOf(space, m.Name)
	if err != nil {
		return App{}, err
	}
	next, err := plan(old, m)
	if err != nil {
		return App{}, err
	}
	a, err := r.applyWish(old, next)
	if err != nil {
		return a, m.explain(err)
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
			return a, m.explain(err)
		}
	}
	return a, nil
}

// wishOf reads an app of a space, or what one that is not there would begin as.
func (r *Registry) wishOf(space, name string) (w wish, err error) {
	if _, err := r.Space(space); err != nil {
		return w, err
	}
	w.app, err = r.AppIn(space, name)
	if errors.Is(err, ErrNotFound) {
		w.app = App{Name: name, Space: space, State: Stopped}
		w.processes = []Process{Process{Type: Web, Instances: 1}.withDefaults()}
		return w, nil
	}
	if err != nil {
		return w, err
	}
	if w.processes, err = r.Processes(w.app.GUID); err != nil {
		return w, err
	}
	w.sidecars, err = r.Sidecars(w.app.GUID)
	return w, err
}

// plan is what a manifest makes of a wish. Planning again on what it returned
// gives the same.
func plan(old wish, m *ManifestApp) (wish, error) {
	next := wish{app: m.applied(old.app), processes: slices.Clone(old.processes), sidecars: slices.Clone(old.sidecars)}
	for _, w := range m.wished() {
		i := slices.IndexFunc(next.processes, func(p Process) bool { return p.Type == w.processType })
		if i < 0 {
			i = len(next.processes)
			next.processes = append(next.processes, Process{App: old.app.GUID, Type: w.processType})
		}
		next.processes[i] = w.m.applied(next.processes[i])
	}
	for i := range m.Sidecars {
		j := slices.IndexFunc(next.sidecars, func(s Sidecar) bool { return sameName(s.Name, m.Sidecars[i].Name) })
		if j < 0 {
			j = len(next.sidecars)
			next.sidecars = append(next.sidecars, Sidecar{App: old.app.GUID})
		}
		next.sidecars[j] = m.Sidecars[i].applied(next.sidecars[j])
	}
	return next, m.explain(errors.Join(checkLifecycle(old.app, next.app), next.check(m)))
}

// applied is an app as the manifest says.
func (m *ManifestApp) applied(a App) App {
	a = a.clone()
	a.Name = m.Name
	for k, v := range m.Env {
		if v == nil {
			delete(a.Env, k)
			continue
		}
		if a.Env == nil {
			a.Env = map[string]string{}
		}
		a.Env[k] = *v
	}
	if m.Buildpacks != nil {
		a.Buildpacks = slices.Clone(m.Buildpacks)
	}
	if m.Stack != nil {
		a.Stack = *m.Stack
	}
	a.Lifecycle = m.lifecycleOf(a)
	a.Metadata = a.Metadata.Merge(m.Metadata)
	return a
}

// applied is a process as the manifest says.
func (m *ManifestProcess) applied(p Process) Process {
	p = p.clone()
	// A path goes with the type that asks for one.
	if m.HealthCheckType != nil && *m.HealthCheckType != CheckHTTP {
		p.HealthCheck.Endpoint = ""
	}
	if m.ReadinessHealthCheckType != nil && *m.ReadinessHealthCheckType != CheckHTTP {
		p.Readiness.Endpoint = ""
	}
	for _, k := range processKeys {
		k.apply(m, &p)
	}
	return p.withDefaults()
}

// applied is a sidecar as the manifest says. One that a buildpack brought becomes
// the user's: the manifest speaks of it now.
func (m *ManifestSidecar) applied(s Sidecar) Sidecar {
	s = s.clone()
	s.Name, s.Command, s.Origin = m.Name, m.Command, OriginUser
	s.ProcessTypes = slices.Clone(m.ProcessTypes)
	if m.MemoryMB != nil {
		s.MemoryMB = *m.MemoryMB
	}
	return s
}

// check holds a whole wish against the rules.
func (w wish) check(m *ManifestApp) error {
	errs := []error{checkApp(w.app)}
	for _, p := range w.processes {
		errs = append(errs, checkProcess(p))
		if err := checkProcessMemory(p, w.sidecars); err != nil {
			errs = append(errs, w.blame(p, m, err))
		}
	}
	for i, s := range w.sidecars {
		errs = append(errs, checkSidecar(s))
		if slices.ContainsFunc(w.sidecars[:i], func(o Sidecar) bool { return sameName(o.Name, s.Name) }) {
			errs = append(errs, &Invalid{Key: sidecarKey(s, "name"), Message: "another sidecar of the app has this name (capitals do not count): choose another one"})
		}
	}
	return errors.Join(errs...)
}

// blame names the last sidecar of the manifest that takes a process's memory, if
// there is one: that is the line to look at.
func (w wish) blame(p Process, m *ManifestApp, otherwise error) error {
	for _, ms := range slices.Backward(m.Sidecars) {
		if ms.MemoryMB == nil || !slices.Contains(ms.ProcessTypes, p.Type) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(w.sidecars), func(s Sidecar) bool { return sameName(s.Name, ms.Name) })
		return checkSidecarMemory(ms.applied(Sidecar{}), others, []Process{p})
	}
	return otherwise
}

// applyWish writes what differs, and nothing else: who listens hears of changes
// only.
func (r *Registry) applyWish(old, next wish) (a App, err error) {
	a = next.app
	if old.fresh() || !sameApp(old.app, next.app) {
		if a, err = r.putApp(next.app); err != nil {
			return a, err
		}
	}
	for _, p := range next.processes {
		same := func(o Process) bool { return reflect.DeepEqual(o, p) }
		if slices.ContainsFunc(old.processes, same) && !old.fresh() {
			continue
		}
		p.App = a.GUID
		if p.Type == Web {
			p.GUID = a.GUID
		}
		if _, err := r.keepProcess(p); err != nil {
			return a, err
		}
	}
	for _, s := range next.sidecars {
		same := func(o Sidecar) bool { return reflect.DeepEqual(o, s) }
		if slices.ContainsFunc(old.sidecars, same) {
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
func sameApp(old, a App) bool {
	return old.Name == a.Name && old.Stack == a.Stack && old.Lifecycle == a.Lifecycle && maps.Equal(old.Env, a.Env) && slices.Equal(old.Buildpacks, a.Buildpacks) &&
		old.Metadata.equal(a.Metadata)
}

// explain turns what rules say about a wish into words about the manifest. Errors
// of another kind stay as they are.
func (m *ManifestApp) explain(err error) error {
	if err == nil || len(Problems(err)) == 0 {
		return err
	}
	var errs []error
	for _, inv := range Problems(err) {
		errs = append(errs, m.at(inv))
	}
	return errors.Join(errs...)
}
