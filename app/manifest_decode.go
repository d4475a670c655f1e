package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/spelling"
	"github.com/dewrun/dew/yamlfile"
)

const maxSeconds = 24 * 60 * 60

// ParseManifest reads a manifest: YAML with anchors and merges. It replaces ((name)) by
// the variable of that name, which must exist. If vars is nil, not only empty, the
// sender of the manifest has done that and ((name)) is plain text. The returned
// texts are warnings about unknown keys. The error is one or more ManifestErrors.
func ParseManifest(b []byte, vars map[string]any) (Manifest, []string, error) {
	return ParseNamedManifest(b, vars, "")
}

// ParseNamedManifest is ParseManifest with a name for the app of a manifest that has
// only one app, and no name for it.
func ParseNamedManifest(b []byte, vars map[string]any, name string) (Manifest, []string, error) {
	root, err := readYAML(b)
	if err != nil {
		return Manifest{}, nil, err
	}
	if vars != nil {
		if root, err = yamlfile.Interpolate(root, vars); err != nil {
			return Manifest{}, nil, ofManifest(err)
		}
	}
	d := &decoder{explained: map[string]bool{}, sent: vars == nil}
	m := d.manifest(withName(root, name))
	if err := errors.Join(d.errs...); err != nil {
		return Manifest{}, d.warnings, err
	}
	return m, d.warnings, nil
}

// withName returns the manifest with a name for its only app: its own, otherwise the given
// one.
func withName(root *yamlfile.Node, name string) *yamlfile.Node {
	apps := root.Get("applications")
	if name == "" || apps == nil || apps.Kind != yamlfile.List || len(apps.Items) != 1 || apps.Items[0].Kind != yamlfile.Map {
		return root
	}
	one := *apps.Items[0]
	if own := one.Get("name"); own != nil && !own.Null() {
		return root
	}
	one.Fields = slices.DeleteFunc(slices.Clone(one.Fields), func(f yamlfile.Field) bool { return f.Name == "name" })
	one.Fields = append(one.Fields, yamlfile.Field{Name: "name", Line: one.Line, Value: &yamlfile.Node{Line: one.Line, Value: name}})
	list, top := *apps, *root
	list.Items, top.Fields = []*yamlfile.Node{&one}, slices.Clone(root.Fields)
	for i := range top.Fields {
		if top.Fields[i].Name == "applications" {
			top.Fields[i].Value = &list
		}
	}
	return &top
}

// decoder reads a manifest from nodes and collects errors and warnings.
type decoder struct {
	errs     []error
	warnings []string
	app      string         // name of the current app
	lines    map[string]int // lines of the current app
	sent     bool           // the manifest was sent to the daemon
	// explained holds the unknown keys that an error is about. No warning repeats it.
	explained map[string]bool
}

