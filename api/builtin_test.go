package api

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
)

func TestBuildpacksAndStacks(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	golden(t, "buildpacks", w.request("GET", "/v3/buildpacks?order_by=position", "").Body.Bytes())
	golden(t, "stacks", w.request("GET", "/v3/stacks", "").Body.Bytes())
	for path, want := range map[string]int{
		"/v3/buildpacks?names=binary_buildpack": 1, "/v3/buildpacks?names=cobol_buildpack": 0, "/v3/buildpacks?lifecycle=buildpack": len(droplet.Buildpacks()),
		"/v3/buildpacks?lifecycle=cnb": 0, "/v3/buildpacks?stacks=host": len(droplet.Buildpacks()), "/v3/buildpacks?stacks=windows": 0, "/v3/buildpacks?order_by=-position": len(droplet.Buildpacks()),
		"/v3/stacks?names=host": 1, "/v3/stacks?names=cflinuxfs4": 0, "/v3/stacks?default=true": 1, "/v3/stacks?default=false": 0,
		"/v3/stacks/" + stack.GUID("host") + "/apps": 1,
	} {
		if strings.HasSuffix(path, "/apps") {
			w.createApp("shop")
		}
		var page anyList
		if w.want(200, "GET", path, "", &page); len(page.Resources) != want {
			t.Errorf("%s has %d, want %d", path, len(page.Resources), want)
		}
	}
	wantError(t, w.request("GET", "/v3/buildpacks/nonesuch", ""), "CF-ResourceNotFound", "Buildpack not found")
	wantError(t, w.request("GET", "/v3/stacks/nonesuch", ""), "CF-ResourceNotFound", "Stack not found")
	wantError(t, w.request("GET", "/v3/stacks/nonesuch/apps", ""), "CF-ResourceNotFound", "Stack not found")
}

