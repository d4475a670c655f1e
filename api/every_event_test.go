package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

// wantedEvent is an expected event. Empty fields are not checked.
type wantedEvent struct {
	kind   string // type without "audit."
	target string // type of the target
	guid   string // GUID of the target
	place  access.Place
	data   string // a path in the data that must not be empty
	broker bool   // the actor is a broker
}

// act sends all further requests of h as the user.
func (h *orgServer) act(t *testing.T, name string) {
	t.Helper()
	token, listener := h.login(name), h.listener
	h.local = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "127.0.0.1:8484"
		r.Header.Set("Authorization", "bearer "+token)
		listener.ServeHTTP(w, r)
	})
}

// Every action that Cloud Foundry records is recorded for requests over the API, with
// the actor, the target, the place and the data.
func TestEveryEvent(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	who := h.user("doer", auth.ScopeAdmin)
	h.act(t, "doer")
	h.want(200, "PATCH", "/v3/feature_flags/route_sharing", `{"enabled":true}`, nil)
	h.want(200, "PATCH", "/v3/feature_flags/service_instance_sharing", `{"enabled":true}`, nil)
	place := access.Place{Org: h.org.GUID, Space: h.space.GUID}
	var wanted []wantedEvent
	for _, some := range [][]wantedEvent{
		h.doApps(t, place), h.doBits(t, place), h.doRoutes(t, place), h.doPlaces(t), h.doQuotas(t), h.doStaging(t), h.doServices(t, place), h.doMarket(t),
	} {
		wanted = append(wanted, some...)
	}
	var page v3.List[v3.Event]
	h.want(200, "GET", "/v3/audit_events?per_page=5000", "", &page)
	for _, e := range wanted {
		h.wantTold(t, e, who, page.Resources)
	}
	h.wantFilters(t, page.Resources)
}

func (h *orgServer) wantTold(t *testing.T, want wantedEvent, who string, all []v3.Event) {
	t.Helper()
	kind := "audit." + want.kind
	i := slices.IndexFunc(all, func(e v3.Event) bool {
		return e.Type == kind && (want.guid == "" || e.Target.GUID == want.guid) && (e.Actor.GUID == who) != want.broker
	})
	if i < 0 {
		t.Errorf("no %s of %q by the one who did it", kind, want.guid)
		return
	}
	e := all[i]
	at := access.Place{}
	if e.Space != nil {
		at.Space = e.Space.GUID
	}
	if e.Organization != nil {
		at.Org = e.Organization.GUID
	}
	if e.Target.Type != want.target || at != want.place || want.data != "" && len(textsAt(e.Data, want.data)) == 0 {
		t.Errorf("%s = %+v at %+v with %v, want a %s at %+v with %s", kind, e.Target, at, e.Data, want.target, want.place, want.data)
	}
	if by := map[bool]string{true: "service_broker", false: "user"}[want.broker]; e.Actor.Type != by {
		t.Errorf("%s was done by %+v, want a %s", kind, e.Actor, by)
	}
}

// wantFilters compares the filters for events with simple ones. Other tests compare the
// filters that all lists share.
func (h *orgServer) wantFilters(t *testing.T, all []v3.Event) {
	t.Helper()
	one := all[len(all)/2]
	for query, lets := range map[string]func(e v3.Event) bool{
		"types=" + one.Type + ",audit.app.start":             func(e v3.Event) bool { return e.Type == one.Type || e.Type == "audit.app.start" },
		"target_guids=" + one.Target.GUID:                    func(e v3.Event) bool { return e.Target.GUID == one.Target.GUID },
		"target_guids[not]=" + one.Target.GUID + "," + h.app: func(e v3.Event) bool { return e.Target.GUID != one.Target.GUID && e.Target.GUID != h.app },
		"space_guids=" + h.space.GUID:                        func(e v3.Event) bool { return e.Space != nil && e.Space.GUID == h.space.GUID },
		"organization_guids=" + h.org.GUID:                   func(e v3.Event) bool { return e.Organization != nil && e.Organization.GUID == h.org.GUID },
		"organization_guids=" + h.org.GUID + "&target_guids[not]=" + h.app: func(e v3.Event) bool {
			return e.Organization != nil && e.Organization.GUID == h.org.GUID && e.Target.GUID != h.app
		},
		"created_ats[gt]=2100-01-02T03:04:05Z&types=audit.app.start": func(v3.Event) bool { return false },
		"guids=" + one.GUID: func(e v3.Event) bool { return e.GUID == one.GUID },
	} {
		var page v3.List[v3.Event]
		h.want(200, "GET", "/v3/audit_events?per_page=5000&"+query, "", &page)
		want := 0
		for _, e := range all {
			if lets(e) {
				want++
			}
		}
		if len(page.Resources) != want || slices.ContainsFunc(page.Resources, func(e v3.Event) bool { return !lets(e) }) {
			t.Errorf("%s has %d, want %d", query, len(page.Resources), want)
		}
	}
}