func (d *decoder) fail(key string, line int, format string, args ...any) {
	d.errs = append(d.errs, &ManifestError{App: d.app, Key: key, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) manifest(root *yamlfile.Node) (m Manifest) {
	if root.Kind != yamlfile.Map {
		d.fail("", root.Line, "the manifest must be a map with the key applications, not %s", root.Noun())
		return m
	}
	apps := root.Get("applications")
	if apps == nil || apps.Null() {
		d.required("", root, "applications", "is missing: it must be a list of at least one app, each with a name")
		return m
	}
	for _, f := range root.Fields {
		// Users put values with anchors under other keys.
		if f.Name != "applications" && f.Name != "version" && !f.Value.Anchor {
			d.unknown(f.Name, f.Line, []string{"applications", "version"})
		}
	}
	if apps.Kind != yamlfile.List || len(apps.Items) == 0 {
		d.fail("applications", apps.Line, "must be a list of at least one app, each with a name")
		return m
	}
	names := map[string]int{}
	for i, n := range apps.Items {
		a := d.application(n, i)
		if first, ok := names[a.Name]; ok && a.Name != "" {
			d.fail("name", a.Line("name"), "the app in line %d has the same name: list each app once", first)
		}
		names[a.Name] = a.Line("name")
		m.Applications = append(m.Applications, a)
	}
	d.dependencies(m)
	return m
}

func (d *decoder) application(n *yamlfile.Node, i int) (a ManifestApp) {
	at := fmt.Sprintf("applications[%d]", i)
	d.app, d.lines = "", map[string]int{"": n.Line}
	if n.Kind != yamlfile.Map {
		d.fail(at, n.Line, "must be a map with the key name, not %s", n.Noun())
		return a
	}
	before := len(d.errs)
	if d.required(at+".", n, "name", "is missing: every app must have a name") {
		d.app, _ = n.Get("name").Value.(string)
	}
	d.mapping("", n, slices.Concat(d.appKeys(&a), d.processKeys(&a.ManifestProcess)))
	a.lines = d.lines
	if a.DefaultRoute && a.RandomRoute {
		d.fail("random-route", a.Line("random-route"), "must not be true together with default-route: choose one")
	}
	d.dockerConflicts(&a)
	if len(d.errs) == before {
		d.check(&a)
	}
	return a
}

// appKeys returns the keys of an app.
func (d *decoder) appKeys(a *ManifestApp) []yamlfile.Key {
	out := make([]yamlfile.Key, len(appKeys))
	for i, k := range appKeys {
		out[i] = yamlfile.Key{Name: k.name, Read: func(key string, v *yamlfile.Node) { k.read(d, key, v, a) }}
	}
	return out
}

// processKeys returns the keys of a process in all spellings.
func (d *decoder) processKeys(m *ManifestProcess) []yamlfile.Key {
	var out []yamlfile.Key
	for _, k := range ProcessKeys {
		read := func(key string, v *yamlfile.Node) {
			if k.Given(m) {
				d.fail(key, v.Line, "is given twice, as %s and as %s: choose one", k.Name, k.other)
				return
			}
			d.processValue(k, key, v, m)
			d.lines[strings.TrimSuffix(strings.TrimSuffix(key, k.other), k.Name)+k.Name] = v.Line
		}
		out = append(out, yamlfile.Key{Name: k.Name, Read: read, Null: k.kind == keyCommand})
		if k.other != "" {
			out = append(out, yamlfile.Key{Name: k.other, Read: read})
		}
	}
	return out
}

// rate reads an amount of log per second.
func (d *decoder) rate(key string, v *yamlfile.Node) (int64, bool) {
	text, ok := yamlfile.ScalarText(v.Value)
	if v.Kind != yamlfile.Scalar || !ok {
		d.fail(key, v.Line, "must be a number of bytes per second such as 16K, or -1 for no limit, not %s", v.Noun())
		return 0, false
	}
	n, err := ParseRate(text)
	if err != nil {
		d.fail(key, v.Line, "%v", err)
		return 0, false
	}
	return n, true
}

// lifecycle reads the lifecycle of an app.
func (d *decoder) lifecycle(key string, v *yamlfile.Node, into *string) {
	if d.text(key, v, into) && *into != "buildpack" && *into != LifecycleDocker {
		d.fail(key, v.Line, "must be buildpack or docker, not %q", *into)
	}
}

func (d *decoder) metadata(key string, v *yamlfile.Node) (c MetadataChange) {
	d.mapping(key+".", v, []yamlfile.Key{
		{Name: "labels", Read: func(key string, v *yamlfile.Node) { c.Labels = d.env(key, v) }},
		{Name: "annotations", Read: func(key string, v *yamlfile.Node) { c.Annotations = d.env(key, v) }},
	})
	return c
}

// mapping reads the fields of n by keys.
func (d *decoder) mapping(prefix string, n *yamlfile.Node, keys []yamlfile.Key) {
	if n.Kind != yamlfile.Map {
		d.fail(strings.TrimSuffix(prefix, "."), n.Line, "must be a map, not %s", n.Noun())
		return
	}
	known := yamlfile.Names(keys)
	for _, f := range n.Fields {
		if slices.Contains(known, f.Name) {
			d.lines[prefix+f.Name] = f.Line
		}
	}
	n.ReadFields(prefix, keys, func(path string, line int) { d.unknown(path, line, known) })
}

// required reports whether a map has a required key. The error names the misspelt key
// if there is one, otherwise the missing key.
func (d *decoder) required(prefix string, n *yamlfile.Node, name, missing string) bool {
	if v := n.Get(name); v != nil && !v.Null() {
		return true
	}
	for _, f := range n.Fields {
		if f.Name != name && !f.Value.Null() && spelling.NearestKey(f.Name, []string{name}) != "" {
			d.explained[explainedKey(f)] = true
			d.fail(prefix+f.Name, f.Line, "is not known: did you mean %s?", name)
			return false
		}
	}
	d.fail(prefix+name, n.Line, "%s", missing)
	return false
}

// explainedKey identifies a key of a manifest. The path alone is not enough, because it
// has either the index or the name of a list entry.
func explainedKey(f yamlfile.Field) string { return fmt.Sprintf("%s %d", f.Name, f.Line) }

// unknown warns of an unknown key, and suggests the nearest known one.
func (d *decoder) unknown(key string, line int, known []string) {
	name := key[strings.LastIndex(key, ".")+1:]
	if d.explained[explainedKey(yamlfile.Field{Name: name, Line: line})] {
		return
	}
	message := "is not known and has no effect"
	if near := spelling.NearestKey(name, known); near != "" {
		message += ": did you mean " + near + "?"
	}
	d.warn(key, line, message)
}

func (d *decoder) warn(key string, line int, message string) {
	d.warnings = append(d.warnings, (&ManifestError{App: d.app, Key: key, Line: line, Message: message}).Error())
}

func (d *decoder) processValue(k ProcessKey, key string, v *yamlfile.Node, m *ManifestProcess) {
	switch f := k.inManifest(m).(type) {
	case **string:
		var s string
		if v.Null() || d.text(key, v, &s) {
			*f = &s
		}
		if s == "" && v.Value == "" && k.kind != keyCommand {
			d.fail(key, v.Line, "must not be empty")
		}
		if k.kind == keyCheck && s == "none" { // an old name in Cloud Foundry
			*f = new(CheckProcess)
		}
	case **int:
		n := 0
		if k.kind == keyAmount && d.amount(key, v, &n) || k.kind == keyCount && d.number(key, v, &n, limits{0, maxInstances}) {
			*f = &n
		}
	case **int64:
		if n, ok := d.rate(key, v); ok {
			*f = &n
		}
	case **time.Duration:
		n := 0
		if d.number(key, v, &n, limits{1, maxSeconds}) {
			*f = new(time.Duration(n) * time.Second)
		}
	}
}

func (d *decoder) processes(key string, v *yamlfile.Node) (out []ManifestProcess) {
	seen := map[string]int{}
	for i, n := range d.list(key, v) {
		at, name := d.entry(key, "type", i, n)
		if n.Kind != yamlfile.Map {
			continue
		}
		var m ManifestProcess
		d.mapping(at+".", n, append(d.processKeys(&m), yamlfile.Key{Name: "type", Read: func(k string, v *yamlfile.Node) { d.text(k, v, &m.Type) }}))
		if first, ok := seen[name]; ok && name != "" {
			d.fail(at+".type", n.Line, "the process in line %d has the same type: list each type once", first)
		}
		seen[name] = n.Line
		out = append(out, m)
	}
	return out
}

func (d *decoder) sidecars(key string, v *yamlfile.Node) (out []ManifestSidecar) {
	seen := map[string]int{}
	for i, n := range d.list(key, v) {
		at, name := d.entry(key, "name", i, n)
		if n.Kind == yamlfile.Map {
			out = append(out, d.sidecar(at, n))
		}
		name = strings.ToUpper(name)
		if first, ok := seen[name]; ok && name != "" {
			d.fail(at+".name", n.Line, "the sidecar in line %d has the same name (case is ignored): choose another name", first)
		}
		seen[name] = n.Line
	}
	return out
}

func (d *decoder) sidecar(at string, n *yamlfile.Node) (s ManifestSidecar) {
	for _, k := range []struct{ name, what string }{
		{"command", "a command that starts it"},
		{"process_types", "a list of the process types that it runs with, such as [web]"},
	} {
		d.required(at+".", n, k.name, "is missing: a sidecar must have "+k.what)
	}
	keys := []yamlfile.Key{
		{Name: "name", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &s.Name) }},
		{Name: "command", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &s.Command) }},
		{Name: "process_types", Read: func(key string, v *yamlfile.Node) { s.ProcessTypes = d.texts(key, v) }},
		{Name: "memory", Read: func(key string, v *yamlfile.Node) {
			mb := 0
			if d.amount(key, v, &mb) {
				s.MemoryMB = &mb
			}
		}},
	}
	for _, f := range n.Fields {
		if f.Name == "timeout" || strings.Contains(f.Name, "health-check") || strings.Contains(f.Name, "health_check") {
			d.fail(at+"."+f.Name, f.Line, "is not allowed for a sidecar: dewd does not run health checks for sidecars; the allowed keys are name, process_types, command and memory")
			keys = append(keys, yamlfile.Key{Name: f.Name, Read: func(string, *yamlfile.Node) {}})
		}
	}
	d.mapping(at+".", n, keys)
	return s
}

