package api

import (
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

func TestRouterGroups(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	var root v3.Root
	if w.want(200, "GET", "/", "", &root); root.Links.Routing != nil {
		t.Errorf("routing = %v, want none without ports", root.Links.Routing)
	}
	var groups []v3.RouterGroup
	if w.want(200, "GET", "/routing/v1/router_groups", "", &groups); len(groups) != 0 {
		t.Errorf("groups = %+v", groups)
	}
	if err := w.c.Registry.EnsureRouterGroup(app.PortRange{First: 20000, Last: 20009}); err != nil {
		t.Fatal(err)
	}
	if w.want(200, "GET", "/", "", &root); root.Links.Routing == nil || !strings.HasSuffix(root.Links.Routing.Href, "/routing") {
		t.Errorf("routing = %v", root.Links.Routing)
	}
	w.want(200, "GET", "/routing/v1/router_groups?name=default-tcp", "", &groups)
	if len(groups) != 1 || groups[0].Name != "default-tcp" || groups[0].Type != "tcp" || groups[0].ReservablePorts != "20000-20009" {
		t.Errorf("groups = %+v", groups)
	}
	var one v3.RouterGroup
	if w.want(200, "GET", "/routing/v1/router_groups/"+groups[0].GUID, "", &one); one != groups[0] {
		t.Errorf("group = %+v", one)
	}
	wantError(t, w.request("GET", "/routing/v1/router_groups?name=other", ""), "CF-ResourceNotFound", "Router group not found")
	wantError(t, w.request("GET", "/routing/v1/router_groups/other", ""), "CF-ResourceNotFound", "Router group not found")
	wantError(t, w.request("GET", "/routing/v1/router_groups?colour=red", ""), "CF-BadQueryParameter", "'colour'")
}

// tcpDomain creates a domain for TCP routes over the API.
func (w *testServer) tcpDomain(name string) v3.Domain {
	w.t.Helper()
	if err := w.c.Registry.EnsureRouterGroup(app.PortRange{First: 20000, Last: 20009}); err != nil {
		w.t.Fatal(err)
	}
	var groups []v3.RouterGroup
	w.want(200, "GET", "/routing/v1/router_groups", "", &groups)
	var d v3.Domain
	w.want(201, "POST", "/v3/domains", `{"name":"`+name+`","router_group":{"guid":"`+groups[0].GUID+`"}}`, &d)
	if len(d.SupportedProtocols) != 1 || d.SupportedProtocols[0] != "tcp" || d.RouterGroup == nil || d.RouterGroup.GUID != groups[0].GUID || d.Links["router_group"].Href == "" {
		w.t.Errorf("domain = %+v", d)
	}
	return d
}

func TestTCPRoutes(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	d, other := w.tcpDomain("tcp.dew.localhost"), w.tcpDomain("more.dew.localhost")
	shared := must(w.c.Registry.DefaultDomain())(t)
	a := w.createApp("shop")
	var rt, any v3.Route
	w.want(201, "POST", "/v3/routes", routeBody(w.space.GUID, d.GUID, `"port":20001,`), &rt)
	if rt.URL != "tcp.dew.localhost:20001" || rt.Protocol != "tcp" || rt.Port == nil || *rt.Port != 20001 || rt.Host != "" {
		t.Errorf("route = %+v", rt)
	}
	w.want(201, "POST", "/v3/routes", routeBody(w.space.GUID, d.GUID, ""), &any)
	if any.Port == nil || *any.Port == 20001 {
		t.Errorf("route = %+v, want a port of its own", any)
	}
	for name, c := range map[string]struct{ domain, more, detail string }{
		"taken":        {d.GUID, `"port":20001,`, "Route already exists with port '20001' for domain 'tcp.dew.localhost'."},
		"taken beside": {other.GUID, `"port":20001,`, "port: Port '20001' is not available."},
		"out of range": {d.GUID, `"port":30000,`, "port: 30000 is not available"},
		"zero":         {d.GUID, `"port":0,`, "port: must be"},
		"negative":     {d.GUID, `"port":-1,`, "port: must be"},
		"too large":    {d.GUID, `"port":70000,`, "port: 70000 is not available"},
		"a host":       {d.GUID, `"host":"a",`, "host: Hosts are not supported for TCP routes."},
		"a path":       {d.GUID, `"path":"/a",`, "path: Paths are not supported for TCP routes."},
		"HTTP":         {shared.GUID, `"host":"a","port":20002,`, "port: Routes with protocol 'http' do not support ports."},
	} {
		got := w.request("POST", "/v3/routes", routeBody(w.space.GUID, c.domain, c.more))
		if got.Code != 422 || !strings.Contains(got.Body.String(), c.detail) {
			t.Errorf("%s = %d %s, want 422 %s", name, got.Code, got.Body, c.detail)
		}
	}
	var found v3.List[v3.Route]
	for query, want := range map[string]int{"ports=20001": 1, "hosts=&paths=&ports=20001&domain_guids=" + d.GUID: 1, "ports=20009": 0, "ports=": 0} {
		if w.want(200, "GET", "/v3/routes?"+query, "", &found); len(found.Resources) != want && *any.Port != 20009 {
			t.Errorf("%s: %d routes, want %d", query, len(found.Resources), want)
		}
	}
	var res v3.Reservation
	for query, want := range map[string]bool{"port=20001": true, "port=20000": *any.Port == 20000, "port=0": false} {
		if w.want(200, "GET", "/v3/domains/"+d.GUID+"/route_reservations?"+query, "", &res); res.Matching != want {
			t.Errorf("%s: %v, want %v", query, res.Matching, want)
		}
	}
	wantError(t, w.request("GET", "/v3/domains/"+d.GUID+"/route_reservations?port=x", ""), "CF-BadQueryParameter", "port must be")
	var ds v3.Destinations
	w.want(200, "POST", "/v3/routes/"+rt.GUID+"/destinations", `{"destinations":[{"app":{"guid":"`+a.GUID+`"},"port":9000}]}`, &ds)
	if len(ds.Destinations) != 1 || ds.Destinations[0].Protocol != "tcp" || ds.Destinations[0].Port != 9000 {
		t.Errorf("destinations = %+v", ds.Destinations)
	}
	wantError(t, w.request("PATCH", "/v3/routes/"+rt.GUID+"/destinations", `{"destinations":[{"app":{"guid":"`+a.GUID+`"},"protocol":"http1"}]}`),
		"CF-UnprocessableEntity", `destinations[0].protocol: must be tcp, not "http1"`)
}

func TestTCPDomainValidation(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	g := w.tcpDomain("tcp.dew.localhost").RouterGroup.GUID
	for body, detail := range map[string]string{
		`{"name":"a.example.com","router_group":{"guid":"none"}}`:                                                                               "Router group with guid 'none' not found.",
		`{"name":"a.example.com","internal":true,"router_group":{"guid":"` + g + `"}}`:                                                          "Internal domains cannot be associated",
		`{"name":"a.example.com","router_group":{"guid":"` + g + `"},"relationships":{"organization":{"data":{"guid":"` + w.space.Org + `"}}}}`: "Domains scoped to an organization",
	} {
		wantError(t, w.request("POST", "/v3/domains", body), "CF-UnprocessableEntity", detail)
	}
}

// Only the protocol of a destination can be changed; the other fields identify it.
func TestUpdateDestination(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	domain := must(w.c.Registry.DefaultDomain())(t)
	var rt v3.Route
	w.want(201, "POST", "/v3/routes", routeBody(w.space.GUID, domain.GUID, `"host":"shop",`), &rt)
	var ds v3.Destinations
	w.want(200, "POST", "/v3/routes/"+rt.GUID+"/destinations", `{"destinations":[{"app":{"guid":"`+a.GUID+`"}}]}`, &ds)
	path := "/v3/routes/" + rt.GUID + "/destinations/" + ds.Destinations[0].GUID
	for body, want := range map[string]string{`{"protocol":"http2"}`: "http2", `{"protocol":null}`: "http1"} {
		var d v3.Destination
		if w.want(200, "PATCH", path, body, &d); d.Protocol != want || d.GUID != ds.Destinations[0].GUID || d.App.GUID != a.GUID {
			t.Errorf("%s: %+v, want %s", body, d, want)
		}
	}
	for body, detail := range map[string]string{
		`{"protocol":"http3"}`: `protocol: must be http1 or http2, not "http3"`,
		`{"protocol":"tcp"}`:   `protocol: must be http1 or http2, not "tcp"`,
		`{"protocol":""}`:      "protocol: must be",
		`{"protocol":1}`:       "protocol must be a string",
		`{"port":8081}`:        "Unknown field(s): 'port'",
	} {
		wantError(t, w.request("PATCH", path, body), "CF-UnprocessableEntity", detail)
	}
	wantError(t, w.request("PATCH", "/v3/routes/"+rt.GUID+"/destinations/none", `{"protocol":"http2"}`), "CF-ResourceNotFound", "Destination not found")
	wantError(t, w.request("PATCH", "/v3/routes/none/destinations/none", `{"protocol":"http2"}`), "CF-ResourceNotFound", "Route not found")
}

// A route shows that its port cannot be opened.
func TestPortCannotBeOpened(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	d := w.tcpDomain("tcp.dew.localhost")
	w.s.routes.Present.PortTrouble = func(port int) string {
		if port != 20001 {
			return ""
		}
		return "the port is taken"
	}
	for port, want := range map[string]string{"20001": "the port is taken", "20002": ""} {
		var rt v3.Route
		if w.want(201, "POST", "/v3/routes", routeBody(w.space.GUID, d.GUID, `"port":`+port+`,`), &rt); rt.Problem != want {
			t.Errorf("problem of %s = %q, want %q", port, rt.Problem, want)
		}
	}
}
