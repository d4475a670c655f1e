package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

func TestVariableGroups(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	golden(t, "variable-group", w.request("GET", "/v3/environment_variable_groups/running", "").Body.Bytes())
	wantError(t, w.request("GET", "/v3/environment_variable_groups/walking", ""), "CF-ResourceNotFound", "Environment variable group not found")
	var g v3.EnvVarGroup
	w.want(200, "PATCH", "/v3/environment_variable_groups/running", `{"var":{"PROXY":"a","COLOUR":"red"}}`, nil)
	w.want(200, "PATCH", "/v3/environment_variable_groups/running", `{"var":{"PROXY":null}}`, &g)
	if len(g.Var) != 1 || g.Var["COLOUR"] != "red" || g.UpdatedAt == nil {
		t.Errorf("group = %+v", g)
	}
	wantError(t, w.request("PATCH", "/v3/environment_variable_groups/staging", `{"var":{"VCAP_X":"1"}}`), "CF-UnprocessableEntity", "set by the platform")
	w.want(200, "PATCH", "/v3/environment_variable_groups/staging", `{"var":{"MIRROR":"here"}}`, nil)
	var env v3.Env
	w.want(200, "GET", "/v3/apps/"+w.createApp("shop").GUID+"/env", "", &env)
	if env.Running["COLOUR"] != "red" || env.Staging["MIRROR"] != "here" || len(env.Environment) != 0 {
		t.Errorf("env = %+v", env)
	}
	dora := w.login(w.named("dora"))
	if got := w.as(dora, "PATCH", "/v3/environment_variable_groups/running", `{"var":{}}`); got.Code != 403 {
		t.Errorf("a user changes a group: %d", got.Code)
	}
}

// named creates a user and returns the name.
func (w *testServer) named(name string) string {
	w.t.Helper()
	w.user(name)
	return name
}

func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	got := w.request("POST", "/v3/security_groups", `{"name":"dns","rules":[{"protocol":"tcp","destination":"10.0.0.0/8","ports":"53,8080-8090","log":true},
		{"protocol":"icmp","destination":"10.0.0.1-10.0.0.9","type":8,"code":0}],"globally_enabled":{"staging":true},
		"relationships":{"running_spaces":{"data":[{"guid":"`+w.space.GUID+`"}]}}}`)
	golden(t, "security-group", got.Body.Bytes())
	var g v3.SecurityGroup
	decodeInto(t, got, &g)
	at, space := "/v3/security_groups/"+g.GUID, w.space.GUID
	wantError(t, w.request("POST", "/v3/security_groups", `{"name":"dns"}`), "CF-UnprocessableEntity", "Security group with name 'dns' already exists.")
	for rule, want := range map[string]string{
		`{"protocol":"x","destination":"10.0.0.1"}`:                 "rules[0].protocol",
		`{"protocol":"tcp","destination":"10.0.0.1"}`:               "rules[0].ports",
		`{"protocol":"all","destination":"10.0.0.1","ports":"1"}`:   "rules[0].ports: are not allowed",
		`{"protocol":"udp","destination":"here","ports":"9-1"}`:     "rules[0].destination",
		`{"protocol":"udp","destination":"10.0.0.1","ports":"9-1"}`: "rules[0].ports",
		`{"protocol":"icmp","destination":"10.0.0.1"}`:              "rules[0].type: is required",
	} {
		wantError(t, w.request("POST", "/v3/security_groups", `{"name":"x","rules":[`+rule+`]}`), "CF-UnprocessableEntity", want)
	}
	w.want(200, "PATCH", at, `{"rules":[],"globally_enabled":{"running":true}}`, &g)
	if len(g.Rules) != 0 || !g.GloballyEnabled.Running || !g.GloballyEnabled.Staging || g.Name != "dns" {
		t.Errorf("changed = %+v", g)
	}
	w.want(200, "PATCH", at, `{"globally_enabled":{"running":false,"staging":false}}`, nil)
	for path, want := range map[string]int{
		"/v3/security_groups?running_space_guids=" + space: 1, "/v3/security_groups?staging_space_guids=" + space: 0,
		"/v3/spaces/" + space + "/running_security_groups": 1, "/v3/spaces/" + space + "/staging_security_groups": 0,
		"/v3/security_groups?globally_enabled_running=true": 0, "/v3/security_groups?names=dns": 1,
	} {
		var page v3.List[v3.SecurityGroup]
		if w.want(200, "GET", path, "", &page); len(page.Resources) != want {
			t.Errorf("%s has %d, want %d", path, len(page.Resources), want)
		}
	}
	w.want(200, "POST", at+"/relationships/staging_spaces", `{"data":[{"guid":"`+space+`"}]}`, nil)
	w.want(204, "DELETE", at+"/relationships/staging_spaces/"+space, "", nil)
	wantError(t, w.request("DELETE", at+"/relationships/staging_spaces/"+space, ""), "CF-UnprocessableEntity", "Ensure the space is bound to this security group.")
	wantError(t, w.request("POST", at+"/relationships/running_spaces", `{"data":[{"guid":"x"}]}`), "CF-UnprocessableEntity", "Spaces do not exist")
	w.complete(w.want(202, "DELETE", at, "", nil))
	wantError(t, w.request("GET", at, ""), "CF-ResourceNotFound", "Security group not found")
}

