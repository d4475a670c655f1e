package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

// inSpace returns a registry with the defaults of a first start.
func inSpace(t *testing.T) (*Registry, app.Space) {
	t.Helper()
	r := newRegistry(t)
	return r, one[app.Space](t)(r.EnsureDefaults("dew.localhost"))
}

func apply(t *testing.T, r *Registry, s app.Space, text string) []app.App {
	t.Helper()
	return one[[]app.App](t)(r.ApplyManifest(s.GUID, parse(t, text)))
}

// dumpRegistry returns the whole content of the registry as one text.
func dumpRegistry(t *testing.T, r *Registry) string {
	t.Helper()
	var out strings.Builder
	enc := json.NewEncoder(&out)
	must(t, enc.Encode(one[[]app.Route](t)(r.Routes())))
	for _, a := range one[[]app.App](t)(r.Apps()) {
		must(t, enc.Encode(a))
		must(t, enc.Encode(one[[]app.Process](t)(r.Processes(a.GUID))))
		must(t, enc.Encode(one[[]app.Sidecar](t)(r.Sidecars(a.GUID))))
	}
	return out.String()
}

// summary returns an app as text, without the values that differ from run to run.
func summary(t *testing.T, r *Registry, a app.App) string {
	t.Helper()
	var out []string
	line := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	line("%s %s stack=%s buildpacks=%v env=%v", a.Name, a.State, a.Stack, a.Buildpacks, a.Env)
	for _, p := range one[[]app.Process](t)(r.Processes(a.GUID)) {
		line("%s %q x%d %dM %dM %v %v", p.Type, p.Command, p.Instances, p.MemoryMB, p.DiskMB, p.HealthCheck, p.Readiness)
	}
	for _, s := range one[[]app.Sidecar](t)(r.Sidecars(a.GUID)) {
		line("%s %q %v %dM %s", s.Name, s.Command, s.ProcessTypes, s.MemoryMB, s.Origin)
	}
	for _, u := range urls(t, r, a) {
		line("%s", u)
	}
	return strings.Join(out, "\n")
}

func urls(t *testing.T, r *Registry, a app.App) []string {
	t.Helper()
	out := []string{}
	for _, rt := range one[[]app.Route](t)(r.RoutesOf(a.GUID)) {
		out = append(out, rt.URL(one[app.Domain](t)(r.Domain(rt.Domain)).Name))
	}
	return out
}

func TestApplyManifest(t *testing.T) {
	r, s := inSpace(t)
	apps := apply(t, r, s, `
applications:
- name: shop
  path: /ignored
  stack: host
  buildpacks: [go_buildpack]
  memory: 256M
  disk-quota: 300M
  instances: 2
  command: ./shop
  timeout: 90
  health-check-type: http
  health-check-http-endpoint: /health
  health-check-invocation-timeout: 5
  readiness-health-check-type: port
  env: {A: "1", B: 2}
  processes:
  - {type: web, instances: 3}
  - {type: worker, command: ./work, memory: 64M}
  sidecars:
  - {name: config server, command: ./config, process_types: [web], memory: 64M}
  - {name: agent, command: ./agent, process_types: [web, worker]}
  routes:
  - route: Shop.dew.localhost
  - route: www.dew.localhost/shop
- name: plain
`)
	want := []string{`shop STOPPED stack=host buildpacks=[go_buildpack] env=map[A:1 B:2]
web "./shop" x3 256M 300M {http /health 0 1m30s 5s 0s} {port  0 0s 0s 0s}
worker "./work" x0 64M 1024M {process  0 0s 0s 0s} {  0 0s 0s 0s}
agent "./agent" [web worker] 0M user
config server "./config" [web] 64M user
shop.dew.localhost
www.dew.localhost/shop`, `plain STOPPED stack= buildpacks=[] env=map[]
web "" x1 1024M 1024M {port  0 0s 0s 0s} {  0 0s 0s 0s}`}
	for i, a := range apps {
		if diff := cmp.Diff(summary(t, r, a), want[i]); diff != "" {
			t.Errorf("app (-got +want):\n%s", diff)
		}
		if p := one[app.Process](t)(r.Process(a.GUID)); p.Type != app.Web || p.Version == "" {
			t.Errorf("process with the app's guid = %+v, want web", p)
		}
	}

	// Keys that are not given keep their present value. Lists add and change entries.
	apps = apply(t, r, s, `
applications:
- name: shop
  command: null
  buildpacks: []
  health-check-type: port
  env: {B: "3", C: "4", A: null}
  processes:
  - {type: clock, instances: 1}
  sidecars:
  - {name: Agent, command: ./agent2, process_types: [web], memory: 32M}
  - {name: config server, command: ./config, process_types: [web]}
  routes:
  - route: dew.localhost
`)
	if diff := cmp.Diff(summary(t, r, apps[0]), `shop STOPPED stack=host buildpacks=[] env=map[B:3 C:4]
web "" x3 256M 300M {port  0 1m30s 5s 0s} {port  0 0s 0s 0s}
clock "" x1 1024M 1024M {process  0 0s 0s 0s} {  0 0s 0s 0s}
worker "./work" x0 64M 1024M {process  0 0s 0s 0s} {  0 0s 0s 0s}
Agent "./agent2" [web] 32M user
config server "./config" [web] 64M user
dew.localhost
shop.dew.localhost
www.dew.localhost/shop`); diff != "" {
		t.Errorf("app (-got +want):\n%s", diff)
	}
}

