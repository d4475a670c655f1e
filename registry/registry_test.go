package registry

import (
	"errors"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// Values passed in or returned share no memory with the stored values.
func TestValuesAreCopied(t *testing.T) {
	r := newRegistry(t)
	in := app.App{Name: "shop", Env: map[string]string{"A": "1"}, Buildpacks: []string{"b"}}
	out := one[app.App](t)(r.PutApp(in))
	out.Env["A"], out.Buildpacks[0] = "2", "c"
	if in.Env["A"] != "1" || in.Buildpacks[0] != "b" {
		t.Errorf("the caller's value changed: %+v", in)
	}
	types := []string{"web"}
	s := one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: out.GUID, Name: "s", Command: "c", ProcessTypes: types}))
	s.ProcessTypes[0] = "x"
	ports := []int{1}
	p := one[app.Process](t)(r.PutProcess(app.Process{App: out.GUID, Type: "web", Ports: ports}))
	p.Ports[0] = 2
	if types[0] != "web" || ports[0] != 1 {
		t.Errorf("the caller's slices changed: %v %v", types, ports)
	}
}

// Several changes in one transaction are stored together or not at all.
func TestWith(t *testing.T) {
	r := newRegistry(t)
	stop := errors.New("stop")
	var a app.App
	apply := func(result error) error {
		return r.db.Update(func(tx *store.Tx) error {
			r := r.With(tx)
			a = one[app.App](t)(r.PutApp(app.App{Name: "shop", Space: "s1"}))
			one[app.Sidecar](t)(r.PutSidecar(app.Sidecar{App: a.GUID, Name: "s", Command: "c", ProcessTypes: []string{"web"}}))
			return result
		})
	}
	if err := apply(stop); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if apps := one[[]app.App](t)(r.Apps()); len(apps) != 0 {
		t.Errorf("apps after giving up = %v", apps)
	}
	must(t, apply(nil))
	if ss := one[[]app.Sidecar](t)(r.SidecarsOf(a.GUID, "web")); len(ss) != 1 {
		t.Errorf("sidecars = %v, want one", ss)
	}
}

// An update whose function returns an error changes nothing and returns that error.
func TestUpdateGivesUp(t *testing.T) {
	r := newRegistry(t)
	a := shop(t, r)
	stop := errors.New("stop")
	s := one[[]app.Sidecar](t)(r.Sidecars(a.GUID))[0]
	_, err1 := r.UpdateApp(a.GUID, func(a *app.App) error { a.Name = "x"; return stop })
	_, err2 := r.UpdateProcess(a.GUID, func(p *app.Process) error { p.Command = "x"; return stop })
	_, err3 := r.UpdateSidecar(s.GUID, func(s *app.Sidecar) error { s.Command = "x"; return stop })
	for i, err := range []error{err1, err2, err3} {
		if !errors.Is(err, stop) {
			t.Errorf("error %d = %v, want %v", i+1, err, stop)
		}
	}
	if got := one[app.App](t)(r.App(a.GUID)).Name; got != "shop" {
		t.Errorf("name = %s", got)
	}
	if got := one[app.Process](t)(r.Process(a.GUID)).Command; got != "" {
		t.Errorf("command = %s", got)
	}
	if got := one[app.Sidecar](t)(r.Sidecar(s.GUID)).Command; got != s.Command {
		t.Errorf("sidecar command = %s", got)
	}
}
