package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

func (w *testServer) orgQuotaWith(name, limits string) v3.Quota {
	w.t.Helper()
	var q v3.Quota
	w.want(201, "POST", "/v3/organization_quotas", `{"name":"`+name+`",`+limits+`}`, &q)
	w.want(200, "POST", "/v3/organization_quotas/"+q.GUID+"/relationships/organizations", `{"data":[{"guid":"`+w.space.Org+`"}]}`, nil)
	return q
}

func TestOrgQuotas(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	got := w.request("POST", "/v3/organization_quotas", `{"name":"small","apps":{"total_memory_in_mb":512,"per_process_memory_in_mb":null},
		"services":{"paid_services_allowed":false},"routes":{"total_routes":4},"domains":{"total_domains":2}}`)
	golden(t, "organization-quota-created", got.Body.Bytes())
	var q v3.Quota
	decodeInto(t, got, &q)
	wantError(t, w.request("POST", "/v3/organization_quotas", `{"name":"small"}`), "CF-UnprocessableEntity", "Organization Quota 'small' already exists.")
	wantError(t, w.request("POST", "/v3/organization_quotas", `{"name":"x","apps":{"total_instances":-1}}`), "CF-UnprocessableEntity", "apps.total_instances: must be 0 or more")
	wantError(t, w.request("POST", "/v3/organization_quotas", `{}`), "CF-UnprocessableEntity", "name: must not be empty")
	at := "/v3/organization_quotas/" + q.GUID
	w.want(200, "PATCH", at, `{"name":"","apps":{"total_memory_in_mb":null,"total_instances":3}}`, &q)
	if q.Name != "small" || q.Apps.TotalMemory != nil || *q.Apps.TotalInstances != 3 || *q.Routes.TotalRoutes != 4 || q.Services.PaidServicesAllowed {
		t.Errorf("changed = %+v", q)
	}
	var related v3.RelatedMany
	w.want(200, "POST", at+"/relationships/organizations", `{"data":[{"guid":"`+w.space.Org+`"}]}`, &related)
	if len(related.Data) != 1 || related.Data[0].GUID != w.space.Org {
		t.Errorf("applied to %+v", related)
	}
	var o v3.Organization
	w.want(200, "GET", "/v3/organizations/"+w.space.Org, "", &o)
	var page v3.List[v3.Quota]
	w.want(200, "GET", "/v3/organization_quotas?organization_guids="+w.space.Org, "", &page)
	if o.Relationships.Quota.ID() != q.GUID || len(page.Resources) != 1 || page.Resources[0].GUID != q.GUID {
		t.Errorf("org has %s, the list %+v", o.Relationships.Quota.ID(), page.Resources)
	}
	wantError(t, w.request("POST", at+"/relationships/organizations", `{"data":[{"guid":"x"}]}`), "CF-UnprocessableEntity", "do not exist, or you do not have access to them")
	for _, method := range []string{"PATCH", "DELETE"} {
		wantError(t, w.request(method, "/v3/organization_quotas/"+app.Unlimited().GUID, `{"name":"x"}`), "CF-UnprocessableEntity", "is built in")
	}
	w.complete(w.want(202, "DELETE", at, "", nil))
	wantError(t, w.request("GET", at, ""), "CF-ResourceNotFound", "Organization quota not found")
	w.want(200, "GET", "/v3/organizations/"+w.space.Org, "", &o)
	if o.Relationships.Quota.ID() != app.Unlimited().GUID {
		t.Errorf("after its quota was deleted the org has %s", o.Relationships.Quota.ID())
	}
}

func TestSpaceQuotas(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	body := func(org string) string {
		return `{"name":"tight","apps":{"total_instances":1},"relationships":{"organization":{"data":{"guid":"` + org + `"}},"spaces":{"data":[{"guid":"` + w.space.GUID + `"}]}}}`
	}
	got := w.request("POST", "/v3/space_quotas", body(w.space.Org))
	golden(t, "space-quota", got.Body.Bytes())
	var q v3.Quota
	decodeInto(t, got, &q)
	wantError(t, w.request("POST", "/v3/space_quotas", body(w.space.Org)), "CF-UnprocessableEntity", "Space Quota 'tight' already exists.")
	wantError(t, w.request("POST", "/v3/space_quotas", body("x")), "CF-UnprocessableEntity", "Organization with guid 'x' does not exist")
	wantError(t, w.request("POST", "/v3/space_quotas", `{"name":"x"}`), "CF-UnprocessableEntity", "must include one organization")
	var sp v3.Space
	w.want(200, "GET", "/v3/spaces/"+w.space.GUID, "", &sp)
	if sp.Relationships.Quota.ID() != q.GUID {
		t.Errorf("space has quota %q", sp.Relationships.Quota.ID())
	}
	at := "/v3/space_quotas/" + q.GUID
	w.want(204, "DELETE", at+"/relationships/spaces/"+w.space.GUID, "", nil)
	wantError(t, w.request("DELETE", at+"/relationships/spaces/"+w.space.GUID, ""), "CF-UnprocessableEntity", "Ensure the space quota is applied to this space.")
	elsewhere := must(w.c.Registry.PutOrg(app.Org{Name: "elsewhere"}))(t)
	foreign := must(w.c.Registry.PutSpace(app.Space{Name: "x", Org: elsewhere.GUID}))(t)
	wantError(t, w.request("POST", at+"/relationships/spaces", `{"data":[{"guid":"`+foreign.GUID+`"}]}`), "CF-UnprocessableEntity", "do not exist within the organization")
	wantError(t, w.request("GET", "/v3/organization_quotas/"+q.GUID, ""), "CF-ResourceNotFound", "Organization quota not found")
	w.want(200, "PATCH", at, `{"name":"loose","apps":{"total_instances":null}}`, &q)
	if q.Name != "loose" || q.Apps.TotalInstances != nil {
		t.Errorf("changed = %+v", q)
	}
	w.complete(w.want(202, "DELETE", at, "", nil))
	wantError(t, w.request("GET", at, ""), "CF-ResourceNotFound", "Space quota not found")
}

