package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
)

// Clients can follow a managed service instance from creation to deletion.
func TestServiceLife(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	more := `,"tags":["mine"],"parameters":{"hold":true},"metadata":{"labels":{"tier":"back"}}`
	h := w.want(202, "POST", "/v3/service_instances", w.managed("db", "large", more), nil)
	if j := w.jobIs(h, v3.JobPolling); j.Operation != "service_instance.create" {
		t.Errorf("job = %+v", j)
	}
	db := w.service("db")
	if got := db.LastOperation.Type + " " + db.LastOperation.State; got != "create in progress" {
		t.Errorf("the last operation is %q", got)
	}
	wantError(t, w.request("PATCH", "/v3/service_instances/"+db.GUID, `{"tags":[]}`), "CF-AsyncServiceInstanceOperationInProgress", "An operation for service instance db is in progress.")
	w.release()
	w.complete(h)
	golden(t, "service-instance", w.request("GET", "/v3/service_instances/"+db.GUID, "").Body.Bytes())
	golden(t, "service-instances", w.request("GET", "/v3/service_instances?order_by=name&fields[service_plan]=guid,name,relationships.service_offering"+
		"&fields[service_plan.service_offering]=guid,name,relationships.service_broker&fields[service_plan.service_offering.service_broker]=guid,name"+
		"&fields[space]=name,guid&fields[space.organization]=name,guid", "").Body.Bytes())
	golden(t, "service-parameters", w.request("GET", "/v3/service_instances/"+db.GUID+"/parameters", "").Body.Bytes())

	w.complete(w.want(202, "POST", "/v3/service_credential_bindings", boundTo(db.GUID, a.GUID, `,"name":"first"`), nil))
	binding := w.bindings(db.GUID)[0]
	golden(t, "service-binding", w.request("GET", "/v3/service_credential_bindings/"+binding.GUID+"?include=app,service_instance", "").Body.Bytes())
	golden(t, "service-binding-details", w.request("GET", "/v3/service_credential_bindings/"+binding.GUID+"/details", "").Body.Bytes())
	w.complete(w.want(202, "POST", "/v3/service_credential_bindings", boundTo(db.GUID, "", `,"name":"mine"`), nil))

	w.complete(w.want(202, "PATCH", "/v3/service_instances/"+db.GUID,
		`{"relationships":{"service_plan":{"data":{"guid":"`+w.plan("small").GUID+`"}}}}`, nil))
	w.want(200, "PATCH", "/v3/service_instances/"+db.GUID, `{"name":"store"}`, nil)
	if renamed := w.service("store"); renamed.Relationships.ServicePlan.ID() != w.plan("small").GUID {
		t.Errorf("the plan is %+v", renamed.Relationships.ServicePlan)
	}
	w.complete(w.want(202, "DELETE", "/v3/service_credential_bindings/"+binding.GUID, "", nil))
	w.complete(w.want(202, "DELETE", "/v3/service_instances/"+db.GUID, "", nil))
	wantError(t, w.request("GET", "/v3/service_instances/"+db.GUID, ""), "CF-ResourceNotFound", "Service instance not found")
	if left := w.bindings(db.GUID); len(left) > 0 {
		t.Errorf("bindings are left: %+v", left)
	}
	if text := w.logged.String(); strings.Contains(text, secretPassword) {
		t.Errorf("the log has credentials: %s", text)
	}
	w.wantEvents(t, "audit.service_instance.start_create", "audit.service_instance.create", "audit.service_binding.create",
		"audit.service_binding.show", "audit.service_key.create", "audit.service_instance.update", "audit.service_binding.delete", "audit.service_instance.delete")
}

