package app

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// DiffManifest returns what ApplyManifest would change, in the order of m.
func (r *Registry) DiffManifest(space string, m Manifest) ([]Difference, error) {
	d := differ{found: []Difference{}}
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

// differ collects what differs, under the path of one app.
type differ struct {
	base  string
	found []Difference
}

// note compares a value that the manifest gives; nil stands for none.
func (d *differ) note(path string, was, value any) {
	if reflect.DeepEqual(was, value) {
		return
	}
	diff := Difference{Op: "replace", Path: d.base + path, Was: was, Value: value}
	switch {
	case was == nil:
		diff.Op = "add"
	case value == nil:
		diff.Op = "remove"
	}
	d.found = append(d.found, diff)
}

func (d *differ) application(r *Registry, space string, m *ManifestApp) error {
	old, err := r.wishOf(space, m.Name)
	if err != nil {
		return err
	}
	next, err := plan(old, m)
	if err != nil {
		return err
	}
	if old.fresh() {
		d.note("/name", nil, m.Name)
	}
	if m.Stack != nil {
		d.note("/stack", orNil(old.app.Stack), orNil(next.app.Stack))
	}
	if m.Buildpacks != nil {
		d.note("/buildpacks", listOrNil(old.app.Buildpacks), listOrNil(next.app.Buildpacks))
	}
	for _, k := range slices.Sorted(maps.Keys(m.Env)) {
		d.note("/env/"+pointer(k), envValue(old.app.Env, k), envValue(next.app.Env, k))
	}
	for _, k := range slices.Sorted(maps.Keys(m.Metadata.Labels)) {
		d.note("/metadata/labels/"+pointer(k), envValue(old.app.Metadata.Labels, k), envValue(next.app.Metadata.Labels, k))
	}
	for _, k := range slices.Sorted(maps.Keys(m.Metadata.Annotations)) {
		d.note("/metadata/annotations/"+pointer(k), envValue(old.app.Metadata.Annotations, k), envValue(next.app.Metadata.Annotations, k))
	}
	d.processes(old, next, m)
	d.sidecars(old, next, m)
	return d.routes(r, next.app, m)
}

func (d *differ) processes(old, next wish, m *ManifestApp) {
	for _, w := range m.wished() {
		is := func(p Process) bool { return p.Type == w.processType }
		now := next.processes[slices.IndexFunc(next.processes, is)]
		path := ""
		if w.index >= 0 {
			path = fmt.Sprintf("/processes/%d", w.index)
		}
		i := slices.IndexFunc(old.processes, is)
		if i < 0 {
			d.note(path, nil, plainMap(w.m.rendered()))
			continue
		}
		for _, k := range processKeys {
			if !k.given(&w.m) {
				continue
			}
			was := k.value(old.processes[i])
			if old.fresh() {
				was = nil // there is nothing yet that could be replaced
			}
			d.note(path+"/"+m.spelling(w, k), was, k.value(now))
		}
	}
}

// spelling is how the manifest writes a key: who shows a difference looks for the
// path in the text.
func (m *ManifestApp) spelling(w wishedProcess, k wishKey) string {
	prefix := ""
	if w.index >= 0 {
		prefix = processKey(Process{Type: w.processType}, "")
	}
	if k.other != "" && m.lines[prefix+k.other] > 0 {
		return k.other
	}
	return k.name
}

func (d *differ) sidecars(old, next wish, m *ManifestApp) {
	for j, ms := range m.Sidecars {
		path := fmt.Sprintf("/sidecars/%d", j)
		is := func(s Sidecar) bool { return sameName(s.Name, ms.Name) }
		now := next.sidecars[slices.IndexFunc(next.sidecars, is)]
		i := slices.IndexFunc(old.sidecars, is)
		if i < 0 {
			d.note(path, nil, plainMap(ms.rendered()))
			continue
		}
		was := old.sidecars[i]
		d.note(path+"/name", was.Name, now.Name)
		d.note(path+"/process_types", was.ProcessTypes, now.ProcessTypes)
		d.note(path+"/command", was.Command, now.Command)
		d.note(path+"/memory", memoryOrNil(was), memoryOrNil(now))
	}
}

func (d *differ) routes(r *Registry, a App, m *ManifestApp) error {
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

// plainMap is a map that JSON can be made of.
func plainMap(items yaml.MapSlice) map[string]any {
	out := map[string]any{}
	for _, i := range items {
		out[fmt.Sprint(i.Key)] = i.Value
	}
	return out
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func listOrNil(list []string) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

func memoryOrNil(s Sidecar) any {
	if s.MemoryMB == 0 {
		return nil
	}
	return formatMB(s.MemoryMB)
}

func envValue(env map[string]string, k string) any {
	if v, ok := env[k]; ok {
		return v
	}
	return nil
}

// pointer escapes a part of a JSON pointer.
func pointer(s string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(s) }
