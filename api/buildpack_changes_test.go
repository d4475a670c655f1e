package api

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
)

// sendFile uploads one file as a form and waits for its job.
func (w *testServer) sendFile(path string, content []byte) *httptest.ResponseRecorder {
	w.t.Helper()
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	part, err := m.CreateFormFile("bits", "my.zip")
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := part.Write(content); err != nil {
		w.t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		w.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, &body)
	r.Header.Set("Content-Type", m.FormDataContentType())
	got := w.send(r)
	if got.Code == http.StatusAccepted {
		if j := w.finish(got.Header()); j.State != v3.JobComplete {
			w.t.Errorf("job = %+v", j)
		}
	}
	return got
}

func TestBuildpackChanges(t *testing.T) {
	w := newTestServer(t)
	var b v3.Buildpack
	w.want(201, "POST", "/v3/buildpacks", `{"name":"perl","position":2,"enabled":false,"metadata":{"labels":{"a":"b"}}}`, &b)
	if b.Name != "perl" || b.Position != 2 || b.Enabled || b.State != "AWAITING_UPLOAD" || b.Filename != nil || *b.Metadata.Labels["a"] != "b" {
		t.Errorf("created %+v", b)
	}
	path := "/v3/buildpacks/" + b.GUID
	for body, want := range map[string]string{
		`{"name":"perl"}`:                 "unique name and stack combination",
		`{"name":"a/b"}`:                  "name: must have 1 to 255 characters, without slashes",
		`{"name":"x","stack":"windows"}`:  "stack 'windows' does not exist",
		`{"name":"x","position":0}`:       "position must be at least 1",
		`{"name":"x","lifecycle":"cnb"}`:  "lifecycle must be buildpack",
		`{"name":"x","colour":"blue"}`:    "Unknown field",
		`{"name":"x","position":"first"}`: "position must be a whole number",
	} {
		if r := w.request("POST", "/v3/buildpacks", body); r.Code != 422 || !strings.Contains(r.Body.String(), want) {
			t.Errorf("%s: %d %s, want %q", body, r.Code, r.Body, want)
		}
	}
	if r := w.sendFile(path+"/upload", []byte("no zip")); r.Code != 422 {
		t.Errorf("no zip: %d %s", r.Code, r.Body)
	}
	if r := w.sendFile(path+"/upload", zipped(t, map[string]string{"README": "x"})); r.Code != 422 || !strings.Contains(r.Body.String(), "is not a buildpack") {
		t.Errorf("no scripts: %d %s", r.Code, r.Body)
	}
	if r := w.sendFile(path+"/upload", zipped(t, map[string]string{"bin/detect": "#!/bin/sh\n"})); r.Code != 202 {
		t.Errorf("upload: %d %s", r.Code, r.Body)
	}
	w.want(200, "PATCH", path, `{"enabled":true,"locked":true,"position":1,"name":"perl5"}`, &b)
	if b.State != "READY" || *b.Filename != "my.zip" || !b.Enabled || !b.Locked || b.Position != 1 || b.Name != "perl5" {
		t.Errorf("changed %+v", b)
	}
	if r := w.sendFile(path+"/upload", zipped(t, map[string]string{"bin/detect": "2"})); r.Code != 422 || !strings.Contains(r.Body.String(), "is locked") {
		t.Errorf("locked: %d %s", r.Code, r.Body)
	}
	var all v3.List[v3.Buildpack]
	w.want(200, "GET", "/v3/buildpacks", "", &all)
	if len(all.Resources) != 10 || all.Resources[0].Name != "perl5" || all.Resources[9].Name != "binary_buildpack" {
		t.Errorf("all = %+v", all.Resources)
	}
	w.want(201, "POST", "/v3/apps", fmt.Sprintf(`{"name":"p","lifecycle":{"type":"buildpack","data":{"buildpacks":["perl5"]}},"relationships":{"space":{"data":{"guid":%q}}}}`, w.space.GUID), nil)
	if j := w.finish(w.want(202, "DELETE", path, "", nil)); j.State != v3.JobComplete {
		t.Errorf("job = %+v", j)
	}
	w.want(404, "GET", path, "", nil)
	own := "/v3/buildpacks/" + droplet.Buildpacks()[0].GUID
	w.want(200, "PATCH", own, `{"locked":false}`, nil)
	if r := w.sendFile(own+"/upload", zipped(t, map[string]string{"bin/detect": "mine"})); r.Code != 202 {
		t.Errorf("over a built-in one: %d %s", r.Code, r.Body)
	}
	if j := w.finish(w.want(202, "DELETE", own, "", nil)); j.State != v3.JobComplete {
		t.Errorf("job = %+v", j)
	}
	if w.want(200, "GET", own, "", &b); b.Filename != nil || !b.Locked || b.State != "READY" {
		t.Errorf("restored %+v", b)
	}
	if r := w.request("DELETE", own, ""); r.Code != 422 || !strings.Contains(r.Body.String(), "disable it instead") {
		t.Errorf("a built-in one: %d %s", r.Code, r.Body)
	}
	for _, place := range []string{"admin", "apps/" + w.createApp("shop").GUID} {
		if j := w.finish(w.want(202, "POST", "/v3/"+place+"/actions/clear_buildpack_cache", "", nil)); j.State != v3.JobComplete {
			t.Errorf("%s: job = %+v", place, j)
		}
	}
}

