package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/yamlfile"
)

// keyDependsOn is the key that names the apps that must run before an app starts.
const keyDependsOn = "depends-on"

// dependsOn reads the names of apps. dew push orders the apps, so the key has no effect
// in a manifest that was sent to the daemon.
func (d *decoder) dependsOn(key string, v *yamlfile.Node) []string {
	if d.sent {
		d.warn(key, d.lines[key], "has no effect here: only dew push starts apps in this order")
		return nil
	}
	if v.Kind != yamlfile.List {
		d.fail(key, v.Line, "must be a list of app names, such as [database, cache], not %s: these apps must be healthy before this app starts", v.Noun())
		return nil
	}
	var out []string
	for i, n := range v.Items {
		var s string
		if d.text(fmt.Sprintf("%s[%d]", key, i), n, &s) {
			d.lines[fmt.Sprintf("%s[%d]", key, len(out))] = n.Line
			out = append(out, s)
		}
	}
	return out
}

// dependencies checks that the names in depends-on are names of other apps.
func (d *decoder) dependencies(m Manifest) {
	before := len(d.errs)
	var names []string
	for i := range m.Applications {
		names = append(names, m.Applications[i].Name)
	}
	for i := range m.Applications {
		a := &m.Applications[i]
		d.app = a.Name
		for j, name := range a.DependsOn {
			key := fmt.Sprintf("%s[%d]", keyDependsOn, j)
			switch {
			case name == a.Name:
				d.fail(key, a.Line(key), "an app cannot depend on itself")
			case slices.Index(a.DependsOn, name) < j:
				d.fail(key, a.Line(key), "%q is listed twice", name)
			case !slices.Contains(names, name):
				d.fail(key, a.Line(key), "this manifest has no app %q; its apps are %s", name, strings.Join(names, ", "))
			}
		}
	}
	if len(d.errs) == before {
		d.cycle(m)
	}
	d.app = ""
}

// cycle refuses apps that depend on each other: none of them could start first.
func (d *decoder) cycle(m Manifest) {
	_, rest := m.split()
	if len(rest) == 0 {
		return
	}
	// Each remaining app depends on another remaining one, so a walk reaches an app
	// twice.
	byName := map[string]*ManifestApp{}
	for i := range rest {
		byName[rest[i].Name] = &rest[i]
	}
	var path []string
	for a := &rest[0]; ; {
		if at := slices.Index(path, a.Name); at >= 0 {
			path = append(path[at:], a.Name)
			d.app = a.Name
			d.fail(keyDependsOn, a.Line(keyDependsOn), "is a cycle: %s. None of these apps can start first", strings.Join(path, " needs "))
			return
		}
		path = append(path, a.Name)
		next := slices.IndexFunc(a.DependsOn, func(name string) bool { return byName[name] != nil })
		a = byName[a.DependsOn[next]]
	}
}

// StartOrder returns the apps, each after the apps of the manifest that it depends on.
// Otherwise it keeps their order.
func (m Manifest) StartOrder() []ManifestApp {
	ordered, rest := m.split()
	return append(ordered, rest...) // a parsed manifest has no rest
}

// split orders the apps that can be ordered. The rest are in a cycle, or depend on an
// app in one.
func (m Manifest) split() (ordered, rest []ManifestApp) {
	rest = slices.Clone(m.Applications)
	waits := map[string]bool{}
	for i := range rest {
		waits[rest[i].Name] = true
	}
	for {
		next := slices.IndexFunc(rest, func(a ManifestApp) bool {
			return !slices.ContainsFunc(a.DependsOn, func(name string) bool { return waits[name] })
		})
		if next < 0 {
			return ordered, rest
		}
		delete(waits, rest[next].Name)
		ordered = append(ordered, rest[next])
		rest = slices.Delete(rest, next, next+1)
	}
}
