package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

func (w *world) orgQuotaWith(name, limits string) v3.Quota {
	w.t.Helper()
	var q v3.Quota
	w.want(201, "POST", "/v3/organization_quotas", `{"name":"`+name+`",`+limits+`}`, &q)
	w.want(200, "POST", "/v3/organization_quotas/"+q.GUID+"/relationships/organizations", `{"data":[{"guid":"`+w.space.Org+`"}]}`, nil)
	return q
}

func TestOrgQuotas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.ask("POST", "/v3/organization_quotas", `{"name":"small","apps":{"total_memory_in_mb":512,"per_process_memory_in_mb":null},
		"services":{"paid_services_allowed":false},"routes":{"total_routes":4},"domains":{"total_domains":2}}`)
	golden(t, "organization-quota-created", got.Body.Bytes())
	var q v3.Quota
	decodeInto(t, got, &q)
	wantError(t, w.ask("POST", "/v3/organization_quotas", `{"name":"small"}`), "CF-UnprocessableEntity", "Organization Quota 'small' already exists.")
	wantError(t, w.ask("POST", "/v3/organization_quotas", `{"name":"x","apps":{"total_instances":-1}}`), "CF-UnprocessableEntity", "apps.total_instances: must be 0 or more")
	wantError(t, w.ask("POST", "/v3/organization_quotas", `{}`), "CF-UnprocessableEntity", "name: must not be empty")
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
	wantError(t, w.ask("POST", at+"/relationships/organizations", `{"data":[{"guid":"x"}]}`), "CF-UnprocessableEntity", "do not exist, or you do not have access to them")
	for _, method := range []string{"PATCH", "DELETE"} {
		wantError(t, w.ask(method, "/v3/organization_quotas/"+app.Unlimited().GUID, `{"name":"x"}`), "CF-UnprocessableEntity", "is built in")
	}
	w.want(204, "DELETE", at, "", nil)
	wantError(t, w.ask("GET", at, ""), "CF-ResourceNotFound", "Organization quota not found")
	w.want(200, "GET", "/v3/organizations/"+w.space.Org, "", &o)
	if o.Relationships.Quota.ID() != app.Unlimited().GUID {
		t.Errorf("after its quota was deleted the org has %s", o.Relationships.Quota.ID())
	}
}

func TestSpaceQuotas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := func(org string) string {
		return `{"name":"tight","apps":{"total_instances":1},"relationships":{"organization":{"data":{"guid":"` + org + `"}},"spaces":{"data":[{"guid":"` + w.space.GUID + `"}]}}}`
	}
	got := w.ask("POST", "/v3/space_quotas", body(w.space.Org))
	golden(t, "space-quota", got.Body.Bytes())
	var q v3.Quota
	decodeInto(t, got, &q)
	wantError(t, w.ask("POST", "/v3/space_quotas", body(w.space.Org)), "CF-UnprocessableEntity", "Space Quota 'tight' already exists.")
	wantError(t, w.ask("POST", "/v3/space_quotas", body("x")), "CF-UnprocessableEntity", "Organization with guid 'x' does not exist")
	wantError(t, w.ask("POST", "/v3/space_quotas", `{"name":"x"}`), "CF-UnprocessableEntity", "must include one organization")
	var sp v3.Space
	w.want(200, "GET", "/v3/spaces/"+w.space.GUID, "", &sp)
	if sp.Relationships.Quota.ID() != q.GUID {
		t.Errorf("space has quota %q", sp.Relationships.Quota.ID())
	}
	at := "/v3/space_quotas/" + q.GUID
	w.want(204, "DELETE", at+"/relationships/spaces/"+w.space.GUID, "", nil)
	wantError(t, w.ask("DELETE", at+"/relationships/spaces/"+w.space.GUID, ""), "CF-UnprocessableEntity", "Ensure the space quota is applied to this space.")
	elsewhere := must(w.c.Registry.PutOrg(app.Org{Name: "elsewhere"}))(t)
	foreign := must(w.c.Registry.PutSpace(app.Space{Name: "x", Org: elsewhere.GUID}))(t)
	wantError(t, w.ask("POST", at+"/relationships/spaces", `{"data":[{"guid":"`+foreign.GUID+`"}]}`), "CF-UnprocessableEntity", "do not exist within the organization")
	wantError(t, w.ask("GET", "/v3/organization_quotas/"+q.GUID, ""), "CF-ResourceNotFound", "Organization quota not found")
	w.want(200, "PATCH", at, `{"name":"loose","apps":{"total_instances":null}}`, &q)
	if q.Name != "loose" || q.Apps.TotalInstances != nil {
		t.Errorf("changed = %+v", q)
	}
	w.want(204, "DELETE", at, "", nil)
}

