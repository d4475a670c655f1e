//go:build integration

package api

import (
	"cmp"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/services"
)

// instead holds paths and bodies for endpoints that would otherwise refuse all users.
var instead = map[string]struct{ path, body string }{
	"GET /v3/packages/{guid}/download":                    {path: "/v3/packages/<Built>/download"},
	"GET /v3/service_instances/{guid}/credentials":        {path: "/v3/service_instances/<Provided>/credentials"},
	"PATCH /v3/organizations/{guid}":                      {body: `{"name":"NEW"}`},
	"PATCH /v3/routes/{guid}/destinations/{destination}":  {path: mappedRoute, body: `{"protocol":"http1"}`},
	"DELETE /v3/routes/{guid}/destinations/{destination}": {path: mappedRoute},
	"POST /v3/service_route_bindings": {
		body: `{"relationships":{"route":{"data":{"guid":"<Free route>"}},"service_instance":{"data":{"guid":"<Front>"}}}}`,
	},
}

const mappedRoute = "/v3/routes/<Mapped route>/destinations/<Destination>"

// below holds the 404 messages that permitted users get, because no app runs in the
// org server.
var below = map[string]string{
	"DELETE /dew/v1/console/sessions/{id}":                      "Console session not found",
	"DELETE /v3/processes/{guid}/instances/{index}":             "Instance not found",
	"DELETE /v3/apps/{guid}/processes/{type}/instances/{index}": "Instance not found",
}

// permissionServer is a org server that has every resource that the permission tests request.
type permissionServer struct {
	*badInputServer
	t      *testing.T
	cases  map[string]variant
	who    map[string]auth.Principal
	bodies map[string]string // valid bodies, by pattern
}

func newPermissionServer(t *testing.T) *permissionServer {
	t.Helper()
	h := newOrgServer(t)
	var built v3.Build
	h.want(200, "GET", "/v3/builds/"+h.guids["Build"], "", &built)
	h.guids["Built"], h.guids["Elsewhere"] = built.Package.GUID, must(h.c.Registry.PutOrg(app.Org{Name: "further-away"}))(t).GUID
	for _, flag := range []string{"route_sharing", "service_instance_sharing"} {
		h.want(200, "PATCH", "/v3/feature_flags/"+flag, `{"enabled":true}`, nil)
	}
	must(h.c.Registry.UpdateSpace(h.space.GUID, func(sp *app.Space) error { sp.Quota = h.guids[access.SpaceQuotaName]; return nil }))(t)
	if err := h.c.Registry.EnsureRouterGroup(app.PortRange{First: 20000, Last: 20009}); err != nil {
		t.Fatal(err)
	}
	h.furnish(t)
	c := &permissionServer{badInputServer: newBadInputServer(t, h), t: t, cases: map[string]variant{}, who: map[string]auth.Principal{}, bodies: map[string]string{}}
	for _, v := range variants {
		c.cases[v.name()] = v
	}
	for who, token := range h.tokens {
		c.who[who] = must(h.c.Auth.Verify(token))(t)
	}
	h.guids["/dew/v1/stacks/"] = h.guids["/v3/stacks/"]
	h.want(200, "POST", "/v3/isolation_segments/"+h.guids["/v3/isolation_segments/"]+"/relationships/organizations", `{"data":[{"guid":"`+h.org.GUID+`"}]}`, nil)
	c.before = c.store()
	return c
}

