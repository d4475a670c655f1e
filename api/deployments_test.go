package api

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

// deployApp creates a deployment of an app; more holds further fields of the body.
func (w *testServer) deployApp(guid, more string) v3.Deployment {
	w.t.Helper()
	var d v3.Deployment
	w.want(201, "POST", "/v3/deployments", `{`+more+`"relationships":{"app":{"data":{"guid":"`+guid+`"}}}}`, &d)
	return d
}

// move changes a deployment as the runtime does.
func (w *testServer) move(guid string, fn func(d *app.Deployment)) {
	w.t.Helper()
	if err := w.c.Registry.MoveDeployment(guid, func(_ app.Process, d *app.Deployment) { fn(d) }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testServer) deployment(guid string) (d v3.Deployment) {
	w.t.Helper()
	w.want(200, "GET", "/v3/deployments/"+guid, "", &d)
	return d
}

// A deployment is visible from its creation until it has finished, with its events. The
// new instances are a separate process.
func TestDeploymentLife(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	w.want(202, "POST", "/v3/apps/"+a.GUID+"/processes/web/actions/scale", `{"instances":2}`, nil)
	w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/environment_variables", `{"var":{"COLOUR":"red"}}`, nil)
	got := w.request("POST", "/v3/deployments", `{"strategy":"rolling","options":{"web_instances":3,"memory_in_mb":512,"disk_in_mb":null,"log_rate_limit_in_bytes_per_second":null,"max_in_flight":2},`+
		`"relationships":{"app":{"data":{"guid":"`+a.GUID+`"}}},"metadata":{"labels":{"tier":"front"}}}`)
	if got.Code != http.StatusCreated {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	golden(t, "deployment", got.Body.Bytes())
	var all v3.List[v3.Deployment]
	w.want(200, "GET", "/v3/deployments?app_guids="+a.GUID+"&status_values=ACTIVE&status_reasons=DEPLOYING&states=DEPLOYING&label_selector=tier=front", "", &all)
	if len(all.Resources) != 1 {
		t.Fatalf("deployments = %+v, want one", all.Resources)
	}
	d := all.Resources[0]
	var ps v3.List[v3.Process]
	w.want(200, "GET", "/v3/apps/"+a.GUID+"/processes", "", &ps)
	var shown []string
	for _, p := range ps.Resources {
		shown = append(shown, fmt.Sprintf("%s %s %d", p.GUID, p.Type, len(w.states(p.GUID))))
	}
	if want := []string{a.GUID + " web 2", d.NewProcesses[0].GUID + " web 2"}; !slices.Equal(shown, want) {
		t.Errorf("processes = %v, want %v", shown, want)
	}
	wantError(t, w.request("GET", "/v3/processes/"+a.GUID+".9", ""), "CF-ResourceNotFound", "Process not found")
	wantError(t, w.request("PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", `{"data":{"guid":"droplet-of-`+a.GUID+`"}}`),
		"CF-UnprocessableEntity", "Unable to assign current droplet while the app has a deployment in progress.")
	w.move(d.GUID, func(d *app.Deployment) { d.State = app.Deployed })
	if d = w.deployment(d.GUID); d.Status.Value != "FINALIZED" || d.Status.Reason != "DEPLOYED" || d.Links["cancel"].Href != "" {
		t.Errorf("deployment = %+v, want it done", d)
	}
	if n := len(w.states(a.GUID)); n != 3 {
		t.Errorf("%d instances are shown, want 3", n)
	}
	wantError(t, w.request("POST", "/v3/deployments/"+d.GUID+"/actions/cancel", ""), "CF-UnprocessableEntity",
		"Cannot cancel a deployment with status: FINALIZED and reason: DEPLOYED")
	events := w.eventTypes(a.GUID)
	for _, want := range []string{"audit.app.deployment.create", "audit.app.revision.create"} {
		if !slices.Contains(events, want) {
			t.Errorf("events = %v, want %s among them", events, want)
		}
	}
}

// states returns the states of the visible instances of a process.
func (w *testServer) states(process string) []string {
	w.t.Helper()
	var stats v3.Stats
	w.want(200, "GET", "/v3/processes/"+process+"/stats", "", &stats)
	var out []string
	for _, s := range stats.Resources {
		out = append(out, s.State)
	}
	return out
}

func (w *testServer) eventTypes(appGUID string) []string {
	w.t.Helper()
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?target_guids="+appGUID, "", &events)
	return eventTypes(events.Resources)
}

// While instances of two generations run, each is listed under its own process.
func TestStatsOfGenerations(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	old := must(w.c.Registry.Process(a.GUID))(t)
	d := w.deployApp(a.GUID, "")
	fresh := must(w.c.Registry.Process(a.GUID))(t)
	w.fake.slots = map[string][]runtime.Status{a.GUID: {
		{Slot: runtime.SlotID{Process: a.GUID}, State: runtime.Running, Ready: true, Version: old.Version},
		{Slot: runtime.SlotID{Process: a.GUID, Generation: 1}, State: runtime.Crashed, Version: fresh.Version, Details: "boom"},
	}}
	if diff := cmp.Diff([][]string{w.states(a.GUID), w.states(d.NewProcesses[0].GUID)}, [][]string{{"RUNNING"}, {"CRASHED"}}); diff != "" {
		t.Errorf("states (-got +want):\n%s", diff)
	}
	w.want(200, "POST", "/v3/deployments/"+d.GUID+"/actions/cancel", "", nil)
	if got := w.deployment(d.GUID).Status.Reason; got != "CANCELING" {
		t.Errorf("reason = %s, want CANCELING", got)
	}
	w.move(d.GUID, func(d *app.Deployment) { d.State = app.Canceled })
	if got := w.states(a.GUID); !slices.Equal(got, []string{"RUNNING"}) {
		t.Errorf("after the cancel %v, want the old instance", got)
	}
	if got := w.states(d.NewProcesses[0].GUID); len(got) != 0 {
		t.Errorf("the new process has %v, want nothing", got)
	}
}

func TestCanaryDeployment(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	d := w.deployApp(a.GUID, `"strategy":"canary","options":{"canary":{"steps":[{"instance_weight":20},{"instance_weight":100}]}},`)
	wantError(t, w.request("POST", "/v3/deployments/"+d.GUID+"/actions/continue", ""), "CF-UnprocessableEntity",
		"Cannot continue a deployment with status: ACTIVE and reason: DEPLOYING")
	for step := 1; step <= 2; step++ {
		w.move(d.GUID, func(d *app.Deployment) { d.State = app.Paused })
		d = w.deployment(d.GUID)
		if d.Status.Reason != "PAUSED" || d.Status.Canary.Steps != (v3.CanarySteps{Current: step, Total: 2}) || d.Links["continue"].Href == "" {
			t.Errorf("deployment = %+v, want it paused at %d", d, step)
		}
		w.want(200, "POST", "/v3/deployments/"+d.GUID+"/actions/continue", "", nil)
	}
	if d = w.deployment(d.GUID); d.Status.Value != "ACTIVE" || d.Status.Reason != "DEPLOYING" {
		t.Errorf("status = %+v, want it under way", d.Status)
	}
	w.deployApp(a.GUID, "")
	if d = w.deployment(d.GUID); d.Status.Value != "FINALIZED" || d.Status.Reason != "SUPERSEDED" {
		t.Errorf("status = %+v, want it superseded", d.Status)
	}
}

func TestDeploymentRefused(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a, bare := w.startedApp("shop"), w.createApp("bare")
	for body, want := range map[string]string{
		`"strategy":"slowly"`:                            "Strategy 'slowly' is not a supported deployment strategy",
		`"options":{"max_in_flight":0}`:                  "options.max_in_flight: must be an integer greater than 0",
		`"options":{"max_in_flight":"some"}`:             "whole number",
		`"options":{"web_instances":-1}`:                 "options.web_instances: must be greater than or equal to 0",
		`"options":{"memory_in_mb":0}`:                   "options.memory_in_mb: must be greater than 0",
		`"options":{"speed":1}`:                          "Options has unsupported key(s): speed",
		`"options":{"canary":{}}`:                        "options.canary: are only valid for Canary deployments",
		`"droplet":{"guid":"x"}`:                         "Ensure the droplet exists and belongs to this app",
		`"revision":{"guid":"x"}`:                        "The revision does not exist",
		`"droplet":{"guid":"x"},"revision":{"guid":"x"}`: "Cannot set both fields",
		`"strategy":"canary","options":{"canary":{"steps":[{"instance_weight":0}]}}`:                         "must be an Integer between 1-100 (inclusive)",
		`"strategy":"canary","options":{"canary":{"steps":[{}]}}`:                                            `missing key: "instance_weight"`,
		`"strategy":"canary","options":{"canary":{"steps":[{"instance_weight":50},{"instance_weight":20}]}}`: "must be sorted in ascending order",
	} {
		wantError(t, w.request("POST", "/v3/deployments", `{`+body+`,"relationships":{"app":{"data":{"guid":"`+a.GUID+`"}}}}`), "CF-UnprocessableEntity", want)
	}
	wantError(t, w.request("POST", "/v3/deployments", `{"relationships":{"app":{"data":{"guid":"`+bare.GUID+`"}}}}`), "CF-UnprocessableEntity", "Invalid droplet.")
	if all := must(w.c.Registry.Deployments())(t); len(all) != 0 {
		t.Errorf("deployments = %+v, want none", all)
	}
	if p := must(w.c.Registry.Process(a.GUID))(t); p.Generation != 0 {
		t.Errorf("generation = %d, want 0: what is refused changes nothing", p.Generation)
	}
}

// Every start with a difference creates a revision that describes it. A rollback
// creates another revision that equals the one it names.
func TestRevisions(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	path := "/v3/apps/" + a.GUID
	restart := func() { w.want(200, "POST", path+"/actions/restart", "", nil) }
	restart() // no difference
	w.want(200, "PATCH", path+"/environment_variables", `{"var":{"COLOUR":"red"}}`, nil)
	w.want(200, "PATCH", path+"/processes/web", `{"command":"run"}`, nil)
	restart()
	w.want(201, "POST", path+"/sidecars", `{"name":"aide","command":"help","process_types":["web"],"memory_in_mb":32}`, nil)
	if err := w.c.Shelf.Put(droplet.Droplet{GUID: "another", App: a.GUID, Stack: "host", Commands: map[string]string{"web": "serve"}}); err != nil {
		t.Fatal(err)
	}
	d := w.deployApp(a.GUID, `"droplet":{"guid":"another"},`)
	if got := w.revisions(a.GUID, "/deployed"); len(got) != 2 || got[0].Version != 2 || got[1].Version != 3 {
		t.Errorf("deployed = %+v, want the old and the new", got)
	}
	w.move(d.GUID, func(d *app.Deployment) { d.State = app.Deployed })
	w.want(200, "PATCH", path+"/features/revisions", `{"enabled":false}`, nil)
	w.want(200, "PATCH", path+"/environment_variables", `{"var":{"COLOUR":"blue"}}`, nil)
	restart() // revisions are disabled
	first := w.revisions(a.GUID, "?versions=1")[0]
	wantError(t, w.request("POST", "/v3/deployments", `{"revision":{"guid":"`+first.GUID+`"},"relationships":{"app":{"data":{"guid":"`+a.GUID+`"}}}}`),
		"CF-UnprocessableEntity", "Cannot create deployment from a revision for an app without revisions enabled")
	w.want(200, "PATCH", path+"/features/revisions", `{"enabled":true}`, nil)
	back := w.deployApp(a.GUID, `"revision":{"guid":"`+first.GUID+`"},`)
	if back.Revision == nil || *back.Revision.Version != 4 {
		t.Errorf("deployment = %+v, want it to name revision 4", back)
	}
	var texts []string
	for _, v := range w.revisions(a.GUID, "?order_by=created_at") {
		texts = append(texts, fmt.Sprintf("%d %s", v.Version, v.Description))
	}
	if diff := cmp.Diff(texts, []string{
		"1 Initial revision.",
		"2 Custom start command added for 'web' process. New environment variables deployed.",
		"3 New droplet deployed. Sidecars updated.",
		"4 Custom start command removed for 'web' process. New droplet deployed. New environment variables deployed. Sidecars updated. Rolled back to revision 1.",
	}); diff != "" {
		t.Errorf("revisions (-got +want):\n%s", diff)
	}
	golden(t, "revision", w.request("GET", "/v3/revisions/"+w.revisions(a.GUID, "?versions=3")[0].GUID, "").Body.Bytes())
	var env v3.EnvVars
	w.want(200, "GET", "/v3/revisions/"+w.revisions(a.GUID, "?versions=2")[0].GUID+"/environment_variables", "", &env)
	if env.Var["COLOUR"] != "red" {
		t.Errorf("variables = %v, want red", env.Var)
	}
	w.move(back.GUID, func(d *app.Deployment) { d.State = app.Deployed })
	if got := w.revisions(a.GUID, "/deployed"); len(got) != 1 || got[0].Version != 4 {
		t.Errorf("deployed = %+v, want revision 4", got)
	}
	wantError(t, w.request("POST", "/v3/deployments", `{"revision":{"guid":"`+first.GUID+`"},"relationships":{"app":{"data":{"guid":"`+a.GUID+`"}}}}`),
		"CF-UnprocessableEntity", "Unable to rollback. The code and configuration you are rolling back to is the same as the deployed revision.")
	var labelled v3.Revision
	w.want(200, "PATCH", "/v3/revisions/"+first.GUID, `{"metadata":{"labels":{"good":"yes"}}}`, &labelled)
	if got := w.revisions(a.GUID, "?label_selector=good=yes"); len(got) != 1 || got[0].GUID != labelled.GUID {
		t.Errorf("labelled = %+v, want the first", got)
	}
}

func (w *testServer) revisions(appGUID, more string) []v3.Revision {
	w.t.Helper()
	var out v3.List[v3.Revision]
	w.want(200, "GET", "/v3/apps/"+appGUID+"/revisions"+more, "", &out)
	return out.Resources
}