// tgz returns a droplet in Cloud Foundry's archive format.
func tgz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	out := tar.NewWriter(z)
	for name, text := range files {
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o4755, Size: int64(len(text)), Typeflag: tar.TypeReg, Uid: 1000}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(out, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A droplet that was staged elsewhere can be uploaded, runs its own start command, and
// can be downloaded again.
func TestDropletUpload(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	create := fmt.Sprintf(`{"relationships":{"app":{"data":{"guid":%q}}}}`, a.GUID)
	var d v3.Droplet
	w.want(201, "POST", "/v3/droplets", create, &d)
	current := "/v3/apps/" + a.GUID + "/relationships/current_droplet"
	body := fmt.Sprintf(`{"data":{"guid":%q}}`, d.GUID)
	if d.State != "AWAITING_UPLOAD" {
		t.Errorf("created %+v", d)
	}
	if r := w.request("PATCH", current, body); r.Code != 422 || !strings.Contains(r.Body.String(), "not uploaded yet") {
		t.Errorf("an empty droplet became current: %d %s", r.Code, r.Body)
	}
	for name, bad := range map[string][]byte{
		"no gzip": []byte("x"), "outside": tgz(t, map[string]string{"./etc/passwd": "x"}), "up": tgz(t, map[string]string{"app/../../x": "x"}),
	} {
		if r := w.sendFile("/v3/droplets/"+d.GUID+"/upload", bad); r.Code != 422 {
			t.Errorf("%s: %d %s", name, r.Code, r.Body)
		}
	}
	good := tgz(t, map[string]string{"./app/run": "x", "./staging_info.yml": "{\"detected_buildpack\":\"Java\",\"start_command\":\"./run\"}"})
	if r := w.sendFile("/v3/droplets/"+d.GUID+"/upload", good); r.Code != 202 {
		t.Errorf("upload: %d %s", r.Code, r.Body)
	}
	w.want(200, "GET", "/v3/droplets/"+d.GUID, "", &d)
	if d.State != "STAGED" || d.ProcessTypes["web"] != "./run" || d.Checksum == nil || len(d.Buildpacks) != 1 {
		t.Errorf("uploaded %+v", d)
	}
	if r := w.sendFile("/v3/droplets/"+d.GUID+"/upload", good); r.Code != 422 {
		t.Errorf("again: %d %s", r.Code, r.Body)
	}
	w.want(200, "PATCH", current, body, nil)
	r := w.download("/v3/droplets/" + d.GUID)
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(z).Next(); err != nil || h.Mode != 0o755 || h.Uid != 0 {
		t.Errorf("downloaded %+v, %v", h, err)
	}
	if r := w.request("POST", "/v3/droplets", `{"relationships":{"app":{"data":{"guid":"nobody"}}}}`); r.Code != 422 {
		t.Errorf("no app: %d %s", r.Code, r.Body)
	}
}

// An app with a JVM and a sidecar that sets no memory limit is refused to start, in the
// response and in its log.
func TestSidecarsBesideAJVM(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	put := func(d droplet.Droplet) {
		t.Helper()
		d.App, d.Commands = a.GUID, map[string]string{"web": "x"}
		if err := w.c.Shelf.Put(d); err != nil {
			t.Fatal(err)
		}
		w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", fmt.Sprintf(`{"data":{"guid":%q}}`, d.GUID), nil)
	}
	w.want(201, "POST", "/v3/apps/"+a.GUID+"/sidecars", `{"name":"debug","command":"x","process_types":["web"]}`, nil)
	const want = "sidecar 'debug' of process 'web' has no memory value: set applications[].sidecars[].memory"
	for _, d := range []droplet.Droplet{{GUID: "java", Java: true}, {GUID: "custom", Custom: true}} {
		put(d)
		for _, action := range []string{"start", "restart"} {
			if r := w.request("POST", "/v3/apps/"+a.GUID+"/actions/"+action, ""); r.Code != 422 || !strings.Contains(r.Body.String(), want) {
				t.Errorf("%s %s: %d %s", d.GUID, action, r.Code, r.Body)
			}
		}
	}
	var now v3.App
	if w.want(200, "GET", "/v3/apps/"+a.GUID, "", &now); now.State != "STOPPED" {
		t.Errorf("state %s, want it to stay stopped", now.State)
	}
	put(droplet.Droplet{GUID: "plain"})
	w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/start", "", nil)
}

// An app whose web process has no start command is refused to start, in the response
// and in its log. Apps without web instances start.
func TestNoStartCommand(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	web := "/v3/apps/" + a.GUID + "/processes/web"
	put := func(d droplet.Droplet) {
		t.Helper()
		d.App = a.GUID
		if err := w.c.Shelf.Put(d); err != nil {
			t.Fatal(err)
		}
		w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", fmt.Sprintf(`{"data":{"guid":%q}}`, d.GUID), nil)
	}
	start := func(text string) {
		t.Helper()
		for _, action := range []string{"start", "restart"} {
			r := w.request("POST", "/v3/apps/"+a.GUID+"/actions/"+action, "")
			if text == "" && r.Code != 200 || text != "" && (r.Code != 422 || !strings.Contains(r.Body.String(), text)) {
				t.Errorf("%s: %d %s, want %q", action, r.Code, r.Body, text)
			}
		}
		w.want(200, "POST", "/v3/apps/"+a.GUID+"/actions/stop", "", nil)
	}
	put(droplet.Droplet{GUID: "silent", Commands: map[string]string{"worker": "work"}})
	start("No start command found. Set `command:` in the manifest, add a Procfile, or use -c")
	w.want(202, "POST", web+"/actions/scale", `{"instances":0}`, nil)
	start("")
	w.want(202, "POST", web+"/actions/scale", `{"instances":1}`, nil)
	w.want(200, "PATCH", web, `{"command":"serve"}`, nil)
	start("")
	w.want(200, "PATCH", web, `{"command":null}`, nil)
	put(droplet.Droplet{GUID: "image", Run: &stack.RunConfig{}})
	start("the image has neither ENTRYPOINT nor CMD")
	put(droplet.Droplet{GUID: "procfile", Commands: map[string]string{"web": "serve"}})
	start("")
}

// The sidecars of a droplet are replaced with it; sidecars that the user created take
// precedence.
func TestSidecarsOfADroplet(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop")
	w.want(201, "POST", "/v3/apps/"+a.GUID+"/sidecars", `{"name":"MINE","command":"user","process_types":["web"]}`, nil)
	found := func(names ...string) (out []droplet.FoundSidecar) {
		for _, n := range names {
			out = append(out, droplet.FoundSidecar{Name: n, Command: "pack", ProcessTypes: []string{"web"}})
		}
		return out
	}
	for i, c := range []struct {
		sidecars []droplet.FoundSidecar
		want     string
	}{
		{found("agent", "mine"), "MINE user user, agent pack buildpack"},
		{found("agent"), "MINE user user, agent pack buildpack"},
		{found("other"), "MINE user user, other pack buildpack"},
		{nil, "MINE user user"},
	} {
		d := droplet.Droplet{GUID: fmt.Sprint("d", i), App: a.GUID, Sidecars: c.sidecars}
		if err := w.c.Shelf.Put(d); err != nil {
			t.Fatal(err)
		}
		w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", fmt.Sprintf(`{"data":{"guid":%q}}`, d.GUID), nil)
		all, err := w.c.Registry.Sidecars(a.GUID)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range all {
			got = append(got, s.Name+" "+s.Command+" "+s.Origin)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("droplet %d: %q, want %q", i, got, c.want)
		}
	}
}

// Only administrators can name a folder on the machine as a buildpack, because the
// daemon reads it for them.
func TestFoldersAreForAdministrators(t *testing.T) {
	w := newTestServer(t)
	who := w.user("joe")
	w.grant(who, auth.OrgUser, w.space.Org)
	w.grant(who, auth.SpaceDeveloper, w.space.GUID)
	joe := w.login("joe")
	const sentence = `Buildpack "/etc" is a folder on the machine that runs dewd`
	const data = `"lifecycle":{"type":"buildpack","data":{"buildpacks":["go_buildpack","/etc"]}}`
	a := w.createApp("shop")
	k := w.createPackage(a.GUID)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v3/apps", fmt.Sprintf(`{"name":"x",%s,"relationships":{"space":{"data":{"guid":%q}}}}`, data, w.space.GUID)},
		{"PATCH", "/v3/apps/" + a.GUID, "{" + data + "}"},
		{"POST", "/v3/builds", fmt.Sprintf(`{"package":{"guid":%q},%s}`, k.GUID, data)},
	} {
		wantError(t, w.as(joe, c.method, c.path, c.body), "CF-UnprocessableEntity", sentence)
	}
	const manifest = "applications: [{name: shop, buildpacks: [/etc]}]"
	path := "/v3/spaces/" + w.space.GUID + "/actions/apply_manifest"
	if j := w.finish(w.as(joe, "POST", path, manifest).Header()); j.State != v3.JobFailed || !strings.Contains(j.Errors[0].Detail, sentence) {
		t.Errorf("manifest: %+v", j)
	}
	if j := w.finish(w.want(202, "POST", path, manifest, nil)); j.State != v3.JobComplete {
		t.Errorf("an administrator's manifest: %+v", j)
	}
	// A value that an administrator chose stays when another user changes something
	// else.
	if got := w.as(joe, "PATCH", "/v3/apps/"+a.GUID, `{"lifecycle":{"type":"buildpack","data":{"stack":"host"}}}`); got.Code != 200 {
		t.Errorf("another stack: %d %s", got.Code, got.Body)
	}
}
