package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/platform"
)

// Each change in the life of an app is recorded as an event.
func TestApp(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	golden(t, "app-created", w.request("POST", "/v3/apps",
		`{"name":"shop","environment_variables":{"A":"1"},"lifecycle":{"type":"buildpack","data":{"buildpacks":["binary_buildpack"],"stack":"host"}},
		  "relationships":{"space":{"data":{"guid":"`+w.space.GUID+`"}}}}`).Body.Bytes())
	a := must(w.c.Registry.AppByName("shop"))(t)
	path := "/v3/apps/" + a.GUID
	golden(t, "droplet-missing", w.request("GET", path+"/droplets/current", "").Body.Bytes())
	w.giveDroplet(a.GUID, map[string]string{"web": "serve", "worker": "work"})
	golden(t, "current-droplet", w.request("GET", path+"/relationships/current_droplet", "").Body.Bytes())
	golden(t, "droplet", w.request("GET", path+"/droplets/current", "").Body.Bytes())
	if got, want := w.request("GET", "/v3/droplets/droplet-of-"+a.GUID, "").Body.String(), w.request("GET", path+"/droplets/current", "").Body.String(); got != want {
		t.Errorf("droplet = %s, want %s", got, want)
	}

	var shown v3.App
	w.want(200, "POST", path+"/actions/start", "", &shown)
	if shown.State != v3.AppStarted {
		t.Errorf("state after start = %s", shown.State)
	}
	before := must(w.c.Registry.Process(a.GUID))(t).Version
	w.want(200, "POST", path+"/actions/restart", "", &shown)
	if p := must(w.c.Registry.Process(a.GUID))(t); p.Keeps(before) {
		t.Error("restart keeps instances of before")
	}
	w.want(200, "POST", path+"/actions/stop", "", &shown)
	if shown.State != v3.AppStopped {
		t.Errorf("state after stop = %s", shown.State)
	}
	w.want(200, "POST", path+"/actions/restart", "", &shown)
	if shown.State != v3.AppStarted {
		t.Errorf("restart of a stopped app = %s, want it started", shown.State)
	}
	w.want(200, "PATCH", path, `{"name":"store"}`, &shown)
	if shown.Name != "store" {
		t.Errorf("name = %q, want store", shown.Name)
	}
	golden(t, "app", w.request("GET", path, "").Body.Bytes())

	if j := w.finish(w.want(202, "DELETE", path, "", nil)); j.State != v3.JobComplete {
		t.Errorf("job = %+v, want COMPLETE", j)
	}
	wantError(t, w.request("GET", path, ""), "CF-ResourceNotFound", "App not found")
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?target_guids="+a.GUID, "", &events)
	want := []string{
		"audit.app.process.create", "audit.app.create", "audit.app.process.create", "audit.app.droplet.mapped", "audit.app.revision.create", "audit.app.start", "audit.app.restart", "audit.app.stop",
		"audit.app.restart", "audit.app.update", "audit.app.delete-request", "audit.app.stop", "audit.app.process.delete", "audit.app.process.delete", "audit.app.droplet.delete",
	}
	if diff := cmp.Diff(eventTypes(events.Resources), want); diff != "" {
		t.Errorf("events differ (-got +want):\n%s", diff)
	}
	var logLines []string
	for _, e := range must(w.log(a.GUID).NewestOf(t.Context(), 10, logstream.Filter{}))(t) {
		logLines = append(logLines, fmt.Sprintf("[%s/%d] %s %s", e.Source.Type, e.Source.Index, e.Stream, strings.ReplaceAll(string(e.Text), a.GUID, "G")))
	}
	if diff := cmp.Diff(logLines, []string{
		"[API/0] OUT Created app with guid G", "[API/0] OUT Creating revision for app with guid G", "[API/0] OUT Starting app with guid G", "[API/0] OUT Restarting app with guid G",
		"[API/0] OUT Stopping app with guid G", "[API/0] OUT Restarting app with guid G", "[API/0] OUT Updated app with guid G",
	}); diff != "" {
		t.Errorf("log differs (-got +want):\n%s", diff)
	}
}