// do sends a request and waits for its job.
func (h *orgServer) do(method, path, body string) string {
	h.t.Helper()
	got := h.request(method, path, body)
	if got.Code >= 300 {
		h.t.Fatalf("%s %s = %d %s", method, path, got.Code, got.Body)
	}
	if location := got.Header().Get("Location"); got.Code == http.StatusAccepted && strings.Contains(location, "/v3/jobs/") {
		h.complete(got.Header())
	}
	var out struct {
		GUID string `json:"guid"`
	}
	if strings.HasPrefix(got.Body.String(), "{") {
		decodeInto(h.t.(*testing.T), got, &out)
	}
	return out.GUID
}

func (h *orgServer) doApps(t *testing.T, at access.Place) []wantedEvent {
	t.Helper()
	a := h.do("POST", "/v3/apps", `{"name":"shop","relationships":{"space":{"data":{"guid":"`+h.space.GUID+`"}}}}`)
	path := "/v3/apps/" + a
	h.giveDroplet(a, map[string]string{"web": "serve"})
	for _, action := range []string{"start", "restart", "stop"} {
		h.do("POST", path+"/actions/"+action, "")
	}
	h.do("PATCH", path, `{"name":"store"}`)
	h.do("POST", "/v3/processes/"+a+"/actions/scale", `{"instances":2}`)
	h.do("PATCH", "/v3/processes/"+a, `{"command":"x"}`)
	h.do("POST", path+"/actions/start", "")
	h.fake.set(a, runtime.Status{State: runtime.Running})
	h.do("DELETE", "/v3/processes/"+a+"/instances/0", "")
	task := h.do("POST", path+"/tasks", `{"command":"x"}`)
	h.do("POST", "/v3/tasks/"+task+"/actions/cancel", "")
	d := h.do("POST", "/v3/deployments", `{"relationships":{"app":{"data":{"guid":"`+a+`"}}}}`)
	h.do("POST", "/v3/deployments/"+d+"/actions/cancel", "")
	h.do("POST", "/v3/spaces/"+h.space.GUID+"/actions/apply_manifest", "applications: [{name: store, memory: 64M}]")
	revision := h.guids["Revision"]
	h.do("GET", "/v3/revisions/"+revision+"/environment_variables", "")
	h.s.apps.RecordSSH(must(h.c.Auth.Verify(h.login("doer")))(t), must(h.c.Registry.App(a))(t), 0, nil)
	h.s.apps.RecordSSH(must(h.c.Auth.Verify(h.login("doer")))(t), must(h.c.Registry.App(a))(t), 0, fmt.Errorf("closed"))
	h.do("DELETE", path, "")
	out := []wantedEvent{{kind: "app.revision.environment_variables.show", target: "app", place: at}}
	for kind, data := range map[string]string{
		"create": "request.name", "update": "request.name", "start": "", "restart": "", "stop": "", "delete-request": "request.recursive",
		"droplet.mapped": "request.droplet_guid", "process.scale": "request.instances",
		"process.update": "process_guid", "process.terminate_instance": "process_index", "task.create": "task_guid", "task.cancel": "task_guid",
		"deployment.create": "deployment_guid", "deployment.cancel": "deployment_guid", "apply_manifest": "request.manifest",
		"revision.create": "revision_guid", "ssh-authorized": "index", "ssh-unauthorized": "index",
	} {
		out = append(out, wantedEvent{kind: "app." + kind, target: "app", guid: a, place: at, data: data})
	}
	return out
}

