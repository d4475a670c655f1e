package api

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
)

// routeBody returns the body that creates a route in a space.
func routeBody(space, domain, more string) string {
	return fmt.Sprintf(`{%s"relationships":{"space":{"data":{"guid":%q}},"domain":{"data":{"guid":%q}}}}`, more, space, domain)
}

func TestCreateRoute(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	shared := must(w.c.Registry.DefaultDomain())(t)
	other := must(w.c.Registry.PutOrg(app.Org{Name: "other"}))(t)
	private := must(w.c.Registry.PutDomain(app.Domain{Name: "own.example.com", Org: w.space.Org}))(t)
	foreign := must(w.c.Registry.PutDomain(app.Domain{Name: "foreign.example.com", Org: other.GUID}))(t)
	var rt v3.Route
	w.want(201, "POST", "/v3/routes", routeBody(w.space.GUID, shared.GUID, `"host":"Shop","path":"/cart","options":{"loadbalancing":"round-robin"},"metadata":{"labels":{"a":"b"}},`), &rt)
	if rt.URL != "shop.dew.localhost/cart" || rt.Host != "shop" || rt.Options["loadbalancing"] != "round-robin" || *rt.Metadata.Labels["a"] != "b" || len(rt.Destinations) != 0 {
		t.Errorf("route = %+v", rt)
	}
	w.want(201, "POST", "/v3/routes", routeBody(w.space.GUID, private.GUID, ""), &rt)
	if rt.URL != "own.example.com" {
		t.Errorf("url = %s, want the domain itself", rt.URL)
	}
	for name, c := range map[string]struct{ space, domain, more, detail string }{
		"taken":             {w.space.GUID, shared.GUID, `"host":"shop","path":"/cart",`, "Route already exists with host 'shop' and path '/cart' for domain 'dew.localhost'."},
		"taken in capitals": {w.space.GUID, shared.GUID, `"host":"SHOP","path":"/cart",`, "Route already exists"},
		"taken domain":      {w.space.GUID, private.GUID, "", "Route already exists for domain 'own.example.com'."},
		"no host":           {w.space.GUID, shared.GUID, "", "Missing host. Routes in shared domains must have a host defined."},
		"bad host":          {w.space.GUID, shared.GUID, `"host":"a b",`, "host: must be one name"},
		"bad path":          {w.space.GUID, shared.GUID, `"host":"x","path":"x",`, "path: must be a path"},
		"port":              {w.space.GUID, shared.GUID, `"host":"x","port":8080,`, "port: Routes with protocol 'http' do not support ports."},
		"no space":          {"nonesuch", shared.GUID, `"host":"x",`, "Invalid space. Ensure that the space exists and you have access to it."},
		"no domain":         {w.space.GUID, "nonesuch", `"host":"x",`, "Invalid domain. Ensure that the domain exists and you have access to it."},
		"foreign domain":    {w.space.GUID, foreign.GUID, `"host":"x",`, "Invalid domain."},
		"other option":      {w.space.GUID, shared.GUID, `"host":"x","options":{"colour":"red"},`, "options: Unknown field(s): 'colour'"},
		"other balancing":   {w.space.GUID, shared.GUID, `"host":"x","options":{"loadbalancing":"random"},`, "options.loadbalancing: must be one of 'round-robin, least-connection' if present"},
		"bad label":         {w.space.GUID, shared.GUID, `"host":"x","metadata":{"labels":{"a":"b c"}},`, "metadata.labels[a]"},
		"unknown field":     {w.space.GUID, shared.GUID, `"colour":"x",`, "Unknown field(s): 'colour'"},
	} {
		got := w.request("POST", "/v3/routes", routeBody(c.space, c.domain, c.more))
		if got.Code != 422 || !strings.Contains(got.Body.String(), c.detail) {
			t.Errorf("%s = %d %s, want 422 %s", name, got.Code, got.Body, c.detail)
		}
	}
	var routes v3.List[v3.Route]
	if w.want(200, "GET", "/v3/routes", "", &routes); len(routes.Resources) != 2 {
		t.Errorf("%d routes, want 2", len(routes.Resources))
	}
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?types=audit.route.create&space_guids="+w.space.GUID, "", &events)
	if len(events.Resources) != 2 || events.Resources[0].Target.Name != "shop.dew.localhost/cart" || events.Resources[0].Organization == nil {
		t.Errorf("events = %+v, want two of routes", events.Resources)
	}
}

