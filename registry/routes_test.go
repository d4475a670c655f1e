package registry

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

func newRoute(t *testing.T, r *Registry, s app.Space, host string) app.Route {
	t.Helper()
	d := one[app.Domain](t)(r.DefaultDomain())
	return one[app.Route](t)(r.PutRoute(app.Route{Space: s.GUID, Domain: d.GUID, Host: host}))
}

func TestRoutes(t *testing.T) {
	r, s := inSpace(t)
	d := one[app.Domain](t)(r.DefaultDomain())
	rt := newRoute(t, r, s, "Shop")
	if rt.GUID == "" || rt.Host != "shop" || rt.CreatedAt.IsZero() || rt.UpdatedAt.IsZero() {
		t.Errorf("route = %+v, want guid, a host in small letters and times", rt)
	}
	if diff := cmp.Diff(one[app.Route](t)(r.Route(rt.GUID)), rt); diff != "" {
		t.Errorf("kept (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(one[app.Route](t)(r.RouteAt(d.GUID, "SHOP", "")), rt); diff != "" {
		t.Errorf("found without regard to case (-got +want):\n%s", diff)
	}
	path := one[app.Route](t)(r.PutRoute(app.Route{Space: s.GUID, Domain: d.GUID, Host: "shop", Path: "/cart"}))
	apex := one[app.Route](t)(r.PutRoute(app.Route{Space: s.GUID, Domain: d.GUID}))
	var got []string
	for _, rt := range one[[]app.Route](t)(r.Routes()) {
		got = append(got, rt.URL(d.Name))
	}
	if diff := cmp.Diff(got, []string{"dew.localhost", "shop.dew.localhost", "shop.dew.localhost/cart"}); diff != "" {
		t.Errorf("routes (-got +want):\n%s", diff)
	}
	must(t, r.DeleteRoute(path.GUID))
	if _, err := r.Route(path.GUID); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("deleted route: %v, want ErrNotFound", err)
	}
	if err := r.DeleteRoute(path.GUID); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("deleting twice: %v, want ErrNotFound", err)
	}
	if _, err := r.RouteAt(d.GUID, "shop", "/cart"); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("deleted route: %v, want ErrNotFound", err)
	}
	apex.Path = "/x"
	if moved := one[app.Route](t)(r.PutRoute(apex)); moved.GUID != apex.GUID || !moved.CreatedAt.Equal(apex.CreatedAt) {
		t.Errorf("changed route = %+v, want the same one", moved)
	}
}

func TestRouteValidation(t *testing.T) {
	r, s := inSpace(t)
	d := one[app.Domain](t)(r.DefaultDomain())
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	foreign := one[app.App](t)(r.PutApp(app.App{Name: "foreign", Space: "elsewhere"}))
	newRoute(t, r, s, "taken")
	internal := one[app.Domain](t)(r.DomainByName(app.InternalDomain))
	for name, tt := range map[string]struct {
		change func(rt *app.Route)
		want   []string
	}{
		"good":        {func(*app.Route) {}, nil},
		"taken":       {func(rt *app.Route) { rt.Host = "TAKEN" }, []string{"host"}},
		"two names":   {func(rt *app.Route) { rt.Host = "a.b" }, []string{"host"}},
		"any":         {func(rt *app.Route) { rt.Host = "*" }, nil},
		"part of any": {func(rt *app.Route) { rt.Host = "a*" }, []string{"host"}},
		"inside":      {func(rt *app.Route) { rt.Domain = internal.GUID }, nil},
		"any inside":  {func(rt *app.Route) { rt.Domain, rt.Host = internal.GUID, "*" }, []string{"host"}},
		"no host":     {func(rt *app.Route) { rt.Domain, rt.Host = internal.GUID, "" }, []string{"host"}},
		"path inside": {func(rt *app.Route) { rt.Domain, rt.Path = internal.GUID, "/a" }, []string{"path"}},
		"http2":       {func(rt *app.Route) { rt.Destinations = []app.Destination{{App: a.GUID, Protocol: "http2"}} }, nil},
		"too many":    {func(rt *app.Route) { rt.Destinations = destinationsAt(a.GUID, 101) }, []string{"destinations"}},
		"many":        {func(rt *app.Route) { rt.Destinations = destinationsAt(a.GUID, 100) }, nil},
		"dash":        {func(rt *app.Route) { rt.Host = "-a" }, []string{"host"}},
		"long":        {func(rt *app.Route) { rt.Host = strings.Repeat("a", 64) }, []string{"host"}},
		"path":        {func(rt *app.Route) { rt.Path = "cart" }, []string{"path"}},
		"root":        {func(rt *app.Route) { rt.Path = "/" }, []string{"path"}},
		"query":       {func(rt *app.Route) { rt.Path = "/a?b" }, []string{"path"}},
		"long path":   {func(rt *app.Route) { rt.Path = "/" + strings.Repeat("a", 128) }, []string{"path"}},
		"destination": {func(rt *app.Route) { rt.Destinations = []app.Destination{{App: a.GUID}} }, nil},
		"port":        {func(rt *app.Route) { rt.Destinations = []app.Destination{{App: a.GUID, Port: 70000}} }, []string{"destinations[0].port"}},
		"protocol":    {func(rt *app.Route) { rt.Destinations = []app.Destination{{App: a.GUID, Protocol: "http3"}} }, []string{"destinations[0].protocol"}},
		"type":        {func(rt *app.Route) { rt.Destinations = []app.Destination{{App: a.GUID, ProcessType: "a b"}} }, []string{"destinations[0].process.type"}},
		"twice": {func(rt *app.Route) {
			rt.Destinations = []app.Destination{{App: a.GUID}, {App: a.GUID, ProcessType: "web"}}
		}, []string{"destinations[1].app"}},
		"foreign app": {func(rt *app.Route) { rt.Destinations = []app.Destination{{App: foreign.GUID}} }, []string{"destinations[0].app"}},
	} {
		t.Run(name, func(t *testing.T) {
			rt := app.Route{Space: s.GUID, Domain: d.GUID, Host: "h-" + strings.ReplaceAll(name, " ", "-")}
			tt.change(&rt)
			_, err := r.PutRoute(rt)
			if diff := cmp.Diff(keys(err), tt.want); diff != "" {
				t.Errorf("keys of %v (-got +want):\n%s", err, diff)
			}
			if len(tt.want) == 0 {
				must(t, err)
			}
		})
	}
	for name, rt := range map[string]app.Route{
		"space":  {Space: "none", Domain: d.GUID, Host: "x"},
		"domain": {Space: s.GUID, Domain: "none", Host: "x"},
		"app":    {Space: s.GUID, Domain: d.GUID, Host: "x", Destinations: []app.Destination{{App: "none"}}},
	} {
		if _, err := r.PutRoute(rt); !errors.Is(err, app.ErrNotFound) {
			t.Errorf("%s: error = %v, want ErrNotFound", name, err)
		}
	}
}

