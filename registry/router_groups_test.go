package registry

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

// inTCP returns a registry with a router group of three ports and a domain for it.
func inTCP(t *testing.T) (*Registry, app.Space, app.Domain) {
	t.Helper()
	r, s := inSpace(t)
	must(t, r.EnsureRouterGroup(app.PortRange{First: 20000, Last: 20002}))
	g := one[[]app.RouterGroup](t)(r.RouterGroups())
	if len(g) != 1 || g[0].Name != app.TCPGroup || g[0].Ports.String() != "20000-20002" {
		t.Fatalf("router groups = %+v", g)
	}
	return r, s, one[app.Domain](t)(r.PutDomain(app.Domain{Name: "tcp.example.com", RouterGroup: g[0].GUID}))
}

func TestTCPRoutes(t *testing.T) {
	r, s, d := inTCP(t)
	rt := one[app.Route](t)(r.PutRoute(app.Route{Space: s.GUID, Domain: d.GUID, Port: 20001}))
	if !rt.TCP() || rt.URL(d.Name) != "tcp.example.com:20001" {
		t.Errorf("route = %+v", rt)
	}
	if diff := cmp.Diff(one[app.Route](t)(r.RouteAtPort(20001)), rt); diff != "" {
		t.Errorf("at its port (-got +want):\n%s", diff)
	}
	// If no port is given, the registry finds a free one until none is left.
	taken := map[int]bool{20001: true}
	for range 2 {
		one := one[app.Route](t)(r.PutRoute(app.Route{Space: s.GUID, Domain: d.GUID}))
		if taken[one.Port] || one.Port < 20000 || one.Port > 20002 {
			t.Errorf("port = %d", one.Port)
		}
		taken[one.Port] = true
	}
	if _, err := r.PutRoute(app.Route{Space: s.GUID, Domain: d.GUID}); err == nil || !strings.Contains(err.Error(), "a larger range in --tcp-ports") {
		t.Errorf("no port is left: %v", err)
	}
	// Existing routes stay if the range shrinks.
	must(t, r.EnsureRouterGroup(app.PortRange{First: 30000, Last: 30000}))
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	got := one[app.Route](t)(r.AddDestinations(rt.GUID, []app.Destination{{App: a.GUID}}))
	if got.Port != 20001 || got.Destinations[0].Protocol != app.ProtocolTCP {
		t.Errorf("route = %+v", got)
	}
	must(t, r.DeleteDomain(d.GUID))
	if _, err := r.RouteAtPort(20001); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("the route of a deleted domain: %v", err)
	}
}

