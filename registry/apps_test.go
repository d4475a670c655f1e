package registry

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

func TestNewAppHasAWebProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a := one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s1"}))
		if a.GUID == "" || a.State != app.Stopped || !a.CreatedAt.Equal(time.Now()) || !a.UpdatedAt.Equal(time.Now()) {
			t.Errorf("app = %+v, want guid, state and times", a)
		}
		if diff := cmp.Diff(one[app.App](t)(r.App(a.GUID)), a); diff != "" {
			t.Errorf("kept app (-got +want):\n%s", diff)
		}
		p := one[app.Process](t)(r.Process(a.GUID))
		want := app.Process{
			GUID: a.GUID, App: a.GUID, Type: app.Web, Instances: 1, MemoryMB: 1024, DiskMB: 1024,
			HealthCheck: app.HealthCheck{Type: app.CheckPort},
			Version:     p.Version, Current: []string{p.Version},
			CreatedAt: a.CreatedAt, UpdatedAt: a.CreatedAt,
		}
		if diff := cmp.Diff(p, want); diff != "" || p.Version == "" {
			t.Errorf("web process (-got +want):\n%s", diff)
		}
		w := one[app.Process](t)(r.PutProcess(app.Process{App: a.GUID, Type: "worker"}))
		if w.GUID == "" || w.GUID == a.GUID || w.Instances != 0 || w.MemoryMB != 1024 || w.HealthCheck.Type != app.CheckProcess {
			t.Errorf("worker = %+v, want its own guid and the defaults", w)
		}
		time.Sleep(time.Minute) // virtual time
		b := one[app.App](t)(r.PutApp(app.App{GUID: a.GUID, Name: "shop2", Space: "s1"}))
		if !b.CreatedAt.Equal(a.CreatedAt) || !b.UpdatedAt.Equal(time.Now()) {
			t.Errorf("times after a change = %v, %v", b.CreatedAt, b.UpdatedAt)
		}
	})
}

func TestLookups(t *testing.T) {
	r := newRegistry(t)
	a := shop(t, r)
	b := one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s2"}))
	c := one[app.App](t)(r.PutApp(app.App{Name: "bar", Space: "s1"}))
	if got := one[app.App](t)(r.AppByName("bar")); got.GUID != c.GUID {
		t.Errorf("AppByName = %s, want %s", got.GUID, c.GUID)
	}
	if _, err := r.AppByName("shop"); err == nil || errors.Is(err, app.ErrNotFound) || !strings.Contains(err.Error(), "space") {
		t.Errorf("AppByName of two = %v, want an error that asks for the space", err)
	}
	if got := one[app.App](t)(r.AppIn("s2", "shop")); got.GUID != b.GUID {
		t.Errorf("AppIn = %s, want %s", got.GUID, b.GUID)
	}
	var names []string
	for _, a := range one[[]app.App](t)(r.Apps()) {
		names = append(names, a.Name+" "+a.Space)
	}
	if diff := cmp.Diff(names, []string{"bar s1", "shop s1", "shop s2"}); diff != "" {
		t.Errorf("apps (-got +want):\n%s", diff)
	}
	one[app.Process](t)(r.PutProcess(app.Process{App: a.GUID, Type: "a"}))
	var types []string
	for _, p := range one[[]app.Process](t)(r.Processes(a.GUID)) {
		types = append(types, p.Type)
	}
	if diff := cmp.Diff(types, []string{"web", "a", "worker"}); diff != "" {
		t.Errorf("processes (-got +want):\n%s", diff)
	}
	for processType, want := range map[string][]string{"web": {"agent", "config server"}, "worker": {"agent"}, "a": nil} {
		var got []string
		for _, s := range one[[]app.Sidecar](t)(r.SidecarsOf(a.GUID, processType)) {
			got = append(got, s.Name)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("sidecars of %s (-got +want):\n%s", processType, diff)
		}
	}
	_, err1 := r.App("none")
	_, err2 := r.AppByName("none")
	_, err3 := r.AppIn("s1", "none")
	_, err4 := r.Process("none")
	_, err5 := r.Sidecar("none")
	_, err6 := r.PutProcess(app.Process{App: "none", Type: "web"})
	_, err7 := r.PutSidecar(app.Sidecar{App: "none"})
	_, err8 := r.UpdateApp("none", func(*app.App) error { return nil })
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, r.DeleteApp("none"), r.DeleteSidecar("none"), r.Restart("none")} {
		if !errors.Is(err, app.ErrNotFound) || !strings.Contains(err.Error(), "none") {
			t.Errorf("error %d = %v, want ErrNotFound with the name", i+1, err)
		}
	}
}