// Managers of a space can bind groups that they can see to it; other users cannot even
// see the groups.
func TestSecurityGroupRights(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	g := must(h.c.Registry.PutSecurityGroup(app.SecurityGroup{Name: orgMark + "-group", Runs: []string{h.space.GUID}}))(t)
	at := "/v3/security_groups/" + g.GUID
	for who, want := range map[string]int{"space_manager": 200, "organization_manager": 200, "space_developer": 403, "stranger": 404} {
		if got := h.as(h.tokens[who], "POST", at+"/relationships/staging_spaces", `{"data":[{"guid":"`+h.space.GUID+`"}]}`); got.Code != want {
			t.Errorf("binding as %s = %d %s, want %d", who, got.Code, got.Body, want)
		}
	}
	if got := h.as(h.tokens["stranger"], "GET", "/v3/security_groups", ""); strings.Contains(got.Body.String(), orgMark) {
		t.Errorf("a stranger sees %s", got.Body)
	}
}

func TestIsolationSegments(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	got := w.request("POST", "/v3/isolation_segments", `{"name":"quiet","metadata":{"labels":{"a":"b"}}}`)
	golden(t, "isolation-segment-created", got.Body.Bytes())
	var g v3.IsolationSegment
	decodeInto(t, got, &g)
	at, org, space := "/v3/isolation_segments/"+g.GUID, "/v3/organizations/"+w.space.Org, "/v3/spaces/"+w.space.GUID
	wantError(t, w.request("POST", "/v3/isolation_segments", `{"name":"Quiet"}`), "CF-UnprocessableEntity", "case insensitive and must be unique")
	data := `{"data":{"guid":"` + g.GUID + `"}}`
	wantError(t, w.request("PATCH", space+"/relationships/isolation_segment", data), "CF-UnprocessableEntity", "Ensure it has been entitled to the organization")
	wantError(t, w.request("POST", at+"/relationships/organizations", `{"data":[{"guid":"x"}]}`), "CF-UnprocessableEntity", "Unable to entitle organizations [x]")
	w.want(200, "POST", at+"/relationships/organizations", `{"data":[{"guid":"`+w.space.Org+`"}]}`, nil)
	var related v3.Related
	w.want(200, "PATCH", space+"/relationships/isolation_segment", data, &related)
	w.want(200, "PATCH", org+"/relationships/default_isolation_segment", data, nil)
	if related.Data == nil || related.Data.GUID != g.GUID {
		t.Errorf("space = %+v", related)
	}
	var spaces v3.RelatedMany
	w.want(200, "GET", at+"/relationships/spaces", "", &spaces)
	var orgs v3.List[v3.Organization]
	w.want(200, "GET", at+"/organizations", "", &orgs)
	if len(spaces.Data) != 1 || len(orgs.Resources) != 1 {
		t.Errorf("spaces = %+v, orgs = %+v", spaces, orgs.Resources)
	}
	wantError(t, w.request("DELETE", at, ""), "CF-UnprocessableEntity", "Revoke the Organization entitlements")
	wantError(t, w.request("DELETE", at+"/relationships/organizations/"+w.space.Org, ""), "CF-UnprocessableEntity", "First remove it as the default")
	for _, path := range []string{space + "/relationships/isolation_segment", org + "/relationships/default_isolation_segment"} {
		w.want(200, "PATCH", path, `{"data":null}`, &related)
		if related.Data != nil {
			t.Errorf("%s = %+v, want none", path, related)
		}
	}
	w.want(204, "DELETE", at+"/relationships/organizations/"+w.space.Org, "", nil)
	w.want(200, "PATCH", at, `{"name":"loud"}`, &g)
	w.want(204, "DELETE", at, "", nil)
	shared := "/v3/isolation_segments/" + app.SharedSegment().GUID
	w.want(200, "GET", shared, "", &g)
	wantError(t, w.request("DELETE", shared, ""), "CF-UnprocessableEntity", "is built in")
}