// wantEvents checks for events of the types, and that none contains credentials.
func (w *testServer) wantEvents(t *testing.T, types ...string) {
	t.Helper()
	got := w.request("GET", "/v3/audit_events?per_page=5000", "")
	if strings.Contains(got.Body.String(), secretPassword) {
		t.Errorf("events have credentials: %s", got.Body)
	}
	var page v3.List[v3.Event]
	if err := json.Unmarshal(got.Body.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	for _, kind := range types {
		if !slices.Contains(eventTypes(page.Resources), kind) {
			t.Errorf("there is no event %s among %v", kind, eventTypes(page.Resources))
		}
	}
}

// The marketplace lists the available plans and offerings, with included resources.
func TestMarketplace(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	plan := w.plan("large")
	golden(t, "service-plans", w.request("GET", "/v3/service_plans?available=true&include=service_offering&fields[service_offering.service_broker]=name,guid"+
		"&names=large&service_offering_names=database&space_guids="+w.space.GUID, "").Body.Bytes())
	golden(t, "service-offering", w.request("GET", "/v3/service_offerings/"+plan.Relationships.ServiceOffering.ID()+"?fields[service_broker]=name,guid", "").Body.Bytes())
	golden(t, "service-brokers", w.request("GET", "/v3/service_brokers", "").Body.Bytes())
	for path, want := range map[string]int{
		"/v3/service_plans?service_offering_names=nonesuch":          0,
		"/v3/service_plans?service_broker_names=dew":                 3,
		"/v3/service_plans?broker_catalog_ids=small-id":              1,
		"/v3/service_plans?available=false":                          0,
		"/v3/service_plans?organization_guids=" + w.space.Org:        3,
		"/v3/service_offerings?names=database":                       1,
		"/v3/service_offerings?service_broker_names=nonesuch":        0,
		"/v3/service_offerings?space_guids=" + w.space.GUID:          2,
		"/v3/service_offerings?available=true&service_broker_guids=": 0,
		"/v3/service_brokers?names=dew":                              1,
	} {
		var page anyList
		w.want(200, "GET", path, "", &page)
		if len(page.Resources) != want {
			t.Errorf("%s has %d, want %d", path, len(page.Resources), want)
		}
	}
	for _, query := range []string{
		"/v3/service_plans?available=maybe", "/v3/service_plans?include=broker", "/v3/service_plans?fields[service_offering.service_broker]=url",
		"/v3/service_instances?type=both", "/v3/service_credential_bindings?type=route", "/v3/service_instances?fields[space]=colour",
	} {
		wantError(t, w.request("GET", query, ""), "CF-BadQueryParameter", "The query parameter is invalid")
	}
}

// Without a token, the marketplace lists the public plans, unless it is hidden.
func TestMarketplaceWithoutToken(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.want(200, "PATCH", "/v3/service_plans/"+w.plan("large").GUID+"/visibility", `{"type":"admin"}`, nil)
	for path, want := range map[string]int{
		"/v3/service_plans?names=small,large": 1, "/v3/service_plans/" + w.plan("large").GUID: -404, "/v3/service_offerings?names=database": 1,
	} {
		got := w.as("", "GET", path, "")
		var page anyList
		if err := json.Unmarshal(got.Body.Bytes(), &page); err != nil || got.Code != 200 && got.Code != -want || len(page.Resources) != max(want, 0) {
			t.Errorf("%s = %d %s, %v", path, got.Code, got.Body, err)
		}
	}
	w.want(200, "PATCH", "/v3/feature_flags/"+app.FlagHideMarket, `{"enabled":true}`, nil)
	wantError(t, w.as("", "GET", "/v3/service_plans", ""), "CF-NotAuthenticated", "Authentication error")
}

// A service that is not available is refused with the messages that clients expect, and
// nothing is created.
func TestServiceRefusals(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	db := w.makeService("db")
	var ups v3.ServiceInstance
	w.want(201, "POST", "/v3/service_instances", w.provided("ups", `,"credentials":{"a":"b"}`), &ups)
	w.complete(w.want(202, "POST", "/v3/service_credential_bindings", boundTo(db.GUID, a.GUID, ""), nil))
	w.complete(w.want(202, "POST", "/v3/service_credential_bindings", boundTo(db.GUID, "", `,"name":"k"`), nil))
	before := w.request("GET", "/v3/service_instances", "").Body.String() + w.request("GET", "/v3/service_credential_bindings", "").Body.String()
	at := func(guid string) string { return "/v3/service_instances/" + guid }
	binds, makes := "/v3/service_credential_bindings", "/v3/service_instances"
	for _, c := range []struct{ method, path, body, detail string }{
		{"POST", makes, w.managed("db", "small", ""), "The service instance name is taken: db"},
		{"POST", makes, w.provided("db", ""), "The service instance name is taken: db"},
		{"POST", makes, strings.Replace(w.managed("x", "small", ""), w.plan("small").GUID, "nonesuch", 1), "Invalid service plan. Ensure that the service plan exists, is available, and you have access to it."},
		{"POST", makes, strings.Replace(w.managed("x", "small", ""), w.space.GUID, "nonesuch", 1), "Invalid space. Ensure that the space exists and you have access to it."},
		{"POST", makes, w.managed("", "small", ""), "ame"},
		{"POST", makes, w.managed("x", "small", `,"credentials":{}`), "'credentials'"},
		{"POST", makes, w.managed("x", "small", `,"parameters":[1]`), "arameters"},
		{"POST", makes, w.managed("x", "small", `,"tags":"a"`), "tags must be an array"},
		{"POST", makes, w.provided("x", `,"credentials":"secret"`), "redentials"},
		{"POST", makes, w.provided("x", `,"parameters":{}`), "'parameters'"},
		{"POST", makes, w.provided("x", `,"syslog_drain_url":"nonsense"`), "yslog"},
		{"POST", makes, `{"type":"other","name":"x","relationships":{"space":{"data":{"guid":"x"}}}}`, "Type must be one of 'managed', 'user-provided'"},
		{"PATCH", at(ups.GUID), `{"parameters":{}}`, "user-provided"},
		{"PATCH", at(db.GUID), `{"credentials":{}}`, "managed"},
		{"PATCH", at(db.GUID), `{"name":"ups"}`, "The service instance name is taken: ups"},
		{"POST", binds, boundTo(db.GUID, a.GUID, ""), "The app is already bound to the service instance"},
		{"POST", binds, boundTo("nonesuch", a.GUID, ""), "The service instance could not be found: 'nonesuch'"},
		{"POST", binds, boundTo(db.GUID, "nonesuch", ""), "The app could not be found: 'nonesuch'"},
		{"POST", binds, boundTo(db.GUID, "", `,"name":"k"`), "Key binding names must be unique"},
		{"POST", binds, boundTo(db.GUID, "", ""), "ame"},
		{"POST", binds, boundTo(ups.GUID, "", `,"name":"k"`), "not supported for user-provided service instances"},
		{"POST", binds, boundTo(db.GUID, a.GUID, `,"strategy":"often"`), "Strategy must be one of"},
		{"POST", binds, strings.Replace(boundTo(db.GUID, a.GUID, ""), `"app","rel`, `"x","rel`, 1), "Type must be one of 'app', 'key'"},
	} {
		got := w.request(c.method, c.path, c.body)
		if got.Code != 422 {
			t.Errorf("%s %s %s = %d %s, want 422", c.method, c.path, c.body, got.Code, got.Body)
			continue
		}
		wantError(t, got, "CF-UnprocessableEntity", c.detail)
	}
	if got := w.request("POST", makes, `{"type":`); got.Code != 400 {
		t.Errorf("what is no JSON = %d %s, want 400", got.Code, got.Body)
	}
	after := w.request("GET", "/v3/service_instances", "").Body.String() + w.request("GET", "/v3/service_credential_bindings", "").Body.String()
	if diff := cmp.Diff(after, before); diff != "" {
		t.Errorf("a refusal left something:\n%s", diff)
	}
}

// The error message of a broker is in the job and in the last operation.
func TestBrokerRefuses(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	j := w.finish(w.want(202, "POST", "/v3/service_instances", w.managed("db", "small", `,"parameters":{"fail":"no room left"}`), nil))
	if j.State != v3.JobFailed || len(j.Errors) != 1 || !strings.Contains(j.Errors[0].Detail, "no room left") {
		t.Errorf("job = %+v", j)
	}
	db := w.service("db")
	if db.LastOperation.State != "failed" || !strings.Contains(db.LastOperation.Description, "no room left") {
		t.Errorf("last operation = %+v", db.LastOperation)
	}
	w.finish(w.want(202, "DELETE", "/v3/service_instances/"+db.GUID, "", nil))
}

func TestUserProvided(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	var ups v3.ServiceInstance
	body := w.provided("ups", `,"credentials":{"password":"`+secretPassword+`"},"syslog_drain_url":"syslog://logs.example.com:514","route_service_url":"https://front.example.com","tags":["x"]`)
	w.want(201, "POST", "/v3/service_instances", body, &ups)
	at := "/v3/service_instances/" + ups.GUID
	golden(t, "service-user-provided", w.request("GET", at, "").Body.Bytes())
	if got := w.request("GET", at+"/credentials", "").Body.String(); strings.TrimSpace(got) != `{"password":"`+secretPassword+`"}` {
		t.Errorf("credentials = %s", got)
	}
	w.want(200, "PATCH", at, `{"credentials":{"a":"b"},"syslog_drain_url":null,"tags":[]}`, nil)
	if got := w.service("ups"); !got.SyslogDrainURL.Null || len(got.Tags) > 0 {
		t.Errorf("after the change: %+v", got)
	}
	w.want(201, "POST", "/v3/service_credential_bindings", boundTo(ups.GUID, a.GUID, ""), nil)
	if h := w.want(204, "DELETE", "/v3/service_credential_bindings/"+w.bindings(ups.GUID)[0].GUID, "", nil); h.Get("Location") != "" {
		t.Errorf("Location = %q: clients would wait for it", h.Get("Location"))
	}
	w.want(204, "DELETE", at, "", nil)
}

// A manifest binds services, lists the bindings, and reports missing services by name.
func TestManifestServices(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.makeService("db")
	w.want(201, "POST", "/v3/service_instances", w.provided("ups", ""), nil)
	at := "/v3/spaces/" + w.space.GUID
	manifest := "applications:\n- name: shop\n  services:\n  - ups\n  - name: db\n    binding_name: main\n    parameters: {password: " + secretPassword + "}\n"
	var diff v3.ManifestDiff
	w.want(202, "POST", at+"/manifest_diff", manifest, &diff)
	if n := len(slices.DeleteFunc(diff.Diff, func(d v3.Difference) bool { return !strings.Contains(d.Path, "/services/") })); n != 2 {
		t.Errorf("diff = %+v, want two services", diff.Diff)
	}
	for range 2 { // the second time changes nothing
		w.complete(w.want(202, "POST", at+"/actions/apply_manifest", manifest, nil))
	}
	a := must(w.c.Registry.AppIn(w.space.GUID, "shop"))(t)
	db := w.service("db")
	if got := w.bindings(db.GUID); len(got) != 1 || *got[0].Name != "main" || got[0].LastOperation.State != "succeeded" {
		t.Errorf("bindings = %+v", got)
	}
	text := w.request("GET", "/v3/apps/"+a.GUID+"/manifest", "").Body.String()
	if !strings.Contains(text, "services:\n  - name: ups") || !strings.Contains(text, "binding_name: main") {
		t.Errorf("manifest = %s", text)
	}
	for text, detail := range map[string]string{
		"applications: [{name: other, services: [nonesuch]}]":                                "For application 'other': Service instance 'nonesuch' not found",
		"applications: [{name: third, services: [{name: db, parameters: {fail: go away}}]}]": "For application 'third': For service 'db': ",
	} {
		j := w.finish(w.want(202, "POST", at+"/actions/apply_manifest", text, nil))
		if j.State != v3.JobFailed || len(j.Errors) == 0 || !strings.Contains(j.Errors[0].Detail, detail) {
			t.Errorf("%s: job = %+v, want %q", text, j, detail)
		}
	}
	if _, err := w.c.Registry.AppIn(w.space.GUID, "other"); err == nil {
		t.Error("an app was made although its service is not there")
	}
	w.wantEvents(t)
}

// Deleting an app or space deletes its bindings and service instances through their
// brokers.
func TestDeletionDeletesServices(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	db := w.makeService("db")
	a := w.createApp("shop")
	w.complete(w.want(202, "POST", "/v3/service_credential_bindings", boundTo(db.GUID, a.GUID, ""), nil))
	w.complete(w.want(202, "DELETE", "/v3/apps/"+a.GUID, "", nil))
	if left := w.bindings(db.GUID); len(left) > 0 {
		t.Errorf("bindings are left: %+v", left)
	}
	w.complete(w.want(202, "DELETE", "/v3/spaces/"+w.space.GUID, "", nil))
	var page anyList
	if w.want(200, "GET", "/v3/service_instances", "", &page); len(page.Resources) > 0 {
		t.Errorf("services are left: %s", page.Resources)
	}
	requests := w.broker.requestLog()
	for _, want := range []string{"delete binding", "delete instance db"} {
		if !slices.Contains(requests, want) {
			t.Errorf("the broker was asked %v, want %q", requests, want)
		}
	}
}

func TestAppBindingsSinceStaging(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	for _, name := range []string{"old", "new"} {
		var i v3.ServiceInstance
		w.want(201, "POST", "/v3/service_instances", w.provided(name, ""), &i)
		w.want(201, "POST", "/v3/service_credential_bindings", boundTo(i.GUID, a.GUID, ""), nil)
	}
	if err := w.c.Shelf.Put(droplet.Droplet{GUID: "d", App: a.GUID, Stack: "host", Bindings: droplet.Bindings{Names: []string{"old"}}}); err != nil {
		t.Fatal(err)
	}
	w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", `{"data":{"guid":"d"}}`, nil)
	var got v3.AppBindings
	w.want(200, "GET", "/dew/v1/apps/"+a.GUID+"/bindings", "", &got)
	since := map[string]bool{}
	for _, b := range got.Bindings {
		since[b.Name] = b.SinceStaging
	}
	if diff := cmp.Diff(since, map[string]bool{"old": false, "new": true}); diff != "" {
		t.Errorf("bindings (-got +want):\n%s", diff)
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	db := w.makeService("db")
	at := "/dew/v1/service_instances/" + db.GUID + "/snapshots"
	for range 2 {
		w.complete(w.want(202, "POST", at, "", nil))
	}
	golden(t, "service-snapshots", w.request("GET", at, "").Body.Bytes())
	w.complete(w.want(202, "POST", at+"/snapshot-1/restore", "", nil))
	if got := w.c.Snapshots.(*fakeSnapshots).restored; !slices.Equal(got, []string{db.GUID + "/snapshot-1"}) {
		t.Errorf("restored %v", got)
	}
	wantError(t, w.request("POST", at+"/nonesuch/restore", ""), "CF-ResourceNotFound", "Snapshot not found")
	w.want(204, "DELETE", at+"/snapshot-1", "", nil)
	var ups v3.ServiceInstance
	w.want(201, "POST", "/v3/service_instances", w.provided("ups", ""), &ups)
	wantError(t, w.request("POST", "/dew/v1/service_instances/"+ups.GUID+"/snapshots", ""), "CF-UnprocessableEntity", "only for service instances of the built-in service broker")
}

// The log of a service instance's server is visible to developers of its space.
func TestServiceStream(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	db := w.makeService("db")
	w.print(db.GUID, "ready to accept connections")
	got := w.request("GET", "/stream/v1/services/"+db.GUID+"?follow=false", "")
	if got.Code != 200 || !strings.Contains(got.Body.String(), "ready to accept connections") {
		t.Errorf("stream = %d %s", got.Code, got.Body)
	}
	auditor := w.user("auditor")
	w.grant(auditor, auth.OrgUser, w.space.Org)
	w.grant(auditor, auth.SpaceAuditor, w.space.GUID)
	if got := w.as(w.login("auditor"), "GET", "/stream/v1/services/"+db.GUID, ""); got.Code != 403 {
		t.Errorf("stream for an auditor = %d %s, want 403", got.Code, got.Body)
	}
}

// A shared instance can be seen and bound in other spaces, and changed only in its own
// space.
func TestSharing(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	db := w.makeService("db")
	there := must(w.c.Registry.PutSpace(app.Space{Name: "there", Org: w.space.Org}))(t)
	guest := w.user("guest")
	w.grant(guest, auth.OrgUser, w.space.Org)
	w.grant(guest, auth.SpaceDeveloper, there.GUID)
	token := w.login("guest")
	at := "/v3/service_instances/" + db.GUID
	if got := w.as(token, "GET", at, ""); got.Code != 404 {
		t.Errorf("before it is shared = %d, want 404", got.Code)
	}
	shared := at + "/relationships/shared_spaces"
	w.want(200, "PATCH", "/v3/feature_flags/service_instance_sharing", `{"enabled":true}`, nil)
	wantError(t, w.request("POST", shared, `{"data":[{"guid":"nonesuch"}]}`), "CF-UnprocessableEntity", "Ensure the spaces exist")
	w.want(200, "POST", shared, `{"data":[{"guid":"`+there.GUID+`"}]}`, nil)
	golden(t, "shared-spaces", w.request("GET", shared+"?fields[space]=guid,name,relationships.organization&fields[space.organization]=guid,name", "").Body.Bytes())
	if got := w.as(token, "GET", at, ""); got.Code != 200 {
		t.Errorf("when it is shared = %d %s, want 200", got.Code, got.Body)
	}
	if got := w.as(token, "DELETE", at, ""); got.Code != 403 {
		t.Errorf("deleting what is shared = %d %s, want 403", got.Code, got.Body)
	}
	a := must(w.c.Registry.PutApp(app.App{Name: "guest", Space: there.GUID}))(t)
	if got := w.as(token, "POST", "/v3/service_credential_bindings", boundTo(db.GUID, a.GUID, "")); got.Code != 202 {
		t.Fatalf("binding what is shared = %d %s, want 202", got.Code, got.Body)
	} else {
		w.complete(got.Header())
	}
	var usage v3.UsageSummary
	w.want(200, "GET", shared+"/usage_summary", "", &usage)
	if len(usage.UsageSummary) != 1 || usage.UsageSummary[0].BoundAppCount != 1 {
		t.Errorf("usage = %+v", usage)
	}
	if got := w.as(token, "POST", "/v3/service_credential_bindings", boundTo(db.GUID, "", `,"name":"k"`)); got.Code < 400 {
		t.Errorf("a key for a guest = %d %s", got.Code, got.Body)
	}
	w.want(204, "DELETE", shared+"/"+there.GUID, "", nil)
}

// Brokers can be registered, and their plans can be made visible to orgs.
func TestServiceBrokersAndAccess(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	body := `{"name":"other","url":"https://broker.example.com","authentication":{"type":"basic","credentials":{"username":"u","password":"` + secretPassword + `"}}}`
	w.complete(w.want(202, "POST", "/v3/service_brokers", body, nil))
	wantError(t, w.request("POST", "/v3/service_brokers", body), "CF-UnprocessableEntity", "Name must be unique")
	wantError(t, w.request("POST", "/v3/service_brokers", `{"name":"x","url":"https://x.example.com","authentication":{"type":"bearer"}}`), "CF-UnprocessableEntity", "authentication.type")
	if got := w.request("GET", "/v3/service_brokers", "").Body.String(); strings.Contains(got, secretPassword) {
		t.Errorf("the list has a password: %s", got)
	}
	developer := w.user("dora")
	w.grant(developer, auth.OrgUser, w.space.Org)
	w.grant(developer, auth.SpaceDeveloper, w.space.GUID)
	token := w.login("dora")
	plan := w.plan("other-small")
	sees := func() int {
		t.Helper()
		var page anyList
		if err := json.Unmarshal(w.as(token, "GET", "/v3/service_plans?names=other-small", "").Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		return len(page.Resources)
	}
	if plan.VisibilityType != "admin" || sees() != 0 {
		t.Errorf("a new plan is %s and seen by %d", plan.VisibilityType, sees())
	}
	at := "/v3/service_plans/" + plan.GUID + "/visibility"
	w.want(200, "POST", at, `{"type":"organization","organizations":[{"guid":"`+w.space.Org+`"}]}`, nil)
	if sees() != 1 {
		t.Error("the plan of an org is not seen in it")
	}
	if got := w.as(token, "POST", at, `{"type":"public"}`); got.Code != 403 {
		t.Errorf("visibility by a developer = %d %s, want 403", got.Code, got.Body)
	}
	golden(t, "plan-visibility", w.request("GET", at, "").Body.Bytes())
	w.want(204, "DELETE", at+"/"+w.space.Org, "", nil)
	w.want(200, "PATCH", at, `{"type":"public"}`, nil)
	w.complete(w.want(202, "POST", "/v3/service_instances", w.managed("theirs", "other-small", ""), nil))
	broker := plan.Relationships.ServiceOffering.ID()
	var offering v3.ServiceOffering
	w.want(200, "GET", "/v3/service_offerings/"+broker, "", &offering)
	brokerAt := "/v3/service_brokers/" + offering.Relationships.ServiceBroker.ID()
	if got := w.request("DELETE", brokerAt, ""); got.Code != 422 {
		t.Errorf("deleting a broker with instances = %d %s, want 422", got.Code, got.Body)
	}
	w.want(204, "DELETE", "/v3/service_offerings/"+broker+"?purge=true", "", nil)
	w.complete(w.want(202, "DELETE", brokerAt, "", nil))
	if got := w.request("DELETE", "/v3/service_brokers/dew", ""); got.Code != 422 && got.Code != 403 {
		t.Errorf("deleting the built-in broker = %d %s", got.Code, got.Body)
	}
}

// Every failed job has an error, because clients crash without one.
func TestOperationJobs(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for i, more := range []string{`,"parameters":{"fail":"x"}`, ``} {
		h := w.want(202, "POST", "/v3/service_instances", w.managed(fmt.Sprintf("db-%d", i), "small", more), nil)
		j := w.finish(h)
		if (j.State == v3.JobFailed) != (len(j.Errors) > 0) || j.Errors == nil || j.Warnings == nil {
			t.Errorf("job = %+v", j)
		}
		w.user(fmt.Sprintf("stranger-%d", i))
		got := w.as(w.login(fmt.Sprintf("stranger-%d", i)), "GET", strings.TrimPrefix(h.Get("Location"), publicURL), "")
		if got.Code != http.StatusNotFound {
			t.Errorf("the job of somebody else = %d %s, want 404", got.Code, got.Body)
		}
	}
}

// Creating an instance with a plan that is not free, or changing to one, returns a
// warning. Keeping the plan or using a free one does not.
func TestPaidPlanWarning(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	const want = "Attention: The plan `large` of service offering `database` is not free.  The instance `db` will incur a cost.  " +
		"Contact your administrator if you think this is in error."
	warned := func(what string, h http.Header, want string) {
		t.Helper()
		got, err := url.QueryUnescape(h.Get("X-Cf-Warnings"))
		if err != nil || got != want {
			t.Errorf("%s warns %q, %v; want %q", what, got, err, want)
		}
		w.complete(h)
	}
	moved := func(plan string) string {
		return `{"relationships":{"service_plan":{"data":{"guid":"` + w.plan(plan).GUID + `"}}}}`
	}
	warned("a creation", w.want(202, "POST", "/v3/service_instances", w.managed("db", "large", ""), nil), want)
	path := "/v3/service_instances/" + w.service("db").GUID
	warned("new parameters", w.want(202, "PATCH", path, `{"parameters":{"x":1}}`, nil), "")
	warned("a free plan", w.want(202, "PATCH", path, moved("small"), nil), "")
	warned("a paid plan", w.want(202, "PATCH", path, moved("large"), nil), want)
}

// A request waits for the first answer of the broker: clients look at the job at once,
// and then only after seconds.
func TestFirstAnswer(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.s.market.FirstAnswer = time.Hour
	look := func(h http.Header) string {
		var j v3.Job
		w.want(200, "GET", strings.TrimPrefix(h.Get("Location"), publicURL), "", &j)
		return j.State
	}
	if got := look(w.want(202, "POST", "/v3/service_instances", w.managed("quick", "small", ""), nil)); got != v3.JobComplete {
		t.Errorf("the job of a broker that answers at once is %s at the first look", got)
	}
	if got := look(w.want(202, "POST", "/v3/service_instances", w.managed("bad", "small", `,"parameters":{"fail":"no disk"}`), nil)); got != v3.JobFailed {
		t.Errorf("the job of a broker that refuses is %s at the first look", got)
	}
	held := w.want(202, "POST", "/v3/service_instances", w.managed("slow", "large", `,"parameters":{"hold":true}`), nil)
	if got := look(held); got != v3.JobPolling {
		t.Errorf("the job of a broker that is at work is %s at the first look", got)
	}
	w.release()
	w.complete(held)
	// A broker that does not answer delays the request, but does not fail it.
	w.s.market.FirstAnswer = time.Nanosecond
	w.complete(w.want(202, "DELETE", "/v3/service_instances/"+w.service("slow").GUID, "", nil))
}
