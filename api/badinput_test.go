package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/droplet/stack"
)

// For any bad input, the response says whether the client is at fault and what is
// wrong, and nothing is stored.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	other := w.createApp("other")
	var sidecar v3.Sidecar
	w.want(201, "POST", "/v3/apps/"+a.GUID+"/sidecars", `{"name":"config server","command":"serve","process_types":["web"],"memory_in_mb":"64"}`, &sidecar)
	foreign := w.giveDroplet(other.GUID, nil)
	var pkg v3.Package
	w.want(201, "POST", "/v3/packages", `{"type":"bits","relationships":{"app":{"data":{"guid":"`+a.GUID+`"}}}}`, &pkg)
	w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", "applications: [{name: routed, default-route: true}]", nil))
	var routes v3.List[v3.Route]
	w.want(200, "GET", "/v3/routes", "", &routes)
	route := "/v3/routes/" + routes.Resources[0].GUID
	apps, app, process := "/v3/apps", "/v3/apps/"+a.GUID, "/v3/processes/"+a.GUID
	space := `"relationships":{"space":{"data":{"guid":"` + w.space.GUID + `"}}}`
	before := w.request("GET", "/v3/audit_events?per_page=5000", "").Body.String()
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		title, detail            string
	}{
		{"unknown path", "GET", "/v3/nothing", "", 404, "CF-NotFound", "Unknown request"},
		{"unknown method", "PUT", app, "{}", 404, "CF-NotFound", "Unknown request"},
		{"v2", "GET", "/v2/info", "", 404, "CF-NotFound", "Unknown request"},

		{"no body", "POST", apps, "", 400, "CF-MessageParseError", "invalid request body"},
		{"no JSON", "POST", apps, "{name", 400, "CF-MessageParseError", "invalid request body"},
		{"two values", "POST", apps, "{}{}", 400, "CF-MessageParseError", "invalid request body"},
		{"array", "POST", apps, "[]", 422, "CF-UnprocessableEntity", "the request body must be an object, not array"},
		{"name is a number", "POST", apps, `{"name":7,` + space + `}`, 422, "CF-UnprocessableEntity", "name must be a string, not number"},
		{"unknown field", "POST", apps, `{"title":"x",` + space + `}`, 422, "CF-UnprocessableEntity", "Unknown field(s): 'title'"},
		{"no name", "POST", apps, `{` + space + `}`, 422, "CF-UnprocessableEntity", "name: must not be empty"},
		{"no space", "POST", apps, `{"name":"x"}`, 422, "CF-UnprocessableEntity", "Invalid space."},
		{"unknown space", "POST", apps, `{"name":"x","relationships":{"space":{"data":{"guid":"nowhere"}}}}`, 422, "CF-UnprocessableEntity", "Invalid space."},
		{"name taken", "POST", apps, `{"name":"shop",` + space + `}`, 422, "CF-UnprocessableEntity", "App with the name 'shop' already exists."},
		{"lifecycle", "POST", apps, `{"name":"x","lifecycle":{"type":"cnb","data":{}},` + space + `}`, 422, "CF-UnprocessableEntity", "lifecycle.type must be buildpack or docker"},
		{"labels", "POST", apps, `{"name":"x","metadata":{"labels":{"a":"b c"}},` + space + `}`, 422, "CF-UnprocessableEntity", "metadata.labels[a]"},
		{"bad variable", "POST", apps, `{"name":"x","environment_variables":{"VCAP_X":"1","PORT":"2"},` + space + `}`, 422, "CF-UnprocessableEntity", "env[PORT]"},
		{"huge body", "POST", apps, `{"name":"` + strings.Repeat("x", rest.MaxBody) + `"}`, 413, "CF-RequestEntityTooLarge", ""},

		{"unknown app", "GET", "/v3/apps/nobody", "", 404, "CF-ResourceNotFound", "App not found"},
		{"update unknown app", "PATCH", "/v3/apps/nobody", "{}", 404, "CF-ResourceNotFound", "App not found"},
		{"delete unknown app", "DELETE", "/v3/apps/nobody", "", 404, "CF-ResourceNotFound", "App not found"},
		{"start unknown app", "POST", "/v3/apps/nobody/actions/start", "", 404, "CF-ResourceNotFound", "App not found"},
		{"rename to a taken name", "PATCH", app, `{"name":"other"}`, 422, "CF-UnprocessableEntity", "App with the name 'other' already exists."},
		{"start without droplet", "POST", app + "/actions/start", "", 422, "CF-UnprocessableEntity", "Assign a droplet before starting this app."},
		{"restart without droplet", "POST", app + "/actions/restart", "", 422, "CF-UnprocessableEntity", "Assign a droplet before starting this app."},
		{"no current droplet", "GET", app + "/droplets/current", "", 404, "CF-ResourceNotFound", "Droplet not found"},
		{"no current relationship", "GET", app + "/relationships/current_droplet", "", 404, "CF-ResourceNotFound", "Droplet not found"},
		{"droplet of another app", "PATCH", app + "/relationships/current_droplet", `{"data":{"guid":"` + foreign + `"}}`, 422, "CF-UnprocessableEntity", "Unable to assign current droplet."},
		{"unknown droplet", "PATCH", app + "/relationships/current_droplet", `{"data":{"guid":"x"}}`, 422, "CF-UnprocessableEntity", "Unable to assign current droplet."},
		{"null droplet", "PATCH", app + "/relationships/current_droplet", `{"data":null}`, 422, "CF-UnprocessableEntity", "must have the guid of a droplet"},
		{"variable is a number", "PATCH", app + "/environment_variables", `{"var":{"A":1}}`, 422, "CF-UnprocessableEntity", "must be a string"},
		{"variable of the platform", "PATCH", app + "/environment_variables", `{"var":{"VCAP_A":"1"}}`, 422, "CF-UnprocessableEntity", "VCAP_"},

		{"unknown process", "GET", "/v3/processes/nobody", "", 404, "CF-ResourceNotFound", "Process not found"},
		{"unknown type", "GET", app + "/processes/worker", "", 404, "CF-ResourceNotFound", "Process not found"},
		{"type of unknown app", "GET", "/v3/apps/nobody/processes/web", "", 404, "CF-ResourceNotFound", "App not found"},
		{"stats of unknown", "GET", "/v3/processes/nobody/stats", "", 404, "CF-ResourceNotFound", "Process not found"},
		{"scale by words", "POST", process + "/actions/scale", `{"instances":"two"}`, 422, "CF-UnprocessableEntity", "instances must be a whole number"},
		{"scale by parts", "POST", process + "/actions/scale", `{"instances":1.5}`, 422, "CF-UnprocessableEntity", "instances must be a whole number"},
		{"negative instances", "POST", process + "/actions/scale", `{"instances":-1}`, 422, "CF-UnprocessableEntity", "instances"},
		{"no memory", "POST", process + "/actions/scale", `{"memory_in_mb":0}`, 422, "CF-UnprocessableEntity", "memory_in_mb: must be greater than 0"},
		{"less memory than sidecars", "POST", process + "/actions/scale", `{"memory_in_mb":64}`, 422, "CF-UnprocessableEntity", "must be more than 64M"},
		{"log limit", "POST", process + "/actions/scale", `{"log_rate_limit_in_bytes_per_second":-2}`, 422, "CF-UnprocessableEntity", "must be greater than or equal to -1"},
		{"bad check", "PATCH", process, `{"health_check":{"type":"smell"}}`, 422, "CF-UnprocessableEntity", "must be port, http or process"},
		{"bad timeout", "PATCH", process, `{"health_check":{"data":{"timeout":0}}}`, 422, "CF-UnprocessableEntity", "health_check.data.timeout"},
		{"no such instance", "DELETE", process + "/instances/0", "", 404, "CF-ResourceNotFound", "Instance not found"},
		{"no index", "DELETE", process + "/instances/first", "", 404, "CF-ResourceNotFound", "Instance not found"},

		{"sidecar without anything", "POST", app + "/sidecars", `{}`, 422, "CF-UnprocessableEntity", "process_types"},
		{"sidecar without command", "POST", app + "/sidecars", `{"name":"x","process_types":["web"]}`, 422, "CF-UnprocessableEntity", "sidecars[x].command: must not be empty"},
		{"sidecar twice", "POST", app + "/sidecars", `{"name":"Config Server","command":"x","process_types":["web"]}`, 422, "CF-UnprocessableEntity", "another sidecar"},
		{"sidecar with a check", "POST", app + "/sidecars", `{"name":"x","command":"x","process_types":["web"],"health_check":{}}`, 422, "CF-UnprocessableEntity", "Unknown field(s): 'health_check'"},
		{"sidecar too large", "POST", app + "/sidecars", `{"name":"x","command":"x","process_types":["web"],"memory_in_mb":1024}`, 422, "CF-UnprocessableEntity", "must be less than the memory of the process"},
		{"sidecar without memory", "POST", app + "/sidecars", `{"name":"x","command":"x","process_types":["web"],"memory_in_mb":0}`, 422, "CF-UnprocessableEntity", "memory_in_mb"},
		{"sidecar of unknown app", "POST", "/v3/apps/nobody/sidecars", `{"name":"x","command":"x","process_types":["web"]}`, 404, "CF-ResourceNotFound", "App not found"},
		{"unknown sidecar", "GET", "/v3/sidecars/nobody", "", 404, "CF-ResourceNotFound", "Sidecar not found"},
		{"update unknown sidecar", "PATCH", "/v3/sidecars/nobody", "{}", 404, "CF-ResourceNotFound", "Sidecar not found"},
		{"delete unknown sidecar", "DELETE", "/v3/sidecars/nobody", "", 404, "CF-ResourceNotFound", "Sidecar not found"},
		{"sidecar grows too large", "PATCH", "/v3/sidecars/" + sidecar.GUID, `{"memory_in_mb":"2048"}`, 422, "CF-UnprocessableEntity", "must be less than the memory of the process"},

		{"package of unknown app", "POST", "/v3/packages", `{"type":"bits","relationships":{"app":{"data":{"guid":"x"}}}}`, 422, "CF-UnprocessableEntity", "App is invalid."},
		{"docker package of files", "POST", "/v3/packages", `{"type":"docker","data":{"image":"x"},"relationships":{"app":{"data":{"guid":"` + a.GUID + `"}}}}`, 422, "CF-UnprocessableEntity", "Cannot create Docker package for a buildpack app."},
		{"other package", "POST", "/v3/packages", `{"type":"cnb","relationships":{"app":{"data":{"guid":"` + a.GUID + `"}}}}`, 422, "CF-UnprocessableEntity", "type must be bits or docker"},
		{"becomes an image", "PATCH", app, `{"lifecycle":{"type":"docker","data":{}}}`, 422, "CF-UnprocessableEntity", "Lifecycle type cannot be changed"},
		{"stack without files", "POST", "/v3/stacks", `{"name":"x"}`, 422, "CF-UnprocessableEntity", "dew stack add"},
		{"remove the machine", "DELETE", "/v3/stacks/" + stack.GUID("host"), "", 422, "CF-UnprocessableEntity", "is the operating system of this machine"},
		{"remove no stack", "DELETE", "/dew/v1/stacks/x", "", 404, "CF-ResourceNotFound", "Stack not found"},
		{"stack of nothing", "POST", "/dew/v1/stacks", `{"name":"x"}`, 422, "CF-UnprocessableEntity", "set either Debian packages or an image as its source"},
		{"stack of options", "POST", "/dew/v1/stacks", `{"name":"x","debian":{"include":["--hook"]}}`, 422, "CF-UnprocessableEntity", "is not a valid name of a Debian package"},
		{"stack of no image", "POST", "/dew/v1/stacks", `{"name":"x","image":{"image":"a b"}}`, 422, "CF-UnprocessableEntity", "must have the form [host[:port]/]repository[:tag]"},
		{"stack without a name", "POST", "/dew/v1/stacks/upload", "x", 422, "CF-UnprocessableEntity", "is not a valid name for a stack"},
		{"stack of no archive", "POST", "/dew/v1/stacks/upload?name=x", "x", 422, "CF-UnprocessableEntity", "not a tar archive"},
		{"unknown package", "GET", "/v3/packages/x", "", 404, "CF-ResourceNotFound", "Package not found"},
		{"upload to unknown package", "POST", "/v3/packages/x/upload", "", 404, "CF-ResourceNotFound", "Package not found"},
		{"upload that is no form", "POST", "/v3/packages/" + pkg.GUID + "/upload", "PK", 422, "CF-UnprocessableEntity", "multipart/form-data"},
		{"droplets of unknown package", "GET", "/v3/packages/x/droplets", "", 404, "CF-ResourceNotFound", "Package not found"},
		{"too many resources", "POST", "/v3/resource_matches", `{"resources":[` + strings.Repeat(`{},`, v3.MaxResources) + `{}]}`, 422, "CF-UnprocessableEntity", "at most 5000"},
		{"build of unknown package", "POST", "/v3/builds", `{"package":{"guid":"x"}}`, 422, "CF-UnprocessableEntity", "Unable to use package."},
		{"build before the upload", "POST", "/v3/builds", `{"package":{"guid":"` + pkg.GUID + `"}}`, 400, "CF-BadRequest", "Bad request: Cannot stage package whose state is not ready."},
		{"unknown build", "GET", "/v3/builds/x", "", 404, "CF-ResourceNotFound", "Build not found"},
		{"unknown droplet", "GET", "/v3/droplets/x", "", 404, "CF-ResourceNotFound", "Droplet not found"},

		{"unknown route", "GET", "/v3/routes/x", "", 404, "CF-ResourceNotFound", "Route not found"},
		{"destinations of unknown route", "PATCH", "/v3/routes/x/destinations", `{"destinations":[]}`, 404, "CF-ResourceNotFound", "Route not found"},
		{"no destinations", "PATCH", route + "/destinations", `{}`, 422, "CF-UnprocessableEntity", "destinations is missing: it must be an array"},
		{"destination to nobody", "POST", route + "/destinations", `{"destinations":[{"app":{"guid":"x"}}]}`, 422, "CF-UnprocessableEntity", "do not exist"},
		{"destination with a weight", "POST", route + "/destinations", `{"destinations":[{"app":{"guid":"` + a.GUID + `"},"weight":3}]}`, 422, "CF-UnprocessableEntity", "weight"},
		{"destination port 0", "PATCH", route + "/destinations", `{"destinations":[{"app":{"guid":"` + a.GUID + `"},"port":0}]}`, 422, "CF-UnprocessableEntity", "port"},
		{"destination port too large", "PATCH", route + "/destinations", `{"destinations":[{"app":{"guid":"` + a.GUID + `"},"port":70000}]}`, 422, "CF-UnprocessableEntity", "1 to 65535"},
		{"destination protocol", "PATCH", route + "/destinations", `{"destinations":[{"app":{"guid":"` + a.GUID + `"},"protocol":"http9"}]}`, 422, "CF-UnprocessableEntity", "protocol"},

		{"manifest for unknown space", "POST", "/v3/spaces/x/actions/apply_manifest", "applications: []", 404, "CF-ResourceNotFound", "Space not found"},
		{"broken YAML", "POST", "/v3/spaces/" + w.space.GUID + "/actions/apply_manifest", "applications: [", 422, "CF-UnprocessableEntity", ""},
		{"bananas", "POST", "/v3/spaces/" + w.space.GUID + "/actions/apply_manifest", "applications:\n- name: x\n  memory: 256 bananas\n", 422, "CF-UnprocessableEntity", "memory"},
		{"diff of broken YAML", "POST", "/v3/spaces/" + w.space.GUID + "/manifest_diff", "applications: [", 422, "CF-UnprocessableEntity", ""},
		{"unknown job", "GET", "/v3/jobs/x", "", 404, "CF-ResourceNotFound", "Job not found"},

		{"unknown filter", "GET", apps + "?colours=red", "", 400, "CF-BadQueryParameter", "Unknown query parameter(s): 'colours'"},
		{"page 0", "GET", apps + "?page=0", "", 400, "CF-BadQueryParameter", "page must be a number"},
		{"huge page", "GET", apps + "?per_page=5001", "", 400, "CF-BadQueryParameter", "per_page must be a number from 1 to 5000"},
		{"order by taste", "GET", apps + "?order_by=taste", "", 400, "CF-BadQueryParameter", "Order by can only be"},
		{"broken query", "GET", apps + "?names=%zz", "", 400, "CF-BadQueryParameter", "invalid URL escape"},
		{"broken query of a change", "POST", "/v3/packages?source_guid=%zz", "{}", 400, "CF-BadQueryParameter", "invalid URL escape"},
		{"broken query of a stream", "GET", "/stream/v1/apps/" + a.GUID + "?follow=%zz", "", 400, "CF-BadQueryParameter", "invalid URL escape"},

		{"log of unknown app", "GET", "/api/v1/read/x", "", 404, "CF-ResourceNotFound", "App not found"},
		{"log from nowhen", "GET", "/api/v1/read/" + a.GUID + "?start_time=soon", "", 400, "CF-BadQueryParameter", "start_time"},
		{"too many lines", "GET", "/api/v1/read/" + a.GUID + "?limit=1001", "", 400, "CF-BadQueryParameter", "limit must be 1 to 1000"},
		{"stream of unknown app", "GET", "/stream/v1/apps/x", "", 404, "CF-ResourceNotFound", "App not found"},
		{"stream from nowhere", "GET", "/stream/v1/apps/" + a.GUID + "?from=-1", "", 400, "CF-BadQueryParameter", "from must be a whole number"},
		{"stream with unknown parameter", "GET", "/stream/v1/apps/" + a.GUID + "?limit=1", "", 400, "CF-BadQueryParameter", "limit"},

		{"crashes of unknown app", "GET", "/dew/v1/apps/x/crashes", "", 404, "CF-ResourceNotFound", "App not found"},
		{"kill with a feather", "POST", "/dew/v1" + strings.TrimPrefix(process, "/v3") + "/kill", `{"signal":"FEATHER"}`, 422, "CF-UnprocessableEntity", "must be a signal"},
		{"kill with signal 0", "POST", "/dew/v1" + strings.TrimPrefix(process, "/v3") + "/kill", `{"signal":"0"}`, 422, "CF-UnprocessableEntity", "must be a signal"},
		{"kill nobody", "POST", "/dew/v1/processes/x/kill", `{"signal":"KILL"}`, 404, "CF-ResourceNotFound", "Process not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := w.request(tt.method, tt.path, tt.body)
			if got.Code != tt.status {
				t.Fatalf("status = %d %s, want %d", got.Code, got.Body, tt.status)
			}
			wantError(t, got, tt.title, tt.detail)
		})
	}
	if diff := cmp.Diff(w.request("GET", "/v3/audit_events?per_page=5000", "").Body.String(), before); diff != "" {
		t.Errorf("bad input was recorded as done:\n%s", diff)
	}
	var list v3.List[v3.App]
	if w.want(200, "GET", apps, "", &list); len(list.Resources) != 3 {
		t.Errorf("apps = %d, want 3: bad input made some", len(list.Resources))
	}
	if logged := w.logged.String(); strings.Contains(logged, "level=ERROR") {
		t.Errorf("bad input is somebody else's fault, and the log has it as ours: %s", logged)
	}
}