// Applying the same manifest again changes nothing, not even a time, and calls no
// listener. There is no difference then.
func TestApplyManifestTwice(t *testing.T) {
	applied := 0
	for _, text := range goldenTexts(t) {
		m, _, err := app.ParseManifest([]byte(text), goldenVars)
		if err != nil {
			continue
		}
		applied++
		r, s := inSpace(t)
		before := one[[]app.Difference](t)(r.DiffManifest(s.GUID, m))
		first, err := r.ApplyManifest(s.GUID, m)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if len(before) < len(first) {
			t.Errorf("differences of new apps = %v, want some\n%s", before, text)
		}
		state := dumpRegistry(t, r)
		notified := []string{}
		r.Listen(func(p string) { notified = append(notified, p) })
		r.ListenRoutes(func(rt string) { notified = append(notified, rt) })
		second := one[[]app.App](t)(r.ApplyManifest(s.GUID, m))
		if diff := cmp.Diff(dumpRegistry(t, r), state); diff != "" {
			t.Errorf("applied twice (-second +first):\n%s\n%s", diff, text)
		}
		if len(notified) > 0 || !cmp.Equal(first, second) {
			t.Errorf("told %v, want nobody; apps %v and %v\n%s", notified, first, second, text)
		}
		if diffs := one[[]app.Difference](t)(r.DiffManifest(s.GUID, m)); len(diffs) > 0 {
			t.Errorf("differences after applying = %+v, want none\n%s", diffs, text)
		}
	}
	if applied < 5 {
		t.Errorf("applied %d manifests, want some", applied)
	}
}