// furnish creates the resources of the variants, and those that a org server lacks.
func (h *orgServer) furnish(t *testing.T) {
	t.Helper()
	reg := h.c.Registry
	h.guids["/routing/v1/router_groups/"] = must(reg.RouterGroups())(t)[0].GUID
	h.guids["/v3/app_usage_events/"] = must(reg.AppUsage())(t)[0].GUID
	h.guids["/v3/service_usage_events/"] = must(reg.ServicesUsage())(t)[0].GUID
	h.guids["Other quota"] = must(reg.PutQuota(app.Quota{Name: "unused", Org: h.org.GUID}))(t).GUID
	h.guids["Other group"] = must(reg.PutSecurityGroup(app.SecurityGroup{Name: "unused"}))(t).GUID
	h.guids["Free route"] = must(reg.PutRoute(app.Route{Space: h.space.GUID, Domain: h.guids["/v3/domains/"], Host: "free"}))(t).GUID
	mapped := must(reg.PutRoute(app.Route{
		Space: h.space.GUID, Domain: h.guids["/v3/domains/"], Host: "mapped", Destinations: []app.Destination{{App: h.app, ProcessType: "web"}},
	}))(t)
	h.guids["Mapped route"], h.guids["Destination"] = mapped.GUID, mapped.Destinations[0].GUID
	h.guids["Shared domain"] = must(reg.DefaultDomain())(t).GUID
	h.guids["Stranger"] = must(h.c.Auth.Accounts().UserByName(stranger, ""))(t).GUID
	h.guids["Front"] = h.service(orgMark + "-front").GUID
	brokers := must(h.c.Services.Brokers(services.BrokerFilter{}))(t)
	h.guids["Global broker"] = brokers[slices.IndexFunc(brokers, func(b services.ServiceBroker) bool { return b.Space == "" })].GUID
	var made v3.ServiceInstance
	h.want(201, "POST", "/v3/service_instances", h.provided("papers", `,"credentials":{"a":"b"}`), &made)
	h.guids["Provided"] = made.GUID
	db := h.guids["Service instance"]
	h.complete(h.want(202, "POST", "/v3/service_credential_bindings", boundTo(db, "", `,"name":"key"`), nil))
	bound := h.bindings(db)
	h.guids["Key"] = bound[slices.IndexFunc(bound, func(b v3.ServiceCredentialBinding) bool { return b.Type == string(services.KeyBinding) })].GUID
}

// demand sends the request of an endpoint or a variant as a user, with a valid body.
func (c *permissionServer) demand(pattern, who string) *httptest.ResponseRecorder {
	c.t.Helper()
	if v, ok := c.cases[pattern]; ok {
		return c.send(who, v.method, c.fill(v.path), c.fill(v.body))
	}
	method, path := c.place(pattern)
	if other, ok := instead[pattern]; ok {
		return c.send(who, method, c.fill(cmp.Or(other.path, path)), c.fill(other.body))
	}
	if strings.HasPrefix(path, "/stream/") && !strings.HasSuffix(path, "/verify") || path == "/dew/v1/live/stream" {
		path += "?follow=false"
	}
	return c.send(who, method, path, c.body(pattern))
}

// body returns a valid body for an endpoint.
func (c *permissionServer) body(pattern string) string {
	c.t.Helper()
	if pattern == "/" || c.schemaAt(pattern) == nil {
		return "{}"
	}
	if _, made := c.bodies[pattern]; !made {
		c.bodies[pattern] = string(must(json.Marshal(c.good(pattern)))(c.t))
	}
	return c.bodies[pattern]
}

// send calls the handler without the token check, which other tests cover.
func (c *permissionServer) send(who, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	got := httptest.NewRecorder()
	c.s.mux.ServeHTTP(got, r.WithContext(access.WithCaller(r.Context(), &access.Caller{Who: c.who[who]})))
	return got
}

// wantRefused checks that a user is refused, learns nothing and changes nothing.
func (c *permissionServer) wantRefused(pattern, who string, want int) {
	c.t.Helper()
	got := c.demand(pattern, who)
	if got.Code != want {
		c.t.Errorf("%s as %s = %d %.200s, want %d", pattern, who, got.Code, got.Body, want)
	}
	if who == stranger || who == nobody {
		c.wantNoLeak(c.t, who+" "+pattern, got)
	}
	if c.written() {
		c.t.Errorf("%s as %s = %d, and the store has changed", pattern, who, got.Code)
		c.before = c.store()
	}
}

