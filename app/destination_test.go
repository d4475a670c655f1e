package app

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// destinationsAt are n destinations of an app, each with a port of its own.
func destinationsAt(app string, n int) []Destination {
	out := make([]Destination, n)
	for i := range out {
		out[i] = Destination{App: app, Port: 10000 + i}
	}
	return out
}

// What takes the place of another destination remembers where instances that lack
// its port are reached.
func TestReplacedDestinations(t *testing.T) {
	web := func(port int, former ...Former) Destination {
		return Destination{App: "a", ProcessType: Web, Port: port, Protocol: ProtocolHTTP1, Former: former}
	}
	was := func(ports ...int) (out []Former) {
		for _, p := range ports {
			out = append(out, Former{Port: p, Protocol: ProtocolHTTP1})
		}
		return out
	}
	other := Destination{App: "b", ProcessType: Web, Protocol: ProtocolHTTP1}
	worker := Destination{App: "a", ProcessType: "worker", Port: 9000, Protocol: ProtocolHTTP1}
	for name, tt := range map[string]struct{ old, now, want []Destination }{
		"a port for the default":        {[]Destination{web(0)}, []Destination{web(9000)}, []Destination{web(9000, was(0)...)}},
		"the default for a port":        {[]Destination{web(9000)}, []Destination{web(0)}, []Destination{web(0)}},
		"again":                         {[]Destination{web(9000, was(0)...)}, []Destination{web(9001)}, []Destination{web(9001, was(9000, 0)...)}},
		"back":                          {[]Destination{web(9001, was(9000, 0)...)}, []Destination{web(9000)}, []Destination{web(9000, was(9001, 0)...)}},
		"the same":                      {[]Destination{web(9000, was(0)...)}, []Destination{web(9000)}, []Destination{web(9000, was(0)...)}},
		"one more":                      {[]Destination{web(0)}, []Destination{web(0), web(9000)}, []Destination{web(0), web(9000)}},
		"another app":                   {[]Destination{web(0)}, []Destination{other}, []Destination{other}},
		"another process":               {[]Destination{web(0)}, []Destination{worker}, []Destination{worker}},
		"one goes, a pending one stays": {[]Destination{web(0), web(9000)}, []Destination{web(9000)}, []Destination{web(9000)}},
		"all go":                        {[]Destination{web(9000, was(0)...)}, nil, []Destination{}},
		"two for two":                   {[]Destination{web(1), web(2)}, []Destination{web(3), web(4)}, []Destination{web(3, was(1)...), web(4, was(2)...)}},
	} {
		if diff := cmp.Diff(replaced(tt.old, tt.now), tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", name, diff)
		}
	}
	ds := []Destination{web(1)}
	for i := range 100 {
		ds = replaced(ds, []Destination{web(2 + i)})
	}
	if n := len(ds[0].Former); n != maxFormer {
		t.Errorf("%d former ports are kept, want %d", n, maxFormer)
	}
}

func TestDestinationAt(t *testing.T) {
	h1 := func(port int) Former { return Former{Port: port, Protocol: ProtocolHTTP1} }
	for _, tt := range []struct {
		d     Destination
		has   []int
		want  int
		found bool
		lacks bool
	}{
		{Destination{}, []int{8080}, 0, true, false},
		{Destination{Port: 8080}, []int{8080}, 8080, true, false},
		{Destination{Port: 9000}, []int{8080}, 0, false, true},
		{Destination{Port: 9000, Former: []Former{h1(0)}}, []int{8080}, 0, true, true},
		{Destination{Port: 9000, Former: []Former{h1(0)}}, []int{8080, 9000}, 9000, true, false},
		{Destination{Port: 9000, Former: []Former{h1(9001), h1(0)}}, []int{8080, 9001}, 9001, true, true},
		{Destination{Port: 9000, Former: []Former{h1(9001)}}, []int{8080}, 0, false, true},
	} {
		got, ok := tt.d.At(tt.has)
		if got.Port != tt.want || ok != tt.found || tt.d.Lacks(tt.has) != tt.lacks {
			t.Errorf("%+v at %v: %d, %v, lacks %v; want %d, %v, %v", tt.d, tt.has, got.Port, ok, tt.d.Lacks(tt.has), tt.want, tt.found, tt.lacks)
		}
	}
}