// A process type from the Procfile exists once the app has the droplet, and has no
// instances until a user scales it.
func TestDropletBringsProcesses(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.want(202, "POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"instances":3}`, nil)
	w.giveDroplet(a.GUID, map[string]string{"web": "serve", "worker": "work"})
	w.giveDroplet(a.GUID, map[string]string{"web": "serve", "worker": "work"})
	var ps v3.List[v3.Process]
	w.want(200, "GET", "/v3/apps/"+a.GUID+"/processes", "", &ps)
	got := map[string]int{}
	for _, p := range ps.Resources {
		got[p.Type] = p.Instances
	}
	if diff := cmp.Diff(got, map[string]int{"web": 3, "worker": 0}); diff != "" {
		t.Errorf("processes differ (-got +want):\n%s", diff)
	}
}

func TestListApps(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	guids := map[string]string{}
	for _, name := range []string{"c", "a", "b", "d,e", "50%"} {
		guids[name] = w.createApp(name).GUID
	}
	for query, want := range map[string][]string{
		"":                          {"c", "a", "b", "d,e", "50%"},
		"order_by=name":             {"50%", "a", "b", "c", "d,e"},
		"order_by=-name":            {"d,e", "c", "b", "a", "50%"},
		"order_by=-created_at":      {"50%", "d,e", "b", "a", "c"},
		"names=a,c":                 {"c", "a"},
		"names=d%252Ce":             {"d,e"},
		"names=50%2525":             {"50%"},
		"names=":                    nil,
		"names=x":                   nil,
		"space_guids=x":             nil,
		"per_page=2":                {"c", "a"},
		"per_page=2&page=2":         {"b", "d,e"},
		"per_page=2&page=3":         {"50%"},
		"per_page=2&page=99":        nil,
		"names=a&page=1&per_page=1": {"a"},
		"guids=" + guids["b"]:       {"b"},
		"space_guids=" + w.space.GUID + "&organization_guids=" + w.space.Org + "&per_page=5000": {"c", "a", "b", "d,e", "50%"},
	} {
		var list v3.List[v3.App]
		w.want(200, "GET", "/v3/apps?"+query, "", &list)
		var got []string
		for _, a := range list.Resources {
			got = append(got, a.Name)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("?%s differs (-got +want):\n%s", query, diff)
		}
	}
	if got := w.request("GET", "/v3/apps?names=x", "").Body.String(); !strings.Contains(got, `"resources":[]`) {
		t.Errorf("empty list = %s, want resources to be []", got)
	}
}

// The links of the pages lead to every item exactly once. They are absolute URLs from
// the configuration, regardless of the request.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for i := range 7 {
		w.createApp(fmt.Sprintf("app-%d", i))
	}
	var got []string
	next := publicURL + "/v3/apps?order_by=name&per_page=3"
	for pages := 0; next != "" && pages < 9; pages++ {
		u := must(url.Parse(next))(t)
		if u.Scheme+"://"+u.Host != publicURL {
			t.Fatalf("next = %q, want it below %s", next, publicURL)
		}
		var list v3.List[v3.App]
		w.want(200, "GET", u.RequestURI(), "", &list)
		for _, a := range list.Resources {
			got = append(got, a.Name)
		}
		if p := list.Pagination; p.TotalResults != 7 || p.TotalPages != 3 {
			t.Errorf("pagination = %+v, want 7 results on 3 pages", p)
		}
		next = ""
		if list.Pagination.Next != nil {
			next = list.Pagination.Next.Href
		}
	}
	if want := "app-0 app-1 app-2 app-3 app-4 app-5 app-6"; strings.Join(got, " ") != want {
		t.Errorf("pages give %v, want %s", got, want)
	}
	golden(t, "page", []byte(regexpResources.ReplaceAllString(w.request("GET", "/v3/apps?page=2&per_page=3&names=app-0,app-1,app-2,app-3,app-4,app-5,app-6", "").Body.String(), `"resources":[]`)))
}

func TestSpaces(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	golden(t, "organizations", w.request("GET", "/v3/organizations?order_by=name", "").Body.Bytes())
	golden(t, "spaces", w.request("GET", "/v3/spaces?names=dev&organization_guids="+w.space.Org, "").Body.Bytes())
	golden(t, "domains", w.request("GET", "/v3/domains?names=DEW.localhost", "").Body.Bytes())
	for _, path := range []string{"/v3/organizations?names=x", "/v3/spaces?organization_guids=x", "/v3/domains?names=x"} {
		var list v3.List[v3.GUID]
		if w.want(200, "GET", path, "", &list); len(list.Resources) != 0 {
			t.Errorf("%s = %v, want none", path, list.Resources)
		}
	}
}