func (h *orgServer) doBits(t *testing.T, at access.Place) []wantedEvent {
	t.Helper()
	p := h.createPackage(h.app)
	body, kind := form(t, "[]", zipped(t, map[string]string{"Procfile": "web: x"}))
	h.upload(p.GUID, body, kind)
	b := h.stage(p.GUID)
	h.stage(p.GUID)
	h.do("GET", "/v3/droplets/"+b.Droplet.GUID, "")
	h.request("GET", "/v3/packages/"+p.GUID+"/download", "")
	h.request("GET", "/v3/droplets/"+b.Droplet.GUID+"/download", "")
	h.do("DELETE", "/v3/droplets/"+b.Droplet.GUID, "")
	h.do("DELETE", "/v3/packages/"+p.GUID, "")
	var out []wantedEvent
	for kind, data := range map[string]string{
		"package.create": "package_guid", "package.upload": "package_guid", "package.download": "package_guid", "package.delete": "package_guid",
		"build.create": "build_guid", "restage": "", "droplet.create": "droplet_guid", "droplet.delete": "droplet_guid",
	} {
		out = append(out, wantedEvent{kind: "app." + kind, target: "app", guid: h.app, place: at, data: data})
	}
	return out
}

func (h *orgServer) doRoutes(t *testing.T, at access.Place) []wantedEvent {
	t.Helper()
	domain := must(h.c.Registry.DefaultDomain())(t)
	other := must(h.c.Registry.PutSpace(app.Space{Name: "other", Org: h.org.GUID}))(t)
	rt := h.do("POST", "/v3/routes", `{"host":"front","relationships":{"space":{"data":{"guid":"`+h.space.GUID+`"}},"domain":{"data":{"guid":"`+domain.GUID+`"}}}}`)
	path := "/v3/routes/" + rt
	h.do("PATCH", path, `{"metadata":{"labels":{"a":"b"}}}`)
	h.do("POST", path+"/destinations", `{"destinations":[{"app":{"guid":"`+h.app+`"}}]}`)
	h.do("PATCH", path+"/destinations", `{"destinations":[]}`)
	h.do("POST", path+"/relationships/shared_spaces", `{"data":[{"guid":"`+other.GUID+`"}]}`)
	h.do("DELETE", path+"/relationships/shared_spaces/"+other.GUID, "")
	h.do("PATCH", path+"/relationships/space", `{"data":{"guid":"`+other.GUID+`"}}`)
	h.do("DELETE", path, "")
	there := access.Place{Org: at.Org, Space: other.GUID}
	return []wantedEvent{
		{kind: "route.create", target: "route", guid: rt, place: at, data: "request.host"},
		{kind: "route.update", target: "route", guid: rt, place: at, data: "request.metadata.labels.a"},
		{kind: "route.share", target: "route", guid: rt, place: at},
		{kind: "route.unshare", target: "route", guid: rt, place: at},
		{kind: "route.transfer-owner", target: "route", guid: rt, place: at},
		{kind: "route.delete-request", target: "route", guid: rt, place: there},
		{kind: "app.map-route", target: "app", guid: h.app, place: at, data: "route_guid"},
		{kind: "app.unmap-route", target: "app", guid: h.app, place: at, data: "route_guid"},
	}
}