// The usage of apps is listed in the order of its changes, and can be read in parts.
func TestAppUsage(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	w.want(202, "POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"instances":2}`, nil)
	task := w.createTask(a.GUID, `{"command":"x","name":"migrate","memory_in_mb":64}`)
	for _, s := range []app.TaskState{app.TaskRunning, app.TaskSucceeded} {
		must(w.c.Registry.UpdateTask(task.GUID, func(t *app.Task) error { t.State = s; return nil }))(t)
	}
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/stop", "", nil)
	var page v3.List[v3.AppUsageEvent]
	states := func(path string) (out []string) {
		page = v3.List[v3.AppUsageEvent]{}
		w.want(200, "GET", path, "", &page)
		for _, e := range page.Resources {
			out = append(out, e.State.Current)
		}
		return out
	}
	want := []string{"STARTED", "STARTED", "TASK_STARTED", "TASK_STOPPED", "STOPPED"}
	if diff := cmp.Diff(states("/v3/app_usage_events"), want); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
	scaled, ran := page.Resources[1], page.Resources[2]
	if scaled.Instances != (v3.NumberChange{Current: 2, Previous: 1}) || *scaled.Process.GUID != a.GUID || *scaled.App.Name != "shop" || *scaled.State.Previous != "STARTED" {
		t.Errorf("scaled = %+v", scaled)
	}
	if *ran.Task.Name != "migrate" || ran.Process.GUID != nil || ran.Memory.Current != 64 || *ran.Space.Name != w.space.Name || ran.Organization.GUID != w.space.Org {
		t.Errorf("task = %+v", ran)
	}
	if diff := cmp.Diff(states("/v3/app_usage_events?after_guid="+scaled.GUID), want[2:]); diff != "" {
		t.Errorf("events after one (-got +want):\n%s", diff)
	}
	wantError(t, w.request("GET", "/v3/app_usage_events?after_guid=x", ""), "CF-BadQueryParameter", "After guid filter must be a valid event guid.")
	w.want(200, "GET", "/v3/app_usage_events/"+scaled.GUID, "", nil)
	dora := w.login(w.named("dora"))
	if got := w.as(dora, "GET", "/v3/app_usage_events/"+scaled.GUID, ""); got.Code != 404 {
		t.Errorf("a user reads an event: %d", got.Code)
	}
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/start", "", nil)
	w.finish(w.want(202, "DELETE", "/v3/apps/"+a.GUID, "", nil))
	if got := states("/v3/app_usage_events?order_by=-created_at&per_page=2"); cmp.Diff(got, []string{"STOPPED", "STARTED"}) != "" {
		t.Errorf("newest = %v, want a deleted app to be stopped", got)
	}
	w.startedApp("other")
	w.want(200, "POST", "/v3/app_usage_events/actions/destructively_purge_all_and_reseed", "", nil)
	if got := states("/v3/app_usage_events"); len(got) != 1 || got[0] != "STARTED" {
		t.Errorf("after a purge = %v, want one for what is started", got)
	}
}

// The start and the end of a build are recorded as usage events.
func TestStagingUsage(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	var page v3.List[v3.AppUsageEvent]
	h.want(200, "GET", "/v3/app_usage_events", "", &page)
	var got []string
	for _, e := range page.Resources {
		if e.Process.GUID == nil {
			got = append(got, e.State.Current)
		}
	}
	if diff := cmp.Diff(got, []string{"STAGING_STARTED", "STAGING_STOPPED", "BUILDPACK_SET"}); diff != "" {
		t.Errorf("events (-got +want):\n%s", diff)
	}
}
