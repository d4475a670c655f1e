package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/runtime"
)

// events returns all recorded events, and checks that they contain no secrets.
func (h *orgServer) events(t *testing.T, secrets ...string) []v3.Event {
	t.Helper()
	var page v3.List[v3.Event]
	h.want(200, "GET", "/v3/audit_events?per_page=5000", "", &page)
	text := string(must(json.Marshal(page.Resources))(t))
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("the events tell %q", secret)
		}
	}
	return page.Resources
}

// dataOf returns the data of the events of a type about an app, oldest first.
func dataOf(all []v3.Event, kind, target string) (out []map[string]any) {
	for _, e := range all {
		if e.Type == kind && e.Target.GUID == target {
			out = append(out, e.Data)
		}
	}
	return out
}

// Changes of processes, manifests, builds, routes and files are recorded for an app.
// The actor is the user who requested them, even if a job does the work.
func TestEventsOfWholeLife(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	who := h.user("doer", auth.ScopeAdmin)
	h.act(t, "doer")
	at := access.Place{Org: h.org.GUID, Space: h.space.GUID}
	const manifest = "applications: [{name: whole, default-route: true, env: {KEY: sesame}, processes: [" +
		"{type: web, command: serve --password sesame, memory: 64M, health-check-type: process}, {type: worker, instances: 2}]}]"
	h.do("POST", "/v3/spaces/"+h.space.GUID+"/actions/apply_manifest", manifest)
	a := must(h.c.Registry.AppIn(h.space.GUID, "whole"))(t)
	p := h.createPackage(a.GUID)
	body, kind := form(t, "[]", zipped(t, map[string]string{"Procfile": "web: x\nclock: y"}))
	h.upload(p.GUID, body, kind)
	b := h.stage(p.GUID)
	h.do("PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", `{"data":{"guid":"`+b.Droplet.GUID+`"}}`)
	h.do("POST", "/v3/apps/"+a.GUID+"/actions/start", "")
	h.do("GET", "/v3/apps/"+a.GUID+"/env", "")
	h.do("GET", "/v3/apps/"+a.GUID+"/environment_variables", "")
	h.do("DELETE", "/v3/apps/"+a.GUID, "")
	all := h.events(t, "sesame")
	for kind, data := range map[string]string{
		"process.create": "process_type", "process.update": "request.command", "process.scale": "manifest_triggered", "map-route": "route_mapping_guid",
		"build.staged": "buildpacks.name", "droplet.create": "package_guid", "environment.show": "", "environment_variables.show": "", "package.create": "request.type",
		"stop": "reason", "unmap-route": "route_guid", "process.delete": "process_guid", "package.delete": "package_guid", "droplet.delete": "droplet_guid",
	} {
		h.wantTold(t, wantedEvent{kind: "app." + kind, target: "app", guid: a.GUID, place: at, data: data}, who, all)
	}
	var types []string
	for _, data := range dataOf(all, "audit.app.process.create", a.GUID) {
		types = append(types, data["process_type"].(string))
	}
	slices.Sort(types)
	if want := []string{"clock", "web", "worker"}; !slices.Equal(types, want) || len(dataOf(all, "audit.app.process.delete", a.GUID)) != len(want) {
		t.Errorf("processes made = %v, want %v, and as many deleted", types, want)
	}
	stopped := dataOf(all, "audit.app.stop", a.GUID)
	if len(stopped) != 1 || stopped[0]["delete_triggered"] != true {
		t.Errorf("stops = %v, want one by the deletion", stopped)
	}
}

// Deleting an org records events for all its resources, with the user who deleted it as
// the actor.
func TestEventsOfOrgDeletion(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	who := h.user("doer", auth.ScopeAdmin)
	h.act(t, "doer")
	o := h.do("POST", "/v3/organizations", `{"name":"firm"}`)
	sp := h.do("POST", "/v3/spaces", `{"name":"floor","relationships":{"organization":{"data":{"guid":"`+o+`"}}}}`)
	a := h.do("POST", "/v3/apps", `{"name":"shop","relationships":{"space":{"data":{"guid":"`+sp+`"}}}}`)
	h.createPackage(a)
	h.do("DELETE", "/v3/organizations/"+o, "")
	all := h.events(t)
	for _, want := range []wantedEvent{
		{kind: "organization.delete-request", target: "organization", guid: o, place: access.Place{Org: o}},
		{kind: "space.delete-request", target: "space", guid: sp, place: access.Place{Org: o, Space: sp}},
		{kind: "app.delete-request", target: "app", guid: a, place: access.Place{Org: o, Space: sp}},
		{kind: "app.process.delete", target: "app", guid: a, place: access.Place{Org: o, Space: sp}},
		{kind: "app.package.delete", target: "app", guid: a, place: access.Place{Org: o, Space: sp}},
	} {
		h.wantTold(t, want, who, all)
	}
}