// wantLetIn checks that a user has permission. The request can still fail for another
// reason, if its status differs from that of a user without permission.
func (c *permissionServer) wantLetIn(pattern, who string, r rule) {
	c.t.Helper()
	got := c.demand(pattern, who)
	undone := (got.Code == 400 || got.Code == 422) && r.unseen != 422 || got.Code == 404 && below[pattern] != "" && strings.Contains(got.Body.String(), below[pattern])
	if got.Code >= 300 && !(got.Code == 302 && strings.HasSuffix(pattern, "/download")) && !undone {
		c.t.Errorf("%s as %s = %d %.200s, want to be let in", pattern, who, got.Code, got.Body)
	}
	if c.written() {
		c.before = c.store()
	}
}

// Supporters can read the variables of an app, but not the credentials among them.
func TestSupportersReadNoCredentials(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	for who, want := range map[string]string{developer: `"VCAP_SERVICES"`, adminReader: `"VCAP_SERVICES"`, supporter: `{"redacted_message":"[PRIVATE DATA HIDDEN]"}`} {
		got := h.as(h.tokens[who], "GET", "/v3/apps/"+h.app+"/env", "").Body.String()
		if !strings.Contains(got, want) || !strings.Contains(got, `"environment_variables":{"N":`) {
			t.Errorf("variables as %s = %s, want %s", who, got, want)
		}
		if who == supporter && strings.Contains(got, "VCAP_SERVICES") {
			t.Errorf("variables as %s have services: %s", who, got)
		}
	}
}

// The parameters of a service instance are visible in its own space, but not in spaces
// that share it. Users of neither space cannot see the instance.
func TestParametersAreHiddenInSharedSpaces(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	at := "/v3/service_instances/" + w.makeService("db").GUID
	there := must(w.c.Registry.PutSpace(app.Space{Name: "there", Org: w.space.Org}))(t)
	guest := w.user("guest")
	w.grant(guest, auth.OrgUser, w.space.Org)
	w.grant(guest, auth.SpaceDeveloper, there.GUID)
	token := w.login("guest")
	if got := w.as(token, "GET", at+"/parameters", ""); got.Code != 404 {
		t.Errorf("before it is shared = %d %s, want 404", got.Code, got.Body)
	}
	w.want(200, "PATCH", "/v3/feature_flags/service_instance_sharing", `{"enabled":true}`, nil)
	w.want(200, "POST", at+"/relationships/shared_spaces", `{"data":[{"guid":"`+there.GUID+`"}]}`, nil)
	for path, want := range map[string]int{at: 200, at + "/parameters": 403} {
		if got := w.as(token, "GET", path, ""); got.Code != want {
			t.Errorf("GET %s where it is shared = %d %s, want %d", path, got.Code, got.Body, want)
		}
	}
}

// Only a user with permission in the other space can stop sharing a route with it.
func TestUnshareRouteThere(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	there := must(h.c.Registry.PutSpace(app.Space{Name: "there", Org: h.org.GUID}))(t)
	h.want(200, "PATCH", "/v3/feature_flags/route_sharing", `{"enabled":true}`, nil)
	shared := "/v3/routes/" + h.guids["Route"] + "/relationships/shared_spaces"
	h.want(200, "POST", shared, `{"data":[{"guid":"`+there.GUID+`"}]}`, nil)
	wantError(t, h.as(h.tokens[developer], "DELETE", shared+"/"+there.GUID, ""), "CF-UnprocessableEntity", "Ensure the space exists and that you have access to it.")
	h.grant(must(h.c.Auth.Verify(h.tokens[developer]))(t).ID, auth.SpaceSupporter, there.GUID)
	if got := h.as(h.tokens[developer], "DELETE", shared+"/"+there.GUID, ""); got.Code != 204 {
		t.Errorf("where they support = %d %s, want 204", got.Code, got.Body)
	}
}