// Hash-based routing needs its feature flag. The rules and texts are those of Cloud
// Foundry. Routes keep their options when the flag is disabled.
func TestHashOptions(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	domain := must(w.c.Registry.DefaultDomain())(t)
	create := func(host, options string) *httptest.ResponseRecorder {
		return w.request("POST", "/v3/routes", routeBody(w.space.GUID, domain.GUID, `"host":"`+host+`","options":`+options+`,`))
	}
	manifest := func(options string) *httptest.ResponseRecorder {
		return w.request("POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest",
			"applications:\n- name: shop\n  routes:\n  - route: m.dew.localhost\n    options: "+options+"\n")
	}
	const hint = ". An administrator can enable the feature flag hash_based_routing"
	wantError(t, create("x", `{"loadbalancing":"hash"}`), "CF-UnprocessableEntity", "options.loadbalancing: must be one of 'round-robin, least-connection' if present"+hint)
	wantError(t, create("x", `{"hash_header":"X-User"}`), "CF-UnprocessableEntity", "options: Unknown field(s): 'hash_header'"+hint)
	wantError(t, manifest("{loadbalancing: hash, hash_header: X-User}"), "CF-UnprocessableEntity", "Unknown field(s): 'hash_header'"+hint)
	w.want(200, "PATCH", "/v3/feature_flags/hash_based_routing", `{"enabled":true}`, nil)
	for options, detail := range map[string]string{
		`{"loadbalancing":"hash"}`:                                                                    "Hash header must be present when loadbalancing is set to hash.",
		`{"loadbalancing":"coin"}`:                                                                    "options.loadbalancing: must be one of 'round-robin, least-connection, hash' if present",
		`{"loadbalancing":"round-robin","hash_header":"X"}`:                                           "Hash header can only be set when loadbalancing is hash",
		`{"loadbalancing":"round-robin","hash_balance":2}`:                                            "Hash balance can only be set when loadbalancing is hash",
		`{"loadbalancing":"hash","hash_header":"X","hash_balance":"much"}`:                            "options.hash_balance: must be a numeric value",
		`{"loadbalancing":"hash","hash_header":"X","hash_balance":1}`:                                 "options.hash_balance: must be either 0 or between 1.1 and 10.0",
		`{"loadbalancing":"hash","hash_header":"X","hash_balance":"` + strings.Repeat("1", 17) + `"}`: "options.hash_balance: must be at most 16 characters",
		`{"loadbalancing":"hash","hash_header":"` + strings.Repeat("x", 129) + `"}`:                   "options.hash_header: must be at most 128 characters",
	} {
		wantError(t, create("x", options), "CF-UnprocessableEntity", detail)
		wantError(t, manifest(options), "CF-UnprocessableEntity", detail[strings.LastIndex(detail, ": ")+1:])
	}
	var rt v3.Route
	w.want(201, "POST", "/v3/routes", routeBody(w.space.GUID, domain.GUID, `"host":"shop","options":{"loadbalancing":"hash","hash_header":"X-User","hash_balance":1.25},`), &rt)
	full := map[string]string{"loadbalancing": "hash", "hash_header": "X-User", "hash_balance": "1.3"}
	if diff := cmp.Diff(rt.Options, full); diff != "" {
		t.Errorf("options (-got +want):\n%s", diff)
	}
	path := "/v3/routes/" + rt.GUID
	wantError(t, w.request("PATCH", path, `{"options":{"hash_header":null}}`), "CF-UnprocessableEntity", "Hash header must be present when loadbalancing is set to hash.")
	w.want(200, "PATCH", "/v3/feature_flags/hash_based_routing", `{"enabled":false}`, nil)
	wantError(t, w.request("PATCH", path, `{"options":{"hash_header":"X-Org"}}`), "CF-UnprocessableEntity", "Unknown field(s): 'hash_header'"+hint)
	rt = v3.Route{}
	w.want(200, "PATCH", path, `{"metadata":{"labels":{"a":"b"}}}`, &rt)
	if diff := cmp.Diff(rt.Options, full); diff != "" {
		t.Errorf("options with the flag disabled (-got +want):\n%s", diff)
	}
	rt = v3.Route{}
	w.want(200, "PATCH", path, `{"options":{"loadbalancing":"least-connection"}}`, &rt)
	if diff := cmp.Diff(rt.Options, map[string]string{"loadbalancing": "least-connection"}); diff != "" {
		t.Errorf("options after least-connection (-got +want):\n%s", diff)
	}
}