func TestTCPRouteValidation(t *testing.T) {
	r, s, d := inTCP(t)
	plain := one[app.Domain](t)(r.DefaultDomain())
	beside := one[app.Domain](t)(r.PutDomain(app.Domain{Name: "other.example.com", RouterGroup: d.RouterGroup}))
	a := apply(t, r, s, "applications: [{name: shop}]")[0]
	one[app.Route](t)(r.PutRoute(app.Route{Space: s.GUID, Domain: d.GUID, Port: 20000}))
	for name, c := range map[string]struct {
		rt  app.Route
		key string
	}{
		"taken":            {app.Route{Domain: d.GUID, Port: 20000}, "port"},
		"taken elsewhere":  {app.Route{Domain: beside.GUID, Port: 20000}, "port"},
		"out of range":     {app.Route{Domain: d.GUID, Port: 20003}, "port"},
		"negative":         {app.Route{Domain: d.GUID, Port: -1}, "port"},
		"with a host":      {app.Route{Domain: d.GUID, Port: 20001, Host: "a"}, "host"},
		"with a path":      {app.Route{Domain: d.GUID, Port: 20001, Path: "/a"}, "path"},
		"port of HTTP":     {app.Route{Domain: plain.GUID, Host: "a", Port: 20001}, "port"},
		"HTTP behind TCP":  {app.Route{Domain: d.GUID, Port: 20001, Destinations: []app.Destination{{App: a.GUID, Protocol: app.ProtocolHTTP1}}}, "destinations[0].protocol"},
		"TCP behind HTTP":  {app.Route{Domain: plain.GUID, Host: "a", Destinations: []app.Destination{{App: a.GUID, Protocol: app.ProtocolTCP}}}, "destinations[0].protocol"},
		"port of a target": {app.Route{Domain: d.GUID, Port: 20001, Destinations: []app.Destination{{App: a.GUID, Port: 70000}}}, "destinations[0].port"},
	} {
		c.rt.Space = s.GUID
		_, err := r.PutRoute(c.rt)
		if diff := cmp.Diff(keys(err), []string{c.key}); diff != "" {
			t.Errorf("%s: %v (-got +want):\n%s", name, err, diff)
		}
	}
	for name, dom := range map[string]app.Domain{
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
	routes := one[[]app.Route](t)(r.RoutesOf(a.GUID))
	if len(routes) != 2 || routes[0].Port != 20000 || routes[1].Port != 20001 || routes[0].Destinations[0].Protocol != app.ProtocolTCP {
		t.Errorf("routes = %+v", routes)
	}
	// Applying it again changes nothing, and the described manifest can be applied.
	before := dumpRegistry(t, r)
	text := one[[]byte](t)(one[app.Manifest](t)(r.ManifestOf(a.GUID)).Text())
	if !strings.Contains(string(text), `"tcp.example.com:20000"`) {
		t.Errorf("described as\n%s", text)
	}
	apply(t, r, s, string(text))
	if diff := cmp.Diff(len(dumpRegistry(t, r)), len(before)); diff != "" {
		t.Errorf("changed:\n%s\n%s", before, dumpRegistry(t, r))
	}
	for route, want := range map[string]string{
		"{route: 'tcp.example.com:20009'}":                  "20009 is not available",
		"{route: tcp.example.com}":                          "tcp.example.com:PORT",
		"{route: 'a.tcp.example.com:20002'}":                "must be empty in the TCP domain",
		"{route: 'shop.dew.localhost:20002'}":               "must not be set in domain",
		"{route: 'tcp.example.com:20002', protocol: http1}": `must be tcp, not "http1"`,
		"{route: shop.dew.localhost, protocol: tcp}":        `must be http1 or http2, not "tcp"`,
	} {
		_, err := r.ApplyManifest(s.GUID, parse(t, fmt.Sprintf("applications: [{name: shop, routes: [%s]}]", route)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "routes[0]") {
			t.Errorf("%s: %v, want %q", route, err, want)
		}
	}
	other := one[app.Domain](t)(r.PutDomain(app.Domain{Name: "other.example.com", RouterGroup: d.RouterGroup}))
	_, err := r.ApplyManifest(s.GUID, parse(t, "applications: [{name: shop, routes: [{route: 'other.example.com:20000'}]}]"))
	if err == nil || !strings.Contains(err.Error(), "another domain has port 20000") {
		t.Errorf("%s: %v", other.Name, err)
	}
}

func TestUpdateDestination(t *testing.T) {
	r, s, d := inTCP(t)
	a := apply(t, r, s, "applications: [{name: shop, routes: [{route: shop.dew.localhost}, {route: 'tcp.example.com:20000'}]}]")[0]
	routes := one[[]app.Route](t)(r.RoutesOf(a.GUID))
	tcp, web := routes[0], routes[1]
	got := one[app.Route](t)(r.UpdateDestination(web.GUID, web.Destinations[0].GUID, app.ProtocolHTTP2))
	if got.Destinations[0].Protocol != app.ProtocolHTTP2 || got.Destinations[0].GUID != web.Destinations[0].GUID {
		t.Errorf("destination = %+v", got.Destinations)
	}
	if got = one[app.Route](t)(r.UpdateDestination(web.GUID, web.Destinations[0].GUID, "")); got.Destinations[0].Protocol != app.ProtocolHTTP1 {
		t.Errorf("destination = %+v, want the default", got.Destinations)
	}
	one[app.Route](t)(r.UpdateDestination(tcp.GUID, tcp.Destinations[0].GUID, app.ProtocolTCP))
	for name, err := range map[string]error{
		"TCP":  second(r.UpdateDestination(web.GUID, web.Destinations[0].GUID, app.ProtocolTCP)),
		"HTTP": second(r.UpdateDestination(tcp.GUID, tcp.Destinations[0].GUID, app.ProtocolHTTP1)),
		"what": second(r.UpdateDestination(web.GUID, web.Destinations[0].GUID, "http3")),
	} {
		if diff := cmp.Diff(keys(err), []string{"protocol"}); diff != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.UpdateDestination(web.GUID, "none", app.ProtocolHTTP1); !errors.Is(err, app.ErrNotFound) {
		t.Errorf("no destination of %s: %v", d.Name, err)
	}
}