// The response lists all problems at once.
func TestAllProblemsAreReported(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	got := w.request("POST", "/v3/apps/"+a.GUID+"/sidecars", `{"name":"x"}`)
	if got.Code != http.StatusUnprocessableEntity {
		t.Fatalf("status = %d, want 422", got.Code)
	}
	wantError(t, got, "CF-UnprocessableEntity", "sidecars[x].command")
	wantError(t, got, "CF-UnprocessableEntity", "sidecars[x].process_types")
}

// Every endpoint for an app responds with 404 if the app is unknown.
func TestUnknownApp(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for _, path := range []string{
		"/env", "/environment_variables", "/processes", "/routes", "/packages", "/builds", "/sidecars", "/droplets/current",
		"/relationships/current_droplet",
	} {
		got := w.request("GET", "/v3/apps/nobody"+path, "")
		if got.Code != http.StatusNotFound {
			t.Errorf("GET %s = %d, want 404", path, got.Code)
		}
		wantError(t, got, "CF-ResourceNotFound", "App not found")
	}
}

func FuzzDecoders(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `[]`, `null`, `{"name":1}`, `{"instances":"2"}`, `{"instances":"\"2"}`, `{"var":{"A":null}}`, `{"destinations":[{"port":"80"}]}`,
		`{"command":null,"health_check":{"data":{"timeout":"3"}}}`, `{"resources":[{"size_in_bytes":1e99}]}`, "{\"name\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, decode := range map[string]func([]byte) error{
			"app": decoded[v3.CreateApp], "update app": decoded[v3.UpdateApp], "process": decoded[v3.UpdateProcess],
			"scale": decoded[v3.Scale], "sidecar": decoded[v3.CreateSidecar], "update sidecar": decoded[v3.UpdateSidecar],
			"package": decoded[v3.CreatePackage], "resources": decoded[[]v3.Resource], "matches": decoded[v3.ResourceMatches],
			"build": decoded[v3.CreateBuild], "droplet": decoded[v3.CurrentDroplet], "env": decoded[v3.UpdateEnvVars],
			"destinations": decoded[v3.ChangeDestinations], "kill": decoded[v3.Kill], "shutdown": decoded[v3.Shutdown],
		} {
			if err := decode(b); err == nil {
				continue
			} else if status, body := rest.ToError(err); status != 400 && status != 422 || len(body.Errors) == 0 {
				t.Errorf("%s: %q = %d %v, want 400 or 422", name, b, status, body)
			}
		}
	})
}