func TestRouteChanges(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	domain := must(w.c.Registry.DefaultDomain())(t)
	var rt v3.Route
	w.want(201, "POST", "/v3/routes", routeBody(w.space.GUID, domain.GUID, `"host":"shop",`), &rt)
	path := "/v3/routes/" + rt.GUID
	w.want(200, "PATCH", path, `{"options":{"loadbalancing":"round-robin"},"metadata":{"labels":{"a":"b"}}}`, &rt)
	if rt.Options["loadbalancing"] == "" || *rt.Metadata.Labels["a"] != "b" || rt.Host != "shop" {
		t.Errorf("route = %+v", rt)
	}
	rt = v3.Route{}
	if w.want(200, "PATCH", path, `{"options":{"loadbalancing":null}}`, &rt); rt.Options != nil {
		t.Errorf("options = %v, want none", rt.Options)
	}
	var ds v3.Destinations
	w.want(200, "POST", path+"/destinations", `{"destinations":[{"app":{"guid":"`+a.GUID+`"}},{"app":{"guid":"`+a.GUID+`"},"port":9000}]}`, &ds)
	w.want(204, "DELETE", path+"/destinations/"+ds.Destinations[0].GUID, "", nil)
	wantError(t, w.request("DELETE", path+"/destinations/"+ds.Destinations[0].GUID, ""), "CF-UnprocessableEntity", "Unable to unmap route from destination.")
	wantError(t, w.request("DELETE", "/v3/routes/nonesuch/destinations/x", ""), "CF-ResourceNotFound", "Route not found")
	w.want(200, "GET", path+"/destinations", "", &ds)
	if len(ds.Destinations) != 1 || ds.Destinations[0].Port != 9000 {
		t.Errorf("destinations = %+v, want the one with the port", ds.Destinations)
	}
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?target_guids="+a.GUID+","+rt.GUID+"&types=audit.route.update,audit.app.map-route,audit.app.unmap-route", "", &events)
	if diff := cmp.Diff(eventTypes(events.Resources), []string{
		"audit.route.update", "audit.route.update", "audit.app.map-route", "audit.app.map-route", "audit.app.unmap-route",
	}); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
}

// An empty filter matches empty hosts and paths, and names are not case-sensitive.
func TestFindRoutes(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	d := must(w.c.Registry.PutDomain(app.Domain{Name: "own.example.com", Org: w.space.Org}))(t)
	for _, rt := range []app.Route{{}, {Host: "a"}, {Host: "a", Path: "/p"}, {Path: "/p"}} {
		rt.Space, rt.Domain = w.space.GUID, d.GUID
		must(w.c.Registry.PutRoute(rt))(t)
	}
	for query, want := range map[string][]string{
		"hosts=&paths=":         {"own.example.com"},
		"hosts=A&paths=":        {"a.own.example.com"},
		"hosts=a&paths=/p":      {"a.own.example.com/p"},
		"hosts=&paths=%2Fp":     {"own.example.com/p"},
		"hosts=a":               {"a.own.example.com", "a.own.example.com/p"},
		"hosts=b":               nil,
		"hosts=a&ports=":        {"a.own.example.com", "a.own.example.com/p"},
		"hosts=a&ports=8080":    nil,
		"domain_guids=nonesuch": nil,
	} {
		var got []string
		var routes v3.List[v3.Route]
		w.want(200, "GET", "/v3/routes?"+query, "", &routes)
		for _, rt := range routes.Resources {
			got = append(got, rt.URL)
		}
		slices.Sort(got)
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", query, diff)
		}
	}
	for query, want := range map[string]bool{
		"host=a": true, "host=A&path=/p": true, "": true, "path=/p": true, "host=b": false, "host=a&path=/q": false, "host=a&port=80": false,
	} {
		var got v3.Reservation
		if w.want(200, "GET", "/v3/domains/"+d.GUID+"/route_reservations?"+query, "", &got); got.Matching != want {
			t.Errorf("reservation of %q = %t, want %t", query, got.Matching, want)
		}
	}
	wantError(t, w.request("GET", "/v3/domains/nonesuch/route_reservations", ""), "CF-ResourceNotFound", "Domain not found")
	wantError(t, w.request("GET", "/v3/domains/"+d.GUID+"/route_reservations?hots=a", ""), "CF-BadQueryParameter", "'hots'")
	wantError(t, w.request("DELETE", "/v3/spaces/"+w.space.GUID+"/routes", ""), "CF-BadQueryParameter", "unmapped=true")
	a := w.createApp("shop")
	kept := must(w.c.Registry.RouteAt(d.GUID, "a", ""))(t)
	must(w.c.Registry.AddDestinations(kept.GUID, []app.Destination{{App: a.GUID}}))(t)
	w.finish(w.want(202, "DELETE", "/v3/spaces/"+w.space.GUID+"/routes?unmapped=true", "", nil))
	if all := must(w.c.Registry.Routes())(t); len(all) != 1 || all[0].GUID != kept.GUID {
		t.Errorf("routes = %+v, want the mapped one", all)
	}
}