// What a destination replaced is on disk until nobody needs it, and unmapping acts
// at once.
func TestFormerIsKept(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	rt := newRoute(t, r, s, "shop")
	one[Route](t)(r.SetDestinations(rt.GUID, []Destination{{App: a.GUID}}))
	one[Route](t)(r.SetDestinations(rt.GUID, []Destination{{App: a.GUID, Port: 9000}}))
	former := func() []Former { return one[Route](t)(r.Route(rt.GUID)).Destinations[0].Former }
	want := []Former{{Protocol: ProtocolHTTP1}}
	if diff := cmp.Diff(former(), want); diff != "" {
		t.Errorf("kept (-got +want):\n%s", diff)
	}
	before := one[Route](t)(r.Route(rt.GUID))
	must(t, r.ForgetFormer(rt.GUID, func(Destination) bool { return true }))
	if diff := cmp.Diff(one[Route](t)(r.Route(rt.GUID)), before); diff != "" {
		t.Errorf("changed though it is needed (-got +want):\n%s", diff)
	}
	must(t, r.ForgetFormer(rt.GUID, func(Destination) bool { return false }))
	if got := former(); len(got) > 0 {
		t.Errorf("kept though nobody needs it: %v", got)
	}
	must(t, r.ForgetFormer("none", func(Destination) bool { return false }))

	one[Route](t)(r.SetDestinations(rt.GUID, []Destination{{App: a.GUID, Port: 9001}}))
	must(t, r.RemoveDestination(rt.GUID, one[Route](t)(r.Route(rt.GUID)).Destinations[0].GUID))
	if ds := one[Route](t)(r.Route(rt.GUID)).Destinations; len(ds) > 0 {
		t.Errorf("destinations = %+v, want none", ds)
	}
}

func TestAskedTwice(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	rt := newRoute(t, r, s, "shop")
	for _, change := range []func(string, []Destination) (Route, error){r.AddDestinations, r.SetDestinations} {
		_, err := change(rt.GUID, []Destination{{App: a.GUID}, {App: a.GUID, ProcessType: Web}})
		if diff := cmp.Diff(keys(err), []string{"destinations[1].app"}); diff != "" {
			t.Errorf("keys (-got +want):\n%s", diff)
		}
		_, err = change(rt.GUID, destinationsAt(a.GUID, 101))
		if diff := cmp.Diff(keys(err), []string{"destinations"}); diff != "" {
			t.Errorf("keys (-got +want):\n%s", diff)
		}
	}
	if err := r.RemoveDestination(rt.GUID, "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("err = %v", err)
	}
}

// A protocol of a manifest's route is that of the app's destinations, also when
// the route is there already.
func TestManifestProtocol(t *testing.T) {
	r, s := inSpace(t)
	a := apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost}]}]")[0]
	protocol := func() string { return one[[]Route](t)(r.RoutesOf(a.GUID))[0].Destinations[0].Protocol }
	if got := protocol(); got != ProtocolHTTP1 {
		t.Errorf("protocol = %s", got)
	}
	apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost, protocol: http2}]}]")
	if got := protocol(); got != ProtocolHTTP2 {
		t.Errorf("protocol = %s, want %s", got, ProtocolHTTP2)
	}
	apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost}]}]")
	if got := protocol(); got != ProtocolHTTP2 {
		t.Errorf("protocol = %s after a manifest that names none", got)
	}
	if got := one[[]ManifestRoute](t)(r.describedRoutes(a.GUID))[0].Protocol; got != ProtocolHTTP2 {
		t.Errorf("described protocol = %s", got)
	}
}
