package registry

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

// destinationsAt returns n destinations of an app, each with its own port.
func destinationsAt(appGUID string, n int) []app.Destination {
	out := make([]app.Destination, n)
	for i := range out {
		out[i] = app.Destination{App: appGUID, Port: 10000 + i}
	}
	return out
}

// A destination that replaces another one remembers how to reach instances that lack
// its port.
func TestReplacedDestinations(t *testing.T) {
	web := func(port int, former ...app.Former) app.Destination {
		return app.Destination{App: "a", ProcessType: app.Web, Port: port, Protocol: app.ProtocolHTTP1, Former: former}
	}
	was := func(ports ...int) (out []app.Former) {
		for _, p := range ports {
			out = append(out, app.Former{Port: p, Protocol: app.ProtocolHTTP1})
		}
		return out
	}
	other := app.Destination{App: "b", ProcessType: app.Web, Protocol: app.ProtocolHTTP1}
	worker := app.Destination{App: "a", ProcessType: "worker", Port: 9000, Protocol: app.ProtocolHTTP1}
	for name, tt := range map[string]struct{ old, now, want []app.Destination }{
		"a port for the default":        {[]app.Destination{web(0)}, []app.Destination{web(9000)}, []app.Destination{web(9000, was(0)...)}},
		"the default for a port":        {[]app.Destination{web(9000)}, []app.Destination{web(0)}, []app.Destination{web(0)}},
		"again":                         {[]app.Destination{web(9000, was(0)...)}, []app.Destination{web(9001)}, []app.Destination{web(9001, was(9000, 0)...)}},
		"back":                          {[]app.Destination{web(9001, was(9000, 0)...)}, []app.Destination{web(9000)}, []app.Destination{web(9000, was(9001, 0)...)}},
		"the same":                      {[]app.Destination{web(9000, was(0)...)}, []app.Destination{web(9000)}, []app.Destination{web(9000, was(0)...)}},
		"one more":                      {[]app.Destination{web(0)}, []app.Destination{web(0), web(9000)}, []app.Destination{web(0), web(9000)}},
		"another app":                   {[]app.Destination{web(0)}, []app.Destination{other}, []app.Destination{other}},
		"another process":               {[]app.Destination{web(0)}, []app.Destination{worker}, []app.Destination{worker}},
		"one goes, a pending one stays": {[]app.Destination{web(0), web(9000)}, []app.Destination{web(9000)}, []app.Destination{web(9000)}},
		"all go":                        {[]app.Destination{web(9000, was(0)...)}, nil, []app.Destination{}},
		"two for two":                   {[]app.Destination{web(1), web(2)}, []app.Destination{web(3), web(4)}, []app.Destination{web(3, was(1)...), web(4, was(2)...)}},
	} {
		if diff := cmp.Diff(replaced(tt.old, tt.now), tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", name, diff)
		}
	}
	ds := []app.Destination{web(1)}
	for i := range 100 {
		ds = replaced(ds, []app.Destination{web(2 + i)})
	}
	if n := len(ds[0].Former); n != app.MaxFormer {
		t.Errorf("%d former ports are kept, want %d", n, app.MaxFormer)
	}
}

// The destination that another one replaced is on disk until no instance needs it.
// Unmapping takes effect at once.
func TestFormerDestinationIsStored(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	rt := newRoute(t, r, s, "shop")
	one[app.Route](t)(r.SetDestinations(rt.GUID, []app.Destination{{App: a.GUID}}))
	one[app.Route](t)(r.SetDestinations(rt.GUID, []app.Destination{{App: a.GUID, Port: 9000}}))
	former := func() []app.Former { return one[app.Route](t)(r.Route(rt.GUID)).Destinations[0].Former }
	want := []app.Former{{Protocol: app.ProtocolHTTP1}}
	if diff := cmp.Diff(former(), want); diff != "" {
		t.Errorf("kept (-got +want):\n%s", diff)
	}
	before := one[app.Route](t)(r.Route(rt.GUID))
	must(t, r.ForgetFormer(rt.GUID, func(app.Destination) bool { return true }))
	if diff := cmp.Diff(one[app.Route](t)(r.Route(rt.GUID)), before); diff != "" {
		t.Errorf("changed though it is needed (-got +want):\n%s", diff)
	}
	must(t, r.ForgetFormer(rt.GUID, func(app.Destination) bool { return false }))
	if got := former(); len(got) > 0 {
		t.Errorf("kept though nobody needs it: %v", got)
	}
	must(t, r.ForgetFormer("none", func(app.Destination) bool { return false }))

	one[app.Route](t)(r.SetDestinations(rt.GUID, []app.Destination{{App: a.GUID, Port: 9001}}))
	must(t, r.RemoveDestination(rt.GUID, one[app.Route](t)(r.Route(rt.GUID)).Destinations[0].GUID))
	if ds := one[app.Route](t)(r.Route(rt.GUID)).Destinations; len(ds) > 0 {
		t.Errorf("destinations = %+v, want none", ds)
	}
}

func TestDestinationTwice(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	rt := newRoute(t, r, s, "shop")
	for _, change := range []func(string, []app.Destination) (app.Route, error){r.AddDestinations, r.SetDestinations} {
		_, err := change(rt.GUID, []app.Destination{{App: a.GUID}, {App: a.GUID, ProcessType: app.Web}})
		if diff := cmp.Diff(keys(err), []string{"destinations[1].app"}); diff != "" {
			t.Errorf("keys (-got +want):\n%s", diff)
		}
		_, err = change(rt.GUID, destinationsAt(a.GUID, 101))
		if diff := cmp.Diff(keys(err), []string{"destinations"}); diff != "" {
			t.Errorf("keys (-got +want):\n%s", diff)
		}
	}
	if err := r.RemoveDestination(rt.GUID, "none"); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("err = %v", err)
	}
}

// The protocol of a manifest's route applies to the app's destinations, even if the
// route already exists.
func TestManifestProtocol(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost}]}]")[0]
	protocol := func() string { return one[[]app.Route](t)(r.RoutesOf(a.GUID))[0].Destinations[0].Protocol }
	if got := protocol(); got != app.ProtocolHTTP1 {
		t.Errorf("protocol = %s", got)
	}
	apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost, protocol: http2}]}]")
	if got := protocol(); got != app.ProtocolHTTP2 {
		t.Errorf("protocol = %s, want %s", got, app.ProtocolHTTP2)
	}
	apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost}]}]")
	if got := protocol(); got != app.ProtocolHTTP2 {
		t.Errorf("protocol = %s after a manifest that names none", got)
	}
	if got := one[[]app.ManifestRoute](t)(r.describedRoutes(a.GUID))[0].Protocol; got != app.ProtocolHTTP2 {
		t.Errorf("described protocol = %s", got)
	}
}