// doPlaces creates and deletes orgs, spaces and roles.
func (h *orgServer) doPlaces(t *testing.T) []wantedEvent {
	t.Helper()
	o := h.do("POST", "/v3/organizations", `{"name":"firm"}`)
	sp := h.do("POST", "/v3/spaces", `{"name":"floor","relationships":{"organization":{"data":{"guid":"`+o+`"}}}}`)
	h.do("PATCH", "/v3/organizations/"+o, `{"name":"company"}`)
	h.do("PATCH", "/v3/spaces/"+sp, `{"name":"room"}`)
	user := h.user("worker")
	out := []wantedEvent{
		{kind: "organization.create", target: "organization", guid: o, place: access.Place{Org: o}, data: "request.name"},
		{kind: "organization.update", target: "organization", guid: o, place: access.Place{Org: o}, data: "request.name"},
		{kind: "organization.delete-request", target: "organization", guid: o, place: access.Place{Org: o}},
		{kind: "space.create", target: "space", guid: sp, place: access.Place{Org: o, Space: sp}, data: "request.name"},
		{kind: "space.update", target: "space", guid: sp, place: access.Place{Org: o, Space: sp}, data: "request.name"},
		{kind: "space.delete-request", target: "space", guid: sp, place: access.Place{Org: o, Space: sp}},
	}
	var roles []string
	for _, kind := range auth.RoleTypes() {
		noun, guid, at := "organization", o, access.Place{Org: o}
		if kind.OfSpace() {
			noun, guid, at = "space", sp, access.Place{Org: o, Space: sp}
		}
		roles = append(roles, h.do("POST", "/v3/roles", fmt.Sprintf(`{"type":%q,"relationships":{"user":{"data":{"guid":%q}},%q:{"data":{"guid":%q}}}}`, kind, user, noun, guid)))
		for _, what := range []string{"add", "remove"} {
			out = append(out, wantedEvent{kind: fmt.Sprintf("user.%s_%s", kind, what), target: "user", guid: user, place: at})
		}
	}
	slices.SortStableFunc(roles, func(a, b string) int { // a user keeps the org role as long as a space role
		return strings.Compare(string(must(h.c.Roles.Get(b))(t).Type), string(must(h.c.Roles.Get(a))(t).Type))
	})
	for _, guid := range roles {
		h.do("DELETE", "/v3/roles/"+guid, "")
	}
	h.do("DELETE", "/v3/spaces/"+sp, "")
	h.do("DELETE", "/v3/organizations/"+o, "")
	return out
}

func (h *orgServer) doQuotas(t *testing.T) []wantedEvent {
	t.Helper()
	q := h.do("POST", "/v3/organization_quotas", `{"name":"large"}`)
	h.do("PATCH", "/v3/organization_quotas/"+q, `{"apps":{"total_instances":3}}`)
	h.do("POST", "/v3/organization_quotas/"+q+"/relationships/organizations", `{"data":[{"guid":"`+h.org.GUID+`"}]}`)
	h.do("DELETE", "/v3/organization_quotas/"+q, "")
	k := h.do("POST", "/v3/space_quotas", `{"name":"small","relationships":{"organization":{"data":{"guid":"`+h.org.GUID+`"}}}}`)
	h.do("PATCH", "/v3/space_quotas/"+k, `{"name":"tiny"}`)
	h.do("POST", "/v3/space_quotas/"+k+"/relationships/spaces", `{"data":[{"guid":"`+h.space.GUID+`"}]}`)
	h.do("DELETE", "/v3/space_quotas/"+k+"/relationships/spaces/"+h.space.GUID, "")
	h.do("DELETE", "/v3/space_quotas/"+k, "")
	org, space := access.Place{Org: h.org.GUID}, access.Place{Org: h.org.GUID, Space: h.space.GUID}
	return []wantedEvent{
		{kind: "organization_quota.create", target: "organization_quota", guid: q, data: "request.name"},
		{kind: "organization_quota.update", target: "organization_quota", guid: q, data: "request.apps.total_instances"},
		{kind: "organization_quota.apply", target: "organization_quota", guid: q, place: org, data: "organization_name"},
		{kind: "organization_quota.delete", target: "organization_quota", guid: q},
		{kind: "space_quota.create", target: "space_quota", guid: k, place: org, data: "request.name"},
		{kind: "space_quota.update", target: "space_quota", guid: k, place: org, data: "request.name"},
		{kind: "space_quota.apply", target: "space_quota", guid: k, place: space, data: "space_name"},
		{kind: "space_quota.remove", target: "space_quota", guid: k, place: space, data: "space_guid"},
		{kind: "space_quota.delete", target: "space_quota", guid: k, place: org},
	}
}

func (h *orgServer) doStaging(t *testing.T) []wantedEvent {
	t.Helper()
	b := h.do("POST", "/v3/buildpacks", `{"name":"own"}`)
	h.do("PATCH", "/v3/buildpacks/"+b, `{"enabled":false}`)
	h.do("DELETE", "/v3/buildpacks/"+b, "")
	stack := stack.GUID("host")
	h.do("PATCH", "/v3/stacks/"+stack, `{"metadata":{"labels":{"a":"b"}}}`)
	return []wantedEvent{
		{kind: "buildpack.create", target: "buildpack", guid: b, data: "request.name"},
		{kind: "buildpack.update", target: "buildpack", guid: b, data: "request.enabled"},
		{kind: "buildpack.delete", target: "buildpack", guid: b},
		{kind: "stack.update", target: "stack", guid: stack, data: "request.metadata.labels.a"},
	}
}