func TestEnv(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	path := "/v3/apps/" + a.GUID
	w.want(200, "PATCH", path+"/environment_variables", `{"var":{"A":"secret","B":"2","C":"3"}}`, nil)
	golden(t, "environment-variables", w.request("PATCH", path+"/environment_variables", `{"var":{"B":null,"D":""}}`).Body.Bytes())
	golden(t, "environment-variables", w.request("GET", path+"/environment_variables", "").Body.Bytes())
	golden(t, "env", w.request("GET", path+"/env", "").Body.Bytes())
	services := func() string {
		t.Helper()
		var e struct {
			System map[string]json.RawMessage `json:"system_env_json"`
		}
		w.want(200, "GET", path+"/env", "", &e)
		return string(e.System["VCAP_SERVICES"])
	}
	d := droplet.Droplet{GUID: "d1", App: a.GUID, Bindings: droplet.Bindings{JSON: `{"db":[]}`}}
	if err := w.c.Shelf.Put(d); err != nil {
		t.Fatal(err)
	}
	w.want(200, "PATCH", path+"/relationships/current_droplet", `{"data":{"guid":"d1"}}`, nil)
	if got := services(); got != `{"db":[]}` {
		t.Errorf("VCAP_SERVICES = %s, want the droplet's", got)
	}
	if events := w.request("GET", "/v3/audit_events", "").Body.String(); strings.Contains(events, "secret") || !strings.Contains(events, platform.Hidden) {
		t.Errorf("events tell the values of variables: %s", events)
	}
}

const shopManifest = `applications:
- name: shop
  memory: 256M
  colour: red
  env: {PASSWORD: secret}
  default-route: true
  sidecars:
  - name: config server
    process_types: [web]
    command: ./config-server
    memory: 64MB
`

func TestManifest(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	space := "/v3/spaces/" + w.space.GUID
	var diff v3.ManifestDiff
	w.want(202, "POST", space+"/manifest_diff", shopManifest, &diff)
	if len(diff.Diff) == 0 {
		t.Error("the diff of a new app is empty")
	}
	for range 2 { // repeating it changes nothing
		h := w.want(202, "POST", space+"/actions/apply_manifest", shopManifest, nil)
		j := w.finish(h)
		if j.State != v3.JobComplete || len(j.Warnings) != 1 || !strings.Contains(j.Warnings[0].Detail, "colour") {
			t.Fatalf("job = %+v, want COMPLETE with a warning about colour", j)
		}
	}
	j := w.finish(w.want(202, "POST", space+"/actions/apply_manifest", "applications: [{name: x, size: 3}]", nil))
	golden(t, "job", w.request("GET", "/v3/jobs/"+j.GUID, "").Body.Bytes())
	a := must(w.c.Registry.AppByName("shop"))(t)
	golden(t, "app-routes", w.request("GET", "/v3/apps/"+a.GUID+"/routes", "").Body.Bytes())
	golden(t, "process-sidecars", w.request("GET", "/v3/processes/"+a.GUID+"/sidecars", "").Body.Bytes())
	if w.want(202, "POST", space+"/manifest_diff", "applications: [{name: shop, memory: 256M}]", &diff); len(diff.Diff) != 0 {
		t.Errorf("diff of what is = %+v, want none", diff.Diff)
	}
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?target_guids="+a.GUID, "", &events)
	if diff := cmp.Diff(eventTypes(events.Resources), []string{
		"audit.app.create", "audit.app.process.create", "audit.app.process.scale", "audit.app.apply_manifest", "audit.app.map-route", "audit.app.process.scale", "audit.app.apply_manifest",
	}); diff != "" {
		t.Errorf("events differ (-got +want):\n%s", diff)
	}
	if all := w.request("GET", "/v3/audit_events", "").Body.String(); strings.Contains(all, "secret") {
		t.Errorf("events tell the values of variables: %s", all)
	}
}

