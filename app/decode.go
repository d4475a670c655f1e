package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const maxSeconds = 24 * 60 * 60

// ParseManifest reads a manifest: YAML with anchors and merges, ((name)) replaced
// by the variable of that name, which must be there. With vars nil, not only empty,
// that was done before, by who sent the manifest, and ((name)) is plain text. The
// texts are warnings about keys that it does not know. The error is one or more
// ManifestErrors.
func ParseManifest(b []byte, vars map[string]any) (Manifest, []string, error) {
	return ParseNamedManifest(b, vars, "")
}

// ParseNamedManifest is ParseManifest with a name for the app of a manifest that has
// only one app, and no name for it.
func ParseNamedManifest(b []byte, vars map[string]any, name string) (Manifest, []string, error) {
	root, err := parseYAML(b)
	if err != nil {
		return Manifest{}, nil, err
	}
	if vars != nil {
		if root, err = interpolate(root, vars); err != nil {
			return Manifest{}, nil, err
		}
	}
	d := &decoder{explained: map[string]bool{}, sent: vars == nil}
	m := d.manifest(named(root, name))
	if err := errors.Join(d.errs...); err != nil {
		return Manifest{}, d.warnings, err
	}
	return m, d.warnings, nil
}

// named is a manifest whose only app has a name: its own, or else the given one.
func named(root *node, name string) *node {
	apps := root.get("applications")
	if name == "" || apps == nil || apps.kind != list || len(apps.items) != 1 || apps.items[0].kind != mapping {
		return root
	}
	one := *apps.items[0]
	if own := one.get("name"); own != nil && !own.null() {
		return root
	}
	one.fields = slices.DeleteFunc(slices.Clone(one.fields), func(f field) bool { return f.name == "name" })
	one.fields = append(one.fields, field{name: "name", line: one.line, value: &node{line: one.line, value: name, size: 1}})
	list, top := *apps, *root
	list.items, top.fields = []*node{&one}, slices.Clone(root.fields)
	for i := range top.fields {
		if top.fields[i].name == "applications" {
			top.fields[i].value = &list
		}
	}
	return &top
}

// decoder makes a manifest of nodes and collects what is wrong with them.
type decoder struct {
	errs     []error
	warnings []string
	app      string         // the name of the app at hand
	lines    map[string]int // of the app at hand
	sent     bool           // the manifest was sent to the daemon
	// explained are the unknown keys that an error is about: no warning repeats it.
	explained map[string]bool
}

// manifestKey is a key that a map may have.
type manifestKey struct {
	name string
	read func(key string, v *node)
	null bool // read also when the value is null; else that is as if not given
}

