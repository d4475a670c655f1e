package route

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// quiet returns a router without servers, in virtual time.
func quiet(t *testing.T, reg *fakeRegistry, change func(*Config)) (*Router, func()) {
	t.Helper()
	w := &world{t: t, registry: reg, lines: make(chan string, 10)}
	c := w.config()
	change(&c)
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
}

func leadsTo(r *Router, host string) string {
	e := r.table.Load().match(host+".dew.localhost", "/")
	if e == nil {
		return "nowhere"
	}
	if tg, ok := e.pick(nil); ok {
		return string(tg.endpoint.instance)
	}
	return "nobody"
}

func TestRouteChangesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := &fakeRegistry{domains: twoDomains}
		r, stop := quiet(t, reg, func(*Config) {})
		defer stop()
		r.Changed(ready("a", 0)) // before any route has it as a destination
		if got := leadsTo(r, "shop"); got != "nowhere" {
			t.Errorf("leads to %s", got)
		}
		reg.set(func() { reg.routes = []app.Route{routeTo("shop", "", "a"), routeTo("other", "", "b")} })
		synctest.Wait()
		if got := leadsTo(r, "shop"); got != "a-0" {
			t.Errorf("leads to %s, want a-0", got)
		}
		if got := leadsTo(r, "other"); got != "nobody" {
			t.Errorf("other leads to %s, want nobody", got)
		}
		reg.set(func() { reg.routes = nil })
		synctest.Wait()
		if got := leadsTo(r, "shop"); got != "nowhere" {
			t.Errorf("leads to %s, want nowhere", got)
		}
	})
}

// While the routes cannot be read, the old table is used.
func TestUnreadableRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := &fakeRegistry{domains: twoDomains, routes: []app.Route{routeTo("shop", "", "a")}}
		var said bytes.Buffer
		r, stop := quiet(t, reg, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&said, nil)) })
		defer stop()
		r.Changed(ready("a", 0))
		r.Changed(ready("b", 0))
		synctest.Wait()
		reg.set(func() { reg.err, reg.routes = errors.New("disk"), []app.Route{routeTo("shop", "", "b")} })
		synctest.Wait()
		if got := leadsTo(r, "shop"); got != "a-0" {
			t.Errorf("leads to %s, want a-0", got)
		}
		reg.mu.Lock()
		reg.err = nil
		reg.mu.Unlock()
		time.Sleep(retryPause)
		synctest.Wait()
		if got := leadsTo(r, "shop"); got != "b-0" {
			t.Errorf("leads to %s, want b-0", got)
		}
		if n := strings.Count(said.String(), "cannot read the routes"); n == 0 {
			t.Errorf("log = %s", said.String())
		}
	})
}

func TestUnreadableAtTheBeginning(t *testing.T) {
	w := &world{registry: &fakeRegistry{err: errors.New("disk")}}
	if _, err := New(w.config()); err == nil {
		t.Error("New gave a router without a table")
	}
}

// Instances that started before the router are read. A status that a slot reports in
// between is newer than the read one.
func TestInstancesFoundAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := &fakeRegistry{
			domains:   twoDomains,
			apps:      []app.App{{GUID: "a"}, {GUID: "b"}},
			processes: map[string][]app.Process{"a": {{GUID: "a"}}, "b": {{GUID: "b"}}},
			routes:    []app.Route{routeTo("one", "", "a"), routeTo("two", "", "b")},
		}
		made := make(chan *Router)
		r, stop := quiet(t, reg, func(c *Config) {
			c.Instances = func(process string) []runtime.Status {
				if process == "b" { // it stops just after it was read
					r := <-made
					r.Changed(crashed("b", 0))
				}
				return []runtime.Status{ready(process, 0)}
			}
		})
		defer stop()
		made <- r
		synctest.Wait()
		if got := leadsTo(r, "one"); got != "a-0" {
			t.Errorf("one leads to %s, want a-0", got)
		}
		if got := leadsTo(r, "two"); got != "nobody" {
			t.Errorf("two leads to %s, want nobody", got)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.changed != nil {
			t.Error("what is needed only at the start is kept")
		}
	})
}

// The router follows the changes of the daemon's real registry.
func TestRealRegistry(t *testing.T) {
	db := testkit.Open(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{Format: 1}))(t)
	reg := registry.New(db)
	space, err := reg.EnsureDefaults("dew.localhost")
	if err != nil {
		t.Fatal(err)
	}
	domain, err := reg.DefaultDomain()
	if err != nil {
		t.Fatal(err)
	}
	a, err := reg.PutApp(app.App{Name: "shop", Space: space.GUID})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	c := w.config()
	c.Registry = reg
	w.router, err = New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.run()
	w.router.Changed(ready(a.GUID, 0))
	rt, err := reg.PutRoute(app.Route{Space: space.GUID, Domain: domain.GUID, Host: "Shop"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reg.AddDestinations(rt.GUID, []app.Destination{{App: a.GUID}}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the route is known", func() bool { return leadsTo(w.router, "shop") == string(idOf(a.GUID, 0)) })
	if err := reg.DeleteApp(a.GUID); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the route leads nowhere", func() bool { return leadsTo(w.router, "shop") == "nowhere" })
}