func decoded[T any](b []byte) error {
	_, err := rest.DecodeBytes[T](b)
	return err
}

// No request leads to a server error.
func FuzzRequests(f *testing.F) {
	w := newTestServer(f)
	a := w.startedApp("shop")
	names := strings.NewReplacer("APP", a.GUID, "SPACE", w.space.GUID) // each worker has its own server
	for _, seed := range [][3]string{
		{"GET", "/v3/apps?names=a%252Cb&page=2", ""},
		{"PATCH", "/v3/apps/APP", `{"name":"\u0000"}`},
		{"POST", "/v3/apps/APP/processes/web/actions/scale", `{"instances":"3"}`},
		{"POST", "/v3/apps/APP/sidecars", `{"name":"a","command":"b","process_types":["web","web"]}`},
		{"POST", "/v3/spaces/SPACE/manifest_diff", "applications:\n- name: a\n  <<: *b\n"},
		{"GET", "/api/v1/read/APP?start_time=-9223372036854775808&descending=1", ""},
		{"PATCH", "/v3/processes/APP", `{"command":null,"health_check":{"type":"http","data":{"timeout":"7","endpoint":"/"}}}`},
		{"PATCH", "/v3/apps/APP/environment_variables", `{"var":{"A":"1","B":null}}`},
		{"POST", "/v3/resource_matches", `{"resources":[{"path":"a","mode":"644","checksum":{"value":"x"},"size_in_bytes":-1}]}`},
		{"POST", "/v3/spaces/SPACE/actions/apply_manifest", "applications: [{name: a, memory: 1G, env: {A: 1}}]"},
		{"POST", "/dew/v1/processes/APP/kill", `{"index":-1,"signal":"9"}`},
		{"GET", "/v3/audit_events?order_by=-created_at&types=app.crash", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		r, err := http.NewRequest(method, "http://localhost/", strings.NewReader(body))
		if err != nil {
			t.Skip()
		}
		u, err := r.URL.Parse(names.Replace(target))
		if err != nil || strings.HasPrefix(u.Path, "/stream/") { // streams do not stop
			t.Skip()
		}
		r.URL = u
		got := httptest.NewRecorder()
		w.local.ServeHTTP(got, r)
		if got.Code >= 500 {
			t.Errorf("%s %s %q = %d %s\n%s", method, target, body, got.Code, got.Body, w.logged.String())
		}
	})
}
