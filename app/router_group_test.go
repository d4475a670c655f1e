package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// inTCP is a registry with a router group of three ports and a domain for it.
func inTCP(t *testing.T) (*Registry, Space, Domain) {
	t.Helper()
	r, s := inSpace(t)
	must(t, r.EnsureRouterGroup(PortRange{First: 20000, Last: 20002}))
	g := one[[]RouterGroup](t)(r.RouterGroups())
	if len(g) != 1 || g[0].Name != TCPGroup || g[0].Ports.String() != "20000-20002" {
		t.Fatalf("router groups = %+v", g)
	}
	return r, s, one[Domain](t)(r.PutDomain(Domain{Name: "tcp.example.com", RouterGroup: g[0].GUID}))
}

func TestTCPRoutes(t *testing.T) {
	r, s, d := inTCP(t)
	rt := one[Route](t)(r.PutRoute(Route{Space: s.GUID, Domain: d.GUID, Port: 20001}))
	if !rt.TCP() || rt.URL(d.Name) != "tcp.example.com:20001" {
		t.Errorf("route = %+v", rt)
	}
	if diff := cmp.Diff(one[Route](t)(r.RouteAtPort(20001)), rt); diff != "" {
		t.Errorf("at its port (-got +want):\n%s", diff)
	}
	// Without a wish a free one is found, until there is none.
	taken := map[int]bool{20001: true}
	for range 2 {
		one := one[Route](t)(r.PutRoute(Route{Space: s.GUID, Domain: d.GUID}))
		if taken[one.Port] || one.Port < 20000 || one.Port > 20002 {
			t.Errorf("port = %d", one.Port)
		}
		taken[one.Port] = true
	}
	if _, err := r.PutRoute(Route{Space: s.GUID, Domain: d.GUID}); err == nil || !strings.Contains(err.Error(), "more --tcp-ports") {
		t.Errorf("no port is left: %v", err)
	}
	// A smaller range leaves the routes that are there.
	must(t, r.EnsureRouterGroup(PortRange{First: 30000, Last: 30000}))
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	got := one[Route](t)(r.AddDestinations(rt.GUID, []Destination{{App: a.GUID}}))
	if got.Port != 20001 || got.Destinations[0].Protocol != ProtocolTCP {
		t.Errorf("route = %+v", got)
	}
	must(t, r.DeleteDomain(d.GUID))
	if _, err := r.RouteAtPort(20001); !errors.Is(err, ErrNotFound) {
		t.Errorf("the route of a deleted domain: %v", err)
	}
}