func TestDestinations(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop, processes: [{type: worker}]}]")[0]
	rt := newRoute(t, r, s, "shop")
	notified := 0
	r.ListenRoutes(func(route string) {
		if route != rt.GUID {
			t.Errorf("told of %s, want %s", route, rt.GUID)
		}
		notified++
	})
	rt = one[app.Route](t)(r.AddDestinations(rt.GUID, []app.Destination{{App: a.GUID}, {App: a.GUID, ProcessType: "worker", Port: 9000}}))
	first := rt.Destinations[0]
	if len(rt.Destinations) != 2 || first.GUID == "" || first.ProcessType != app.Web || first.Protocol != app.ProtocolHTTP1 || first.Port != 0 {
		t.Errorf("destinations = %+v, want two with defaults", rt.Destinations)
	}
	again := one[app.Route](t)(r.AddDestinations(rt.GUID, []app.Destination{{App: a.GUID}}))
	if diff := cmp.Diff(again, rt); diff != "" || notified != 1 {
		t.Errorf("added again: told %d times (-got +want):\n%s", notified, diff)
	}
	rt = one[app.Route](t)(r.SetDestinations(rt.GUID, []app.Destination{{App: a.GUID, Port: 8082}, {App: a.GUID}}))
	if len(rt.Destinations) != 2 || rt.Destinations[1].GUID != first.GUID || rt.Destinations[0].GUID == first.GUID || rt.Destinations[0].Port != 8082 {
		t.Errorf("destinations = %+v, want the first one kept", rt.Destinations)
	}
	must(t, r.RemoveDestination(rt.GUID, first.GUID))
	if err := r.RemoveDestination(rt.GUID, first.GUID); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("removing twice: %v, want ErrNotFound", err)
	}
	if ds := one[app.Route](t)(r.Route(rt.GUID)).Destinations; len(ds) != 1 || ds[0].Port != 8082 {
		t.Errorf("destinations = %+v, want one left", ds)
	}
	if _, err := r.AddDestinations("none", nil); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("no route: %v, want ErrNotFound", err)
	}
	if _, err := r.SetDestinations(rt.GUID, []app.Destination{{App: a.GUID, Port: -1}}); len(app.Problems(err)) != 1 {
		t.Errorf("bad port: %v, want a problem", err)
	}
	if notified != 3 {
		t.Errorf("told %d times, want once for each change", notified)
	}
}

