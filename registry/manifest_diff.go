package registry

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/dewrun/dew/app"
)

// DiffManifest returns the changes that ApplyManifest would make, in the order of m.
func (r *Manifests) DiffManifest(space string, m app.Manifest) ([]app.Difference, error) {
	d := differ{found: []app.Difference{}}
	err := r.view(func(r *Registry) error {
		for i := range m.Applications {
			d.base = fmt.Sprintf("/applications/%d", i)
			if err := d.application(r, space, &m.Applications[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return d.found, err
}

// differ collects the differences under the path of one app.
type differ struct {
	base  string
	found []app.Difference
}

// note records a difference between two values. Nil means no value.
func (d *differ) note(path string, was, value any) {
	if reflect.DeepEqual(was, value) {
		return
	}
	diff := app.Difference{Op: "replace", Path: d.base + path, Was: was, Value: value}
	switch {
	case was == nil:
		diff.Op = "add"
	case value == nil:
		diff.Op = "remove"
	}
	d.found = append(d.found, diff)
}

func (d *differ) application(r *Registry, space string, m *app.ManifestApp) error {
	old, err := r.desiredOf(space, m.Name)
	if err != nil {
		return err
	}
	next, err := app.PlanManifest(old, m)
	if err != nil {
		return err
	}
	m.DiffApp(old.App, next.App, d.note)
	d.processes(old, next, m)
	d.sidecars(old, next, m)
	return d.routes(r, next.App, m)
}

func (d *differ) processes(old, next app.Desired, m *app.ManifestApp) {
	for _, w := range m.ProcessSettings() {
		is := func(p app.Process) bool { return p.Type == w.Type }
		now := next.Processes[slices.IndexFunc(next.Processes, is)]
		path := ""
		if w.Index >= 0 {
			path = fmt.Sprintf("/processes/%d", w.Index)
		}
		i := slices.IndexFunc(old.Processes, is)
		if i < 0 {
			d.note(path, nil, plainMap(w.Manifest.Rendered()))
			continue
		}
		for _, k := range app.ProcessKeys {
			if !k.Given(&w.Manifest) {
				continue
			}
			was := k.Value(old.Processes[i])
			if old.IsNew() {
				was = nil // no existing value can be replaced
			}
			d.note(path+"/"+m.Spelling(w, k), was, k.Value(now))
		}
	}
}

func (d *differ) sidecars(old, next app.Desired, m *app.ManifestApp) {
	for j, ms := range m.Sidecars {
		path := fmt.Sprintf("/sidecars/%d", j)
		is := func(s app.Sidecar) bool { return app.SameName(s.Name, ms.Name) }
		now := next.Sidecars[slices.IndexFunc(next.Sidecars, is)]
		i := slices.IndexFunc(old.Sidecars, is)
		if i < 0 {
			d.note(path, nil, plainMap(ms.Rendered()))
			continue
		}
		was := old.Sidecars[i]
		d.note(path+"/name", was.Name, now.Name)
		d.note(path+"/process_types", was.ProcessTypes, now.ProcessTypes)
		d.note(path+"/command", was.Command, now.Command)
		d.note(path+"/memory", memoryOrNil(was), memoryOrNil(now))
	}
}

func (d *differ) routes(r *Registry, a app.App, m *app.ManifestApp) error {
	if !m.NoRoute {
		missing, err := r.missingRoutes(a, m)
		if err != nil {
			return err
		}
		for _, w := range missing {
			d.note("/"+w.path, nil, w.value)
		}
		return nil
	}
	if a.GUID == "" {
		return nil
	}
	present, err := r.RoutesOf(a.GUID)
	if err != nil || len(present) == 0 {
		return err
	}
	d.note("/no-route", nil, true)
	return nil
}

// plainMap returns a map that can be encoded as JSON.
func plainMap(items yaml.MapSlice) map[string]any {
	out := map[string]any{}
	for _, i := range items {
		out[fmt.Sprint(i.Key)] = i.Value
	}
	return out
}

func memoryOrNil(s app.Sidecar) any {
	if s.MemoryMB == 0 {
		return nil
	}
	return app.FormatMB(s.MemoryMB)
}