// An error in the second app leaves the first unchanged, and all errors are reported.
func TestApplyManifestAllOrNothing(t *testing.T) {
	r, s := inSpace(t)
	apply(t, r, s, "applications: [{name: first, memory: 64M, sidecars: [{name: a, command: ./a, process_types: [web], memory: 32M}]}]")
	state := dumpRegistry(t, r)
	for name, tt := range map[string]struct{ text, want string }{
		"default memory": {
			"applications:\n- {name: first, env: {A: b}, memory: 128M, default-route: true}\n- name: second\n  sidecars:\n  - {name: s, command: ./s, process_types: [web], memory: 2G}\n",
			`app "second", line 5: sidecars[s].memory: the sidecars of process web would have 2048M together, but this must be less than the memory of the process, 1024M`,
		},
		"kept sidecar":      {"applications:\n- {name: new}\n- name: first\n  memory: 32M\n", `app "first", line 4: memory: must be more than 32M, the memory of its sidecars together, not 32M`},
		"one more sidecar":  {"applications:\n- {name: new}\n- name: first\n  sidecars:\n  - {name: b, command: ./b, process_types: [web], memory: 32M}\n", `app "first", line 5: sidecars[b].memory: the sidecars of process web would have 64M together, but this must be less than the memory of the process, 64M`},
		"foreign domain":    {"applications:\n- {name: new}\n- name: first\n  routes:\n  - route: shop.example.com\n", `app "first", line 5: routes[0].route: "shop.example.com" does not end with an existing domain; the domains are dew.localhost, apps.internal`},
		"host of two names": {"applications:\n- {name: new}\n- name: first\n  routes:\n  - route: a.b.dew.localhost\n", `app "first", line 5: routes[0].route: must be one name of at most 63 letters, digits, - and _, or *, not "a.b"`},
		"no host name":      {"applications:\n- {name: new}\n- name: my shop\n  default-route: true\n", `app "my shop", line 4: default-route: "my shop" is not a valid host name, which has at most 63 letters, digits, - and _: set routes, or no-route: true`},
		"endpoint":          {"applications:\n- {name: new}\n- name: first\n  health-check-http-endpoint: /x\n", `app "first", line 4: health-check-http-endpoint: is allowed only for the type http`},
		"two wrong":         {"applications:\n- name: first\n  memory: 1M\n- name: other\n  health-check-http-endpoint: /x\n", "app \"first\", line 3: memory: must be more than 32M, the memory of its sidecars together, not 1M\napp \"other\", line 5: health-check-http-endpoint: is allowed only for the type http"},
	} {
		t.Run(name, func(t *testing.T) {
			m := parse(t, tt.text)
			apps, err := r.ApplyManifest(s.GUID, m)
			if err == nil || apps != nil || err.Error() != tt.want {
				t.Errorf("apps = %v, error\n%v, want\n%s", apps, err, tt.want)
			}
			if len(app.ManifestProblems(err)) == 0 {
				t.Errorf("error = %#v, want ManifestErrors", err)
			}
			if _, err := r.DiffManifest(s.GUID, m); len(app.ManifestProblems(err)) == 0 {
				t.Errorf("error of the difference = %v, want what is wrong", err)
			}
			if diff := cmp.Diff(dumpRegistry(t, r), state); diff != "" {
				t.Errorf("state (-got +want):\n%s", diff)
			}
		})
	}
	if _, err := r.ApplyManifest("no such space", app.Manifest{Applications: []app.ManifestApp{{Name: "a"}}}); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("error = %v, want ErrNotFound", err)
	}
}

// The memory of a process and of its sidecars can change together, in any order.
func TestApplyManifestMemoryTogether(t *testing.T) {
	r, s := inSpace(t)
	const text = "applications: [{name: shop, memory: %dM, sidecars: [{name: a, command: ./a, process_types: [web], memory: %dM}]}]"
	for _, mb := range [][2]int{{256, 128}, {64, 32}, {1024, 512}} {
		a := apply(t, r, s, fmt.Sprintf(text, mb[0], mb[1]))[0]
		p := one[app.Process](t)(r.Process(a.GUID))
		if got := one[[]app.Sidecar](t)(r.Sidecars(a.GUID))[0]; p.MemoryMB != mb[0] || got.MemoryMB != mb[1] {
			t.Errorf("memory = %d with %d, want %v", p.MemoryMB, got.MemoryMB, mb)
		}
	}
}

// Only processes whose containers would differ get a new version.
func TestApplyManifestVersions(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"nothing":   {"applications: [{name: shop}]", nil},
		"instances": {"applications: [{name: shop, instances: 5}]", nil},
		"check":     {"applications: [{name: shop, health-check-type: process}]", nil},
		"route":     {"applications: [{name: shop, default-route: true}]", nil},
		"memory":    {"applications: [{name: shop, memory: 512M}]", []string{"web"}},
		"env":       {"applications: [{name: shop, env: {A: 5}}]", []string{"web", "worker"}},
		"sidecar":   {"applications: [{name: shop, sidecars: [{name: agent, command: ./a, process_types: [worker]}]}]", []string{"worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := inSpace(t)
			a := apply(t, r, s, "applications: [{name: shop, processes: [{type: worker}]}]")[0]
			before := versions(t, r, a)
			apply(t, r, s, tt.text)
			var changed []string
			for processType, v := range versions(t, r, a) {
				if before[processType] != v {
					changed = append(changed, processType)
				}
			}
			slices.Sort(changed)
			if diff := cmp.Diff(changed, tt.want); diff != "" {
				t.Errorf("new versions (-got +want):\n%s", diff)
			}
		})
	}
}