// entry returns the required name of a list entry, and the entry's path for messages:
// with its name, otherwise with its index.
func (d *decoder) entry(key, nameKey string, i int, n *yamlfile.Node) (at, name string) {
	at = fmt.Sprintf("%s[%d]", key, i)
	if n.Kind != yamlfile.Map {
		d.fail(at, n.Line, "must be a map with the key %s, not %s", nameKey, n.Noun())
		return at, ""
	}
	missing := fmt.Sprintf("is missing: every entry of %s must have a %s", key, nameKey)
	if !d.required(at+".", n, nameKey, missing) {
		return at, ""
	}
	v := n.Get(nameKey)
	if v.Value == "" {
		d.fail(at+"."+nameKey, n.Line, "%s", missing)
		return at, ""
	}
	if s, ok := v.Value.(string); ok {
		at, name = key+"["+s+"]", s
	}
	d.lines[at] = n.Line
	return at, name
}

func (d *decoder) routes(key string, v *yamlfile.Node) (out []ManifestRoute) {
	for i, n := range d.list(key, v) {
		d.entry(key, "route", i, n)
		at := fmt.Sprintf("%s[%d]", key, i) // a route is long and has dots, so messages use its index
		if n.Kind != yamlfile.Map {
			continue
		}
		var r ManifestRoute
		d.mapping(at+".", n, []yamlfile.Key{
			{Name: "route", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &r.Route) }},
			{Name: "protocol", Read: func(key string, v *yamlfile.Node) { d.text(key, v, &r.Protocol) }},
			{Name: "options", Read: func(key string, v *yamlfile.Node) { r.Options = d.options(key, v) }},
		})
		out = append(out, r)
	}
	return out
}