// An app with an unknown buildpack is refused on all endpoints.
func TestNoSuchBuildpack(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	const sentence = "Buildpack must be an existing admin buildpack or a valid git URI"
	body := fmt.Sprintf(`{"name":"x","lifecycle":{"type":"buildpack","data":{"buildpacks":["cobol_buildpack"]}},"relationships":{"space":{"data":{"guid":%q}}}}`, w.space.GUID)
	wantError(t, w.request("POST", "/v3/apps", body), "CF-UnprocessableEntity", sentence)
	a := w.createApp("shop")
	w.want(200, "PATCH", "/v3/apps/"+a.GUID, `{"lifecycle":{"type":"buildpack","data":{"buildpacks":["https://me:secret@example.com"]}}}`, &a)
	if got := a.Lifecycle.Data.Buildpacks; !slices.Equal(got, []string{"https://me:xxxxx@example.com"}) {
		t.Errorf("buildpacks = %v, want one without its password", got)
	}
	wantError(t, w.request("PATCH", "/v3/apps/"+a.GUID, `{"lifecycle":{"type":"buildpack","data":{"stack":"windows"}}}`), "CF-UnprocessableEntity", "Stack must be an existing stack")
	w.want(200, "PATCH", "/v3/apps/"+a.GUID, `{"lifecycle":{"type":"buildpack","data":{"buildpacks":["binary"],"stack":"cflinuxfs4"}}}`, &a)
	w.want(200, "PATCH", "/v3/apps/"+a.GUID, `{"lifecycle":{"type":"buildpack","data":{"stack":"host"}}}`, &a)
	if diff := cmp.Diff(a.Lifecycle.Data, v3.LifecycleData{Buildpacks: []string{"binary"}, Stack: "host"}); diff != "" {
		t.Errorf("lifecycle (-got +want):\n%s", diff)
	}
	for text, detail := range map[string]string{
		"applications: [{name: y, buildpacks: [cobol_buildpack]}]": "For application 'y': " + sentence + `. "cobol_buildpack" cannot be used`,
		"applications: [{name: y, stack: windows}]":                "For application 'y': Stack must be an existing stack",
	} {
		j := w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", text, nil))
		if j.State != v3.JobFailed || len(j.Errors) != 1 || !strings.HasPrefix(j.Errors[0].Detail, detail) || j.Errors[0].Title != "CF-UnprocessableEntity" {
			t.Errorf("%s: job = %+v, want it to fail with %s", text, j, detail)
		}
	}
	if apps := must(w.c.Registry.Apps())(t); len(apps) != 1 {
		t.Errorf("apps = %+v, want the first one alone", apps)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	golden(t, "feature-flags", w.request("GET", "/v3/feature_flags?per_page=5000", "").Body.Bytes())
	var f v3.FeatureFlag
	w.want(200, "PATCH", "/v3/feature_flags/app_scaling", `{"enabled":false,"custom_error_message":"ask the boss"}`, &f)
	if f.Enabled || *f.Message != "ask the boss" || f.UpdatedAt == nil {
		t.Errorf("flag = %+v, want it off", f)
	}
	wantError(t, w.request("PATCH", "/v3/feature_flags/unset_roles_by_username", `{"enabled":false}`), "CF-UnprocessableEntity", "cannot be changed")
	for _, method := range []string{"GET", "PATCH"} {
		wantError(t, w.request(method, "/v3/feature_flags/nonesuch", "{}"), "CF-ResourceNotFound", "Feature flag not found")
	}
}

// A disabled feature flag refuses the request for non-administrators; an enabled one
// refuses no one.
func TestFlagsAreHonoured(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	joe := w.user("joe")
	w.grant(joe, auth.OrgUser, w.space.Org)
	w.grant(joe, auth.SpaceDeveloper, w.space.GUID)
	token := w.login("joe")
	a := w.createApp("shop")
	p := w.createPackage(a.GUID)
	domain := must(w.c.Registry.DefaultDomain())(t)
	for _, c := range []struct{ flag, method, path, body string }{
		{app.FlagScaling, "POST", "/v3/apps/" + a.GUID + "/processes/web/actions/scale", `{"instances":2}`},
		{app.FlagEnvVisibility, "GET", "/v3/apps/" + a.GUID + "/env", ""},
		{app.FlagSpaceEnv, "GET", "/v3/apps/" + a.GUID + "/env", ""},
		{app.FlagSpaceEnv, "GET", "/v3/apps/" + a.GUID + "/environment_variables", ""},
		{app.FlagRouteCreation, "POST", "/v3/routes", routeBody(w.space.GUID, domain.GUID, `"host":"x",`)},
		{app.FlagBitsUpload, "POST", "/v3/packages/" + p.GUID + "/upload", ""},
	} {
		w.want(200, "PATCH", "/v3/feature_flags/"+c.flag, `{"enabled":false}`, nil)
		wantError(t, w.as(token, c.method, c.path, c.body), "CF-FeatureDisabled", "Feature Disabled: "+c.flag)
		if got := w.request(c.method, c.path, c.body); strings.Contains(got.Body.String(), "Disabled") != (c.flag == app.FlagEnvVisibility) {
			t.Errorf("%s is not honoured for an administrator as on the platform: %s", c.flag, got.Body)
		}
		w.want(200, "PATCH", "/v3/feature_flags/"+c.flag, `{"enabled":true}`, nil)
		if got := w.as(token, c.method, c.path, c.body); strings.Contains(got.Body.String(), "Disabled") {
			t.Errorf("%s is on and refused: %s", c.flag, got.Body)
		}
	}
	w.want(200, "PATCH", "/v3/feature_flags/"+app.FlagRouteCreation, `{"enabled":false}`, nil)
	got := w.as(token, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", "applications: [{name: new, default-route: true}]")
	if j := w.finish(got.Header()); j.State != v3.JobFailed || j.Errors[0].Title != "CF-FeatureDisabled" {
		t.Errorf("job = %+v, want it refused", j)
	}
	w.want(200, "PATCH", "/v3/feature_flags/"+app.FlagResourceMatch, `{"enabled":false}`, nil)
	if got := w.as(token, "POST", "/v3/resource_matches", `{"resources":[{"path":"a","mode":"644","checksum":{"value":"x"},"size_in_bytes":3}]}`); strings.TrimSpace(got.Body.String()) != `{"resources":[]}` {
		t.Errorf("matches = %s, want none", got.Body)
	}
}

func TestDeployments(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	var page anyList
	w.want(200, "GET", "/v3/deployments?app_guids=x&order_by=-created_at&page=1&per_page=1&status_values=ACTIVE&states=DEPLOYED", "", &page)
	if len(page.Resources) != 0 {
		t.Errorf("deployments = %s, want none", page.Resources)
	}
	wantError(t, w.request("POST", "/v3/deployments", `{"strategy":"rolling"}`), "CF-UnprocessableEntity", "Unable to use app")
	wantError(t, w.request("GET", "/v3/deployments/x", ""), "CF-ResourceNotFound", "Deployment not found")
	wantError(t, w.request("POST", "/v3/deployments/x/actions/cancel", ""), "CF-ResourceNotFound", "Deployment not found")
}

// The manifest that the server writes for an app creates the same app.
func TestGetManifest(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	space := "/v3/spaces/" + w.space.GUID
	w.finish(w.want(202, "POST", space+"/actions/apply_manifest", shopManifest, nil))
	a := must(w.c.Registry.AppByName("shop"))(t)
	got := w.request("GET", "/v3/apps/"+a.GUID+"/manifest", "")
	if got.Code != 200 || got.Header().Get("Content-Type") != "application/x-yaml" || !strings.HasPrefix(got.Body.String(), "---\napplications:\n- name: shop\n") {
		t.Fatalf("manifest = %d %v\n%s", got.Code, got.Header(), got.Body)
	}
	var diff v3.ManifestDiff
	if w.want(202, "POST", space+"/manifest_diff", got.Body.String(), &diff); len(diff.Diff) != 0 {
		t.Errorf("diff of what is = %+v, want none", diff.Diff)
	}
	wantError(t, w.request("GET", "/v3/apps/nonesuch/manifest", ""), "CF-ResourceNotFound", "App not found")
}

// Instances can be embedded in processes: one for each desired instance.
func TestProcessInstances(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a, stopped := w.startedApp("shop"), w.createApp("stopped")
	w.want(202, "POST", "/v3/processes/"+a.GUID+"/actions/scale", `{"instances":2}`, nil)
	version := must(w.c.Registry.Process(a.GUID))(t).Version
	w.fake.set(a.GUID, runtime.Status{State: runtime.Running, Since: time.Now().Add(-time.Minute), Version: version})
	var list v3.List[v3.Process]
	w.want(200, "GET", "/v3/processes?embed=process_instances&space_guids="+w.space.GUID, "", &list)
	got := map[string][]string{}
	for _, p := range list.Resources {
		for _, i := range p.EmbeddedInstances {
			got[p.GUID] = append(got[p.GUID], fmt.Sprintf("%d %s %t", i.Index, i.State, i.Since >= 60))
		}
	}
	want := map[string][]string{a.GUID: {"0 RUNNING true", "1 STARTING false"}, stopped.GUID: {"0 DOWN false"}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("instances (-got +want):\n%s", diff)
	}
	if text := w.request("GET", "/v3/processes", "").Body.String(); strings.Contains(text, `"process_instances":[`) {
		t.Errorf("instances are embedded unasked: %s", text)
	}
	for _, path := range []string{"/v3/processes/" + a.GUID, "/v3/apps/" + a.GUID + "/processes/web"} {
		var short v3.List[v3.ProcessInstance]
		if w.want(200, "GET", path+"/process_instances", "", &short); len(short.Resources) != 2 || short.Resources[1].State != v3.StateStarting {
			t.Errorf("%s: instances = %+v", path, short.Resources)
		}
	}
	none := w.createApp("none")
	w.want(202, "POST", "/v3/processes/"+none.GUID+"/actions/scale", `{"instances":0}`, nil)
	if text := w.request("GET", "/v3/processes?embed=process_instances&guids="+none.GUID, "").Body.String(); !strings.Contains(text, `"process_instances":[]`) {
		t.Errorf("no instances are not an empty list: %s", text)
	}
}

// Users who cannot read secrets see no commands, because commands can contain secrets.
func TestCommandsAreHidden(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	w.want(200, "PATCH", "/v3/processes/"+a.GUID, `{"command":"serve --password=swordfish"}`, nil)
	var c v3.Sidecar
	w.want(201, "POST", "/v3/apps/"+a.GUID+"/sidecars", `{"name":"proxy","command":"proxy --password=swordfish","process_types":["web"]}`, &c)
	d := w.giveDroplet(a.GUID, map[string]string{"web": "serve --password=swordfish"})
	for kind, open := range map[auth.RoleType]bool{auth.SpaceDeveloper: true, auth.SpaceAuditor: false, auth.SpaceManager: false, auth.SpaceSupporter: false} {
		guid := w.user(string(kind))
		w.grant(guid, auth.OrgUser, w.space.Org)
		w.grant(guid, kind, w.space.GUID)
		token := w.login(string(kind))
		for _, path := range []string{
			"/v3/processes", "/v3/processes/" + a.GUID, "/v3/apps/" + a.GUID + "/processes", "/v3/apps/" + a.GUID + "/processes/web",
			"/v3/sidecars/" + c.GUID, "/v3/apps/" + a.GUID + "/sidecars", "/v3/processes/" + a.GUID + "/sidecars",
			"/v3/droplets", "/v3/droplets/" + d, "/v3/apps/" + a.GUID + "/droplets", "/v3/apps/" + a.GUID + "/droplets/current",
		} {
			if got := w.as(token, "GET", path, "").Body.String(); strings.Contains(got, "swordfish") != open || !strings.Contains(got, a.GUID) {
				t.Errorf("%s to a %s = %s, want the command shown: %t", path, kind, got, open)
			}
		}
		var p v3.Permissions
		decodeInto(t, w.as(token, "GET", "/v3/apps/"+a.GUID+"/permissions", ""), &p)
		if !p.ReadBasic || p.ReadSensitive != open {
			t.Errorf("permissions of a %s = %+v", kind, p)
		}
	}
}

// Users who can read events see neither the variables nor the commands of a manifest in
// them.
func TestManifestEventsHideSecrets(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.finish(w.want(202, "POST", "/v3/spaces/"+w.space.GUID+"/actions/apply_manifest", `applications:
- name: shop
  command: serve --password=swordfish
  env: {PASSWORD: swordfish}
  processes: [{type: worker, command: work --password=swordfish}]
  sidecars: [{name: proxy, process_types: [web], command: proxy --password=swordfish}]`, nil))
	var es v3.List[v3.Event]
	got := w.want(200, "GET", "/v3/audit_events?types=audit.app.apply_manifest", "", &es)
	if text := fmt.Sprint(es.Resources, got); len(es.Resources) != 1 || strings.Contains(text, "swordfish") || !strings.Contains(text, "proxy") {
		t.Errorf("events = %s, want one without secrets", text)
	}
}

func decodeInto(t *testing.T, got *httptest.ResponseRecorder, out any) {
	t.Helper()
	if err := json.Unmarshal(got.Body.Bytes(), out); err != nil {
		t.Fatalf("%d %s: %v", got.Code, got.Body, err)
	}
}

func TestDroplets(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a, other := w.createApp("shop"), w.createApp("other")
	p := w.createPackage(a.GUID)
	body, kind := form(t, "[]", zipped(t, map[string]string{"Procfile": "web: ./serve\n"}))
	w.upload(p.GUID, body, kind)
	first := w.stage(p.GUID).Droplet.GUID
	second := w.stage(p.GUID).Droplet.GUID
	w.giveDroplet(other.GUID, nil)
	w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", `{"data":{"guid":"`+first+`"}}`, nil)
	for path, want := range map[string][]string{
		"/v3/droplets?app_guids=" + a.GUID + "&order_by=-created_at":                  {second, first},
		"/v3/droplets?app_guids=" + a.GUID + "&guids=" + first + "&page=1&per_page=1": {first},
		"/v3/droplets?states=FAILED":                                                  nil,
		"/v3/droplets?app_guids=nonesuch":                                             nil,
		"/v3/droplets?space_guids=nonesuch":                                           nil,
		"/v3/droplets?organization_guids=" + w.space.Org + "&guids=" + second:         {second},
		"/v3/apps/" + a.GUID + "/droplets":                                            {first, second},
		"/v3/apps/" + a.GUID + "/droplets?current=true":                               {first},
		"/v3/packages/" + p.GUID + "/droplets?states=STAGED&order_by=-created_at":     {second, first},
		"/v3/packages/" + p.GUID + "/droplets?states=FAILED":                          nil,
	} {
		var page v3.List[v3.Droplet]
		w.want(200, "GET", path, "", &page)
		var got []string
		for _, d := range page.Resources {
			got = append(got, d.GUID)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", path, diff)
		}
	}
	for path, want := range map[string]int{
		"/v3/builds": 2, "/v3/builds?app_guids=" + a.GUID: 2, "/v3/builds?app_guids=" + other.GUID: 0, "/v3/builds?states=FAILED": 0,
		"/v3/builds?package_guids=" + p.GUID: 2, "/v3/packages?types=bits&states=READY": 1, "/v3/packages?organization_guids=x": 0,
	} {
		var page anyList
		if w.want(200, "GET", path, "", &page); len(page.Resources) != want {
			t.Errorf("%s has %d, want %d", path, len(page.Resources), want)
		}
	}
	wantTar(t, w.download("/v3/droplets/"+first).Body.Bytes(), "./app/Procfile", "./staging_info.yml", "./tmp/", "./logs/")
	wantError(t, w.request("GET", "/v3/droplets/droplet-of-"+other.GUID+"/download", ""), "CF-UnprocessableEntity", "no files to download")
}

// wantTar checks that b is a compressed tar file with the files.
func wantTar(t *testing.T, b []byte, names ...string) {
	t.Helper()
	found := map[string]bool{}
	for tr := tar.NewReader(must(gzip.NewReader(bytes.NewReader(b)))(t)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = true
	}
	for _, name := range names {
		if !found[name] {
			t.Errorf("%v, want %s", found, name)
		}
	}
}