// A version is new exactly when a container started now would differ from one
// started before, and on every start and restart. Instances of older versions are
// kept, except by start and restart.
func TestVersions(t *testing.T) {
	appGUID := func(fn func(a *app.App)) func(*testing.T, *Registry, app.App) {
		return func(t *testing.T, r *Registry, a app.App) {
			one[app.App](t)(r.UpdateApp(a.GUID, func(a *app.App) error { fn(a); return nil }))
		}
	}
	web := func(fn func(p *app.Process)) func(*testing.T, *Registry, app.App) {
		return func(t *testing.T, r *Registry, a app.App) {
			one[app.Process](t)(r.UpdateProcess(a.GUID, func(p *app.Process) error { fn(p); return nil }))
		}
	}
	sidecar := func(name string, fn func(s *app.Sidecar)) func(*testing.T, *Registry, app.App) {
		return func(t *testing.T, r *Registry, a app.App) {
			ss := one[[]app.Sidecar](t)(r.Sidecars(a.GUID))
			i := slices.IndexFunc(ss, func(s app.Sidecar) bool { return s.Name == name })
			one[app.Sidecar](t)(r.UpdateSidecar(ss[i].GUID, func(s *app.Sidecar) error { fn(s); return nil }))
		}
	}
	for name, tt := range map[string]struct {
		change   func(*testing.T, *Registry, app.App)
		want     string // types with a new version
		replaces bool
	}{
		"same app":       {appGUID(func(*app.App) {}), "", false},
		"buildpacks":     {appGUID(func(a *app.App) { a.Buildpacks = []string{"x"} }), "", false},
		"stop":           {appGUID(func(a *app.App) { a.State = app.Stopped }), "", false},
		"name":           {appGUID(func(a *app.App) { a.Name = "x" }), "web worker", false},
		"space":          {appGUID(func(a *app.App) { a.Space = "x" }), "web worker", false},
		"env":            {appGUID(func(a *app.App) { a.Env["A"] = "2" }), "web worker", false},
		"env gone":       {appGUID(func(a *app.App) { a.Env = nil }), "web worker", false},
		"droplet":        {appGUID(func(a *app.App) { a.Droplet = "d" }), "web worker", false},
		"stack":          {appGUID(func(a *app.App) { a.Stack = "d" }), "web worker", false},
		"same process":   {web(func(*app.Process) {}), "", false},
		"instances":      {web(func(p *app.Process) { p.Instances = 5 }), "", false},
		"health check":   {web(func(p *app.Process) { p.HealthCheck = app.HealthCheck{Type: app.CheckHTTP} }), "", false},
		"forged version": {web(func(p *app.Process) { p.Version, p.Current = "x", nil }), "", false},
		"command":        {web(func(p *app.Process) { p.Command = "x" }), "web", false},
		"memory":         {web(func(p *app.Process) { p.MemoryMB = 512 }), "web", false},
		"disk":           {web(func(p *app.Process) { p.DiskMB = 512 }), "web", false},
		"ports":          {web(func(p *app.Process) { p.Ports = []int{8080, 8081} }), "web", false},
		"generation":     {web(func(p *app.Process) { p.Generation, p.Held = 7, true }), "", false},

		"same sidecar":           {sidecar("agent", func(*app.Sidecar) {}), "", false},
		"sidecar origin":         {sidecar("agent", func(s *app.Sidecar) { s.Origin = app.OriginBuildpack }), "", false},
		"sidecar command":        {sidecar("agent", func(s *app.Sidecar) { s.Command = "x" }), "web worker", false},
		"sidecar memory":         {sidecar("agent", func(s *app.Sidecar) { s.MemoryMB = 0 }), "web worker", false},
		"sidecar name":           {sidecar("config server", func(s *app.Sidecar) { s.Name = "x" }), "web", false},
		"sidecar leaves":         {sidecar("agent", func(s *app.Sidecar) { s.ProcessTypes = []string{"worker"} }), "web", false},
		"sidecar comes":          {sidecar("config server", func(s *app.Sidecar) { s.ProcessTypes = []string{"web", "worker"} }), "worker", false},
		"types in another order": {sidecar("agent", func(s *app.Sidecar) { s.ProcessTypes = []string{"worker", "web"} }), "", false},
		"new sidecar": {func(t *testing.T, r *Registry, a app.App) {
			one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: a.GUID, Name: "x", Command: "x", ProcessTypes: []string{"worker", "none"}}))
		}, "worker", false},
		"deleted sidecar": {func(t *testing.T, r *Registry, a app.App) {
			ss := one[[]app.Sidecar](t)(r.SidecarsOf(a.GUID, "worker"))
			must(t, r.DeleteSidecar(ss[0].GUID))
		}, "web worker", false},
		"stop and start": {func(t *testing.T, r *Registry, a app.App) {
			appGUID(func(a *app.App) { a.State = app.Stopped })(t, r, a)
			appGUID(func(a *app.App) { a.State = app.Started })(t, r, a)
		}, "web worker", true},
		"restart": {func(t *testing.T, r *Registry, a app.App) { must(t, r.Restart(a.GUID)) }, "web worker", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			a := shop(t, r)
			before := versions(t, r, a)
			tt.change(t, r, a)
			after := versions(t, r, a)
			var changed []string
			for _, k := range slices.Sorted(maps.Keys(after)) {
				if after[k] != before[k] {
					changed = append(changed, k)
				}
			}
			if got := strings.Join(changed, " "); got != tt.want {
				t.Errorf("new versions: %q, want %q", got, tt.want)
			}
			for _, p := range one[[]app.Process](t)(r.Processes(a.GUID)) {
				if got := p.Keeps(before[p.Type]); got == tt.replaces {
					t.Errorf("an instance of %s from before is kept: %t, want %t", p.Type, got, !tt.replaces)
				}
			}
		})
	}
}