// A sidecar from a buildpack becomes the user's once the manifest mentions it.
func TestApplyManifestTakesSidecar(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	old := one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: a.GUID, Name: "agent", Command: "./a", ProcessTypes: []string{"web"}, Origin: app.OriginBuildpack}))
	apply(t, r, s, "applications: [{name: shop, sidecars: [{name: agent, command: ./a, process_types: [web]}]}]")
	if got := one[app.Sidecar](t)(r.Sidecar(old.GUID)); got.Origin != app.OriginUser {
		t.Errorf("origin = %s, want %s", got.Origin, app.OriginUser)
	}
}

func TestApplyManifestRoutes(t *testing.T) {
	r, s := inSpace(t)
	steps := []struct {
		text string
		want []string
	}{
		{"applications: [{name: shop}]", []string{}},
		{"applications: [{name: shop, default-route: true}]", []string{"shop.dew.localhost"}},
		{"applications: [{name: shop, random-route: true}]", []string{"shop.dew.localhost"}}, // it already has a route
		{"applications: [{name: shop, default-route: true, routes: [{route: a.dew.localhost}]}]", []string{"a.dew.localhost", "shop.dew.localhost"}},
		{"applications: [{name: shop, routes: [{route: A.DEW.localhost}, {route: a.dew.localhost/x}, {route: a.dew.localhost/x/}]}]", []string{"a.dew.localhost", "a.dew.localhost/x", "shop.dew.localhost"}},
		{"applications: [{name: shop, default-route: true, no-route: false}]", []string{"a.dew.localhost", "a.dew.localhost/x", "shop.dew.localhost"}},
		{"applications: [{name: shop, no-route: true, routes: [{route: b.dew.localhost}]}]", []string{}},
		{"applications: [{name: shop, default-route: true}]", []string{"shop.dew.localhost"}}, // the route existed without destinations
	}
	for _, step := range steps {
		m := parse(t, step.text)
		var before []string
		if apps := one[[]app.App](t)(r.Apps()); len(apps) > 0 {
			before = urls(t, r, apps[0])
		}
		diffs := one[[]app.Difference](t)(r.DiffManifest(s.GUID, m))
		a := one[[]app.App](t)(r.ApplyManifest(s.GUID, m))[0]
		got := urls(t, r, a)
		if diff := cmp.Diff(got, step.want); diff != "" {
			t.Errorf("%s: routes (-got +want):\n%s", step.text, diff)
		}
		if before != nil && (len(diffs) > 0) != !slices.Equal(before, got) {
			t.Errorf("%s: differences = %v, but routes went from %v to %v", step.text, diffs, before, got)
		}
		for _, rt := range one[[]app.Route](t)(r.RoutesOf(a.GUID)) {
			if len(rt.Destinations) != 1 || rt.Destinations[0].ProcessType != app.Web || rt.Destinations[0].Port != 0 {
				t.Errorf("destinations = %+v, want web once", rt.Destinations)
			}
		}
	}
}

func TestApplyManifestRandomRoute(t *testing.T) {
	r, s := inSpace(t)
	apps := apply(t, r, s, "applications: [{name: shop, random-route: true}]")
	got := urls(t, r, apps[0])
	if len(got) != 1 || !strings.HasPrefix(got[0], "shop-") || !strings.HasSuffix(got[0], ".dew.localhost") || len(got[0]) != len("shop-12345678.dew.localhost") {
		t.Errorf("routes = %v, want a random one", got)
	}
	apply(t, r, s, "applications: [{name: shop, random-route: true}]")
	if diff := cmp.Diff(urls(t, r, apps[0]), got); diff != "" {
		t.Errorf("routes after the second time (-got +want):\n%s", diff)
	}
}