// Ports that destinations name are part of a container, so they create a version. The
// default port is always there.
func TestDestinationPortsMakeVersions(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop, processes: [{type: worker}]}]")[0]
	rt := newRoute(t, r, s, "shop")
	last := versions(t, r, a)
	for _, step := range []struct {
		name   string
		ds     []app.Destination
		change []string
	}{
		{"default port", []app.Destination{{App: a.GUID}}, nil},
		{"a port", []app.Destination{{App: a.GUID, Port: 8082}}, []string{"web"}},
		{"a type that is not there", []app.Destination{{App: a.GUID, Port: 8082}, {App: a.GUID, ProcessType: "none", Port: 1}}, nil},
		{"another type", []app.Destination{{App: a.GUID, Port: 8082}, {App: a.GUID, ProcessType: "worker", Port: 1}}, []string{"worker"}},
		{"another order", []app.Destination{{App: a.GUID, ProcessType: "worker", Port: 1}, {App: a.GUID, Port: 8082}}, nil},
		{"none", nil, []string{"web", "worker"}},
	} {
		one[app.Route](t)(r.SetDestinations(rt.GUID, step.ds))
		now := versions(t, r, a)
		var changed []string
		for _, processType := range []string{"web", "worker"} {
			if now[processType] != last[processType] {
				changed = append(changed, processType)
			}
		}
		if diff := cmp.Diff(changed, step.change); diff != "" {
			t.Errorf("%s: new versions (-got +want):\n%s", step.name, diff)
		}
		last = now
	}
}

func TestDeleteAppLeavesItsRoutes(t *testing.T) {
	r, s := inSpace(t)
	apps := apply(t, r, s, "applications: [{name: shop, routes: [{route: x.dew.localhost}, {route: y.dew.localhost}]}, {name: other, routes: [{route: x.dew.localhost}]}]")
	must(t, r.DeleteApp(apps[0].GUID))
	for _, rt := range one[[]app.Route](t)(r.Routes()) {
		want := map[string]int{"x": 1, "y": 0}[rt.Host]
		if len(rt.Destinations) != want || rt.HasApp(apps[0].GUID) {
			t.Errorf("destinations of %s = %+v, want %d", rt.Host, rt.Destinations, want)
		}
	}
}

// Any text is a route or an error, and a route written as text is the same route.
func FuzzParseRoute(f *testing.F) {
	for _, s := range []string{"shop.dew.localhost", "dew.localhost", "A.dew.LOCALHOST/x/", "a.b.dew.localhost", "shop.internal", "", "/", "http://x", "x..dew.localhost", ".dew.localhost", "xdew.localhost", "a.dew.localhost//x", "tcp.dew.localhost:20000", "dew.localhost:1/x", "tcp.dew.localhost:0"} {
		f.Add(s)
	}
	domains := []app.Domain{{GUID: "d1", Name: "localhost"}, {GUID: "d2", Name: "dew.localhost"}, {GUID: "d3", Name: "tcp.dew.localhost", RouterGroup: "g"}}
	names := map[string]string{"d1": "localhost", "d2": "dew.localhost", "d3": "tcp.dew.localhost"}
	f.Fuzz(func(t *testing.T, s string) {
		rt, err := parseRoute(s, domains)
		if err != nil {
			if len(app.Problems(err)) == 0 {
				t.Errorf("error = %v, want problems", err)
			}
			return
		}
		again, err := parseRoute(rt.URL(names[rt.Domain]), domains)
		if err != nil || again.UniqueKey() != rt.UniqueKey() {
			t.Errorf("%q is %+v, which is %+v, %v", s, rt, again, err)
		}
	})
}

func TestParseRoute(t *testing.T) {
	domains := []app.Domain{{GUID: "d1", Name: "localhost"}, {GUID: "d2", Name: "dew.localhost"}}
	for s, want := range map[string]app.Route{
		"shop.dew.localhost":        {Domain: "d2", Host: "shop"},
		"Shop.DEW.localhost/Cart/":  {Domain: "d2", Host: "shop", Path: "/Cart"},
		"dew.localhost":             {Domain: "d2"},
		"dew.localhost/":            {Domain: "d2"},
		"other.localhost/a/b":       {Domain: "d1", Host: "other", Path: "/a/b"},
		"*.dew.localhost/a":         {Domain: "d2", Host: "*", Path: "/a"},
		"xdew.localhost":            {Domain: "d1", Host: "xdew"},
		"my_shop-1.dew.localhost/é": {Domain: "d2", Host: "my_shop-1", Path: "/é"},
	} {
		got, err := parseRoute(s, domains)
		if err != nil {
			t.Errorf("%q: %v", s, err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%q (-got +want):\n%s", s, diff)
		}
	}
	for _, s := range []string{"", "/", "shop", "shop.example.com", "a.b.dew.localhost", "http://shop.dew.localhost", "shop.dew.localhost:80", "a.*.dew.localhost", "*", "shop.dew.localhost/a b", "shop.dew.localhost/a?b", "-a.dew.localhost", ".dew.localhost"} {
		if rt, err := parseRoute(s, domains); len(app.Problems(err)) != 1 {
			t.Errorf("%q = %+v, %v, want one problem", s, rt, err)
		}
	}
}