// Listeners get every process whose desired state changed, whatever changed it.
func TestListen(t *testing.T) {
	r := newRegistry(t)
	var heard []string
	names := map[string]string{}
	r.Listen(func(p string) { heard = append(heard, p) })
	a := shop(t, r)
	for _, p := range one[[]app.Process](t)(r.Processes(a.GUID)) {
		names[p.GUID] = p.Type
	}
	hears := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, p := range heard {
			got = append(got, names[p])
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s (-heard +want):\n%s", what, diff)
		}
		heard = nil
	}
	hears("making the app", "web", "worker", "web", "web", "worker")
	one[app.App](t)(r.UpdateApp(a.GUID, func(a *app.App) error { a.State = app.Stopped; return nil }))
	hears("stop", "web", "worker")
	one[app.Process](t)(r.UpdateProcess(a.GUID, func(p *app.Process) error { p.Instances = 7; return nil }))
	hears("scale", "web")
	must(t, r.Restart(a.GUID))
	hears("restart", "web", "worker")
	for _, s := range one[[]app.Sidecar](t)(r.Sidecars(a.GUID)) {
		if s.Name == "config server" {
			must(t, r.DeleteSidecar(s.GUID))
		}
	}
	hears("deleted sidecar", "web")
	if _, err := r.PutApp(app.App{GUID: a.GUID, Name: ""}); err == nil {
		t.Error("an app without a name was kept")
	}
	hears("refused")
	must(t, r.DeleteApp(a.GUID))
	hears("delete", "web", "worker")
}

func TestDeleteApp(t *testing.T) {
	r := newRegistry(t)
	a := shop(t, r)
	other := one[app.App](t)(r.PutApp(app.App{Name: "other", Space: "s1"}))
	must(t, r.DeleteApp(a.GUID))
	if _, err := r.App(a.GUID); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("App = %v, want ErrNotFound", err)
	}
	if ps := one[[]app.Process](t)(r.Processes(a.GUID)); len(ps) != 0 {
		t.Errorf("processes left: %v", ps)
	}
	if ss := one[[]app.Sidecar](t)(r.Sidecars(a.GUID)); len(ss) != 0 {
		t.Errorf("sidecars left: %v", ss)
	}
	if ps := one[[]app.Process](t)(r.Processes(other.GUID)); len(ps) != 1 {
		t.Errorf("processes of the other app: %v", ps)
	}
	one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s1"})) // the name is free again
}