// Included resources are those that the page refers to, once each.
func TestInclude(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", shopManifest, nil))
	w.createApp("other")
	for path, want := range map[string]map[string]int{
		"/v3/apps?include=space":                              {"spaces": 1},
		"/v3/apps?include=space,space.organization":           {"spaces": 1, "organizations": 1},
		"/v3/apps?include=space&names=nonesuch":               {"spaces": 0},
		"/v3/apps":                                            nil,
		"/v3/routes?include=domain,space,space.organization":  {"domains": 1, "spaces": 1, "organizations": 1},
		"/v3/service_route_bindings?include=service_instance": {"service_instances": 0},
	} {
		var page struct {
			Included map[string][]map[string]any `json:"included"`
		}
		w.want(200, "GET", path, "", &page)
		got := map[string]int{}
		for noun, all := range page.Included {
			got[noun] = len(all)
		}
		if diff := cmp.Diff(got, want); diff != "" && len(got)+len(want) > 0 {
			t.Errorf("%s includes (-got +want):\n%s", path, diff)
		}
	}
	for _, path := range []string{"/v3/apps?include=colour", "/v3/routes?include=app", "/v3/service_route_bindings?include=x", "/v3/processes?embed=x"} {
		wantError(t, w.request("GET", path, ""), "CF-BadQueryParameter", "Invalid")
	}
}

// Events can be found by all their properties, and one by one.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	joe := w.user("joe", auth.ScopeAdmin)
	token := w.login("joe")
	a := w.createApp("shop")
	b := w.createApp("other")
	w.as(token, "PATCH", "/v3/apps/"+a.GUID, `{"name":"renamed"}`)
	for query, want := range map[string]int{
		"":                                     5,
		"target_guids=" + a.GUID:               3,
		"target_guids[not]=" + a.GUID:          2,
		"types=audit.app.create":               2,
		"space_guids=" + w.space.GUID:          5,
		"space_guids=x":                        0,
		"organization_guids=" + w.space.Org:    5,
		"organization_guids=x":                 0,
		"actor_guids=" + joe:                   1,
		"created_ats[lt]=2020-01-01T00:00:00Z": 0,
		"target_guids=" + b.GUID + "&types=audit.app.update": 0,
	} {
		var events v3.List[v3.Event]
		if w.want(200, "GET", "/v3/audit_events?"+strings.ReplaceAll(query, "[", url.QueryEscape("[")), "", &events); len(events.Resources) != want {
			t.Errorf("%q: %v, want %d", query, eventTypes(events.Resources), want)
		}
		for _, e := range events.Resources {
			var one v3.Event
			if w.want(200, "GET", "/v3/audit_events/"+e.GUID, "", &one); one.Type != e.Type || one.GUID != e.GUID {
				t.Errorf("event = %+v, want %+v", one, e)
			}
		}
	}
	wantError(t, w.request("GET", "/v3/audit_events/nonesuch", ""), "CF-ResourceNotFound", "Event not found")
}

// A job is visible only to the user who started it and to global readers.
func TestJobIsPrivate(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	tokens := map[string]string{}
	for _, name := range []string{"joe", "eve"} {
		guid := w.user(name)
		w.grant(guid, auth.OrgUser, w.space.Org)
		w.grant(guid, auth.SpaceDeveloper, w.space.GUID)
		tokens[name] = w.login(name)
	}
	w.user("boss", auth.ScopeAdmin)
	w.user("auditor", auth.ScopeGlobalAuditor)
	got := w.as(tokens["joe"], "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", "applications: [{name: a}]")
	path := strings.TrimPrefix(got.Header().Get("Location"), publicURL)
	for who, want := range map[string]int{tokens["joe"]: 200, tokens["eve"]: 404, w.login("boss"): 200, w.login("auditor"): 200} {
		if got := w.as(who, "GET", path, ""); got.Code != want {
			t.Errorf("job = %d %s, want %d", got.Code, got.Body, want)
		}
	}
}