// An org whose domain is used by other orgs is not deleted, with Cloud Foundry's
// message, until they stop using it.
func TestOrgWithSharedDomainStays(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	owner, friend := w.createOrg("owner"), w.createOrg("friend")
	d := w.createDomain("owned.example", owner.GUID)
	w.want(200, "POST", "/v3/domains/"+d.GUID+"/relationships/shared_organizations", `{"data":[{"guid":"`+friend.GUID+`"}]}`, nil)
	got := w.request("DELETE", "/v3/organizations/"+owner.GUID, "")
	j := w.finish(got.Header())
	want := "Deletion of organization owner failed because one or more resources within could not be deleted.\n\n" +
		"Domain 'owned.example' is shared with other organizations. Unshare before deleting."
	if j.State != v3.JobFailed || len(j.Errors) != 1 || j.Errors[0].Detail != want || j.Errors[0].Title != "CF-OrganizationDeletionFailed" {
		t.Errorf("job = %+v, want it to say %q", j, want)
	}
	w.want(200, "GET", "/v3/organizations/"+owner.GUID, "", nil)
	w.want(204, "DELETE", "/v3/domains/"+d.GUID+"/relationships/shared_organizations/"+friend.GUID, "", nil)
	if j := w.finish(w.request("DELETE", "/v3/organizations/"+owner.GUID, "").Header()); j.State != v3.JobComplete {
		t.Errorf("job = %+v, want it done", j)
	}
}

// Service events record who read credentials, who labelled a binding, and which org
// lost a plan.
func TestEventsOfServiceReaders(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	who := h.user("doer", auth.ScopeAdmin)
	h.act(t, "doer")
	at := access.Place{Org: h.org.GUID, Space: h.space.GUID}
	ups := h.do("POST", "/v3/service_instances", h.provided("own", `,"credentials":{"password":"sesame"}`))
	h.request("GET", "/v3/service_instances/"+ups+"/credentials", "")
	h.do("POST", "/v3/service_credential_bindings", boundTo(ups, h.app, ""))
	b := h.bindings(ups)[0].GUID
	h.do("PATCH", "/v3/service_credential_bindings/"+b, `{"metadata":{"labels":{"tier":"front"}}}`)
	h.request("GET", "/v3/service_credential_bindings/"+b+"/details", "")
	plan := h.plan("small").GUID
	h.do("PATCH", "/v3/service_plans/"+plan+"/visibility", `{"type":"organization","organizations":[{"guid":"`+h.org.GUID+`"}]}`)
	h.do("DELETE", "/v3/service_plans/"+plan+"/visibility/"+h.org.GUID, "")
	all := h.events(t, "sesame")
	for _, want := range []wantedEvent{
		{kind: "user_provided_service_instance.show", target: "user_provided_service_instance", guid: ups, place: at},
		{kind: "service_binding.update", target: "service_binding", guid: b, place: at, data: "request.metadata.labels.tier"},
		{kind: "service_binding.show", target: "service_binding", guid: b, place: at, data: "request.app_guid"},
		{kind: "service_plan_visibility.delete", target: "service_plan_visibility", guid: plan, place: access.Place{Org: h.org.GUID}},
	} {
		h.wantTold(t, want, who, all)
	}
}