// An app can share a route that its manifest names. A default route never takes a route
// of another app, and a custom port of a destination stays.
func TestApplyManifestSharedRoutes(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop, default-route: true}]")[0]
	_, err := r.ApplyManifest(s.GUID, parse(t, "applications: [{name: Shop, default-route: true}]"))
	if err == nil || !strings.Contains(err.Error(), `app "Shop", line 1: default-route: shop.dew.localhost is already routed to another app`) {
		t.Errorf("error = %v, want that the route is taken", err)
	}
	b := apply(t, r, s, "applications: [{name: Shop, routes: [{route: shop.dew.localhost}]}]")[0]
	if diff := cmp.Diff(urls(t, r, a), urls(t, r, b)); diff != "" {
		t.Errorf("routes of the two (-got +want):\n%s", diff)
	}
	rt := one[[]app.Route](t)(r.RoutesOf(a.GUID))[0]
	one[app.Route](t)(r.SetDestinations(rt.GUID, []app.Destination{{App: a.GUID, Port: 9000}}))
	apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost}]}]")
	if ds := one[app.Route](t)(r.Route(rt.GUID)).Destinations; len(ds) != 1 || ds[0].Port != 9000 {
		t.Errorf("destinations = %+v, want the one that was there", ds)
	}

	other := app.Space{GUID: "other", Name: "other", Org: s.Org}
	must(t, r.spaces.Put(other.GUID, other))
	_, err = r.ApplyManifest(other.GUID, parse(t, "applications: [{name: shop, routes: [{route: shop.dew.localhost}]}]"))
	if err == nil || !strings.Contains(err.Error(), "the route belongs to another space") {
		t.Errorf("error = %v, want the text that dew smoke detects", err)
	}
}