// What exceeds a quota when the quota is applied stays, and the usage shows it. Only
// requests for more are refused, with the texts of Cloud Foundry and the numbers.
func TestQuotasRefuseMore(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.giveDroplet(a.GUID, map[string]string{"web": "serve"})
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/start", "", nil)
	w.want(202, "POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"instances":3,"memory_in_mb":512,"log_rate_limit_in_bytes_per_second":100}`, nil)
	w.createTask(a.GUID, `{"command":"x","memory_in_mb":200}`)
	domain := must(w.c.Registry.DefaultDomain())(t)
	route := func(host string) string {
		return `{"host":"` + host + `","relationships":{"space":{"data":{"guid":"` + w.space.GUID + `"}},"domain":{"data":{"guid":"` + domain.GUID + `"}}}}`
	}
	privateDomain := func(name string) string {
		return `{"name":"` + name + `","relationships":{"organization":{"data":{"guid":"` + w.space.Org + `"}}}}`
	}
	w.want(201, "POST", "/v3/routes", route("one"), nil)
	w.want(201, "POST", "/v3/domains", privateDomain("d.example.com"), nil)
	w.complete(w.want(202, "POST", "/v3/service_instances", w.managed("dear", "large", ""), nil))
	other := w.createApp("other")
	w.giveDroplet(other.GUID, map[string]string{"web": "serve"})

	none := `"apps":{"total_memory_in_mb":0,"per_process_memory_in_mb":0,"total_instances":0,"per_app_tasks":0,"log_rate_limit_in_bytes_per_second":0},
		"services":{"paid_services_allowed":false,"total_service_instances":0,"total_service_keys":0},"routes":{"total_routes":0,"total_reserved_ports":0}`
	org := w.orgQuotaWith("nothing", none+`,"domains":{"total_domains":0}`)
	var space v3.Quota
	w.want(201, "POST", "/v3/space_quotas", `{"name":"nothing",`+none+`,"relationships":{"organization":{"data":{"guid":"`+w.space.Org+`"}},
		"spaces":{"data":[{"guid":"`+w.space.GUID+`"}]}}}`, &space)

	const prefix = "CF-UnprocessableEntity"
	scale := "/v3/processes/" + a.GUID + "/actions/scale"
	wantError(t, w.request("POST", "/v3/apps/"+other.GUID+"/actions/start", ""), prefix, "memory space_instance_memory_limit_exceeded\nSpace quota 'nothing' allows 0M of memory for one instance, and process web of app other asks for")
	wantError(t, w.request("POST", scale, `{"memory_in_mb":513}`), prefix, "memory space_instance_memory_limit_exceeded")
	wantError(t, w.request("POST", scale, `{"instances":4}`), prefix, "memory space_instance_memory_limit_exceeded")
	wantError(t, w.request("POST", scale, `{"log_rate_limit_in_bytes_per_second":101}`), prefix, "log_rate_limit exceeds space log rate quota\nSpace quota 'nothing' allows 0 bytes of log per second. In use: 300. This change needs 3 more.")
	wantError(t, w.request("POST", "/v3/apps/"+a.GUID+"/tasks", `{"command":"y","memory_in_mb":200}`), prefix, "memory_in_mb exceeds space instance memory quota")
	wantError(t, w.request("POST", "/v3/routes", route("two")), prefix, "Routes quota exceeded for space '")
	wantError(t, w.request("POST", "/v3/domains", privateDomain("e.example.com")), prefix, "The number of private domains exceeds the quota for organization \"")
	wantError(t, w.request("POST", "/v3/service_instances", w.managed("another", "small", "")), prefix, "You have exceeded your space's services limit.\nSpace quota 'nothing' allows 0 service instances. In use: 1. This change needs 1 more.")
	var instances v3.List[v3.ServiceInstance]
	w.want(200, "GET", "/v3/service_instances?names=dear", "", &instances)
	dear := instances.Resources[0].GUID
	wantError(t, w.request("POST", "/v3/service_credential_bindings", `{"type":"key","name":"k","relationships":{"service_instance":{"data":{"guid":"`+dear+`"}}}}`), prefix, "You have exceeded your space's limit for service binding of type key.")
	w.want(200, "PATCH", "/v3/space_quotas/"+space.GUID, `{"services":{"total_service_instances":5}}`, nil)
	w.want(200, "PATCH", "/v3/organization_quotas/"+org.GUID, `{"services":{"total_service_instances":5}}`, nil)
	wantError(t, w.request("POST", "/v3/service_instances", w.managed("another", "large", "")), prefix, "The service instance cannot be created because paid service plans are not allowed for your space.\nSpace quota 'nothing' allows only free plans.")
	w.want(202, "POST", scale, `{"memory_in_mb":256,"instances":3}`, nil)
	w.want(202, "POST", scale, `{"instances":2}`, nil)
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/restart", "", nil)
	over := must(w.s.platform.OverQuota())(t)
	if want := "uses 712M of memory, and its quota 'nothing' allows 0M"; len(over) == 0 || !strings.Contains(over[0], want) {
		t.Errorf("over the quotas: %q, want a line with %q", over, want)
	}

	for path, want := range map[string]v3.UsageNumbers{
		"/v3/spaces/" + w.space.GUID:       {StartedInstances: 2, MemoryInMB: 2*256 + 200, Routes: 1, PerAppTasks: 1, ServiceInstances: 1},
		"/v3/organizations/" + w.space.Org: {StartedInstances: 2, MemoryInMB: 2*256 + 200, Routes: 1, PerAppTasks: 1, ServiceInstances: 1, Domains: new(1)},
		"/v3/info":                         {StartedInstances: 2, MemoryInMB: 2*256 + 200, Routes: 1, PerAppTasks: 1, ServiceInstances: 1, Domains: new(1)},
	} {
		var u v3.PlaceUsage
		w.want(200, "GET", path+"/usage_summary", "", &u)
		if diff := cmp.Diff(u.Usage, want); diff != "" {
			t.Errorf("usage of %s (-got +want):\n%s", path, diff)
		}
	}
	for path, was := range map[string]v3.Quota{"/v3/organization_quotas/" + org.GUID: org, "/v3/space_quotas/" + space.GUID: space} {
		var q v3.Quota
		w.want(200, "GET", path, "", &q)
		if q.Apps.TotalMemory == nil || *q.Apps.TotalMemory != 0 || *q.Apps.PerAppTasks != 0 || *q.Services.TotalServiceKeys != 0 ||
			q.Services.PaidServicesAllowed || *q.Routes.TotalReservedPorts != 0 || q.Name != was.Name {
			t.Errorf("%s = %+v", path, q)
		}
	}
}

// The usage of services is listed for users who can read usage events.
// A rolling deployment needs room for the instances that it adds.
func TestQuotaOfDeployment(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.giveDroplet(a.GUID, map[string]string{"web": "serve"})
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/start", "", nil)
	w.want(202, "POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"instances":2,"memory_in_mb":100}`, nil)
	q := w.orgQuotaWith("tight", `"apps":{"total_memory_in_mb":200}`)
	deploy := `{"strategy":"rolling","relationships":{"app":{"data":{"guid":"` + a.GUID + `"}}}}`
	wantError(t, w.request("POST", "/v3/deployments", deploy), "CF-UnprocessableEntity",
		"memory quota_exceeded\nOrganization quota 'tight' allows 200M of memory. In use: 200M. This change needs 100M more.")
	w.want(200, "PATCH", "/v3/organization_quotas/"+q.GUID, `{"apps":{"total_memory_in_mb":300}}`, nil)
	w.want(201, "POST", "/v3/deployments", deploy, nil)
}

func TestServiceUsage(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.complete(w.want(202, "POST", "/v3/service_instances", w.managed("one", "small", ""), nil))
	var events v3.List[v3.ServiceUsageEvent]
	w.want(200, "GET", "/v3/service_usage_events", "", &events)
	if len(events.Resources) != 1 || events.Resources[0].State != app.UsageCreated || events.Resources[0].ServiceInstance.Name != "one" ||
		events.Resources[0].ServiceInstance.Type != "managed_service_instance" || *events.Resources[0].ServicePlan.Name != "small" {
		t.Errorf("usage = %+v", events.Resources)
	}
	w.want(200, "POST", "/v3/service_usage_events/actions/destructively_purge_all_and_reseed", "", nil)
	w.want(200, "GET", "/v3/service_usage_events", "", &events)
	if len(events.Resources) != 1 || events.Resources[0].State != app.UsageCreated {
		t.Errorf("usage after a purge = %+v", events.Resources)
	}
}