func (d *decoder) fail(key string, line int, format string, args ...any) {
	d.errs = append(d.errs, &ManifestError{App: d.app, Key: key, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) manifest(root *node) (m Manifest) {
	if root.kind != mapping {
		d.fail("", root.line, "it must be a map with the key applications, not %s", root.noun())
		return m
	}
	apps := root.get("applications")
	if apps == nil || apps.null() {
		d.required("", root, "applications", "is missing: it must be a list of at least one app, each with a name")
		return m
	}
	for _, f := range root.fields {
		// Other keys are where people keep what they name by anchors.
		if f.name != "applications" && f.name != "version" && !f.value.anchor {
			d.unknown(f.name, f.line, []string{"applications", "version"})
		}
	}
	if apps.kind != list || len(apps.items) == 0 {
		d.fail("applications", apps.line, "must be a list of at least one app, each with a name")
		return m
	}
	names := map[string]int{}
	for i, n := range apps.items {
		a := d.application(n, i)
		if first, ok := names[a.Name]; ok && a.Name != "" {
			d.fail("name", a.Line("name"), "is the name of the app in line %d too: every app is listed once", first)
		}
		names[a.Name] = a.Line("name")
		m.Applications = append(m.Applications, a)
	}
	d.dependencies(m)
	return m
}

func (d *decoder) application(n *node, i int) (a ManifestApp) {
	at := fmt.Sprintf("applications[%d]", i)
	d.app, d.lines = "", map[string]int{"": n.line}
	if n.kind != mapping {
		d.fail(at, n.line, "must be a map with the key name, not %s", n.noun())
		return a
	}
	before := len(d.errs)
	if d.required(at+".", n, "name", "is missing: every app must have a name") {
		d.app, _ = n.get("name").value.(string)
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

func (d *decoder) appKeys(a *ManifestApp) []manifestKey {
	return []manifestKey{
		{name: "name", read: func(key string, v *node) { d.text(key, v, &a.Name) }},
		{name: "path", read: func(key string, v *node) { d.text(key, v, &a.Path) }},
		{name: "stack", read: func(key string, v *node) {
			var s string
			if d.text(key, v, &s) {
				a.Stack = &s
			}
		}},
		{name: "buildpacks", read: func(key string, v *node) { a.Buildpacks = d.texts(key, v) }},
		{name: "env", read: func(key string, v *node) { a.Env = d.env(key, v) }},
		{name: "processes", read: func(key string, v *node) { a.Processes = d.processes(key, v) }},
		{name: "sidecars", read: func(key string, v *node) { a.Sidecars = d.sidecars(key, v) }},
		{name: "routes", read: func(key string, v *node) { a.Routes = d.routes(key, v) }},
		{name: "services", read: func(key string, v *node) { a.Services = d.services(key, v) }},
		{name: keyDependsOn, read: func(key string, v *node) { a.DependsOn = d.dependsOn(key, v) }},
		{name: "metadata", read: func(key string, v *node) { a.Metadata = d.metadata(key, v) }},
		{name: "lifecycle", read: func(key string, v *node) { d.lifecycle(key, v, &a.Lifecycle) }},
		{name: "docker", read: func(key string, v *node) { a.Docker = d.docker(key, v) }},
		{name: "no-route", read: func(key string, v *node) { d.truth(key, v, &a.NoRoute) }},
		{name: "random-route", read: func(key string, v *node) { d.truth(key, v, &a.RandomRoute) }},
		{name: "default-route", read: func(key string, v *node) { d.truth(key, v, &a.DefaultRoute) }},
	}
}

// processKeys are the keys of the table, in all spellings.
func (d *decoder) processKeys(m *ManifestProcess) []manifestKey {
	var out []manifestKey
	for _, k := range ProcessKeys {
		read := func(key string, v *node) {
			if k.Given(m) {
				d.fail(key, v.line, "is given twice, as %s and as %s: choose one", k.Name, k.other)
				return
			}
			d.processValue(k, key, v, m)
			d.lines[strings.TrimSuffix(strings.TrimSuffix(key, k.other), k.Name)+k.Name] = v.line
		}
		out = append(out, manifestKey{name: k.Name, read: read, null: k.kind == keyCommand})
		if k.other != "" {
			out = append(out, manifestKey{name: k.other, read: read})
		}
	}
	return out
}

// rate reads an amount of log per second.
func (d *decoder) rate(key string, v *node) (int64, bool) {
	text, ok := scalarText(v.value)
	if v.kind != scalar || !ok {
		d.fail(key, v.line, "must be an amount such as 16K, or -1 for no limit, not %s", v.noun())
		return 0, false
	}
	n, err := ParseRate(text)
	if err != nil {
		d.fail(key, v.line, "%v", err)
		return 0, false
	}
	return n, true
}

// lifecycle is a word of the platform for how files become something that runs.
func (d *decoder) lifecycle(key string, v *node, into *string) {
	if d.text(key, v, into) && *into != "buildpack" && *into != LifecycleDocker {
		d.fail(key, v.line, "must be buildpack or docker, not %q", *into)
	}
}

func (d *decoder) metadata(key string, v *node) (c MetadataChange) {
	d.mapping(key+".", v, []manifestKey{
		{name: "labels", read: func(key string, v *node) { c.Labels = d.env(key, v) }},
		{name: "annotations", read: func(key string, v *node) { c.Annotations = d.env(key, v) }},
	})
	return c
}

// mapping reads the fields of n by keys.
func (d *decoder) mapping(prefix string, n *node, keys []manifestKey) {
	if n.kind != mapping {
		d.fail(strings.TrimSuffix(prefix, "."), n.line, "must be a map, not %s", n.noun())
		return
	}
	known := make([]string, len(keys))
	for i := range keys {
		known[i] = keys[i].name
	}
	for _, f := range n.fields {
		i := slices.Index(known, f.name)
		if i < 0 {
			d.unknown(prefix+f.name, f.line, known)
			continue
		}
		d.lines[prefix+f.name] = f.line
		if !f.value.null() || keys[i].null {
			keys[i].read(prefix+f.name, f.value)
		}
	}
}

// required tells whether a map has a key that it must have. The error says which key
// was meant to be that one, otherwise what is missing.
func (d *decoder) required(prefix string, n *node, name, missing string) bool {
	if v := n.get(name); v != nil && !v.null() {
		return true
	}
	for _, f := range n.fields {
		if f.name != name && !f.value.null() && nearestKey(f.name, []string{name}) != "" {
			d.explained[explainedKey(f)] = true
			d.fail(prefix+f.name, f.line, "is not known: did you mean %s?", name)
			return false
		}
	}
	d.fail(prefix+name, n.line, "%s", missing)
	return false
}

// explainedKey tells the keys of a manifest apart: entries of a list are called by their
// place, or by their name.
func explainedKey(f field) string { return fmt.Sprintf("%s %d", f.name, f.line) }

// unknown warns of a key, and says which one may have been meant.
func (d *decoder) unknown(key string, line int, known []string) {
	name := key[strings.LastIndex(key, ".")+1:]
	if d.explained[explainedKey(field{name: name, line: line})] {
		return
	}
	message := "is not known and has no effect"
	if near := nearestKey(name, known); near != "" {
		message += ": did you mean " + near + "?"
	}
	d.warn(key, line, message)
}

func (d *decoder) warn(key string, line int, message string) {
	d.warnings = append(d.warnings, (&ManifestError{App: d.app, Key: key, Line: line, Message: message}).Error())
}

func (d *decoder) processValue(k ProcessKey, key string, v *node, m *ManifestProcess) {
	switch f := k.field(m).(type) {
	case **string:
		var s string
		if v.null() || d.text(key, v, &s) {
			*f = &s
		}
		if s == "" && v.value == "" && k.kind != keyCommand {
			d.fail(key, v.line, "must not be empty")
		}
		if k.kind == keyCheck && s == "none" { // an old word of the platform
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

func (d *decoder) processes(key string, v *node) (out []ManifestProcess) {
	seen := map[string]int{}
	for i, n := range d.list(key, v) {
		at, name := d.entry(key, "type", i, n)
		if n.kind != mapping {
			continue
		}
		var m ManifestProcess
		d.mapping(at+".", n, append(d.processKeys(&m), manifestKey{name: "type", read: func(k string, v *node) { d.text(k, v, &m.Type) }}))
		if first, ok := seen[name]; ok && name != "" {
			d.fail(at+".type", n.line, "is the type of the process in line %d too: every type is listed once", first)
		}
		seen[name] = n.line
		out = append(out, m)
	}
	return out
}

func (d *decoder) sidecars(key string, v *node) (out []ManifestSidecar) {
	seen := map[string]int{}
	for i, n := range d.list(key, v) {
		at, name := d.entry(key, "name", i, n)
		if n.kind == mapping {
			out = append(out, d.sidecar(at, n))
		}
		name = strings.ToUpper(name)
		if first, ok := seen[name]; ok && name != "" {
			d.fail(at+".name", n.line, "is the name of the sidecar in line %d too (capitals do not count): choose another one", first)
		}
		seen[name] = n.line
	}
	return out
}

func (d *decoder) sidecar(at string, n *node) (s ManifestSidecar) {
	for _, k := range []struct{ name, what string }{
		{"command", "a command that starts it"},
		{"process_types", "a list of the process types that it runs beside, such as [web]"},
	} {
		d.required(at+".", n, k.name, "is missing: a sidecar must have "+k.what)
	}
	keys := []manifestKey{
		{name: "name", read: func(key string, v *node) { d.text(key, v, &s.Name) }},
		{name: "command", read: func(key string, v *node) { d.text(key, v, &s.Command) }},
		{name: "process_types", read: func(key string, v *node) { s.ProcessTypes = d.texts(key, v) }},
		{name: "memory", read: func(key string, v *node) {
			mb := 0
			if d.amount(key, v, &mb) {
				s.MemoryMB = &mb
			}
		}},
	}
	for _, f := range n.fields {
		if f.name == "timeout" || strings.Contains(f.name, "health-check") || strings.Contains(f.name, "health_check") {
			d.fail(at+"."+f.name, f.line, "is not allowed under a sidecar: its process is watched, nothing else; allowed are name, process_types, command and memory")
			keys = append(keys, manifestKey{name: f.name, read: func(string, *node) {}})
		}
	}
	d.mapping(at+".", n, keys)
	return s
}

// entry says how an entry of a list is called in messages: by its name if it has
// one, else by its place. It must have one.
func (d *decoder) entry(key, nameKey string, i int, n *node) (at, name string) {
	at = fmt.Sprintf("%s[%d]", key, i)
	if n.kind != mapping {
		d.fail(at, n.line, "must be a map with the key %s, not %s", nameKey, n.noun())
		return at, ""
	}
	missing := fmt.Sprintf("is missing: every entry of %s must have a %s", key, nameKey)
	if !d.required(at+".", n, nameKey, missing) {
		return at, ""
	}
	v := n.get(nameKey)
	if v.value == "" {
		d.fail(at+"."+nameKey, n.line, "%s", missing)
		return at, ""
	}
	if s, ok := v.value.(string); ok {
		at, name = key+"["+s+"]", s
	}
	d.lines[at] = n.line
	return at, name
}

func (d *decoder) routes(key string, v *node) (out []ManifestRoute) {
	for i, n := range d.list(key, v) {
		d.entry(key, "route", i, n)
		at := fmt.Sprintf("%s[%d]", key, i) // a route is long and has dots: its place is clearer
		if n.kind != mapping {
			continue
		}
		var r ManifestRoute
		d.mapping(at+".", n, []manifestKey{
			{name: "route", read: func(key string, v *node) { d.text(key, v, &r.Route) }},
			{name: "protocol", read: func(key string, v *node) { d.text(key, v, &r.Protocol) }},
			{name: "options", read: func(key string, v *node) { r.Options = d.options(key, v) }},
		})
		out = append(out, r)
	}
	return out
}

// options reads the options of a route; one that is null is not there.
func (d *decoder) options(key string, v *node) map[string]string {
	out := map[string]string{}
	for k, value := range d.env(key, v) {
		if value != nil {
			out[k] = *value
		}
	}
	return out
}

// check holds the app against the rules that need no knowledge of what is there.
func (d *decoder) check(a *ManifestApp) {
	var processes []Process
	errs := []error{ValidateApp(a.Applied(App{State: Stopped}))}
	for _, w := range a.ProcessSettings() {
		p := processOf(&w.Manifest)
		p.Type = w.Type
		if p.HealthCheck.Endpoint != "" && p.HealthCheck.Type == "" {
			p.HealthCheck.Type = CheckHTTP // it may have that type already
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