func TestDiffManifest(t *testing.T) {
	r, s := inSpace(t)
	const text = `
applications:
- name: new
  memory: 64M
- name: shop
  memory: %s
  disk-quota: %s
  stack: %s
  timeout: %s
  buildpacks: %s
  env: {A/B: %s, GONE: %s}
  command: %s
  processes:
  - {type: worker, instances: %s}
  sidecars:
  - {name: agent, command: %s, process_types: [web], memory: %s}
`
	args := func(ss ...any) string { return fmt.Sprintf(text, ss...) }
	apply(t, r, s, strings.Replace(args("64M", "64M", "a", "null", "[]", "1", "1", "./a", "1", "./a", "null"), "- name: new\n  memory: 64M\n", "", 1))
	got := one[[]app.Difference](t)(r.DiffManifest(s.GUID, parse(t, args("128M", "65M", "b", "5", "[go]", "2", "null", "null", "2", "./b", "32M")+`  - {name: second, command: ./c, process_types: [web], memory: 1M}
  routes: [{route: x.dew.localhost}]
  default-route: true
`)))
	want := []app.Difference{
		{Op: "add", Path: "/applications/0/name", Was: nil, Value: "new"},
		{Op: "add", Path: "/applications/0/memory", Was: nil, Value: "64M"},
		{Op: "replace", Path: "/applications/1/stack", Was: "a", Value: "b"},
		{Op: "add", Path: "/applications/1/buildpacks", Was: nil, Value: []string{"go"}},
		{Op: "replace", Path: "/applications/1/env/A~1B", Was: "1", Value: "2"},
		{Op: "remove", Path: "/applications/1/env/GONE", Was: "1", Value: nil},
		{Op: "remove", Path: "/applications/1/command", Was: "./a", Value: nil},
		{Op: "replace", Path: "/applications/1/memory", Was: "64M", Value: "128M"},
		{Op: "replace", Path: "/applications/1/disk-quota", Was: "64M", Value: "65M"},
		{Op: "add", Path: "/applications/1/timeout", Was: nil, Value: 5},
		{Op: "replace", Path: "/applications/1/processes/0/instances", Was: 1, Value: 2},
		{Op: "replace", Path: "/applications/1/sidecars/0/command", Was: "./a", Value: "./b"},
		{Op: "add", Path: "/applications/1/sidecars/0/memory", Was: nil, Value: "32M"},
		{Op: "add", Path: "/applications/1/sidecars/1", Was: nil, Value: map[string]any{"name": "second", "command": "./c", "process_types": []string{"web"}, "memory": "1M"}},
		{Op: "add", Path: "/applications/1/routes/0", Was: nil, Value: map[string]any{"route": "x.dew.localhost"}},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("differences (-got +want):\n%s", diff)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
	empty := one[string](t)(func() (string, error) {
		b, err := json.Marshal(one[[]app.Difference](t)(r.DiffManifest(s.GUID, parse(t, "applications: [{name: shop}]"))))
		return string(b), err
	}())
	if empty != "[]" {
		t.Errorf("no differences = %s, want an empty list", empty)
	}
}

// For any pair of manifests of one app, the changes that applying makes match the
// reported difference.
func FuzzApplyManifest(f *testing.F) {
	texts := goldenTexts(f)
	for i := range texts {
		f.Add([]byte(texts[i]), []byte(texts[(i+1)%len(texts)]))
	}
	f.Add([]byte("applications: [{name: a, memory: 64M}]"), []byte("applications: [{name: a, sidecars: [{name: b, command: c, process_types: [web], memory: 64M}]}]"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		r, s := inSpace(t)
		for _, text := range [][]byte{first, second} {
			m, _, err := app.ParseManifest(text, goldenVars)
			if err != nil {
				continue
			}
			before := dumpRegistry(t, r)
			diffs, diffErr := r.DiffManifest(s.GUID, m)
			_, err = r.ApplyManifest(s.GUID, m)
			after := dumpRegistry(t, r)
			if err != nil {
				if len(app.ManifestProblems(err)) == 0 || before != after {
					t.Errorf("error = %v, changed = %t", err, before != after)
				}
				continue
			}
			if diffErr == nil && (len(diffs) > 0) != (before != after) {
				t.Errorf("differences = %+v, but state went from\n%s\nto\n%s", diffs, before, after)
			}
			if _, err := r.ApplyManifest(s.GUID, m); err != nil || dumpRegistry(t, r) != after {
				t.Errorf("applied twice: %v, %s", err, cmp.Diff(dumpRegistry(t, r), after))
			}
			if diffs, err := r.DiffManifest(s.GUID, m); err != nil || len(diffs) > 0 {
				t.Errorf("differences after applying = %+v, %v", diffs, err)
			}
			for _, a := range one[[]app.App](t)(r.Apps()) {
				checkDescribed(t, r, a)
			}
		}
	})
}

// A manifest that was built in code has no line numbers, and is still checked.
func TestApplyManifestByHand(t *testing.T) {
	r, s := inSpace(t)
	mb, wait := 64, time.Minute
	m := app.Manifest{Applications: []app.ManifestApp{{
		Name:            "shop",
		ManifestProcess: app.ManifestProcess{MemoryMB: &mb, Timeout: &wait},
		Sidecars:        []app.ManifestSidecar{{Name: "a", Command: "./a", ProcessTypes: []string{"web"}, MemoryMB: &mb}},
	}}}
	_, err := r.ApplyManifest(s.GUID, m)
	if want := `app "shop": sidecars[a].memory: the sidecars of process web would have 64M together, but this must be less than the memory of the process, 64M`; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	m.Applications[0].Sidecars = nil
	a := one[[]app.App](t)(r.ApplyManifest(s.GUID, m))[0]
	if p := one[app.Process](t)(r.Process(a.GUID)); p.MemoryMB != 64 || p.HealthCheck.Timeout != wait {
		t.Errorf("process = %+v", p)
	}
	if got := slices.Collect(maps.Keys(a.Env)); len(got) > 0 {
		t.Errorf("env = %v, want none", got)
	}
}