func (h *orgServer) doServices(t *testing.T, at access.Place) []wantedEvent {
	t.Helper()
	other := must(h.c.Registry.PutSpace(app.Space{Name: "guest", Org: h.org.GUID}))(t)
	h.do("POST", "/v3/service_instances", h.managed("cache", "small", ""))
	i := h.service("cache").GUID
	h.do("PATCH", "/v3/service_instances/"+i, `{"tags":["a"]}`)
	h.do("POST", "/v3/service_instances/"+i+"/relationships/shared_spaces", `{"data":[{"guid":"`+other.GUID+`"}]}`)
	h.do("DELETE", "/v3/service_instances/"+i+"/relationships/shared_spaces/"+other.GUID, "")
	h.do("POST", "/v3/service_credential_bindings", boundTo(i, h.app, ""))
	h.do("POST", "/v3/service_credential_bindings", boundTo(i, "", `,"name":"key"`))
	var out []wantedEvent
	for _, b := range h.bindings(i) {
		kind := map[string]string{"app": "service_binding", "key": "service_key"}[b.Type]
		h.do("GET", "/v3/service_credential_bindings/"+b.GUID+"/details", "")
		h.do("DELETE", "/v3/service_credential_bindings/"+b.GUID, "")
		for _, what := range []string{"create", "show", "delete"} {
			out = append(out, wantedEvent{kind: kind + "." + what, target: kind, guid: b.GUID, place: at})
		}
	}
	h.do("DELETE", "/v3/service_instances/"+i, "")
	ups := h.do("POST", "/v3/service_instances", h.provided("ups", `,"route_service_url":"https://x.example.com"`))
	h.do("PATCH", "/v3/service_instances/"+ups, `{"name":"own"}`)
	h.do("DELETE", "/v3/service_instances/"+ups, "")
	for _, what := range []string{"create", "update", "delete"} {
		out = append(out, wantedEvent{kind: "service_instance." + what, target: "service_instance", guid: i, place: at},
			wantedEvent{kind: "user_provided_service_instance." + what, target: "user_provided_service_instance", guid: ups, place: at})
	}
	return append(out, wantedEvent{kind: "app.update", target: "app", guid: h.app, place: at},
		wantedEvent{kind: "service_instance.share", target: "service_instance", guid: i, place: at, data: "request.target_space_guids"},
		wantedEvent{kind: "service_instance.unshare", target: "service_instance", guid: i, place: at, data: "request.target_space_guid"})
}

// doMarket creates a broker. The events about its catalog have the broker as the actor.
func (h *orgServer) doMarket(t *testing.T) []wantedEvent {
	t.Helper()
	h.do("POST", "/v3/service_brokers", `{"name":"second","url":"https://b.example.com","authentication":{"type":"basic","credentials":{"username":"u","password":"p"}}}`)
	var brokers v3.List[v3.ServiceBroker]
	h.want(200, "GET", "/v3/service_brokers?names=second", "", &brokers)
	b, plan := brokers.Resources[0].GUID, h.plan("second-small")
	h.do("PATCH", "/v3/service_plans/"+plan.GUID+"/visibility", `{"type":"public"}`)
	h.do("PATCH", "/v3/service_brokers/"+b, `{"name":"third"}`)
	h.do("DELETE", "/v3/service_brokers/"+b, "")
	return []wantedEvent{
		{kind: "service_broker.create", target: "service_broker", guid: b, data: "request.name"},
		{kind: "service_broker.update", target: "service_broker", guid: b},
		{kind: "service_broker.delete", target: "service_broker", guid: b},
		{kind: "service_plan_visibility.update", target: "service_plan_visibility", guid: plan.GUID, data: "request.type"},
		{kind: "service.create", target: "service", guid: plan.Relationships.ServiceOffering.ID(), broker: true},
		{kind: "service_plan.create", target: "service_plan", guid: plan.GUID, broker: true},
	}
}