// What would go beyond a quota is refused in the platform's words, and nothing of
// it is kept. What was beyond it already may stay and shrink.
func TestQuotasBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.createApp("shop")
	w.giveDroplet(a.GUID, map[string]string{"web": "serve"})
	start, scale := "/v3/apps/"+a.GUID+"/actions/start", "/v3/processes/"+a.GUID+"/actions/scale"
	q := w.orgQuotaWith("small", `"apps":{"total_memory_in_mb":1000,"total_instances":3,"per_app_tasks":1},"routes":{"total_routes":1}`)
	wantError(t, w.ask("POST", start, ""), "CF-UnprocessableEntity", "memory quota_exceeded: org 'local' may have 1000M in all, and would have 1024M")
	w.want(202, "POST", scale, `{"memory_in_mb":300}`, nil)
	w.want(200, "POST", start, "", nil)
	wantError(t, w.ask("POST", scale, `{"instances":4}`), "CF-UnprocessableEntity", "memory quota_exceeded")
	w.want(202, "POST", scale, `{"instances":3,"memory_in_mb":100}`, nil)
	wantError(t, w.ask("POST", scale, `{"instances":4}`), "CF-UnprocessableEntity", "app_instance_limit app_instance_limit_exceeded")
	if got := must(w.c.Registry.Process(a.GUID))(t); got.Instances != 3 || got.MemoryMB != 100 {
		t.Errorf("after refusals the process is %+v", got)
	}
	w.createTask(a.GUID, `{"command":"x","memory_in_mb":200}`)
	wantError(t, w.ask("POST", "/v3/apps/"+a.GUID+"/tasks", `{"command":"x","memory_in_mb":200}`), "CF-UnprocessableEntity", "app_task_limit quota exceeded")
	domain := must(w.c.Registry.DefaultDomain())(t)
	route := func(host string) string {
		return fmt.Sprintf(`{"host":%q,"relationships":{"space":{"data":{"guid":%q}},"domain":{"data":{"guid":%q}}}}`, host, w.space.GUID, domain.GUID)
	}
	w.want(201, "POST", "/v3/routes", route("one"), nil)
	wantError(t, w.ask("POST", "/v3/routes", route("two")), "CF-UnprocessableEntity", "Routes quota exceeded for organization 'local'.")

	w.want(200, "PATCH", "/v3/organization_quotas/"+q.GUID, `{"apps":{"total_memory_in_mb":50,"per_process_memory_in_mb":90}}`, nil)
	w.want(202, "POST", scale, `{"instances":2}`, nil)
	wantError(t, w.ask("POST", scale, `{"instances":3}`), "CF-UnprocessableEntity", "memory quota_exceeded")
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/stop", "", nil)
	w.want(200, "PATCH", "/v3/organization_quotas/"+q.GUID, `{"apps":{"total_memory_in_mb":null}}`, nil)
	wantError(t, w.ask("POST", start, ""), "CF-UnprocessableEntity", "memory instance_memory_limit_exceeded: org 'local' allows 90M")
}

// A quota of the space bounds beside that of its org.
func TestSpaceQuotaBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.startedApp("shop")
	most := 1
	q := must(w.c.Registry.PutQuota(app.Quota{Name: "tight", Org: w.space.Org, Limits: app.Limits{Instances: &most, Services: &most}}))(t)
	w.want(200, "POST", "/v3/space_quotas/"+q.GUID+"/relationships/spaces", `{"data":[{"guid":"`+w.space.GUID+`"}]}`, nil)
	wantError(t, w.ask("POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"instances":2}`), "CF-UnprocessableEntity", "app_instance_limit space_app_instance_limit_exceeded")
	var u v3.PlaceUsage
	w.want(200, "GET", "/v3/spaces/"+w.space.GUID+"/usage_summary", "", &u)
	if u.Usage.StartedInstances != 1 || u.Usage.MemoryInMB != 1024 || u.Usage.Domains != nil {
		t.Errorf("usage = %+v", u.Usage)
	}
	w.want(200, "GET", "/v3/organizations/"+w.space.Org+"/usage_summary", "", &u)
	if u.Usage.StartedInstances != 1 || u.Usage.Domains == nil {
		t.Errorf("usage = %+v", u.Usage)
	}
}

// Instances of services are counted, and plans that cost something can be kept out.
func TestQuotasBoundServices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.orgQuotaWith("few", `"services":{"total_service_instances":1}`)
	free := w.managed("one", "small", "")
	w.complete(w.want(202, "POST", "/v3/service_instances", free, nil))
	wantError(t, w.ask("POST", "/v3/service_instances", strings.Replace(free, "one", "two", 1)), "CF-ServiceInstanceQuotaExceeded", "You have exceeded your organization's services limit.")
	w.want(200, "PATCH", "/v3/organization_quotas/"+q.GUID, `{"services":{"total_service_instances":null,"paid_services_allowed":false}}`, nil)
	wantError(t, w.ask("POST", "/v3/service_instances", w.managed("three", "large", "")), "CF-ServiceInstanceServicePlanNotAllowed", "paid service plans are not allowed")
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