// During a deployment, the web process cannot be changed or scaled, by a request or by
// a manifest. Other processes can, and after the deployment all can.
func TestNoChangeWhileDeploying(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	path := "/v3/apps/" + a.GUID + "/processes/"
	apply := func(text string) v3.Job {
		t.Helper()
		return w.finish(w.request("POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", "applications: [{name: shop, "+text+"}]").Header())
	}
	if j := apply("processes: [{type: worker, instances: 0}]"); j.State != v3.JobComplete {
		t.Fatalf("job = %+v, want the app to have a worker", j)
	}
	w.fake.set(a.GUID, runtime.Status{State: runtime.Running})
	d := w.deployApp(a.GUID, "")
	wantError(t, w.request("POST", path+"web/actions/scale", `{"instances":2}`), "CF-UnprocessableEntity", platform.NoScaleNow)
	wantError(t, w.request("POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"memory_in_mb":64}`), "CF-UnprocessableEntity", platform.NoScaleNow)
	wantError(t, w.request("PATCH", path+"web", `{"command":"x"}`), "CF-UnprocessableEntity", platform.NoUpdateNow)
	w.want(202, "POST", path+"worker/actions/scale", `{"instances":2}`, nil)
	for text, want := range map[string]string{
		"memory: 64M": platform.NoScaleNow, "instances: 3, command: x": platform.NoUpdateNow, "processes: [{type: web, timeout: 30}]": platform.NoUpdateNow,
	} {
		if j := apply(text); j.State != v3.JobFailed || j.Errors[0].Detail != "For application 'shop': "+want || j.Errors[0].Code != v3.CodeUnprocessable {
			t.Errorf("a manifest with %s ends with %+v, want %q", text, j, want)
		}
	}
	for _, text := range []string{"env: {A: b}", "processes: [{type: worker, memory: 64M}]"} {
		if j := apply(text); j.State != v3.JobComplete {
			t.Errorf("a manifest with %s ends with %+v, want it applied", text, j)
		}
	}
	w.move(d.GUID, func(d *app.Deployment) { d.State = app.Deployed })
	w.want(202, "POST", path+"web/actions/scale", `{"instances":2}`, nil)
	w.want(200, "PATCH", path+"web", `{"command":"x"}`, nil)
	if j := apply("memory: 64M"); j.State != v3.JobComplete {
		t.Errorf("job = %+v, want the manifest applied", j)
	}
}

// These feature flags apply to administrators as well.
func TestFlagsForAll(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	h.act(t, "admin")
	other := must(h.c.Registry.PutSpace(app.Space{Name: "guest", Org: h.org.GUID}))(t)
	ups := h.do("POST", "/v3/service_instances", h.provided("own", ""))
	domain := must(h.c.Registry.DefaultDomain())(t)
	rt := h.do("POST", "/v3/routes", routeBody(h.space.GUID, domain.GUID, `"host":"shared",`))
	to := `{"data":[{"guid":"` + other.GUID + `"}]}`
	for _, c := range []struct{ flag, method, path, body string }{
		{app.FlagServiceSharing, "POST", "/v3/service_instances/" + ups + "/relationships/shared_spaces", to},
		{app.FlagRouteSharing, "POST", "/v3/routes/" + rt + "/relationships/shared_spaces", to},
		{app.FlagRouteSharing, "DELETE", "/v3/routes/" + rt + "/relationships/shared_spaces/" + other.GUID, ""},
		{app.FlagRouteSharing, "PATCH", "/v3/routes/" + rt + "/relationships/space", `{"data":{"guid":"` + other.GUID + `"}}`},
		{app.FlagEnvVisibility, "GET", "/v3/apps/" + h.app + "/env", ""},
		{app.FlagSpaceBrokers, "POST", "/v3/service_brokers", `{"name":"x","url":"https://x.example.com","authentication":{"type":"basic","credentials":{"username":"u","password":"p"}},"relationships":{"space":{"data":{"guid":"` + h.space.GUID + `"}}}}`},
	} {
		h.want(200, "PATCH", "/v3/feature_flags/"+c.flag, `{"enabled":false}`, nil)
		wantError(t, h.request(c.method, c.path, c.body), "CF-FeatureDisabled", "Feature Disabled: "+c.flag)
		h.want(200, "PATCH", "/v3/feature_flags/"+c.flag, `{"enabled":true}`, nil)
		if got := h.request(c.method, c.path, c.body); strings.Contains(got.Body.String(), "Disabled") {
			t.Errorf("%s is on and refused: %s", c.flag, got.Body)
		}
	}
}