// The job reports errors that depend on the apps of the space: it fails with an error,
// and nothing of the manifest is applied.
func TestManifestJobFails(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	j := w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest",
		"applications: [{name: fine}, {name: lost, routes: [{route: www.example.com}]}]", nil))
	if j.State != v3.JobFailed || len(j.Errors) == 0 || j.Errors[0].Title != v3.TitleUnprocessable {
		t.Fatalf("job = %+v, want FAILED with an error", j)
	}
	var apps v3.List[v3.App]
	if w.want(200, "GET", "/v3/apps", "", &apps); len(apps.Resources) != 0 {
		t.Errorf("apps = %+v, want none", apps.Resources)
	}
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", shopManifest, nil))
	a := must(w.c.Registry.AppByName("shop"))(t)
	other := w.createApp("other")
	var routes v3.List[v3.Route]
	w.want(200, "GET", "/v3/routes?hosts=SHOP&paths=&app_guids="+a.GUID, "", &routes)
	if len(routes.Resources) != 1 || routes.Resources[0].URL != "shop.dew.localhost" {
		t.Fatalf("routes = %+v, want shop.dew.localhost", routes.Resources)
	}
	path := "/v3/routes/" + routes.Resources[0].GUID
	golden(t, "route", w.request("GET", path, "").Body.Bytes())
	golden(t, "destinations-added", w.request("POST", path+"/destinations", `{"destinations":[{"app":{"guid":"`+other.GUID+`"}}]}`).Body.Bytes())
	golden(t, "destinations-set", w.request("PATCH", path+"/destinations",
		`{"destinations":[{"app":{"guid":"`+a.GUID+`","process":{"type":"web"}},"port":8081,"protocol":"http1"}]}`).Body.Bytes())
	golden(t, "destinations-set", w.request("GET", path+"/destinations", "").Body.Bytes())
	for query, want := range map[string]int{
		"app_guids=" + other.GUID: 0, "hosts=": 0, "paths=/x": 0, "domain_guids=x": 0, "space_guids=" + w.space.GUID: 1, "organization_guids=x": 0,
	} {
		if w.want(200, "GET", "/v3/routes?"+query, "", &routes); len(routes.Resources) != want {
			t.Errorf("?%s = %d routes, want %d", query, len(routes.Resources), want)
		}
	}
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?types=audit.app.map-route,audit.app.unmap-route&target_guids="+other.GUID, "", &events)
	if diff := cmp.Diff(eventTypes(events.Resources), []string{"audit.app.map-route", "audit.app.unmap-route"}); diff != "" {
		t.Errorf("events of the other app differ (-got +want):\n%s", diff)
	}
}

func TestDeleteRoute(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", shopManifest, nil))
	var routes v3.List[v3.Route]
	w.want(200, "GET", "/v3/routes", "", &routes)
	path := "/v3/routes/" + routes.Resources[0].GUID
	if j := w.finish(w.want(202, "DELETE", path, "", nil)); j.State != v3.JobComplete {
		t.Errorf("job = %+v, want COMPLETE", j)
	}
	wantError(t, w.request("DELETE", path, ""), "CF-ResourceNotFound", "Route not found")
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?target_guids="+routes.Resources[0].GUID, "", &events)
	if len(events.Resources) != 2 || events.Resources[0].Type != "audit.route.create" || events.Resources[1].Type != "audit.route.delete-request" ||
		events.Resources[1].Target.Name != "shop.dew.localhost" {
		t.Errorf("events = %+v, want two about shop.dew.localhost", events.Resources)
	}
}

func TestSidecars(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.giveDroplet(a.GUID, map[string]string{"worker": "work"})
	made := w.request("POST", "/v3/apps/"+a.GUID+"/sidecars", `{"name":"config server","command":"serve","process_types":["web"],"memory_in_mb":64}`)
	golden(t, "sidecar", made.Body.Bytes())
	if made.Code != http.StatusCreated {
		t.Errorf("status = %d, want 201", made.Code)
	}
	c := must(w.c.Registry.Sidecars(a.GUID))(t)[0]
	path := "/v3/sidecars/" + c.GUID
	golden(t, "sidecar", w.request("GET", path, "").Body.Bytes())
	golden(t, "sidecar-updated", w.request("PATCH", path, `{"name":"agent","command":"run","process_types":["worker"],"memory_in_mb":null}`).Body.Bytes())
	for list, want := range map[string]int{
		"/v3/apps/" + a.GUID + "/sidecars": 1, "/v3/processes/" + a.GUID + "/sidecars": 0, "/v3/apps/" + a.GUID + "/processes/worker/sidecars": 1,
	} {
		var got v3.List[v3.Sidecar]
		if w.want(200, "GET", list, "", &got); len(got.Resources) != want {
			t.Errorf("%s = %d sidecars, want %d", list, len(got.Resources), want)
		}
	}
	w.want(204, "DELETE", path, "", nil)
	wantError(t, w.request("GET", path, ""), "CF-ResourceNotFound", "Sidecar not found")
	var events v3.List[v3.Event]
	if w.want(200, "GET", "/v3/audit_events?types=audit.app.update", "", &events); len(events.Resources) != 3 {
		t.Errorf("events = %v, want three updates", eventTypes(events.Resources))
	}
}

// A change and its event are stored in one transaction: if the event cannot be stored,
// neither is.
func TestChangeAndEventAreAtomic(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	err := w.s.platform.Change(t.Context(), func(x platform.Tx) error {
		if _, err := x.Registry.PutApp(app.App{Name: "shop", Space: w.space.GUID}); err != nil {
			return err
		}
		return access.ErrUnknownRequest
	})
	if err == nil {
		t.Fatal("the change succeeded")
	}
	if apps := must(w.c.Registry.Apps())(t); len(apps) != 0 {
		t.Errorf("apps = %v, want none", apps)
	}
}