func TestTCPRouteValidation(t *testing.T) {
	r, s, d := inTCP(t)
	plain := one[Domain](t)(r.DefaultDomain())
	beside := one[Domain](t)(r.PutDomain(Domain{Name: "other.example.com", RouterGroup: d.RouterGroup}))
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	one[Route](t)(r.PutRoute(Route{Space: s.GUID, Domain: d.GUID, Port: 20000}))
	for name, c := range map[string]struct {
		rt  Route
		key string
	}{
		"taken":            {Route{Domain: d.GUID, Port: 20000}, "port"},
		"taken elsewhere":  {Route{Domain: beside.GUID, Port: 20000}, "port"},
		"out of range":     {Route{Domain: d.GUID, Port: 20003}, "port"},
		"negative":         {Route{Domain: d.GUID, Port: -1}, "port"},
		"with a host":      {Route{Domain: d.GUID, Port: 20001, Host: "a"}, "host"},
		"with a path":      {Route{Domain: d.GUID, Port: 20001, Path: "/a"}, "path"},
		"port of HTTP":     {Route{Domain: plain.GUID, Host: "a", Port: 20001}, "port"},
		"HTTP behind TCP":  {Route{Domain: d.GUID, Port: 20001, Destinations: []Destination{{App: a.GUID, Protocol: ProtocolHTTP1}}}, "destinations[0].protocol"},
		"TCP behind HTTP":  {Route{Domain: plain.GUID, Host: "a", Destinations: []Destination{{App: a.GUID, Protocol: ProtocolTCP}}}, "destinations[0].protocol"},
		"port of a target": {Route{Domain: d.GUID, Port: 20001, Destinations: []Destination{{App: a.GUID, Port: 70000}}}, "destinations[0].port"},
	} {
		c.rt.Space = s.GUID
		_, err := r.PutRoute(c.rt)
		if diff := cmp.Diff(keys(err), []string{c.key}); diff != "" {
			t.Errorf("%s: %v (-got +want):\n%s", name, err, diff)
		}
	}
	for name, dom := range map[string]Domain{
		"unknown group": {Name: "a.example.com", RouterGroup: "none"},
		"internal":      {Name: "a.example.com", RouterGroup: d.RouterGroup, Internal: true},
		"of one org":    {Name: "a.example.com", RouterGroup: d.RouterGroup, Org: s.Org},
	} {
		if _, err := r.PutDomain(dom); len(keys(err)) != 1 || !strings.HasPrefix(keys(err)[0], "router_group") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.EnsureDefaults(d.Name); err == nil || !strings.Contains(err.Error(), "TCP routes") {
		t.Errorf("a default domain of TCP routes: %v", err)
	}
}

func TestTCPRoutesInManifests(t *testing.T) {
	r, s, d := inTCP(t)
	a := apply(t, r, s, "applications: [{name: shop, routes: [{route: 'tcp.example.com:20000'}, {route: 'TCP.example.com:20001', protocol: tcp}]}]")[0]
	routes := one[[]Route](t)(r.RoutesOf(a.GUID))
	if len(routes) != 2 || routes[0].Port != 20000 || routes[1].Port != 20001 || routes[0].Destinations[0].Protocol != ProtocolTCP {
		t.Errorf("routes = %+v", routes)
	}
	// Applied again nothing changes, and what is described can be applied.
	before := everything(t, r)
	text := one[[]byte](t)(one[Manifest](t)(r.ManifestOf(a.GUID)).Text())
	if !strings.Contains(string(text), `"tcp.example.com:20000"`) {
		t.Errorf("described as\n%s", text)
	}
	apply(t, r, s, string(text))
	if diff := cmp.Diff(len(everything(t, r)), len(before)); diff != "" {
		t.Errorf("changed:\n%s\n%s", before, everything(t, r))
	}
	for route, want := range map[string]string{
		"{route: 'tcp.example.com:20009'}":                  "20009 is not available",
		"{route: tcp.example.com}":                          "tcp.example.com:PORT",
		"{route: 'a.tcp.example.com:20002'}":                "must be empty in the domain",
		"{route: 'shop.dew.localhost:20002'}":               "must be left out in the domain",
		"{route: 'tcp.example.com:20002', protocol: http1}": `must be tcp, not "http1"`,
		"{route: shop.dew.localhost, protocol: tcp}":        `must be http1 or http2, not "tcp"`,
	} {
		_, err := r.ApplyManifest(s.GUID, parse(t, fmt.Sprintf("applications: [{name: shop, routes: [%s]}]", route)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "routes[0]") {
			t.Errorf("%s: %v, want %q", route, err, want)
		}
	}
	other := one[Domain](t)(r.PutDomain(Domain{Name: "other.example.com", RouterGroup: d.RouterGroup}))
	_, err := r.ApplyManifest(s.GUID, parse(t, "applications: [{name: shop, routes: [{route: 'other.example.com:20000'}]}]"))
	if err == nil || !strings.Contains(err.Error(), "another domain has port 20000") {
		t.Errorf("%s: %v", other.Name, err)
	}
}

func TestUpdateDestination(t *testing.T) {
	r, s, d := inTCP(t)
	a := apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost}, {route: 'tcp.example.com:20000'}]}]")[0]
	routes := one[[]Route](t)(r.RoutesOf(a.GUID))
	tcp, web := routes[0], routes[1]
	got := one[Route](t)(r.UpdateDestination(web.GUID, web.Destinations[0].GUID, ProtocolHTTP2))
	if got.Destinations[0].Protocol != ProtocolHTTP2 || got.Destinations[0].GUID != web.Destinations[0].GUID {
		t.Errorf("destination = %+v", got.Destinations)
	}
	if got = one[Route](t)(r.UpdateDestination(web.GUID, web.Destinations[0].GUID, "")); got.Destinations[0].Protocol != ProtocolHTTP1 {
		t.Errorf("destination = %+v, want the default", got.Destinations)
	}
	one[Route](t)(r.UpdateDestination(tcp.GUID, tcp.Destinations[0].GUID, ProtocolTCP))
	for name, err := range map[string]error{
		"TCP":  second(r.UpdateDestination(web.GUID, web.Destinations[0].GUID, ProtocolTCP)),
		"HTTP": second(r.UpdateDestination(tcp.GUID, tcp.Destinations[0].GUID, ProtocolHTTP1)),
		"what": second(r.UpdateDestination(web.GUID, web.Destinations[0].GUID, "http3")),
	} {
		if diff := cmp.Diff(keys(err), []string{"protocol"}); diff != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.UpdateDestination(web.GUID, "none", ProtocolHTTP1); !errors.Is(err, ErrNotFound) {
		t.Errorf("no destination of %s: %v", d.Name, err)
	}
}

func FuzzPortRange(f *testing.F) {
	for _, s := range []string{"", "20000-20099", "1024", "1023-2000", "3000-2000", "a-b", "1-", "-1", " 2000-2001 ", "99999-99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var p, again PortRange
		if p.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(p.String())); err != nil || again != p {
			t.Errorf("%q: %v, %v, %v", s, p, again, err)
		}
		if p != (PortRange{}) && (!p.Has(p.First) || !p.Has(p.Last) || p.Has(p.Last+1) || p.Has(p.First-1) || p.First < 1024 || p.Last > 65535) {
			t.Errorf("%q: %+v", s, p)
		}
		if p.Has(0) {
			t.Errorf("%q has port 0", s)
		}
	})
}