// options reads the options of a route; null stands for a missing one.
func (d *decoder) options(key string, v *yamlfile.Node) map[string]string {
	out := map[string]string{}
	for k, value := range d.env(key, v) {
		if value != nil {
			out[k] = *value
		}
	}
	return out
}

// check checks the app against the rules that do not depend on stored values.
func (d *decoder) check(a *ManifestApp) {
	var processes []Process
	errs := []error{ValidateApp(a.Applied(App{State: Stopped}))}
	for _, w := range a.ProcessSettings() {
		p := processOf(&w.Manifest)
		p.Type = w.Type
		if p.HealthCheck.Endpoint != "" && p.HealthCheck.Type == "" {
			p.HealthCheck.Type = CheckHTTP // the process can have that type already
		}
		if p.Readiness.Endpoint != "" && p.Readiness.Type == "" {
			p.Readiness.Type = CheckHTTP
		}
		errs = append(errs, ValidateProcess(p.WithDefaults()))
		if w.Manifest.MemoryMB != nil {
			processes = append(processes, p)
		}
	}
	var sidecars []Sidecar
	for i := range a.Sidecars {
		s := a.Sidecars[i].Applied(Sidecar{})
		errs = append(errs, ValidateSidecar(s), ValidateSidecarMemory(s, sidecars, processes))
		sidecars = append(sidecars, s)
	}
	for i, r := range a.Routes {
		errs = append(errs, checkManifestRoute(i, r))
	}
	for _, inv := range Problems(errors.Join(errs...)) {
		d.errs = append(d.errs, a.at(inv))
	}
}
