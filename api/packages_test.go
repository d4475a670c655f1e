package api

import (
	"archive/zip"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"mime/multipart"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/testkit"
)

// form returns the body of an upload; an empty part is omitted.
func form(t testing.TB, resources string, bits []byte) (body []byte, contentType string) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	if resources != "" {
		if err := m.WriteField("resources", resources); err != nil {
			t.Fatal(err)
		}
	}
	if bits != nil {
		part := must(m.CreateFormFile("bits", "package.zip"))(t)
		if _, err := part.Write(bits); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), m.FormDataContentType()
}

func zipped(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		f := must(z.Create(name))(t)
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (w *testServer) createPackage(appGUID string) v3.Package {
	w.t.Helper()
	var p v3.Package
	w.want(201, "POST", "/v3/packages", `{"type":"bits","relationships":{"app":{"data":{"guid":"`+appGUID+`"}}}}`, &p)
	return p
}

func (w *testServer) upload(pkg string, body []byte, contentType string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest("POST", "/v3/packages/"+pkg+"/upload", bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return w.send(r)
}

func (w *testServer) wantNoUploads() {
	w.t.Helper()
	if left := must(os.ReadDir(w.c.UploadDir))(w.t); len(left) != 0 {
		w.t.Errorf("uploads leave files behind: %v", left)
	}
}

// A push uploads files and stages them into a droplet. A second push of the same files
// sends and stages nothing.
func TestPush(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	p := w.createPackage(a.GUID)
	if p.State != v3.PackageAwaitingUpload {
		t.Errorf("state = %s, want AWAITING_UPLOAD", p.State)
	}
	body, kind := form(t, "[]", zipped(t, map[string]string{"Procfile": "web: ./serve\nworker: ./work\n", "serve": "#!/bin/sh\n"}))
	got := w.upload(p.GUID, body, kind)
	golden(t, "package", got.Body.Bytes())
	golden(t, "package", w.request("GET", "/v3/packages/"+p.GUID, "").Body.Bytes())
	wantError(t, w.upload(p.GUID, body, kind), "CF-PackageBitsAlreadyUploaded", "Bits may be uploaded only once.")

	first := w.stage(p.GUID)
	golden(t, "build", w.request("GET", "/v3/builds/"+first.GUID, "").Body.Bytes())
	w.want(200, "PATCH", "/v3/apps/"+a.GUID+"/relationships/current_droplet", `{"data":{"guid":"`+first.Droplet.GUID+`"}}`, nil)
	var droplets v3.List[v3.Droplet]
	w.want(200, "GET", "/v3/packages/"+p.GUID+"/droplets?page=1&per_page=1&states=STAGED", "", &droplets)
	if len(droplets.Resources) != 1 || droplets.Resources[0].ProcessTypes["worker"] != "./work" {
		t.Errorf("droplets of the package = %+v, want one with a worker", droplets.Resources)
	}

	sum := sha1.Sum([]byte("#!/bin/sh\n"))
	known := fmt.Sprintf(`{"path":"serve","mode":"755","checksum":{"value":"%s"},"size_in_bytes":10}`, hex.EncodeToString(sum[:]))
	unknown := `{"path":"other","mode":"644","checksum":{"value":"` + strings.Repeat("0", 40) + `"},"size_in_bytes":3}`
	golden(t, "resource-matches", w.request("POST", "/v3/resource_matches", `{"resources":[`+known+`,`+unknown+`]}`).Body.Bytes())

	again := w.createPackage(a.GUID)
	procfile := sha1.Sum([]byte("web: ./serve\nworker: ./work\n"))
	body, kind = form(t, fmt.Sprintf(`[%s,{"path":"Procfile","mode":"644","checksum":{"value":"%s"},"size_in_bytes":28}]`,
		strings.Replace(known, "755", "644", 1), hex.EncodeToString(procfile[:])), nil)
	if got := w.upload(again.GUID, body, kind); got.Code != 200 || !strings.Contains(got.Body.String(), `"state":"READY"`) {
		t.Fatalf("upload without bits = %d %s, want READY", got.Code, got.Body)
	}
	w.wantNoUploads()
	var builds v3.List[v3.Build]
	w.stage(again.GUID)
	w.stage(p.GUID) // a package that was staged before: a restage
	w.want(200, "GET", "/v3/apps/"+a.GUID+"/builds?order_by=-created_at&states=STAGED", "", &builds)
	if len(builds.Resources) != 3 || builds.Resources[2].GUID != first.GUID {
		t.Errorf("builds = %+v, want three, the first one last", builds.Resources)
	}
	w.wantPackages(a.GUID, again.GUID, p.GUID)
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?target_guids="+a.GUID, "", &events)
	if diff := cmp.Diff(eventTypes(events.Resources), []string{
		"audit.app.process.create", "audit.app.create", "audit.app.package.create", "audit.app.package.upload", "audit.app.build.create", "audit.app.droplet.create", "audit.app.build.staged",
		"audit.app.process.create", "audit.app.droplet.mapped", "audit.app.package.create", "audit.app.package.upload", "audit.app.build.create", "audit.app.droplet.create", "audit.app.build.staged",
		"audit.app.restage", "audit.app.build.create", "audit.app.droplet.create", "audit.app.build.staged",
	}); diff != "" {
		t.Errorf("events differ (-got +want):\n%s", diff)
	}
}

func (w *testServer) wantPackages(appGUID, newest, oldest string) {
	w.t.Helper()
	for query, want := range map[string][]string{
		"/v3/apps/" + appGUID + "/packages?order_by=-created_at&page=1&per_page=1&states=READY":      {newest},
		"/v3/packages?app_guids=" + appGUID + "&order_by=-created_at&page=1&per_page=1":              {newest},
		"/v3/packages?app_guids=" + appGUID + "&guids=" + oldest + "&page=1&per_page=1&states=READY": {oldest},
		"/v3/packages?app_guids=x":   nil,
		"/v3/packages?states=FAILED": nil,
		"/v3/packages?space_guids=x": nil,
		"/v3/packages?types=bits":    {oldest, newest},
	} {
		var ps v3.List[v3.Package]
		w.want(200, "GET", query, "", &ps)
		var got []string
		for _, p := range ps.Resources {
			got = append(got, p.GUID)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			w.t.Errorf("%s differs (-got +want):\n%s", query, diff)
		}
	}
}

// stage creates a build of a package and waits for it.
func (w *testServer) stage(pkg string) v3.Build {
	w.t.Helper()
	var b v3.Build
	w.want(201, "POST", "/v3/builds", `{"package":{"guid":"`+pkg+`"}}`, &b)
	testkit.EventuallyTrue(w.t, "the build ends", func() bool {
		w.want(200, "GET", "/v3/builds/"+b.GUID, "", &b)
		if b.State == v3.BuildFailed {
			w.t.Fatalf("build failed: %s", *b.Error)
		}
		return b.State == v3.BuildStaged
	})
	return b
}

// An invalid or incomplete upload is refused with a reason and leaves no files.
func TestBadUploads(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	good, kind := form(t, "[]", zipped(t, map[string]string{"serve": strings.Repeat("x", 2000)}))
	slip, slipKind := form(t, "[]", zipped(t, map[string]string{"../../etc/passwd": "root"}))
	noZip, noZipKind := form(t, "[]", []byte("this is no zip"))
	large, largeKind := form(t, "[]", bytes.Repeat([]byte("x"), 1<<20))
	nothing, nothingKind := form(t, "", nil)
	words, wordsKind := form(t, "some", nil)
	numbers, numbersKind := form(t, `[{"path":7}]`, nil)
	lie, lieKind := form(t, `[{"path":"x","mode":"644","checksum":{"value":"`+strings.Repeat("0", 40)+`"},"size_in_bytes":3}]`, nil)
	for _, tt := range []struct {
		name, kind    string
		body          []byte
		status        int
		title, detail string
	}{
		{"cut in the bits", kind, good[:len(good)/2], 400, "CF-MessageParseError", "the request body is incomplete"},
		{"cut in the last line", kind, good[:len(good)-6], 400, "CF-MessageParseError", "the request body is incomplete"},
		{"cut in the first line", kind, good[:10], 422, "CF-UnprocessableEntity", "neither"},
		{"empty", kind, nil, 422, "CF-UnprocessableEntity", "neither"},
		{"no boundary", "multipart/form-data", good, 422, "CF-UnprocessableEntity", "multipart/form-data"},
		{"JSON", "application/json", []byte("{}"), 422, "CF-UnprocessableEntity", "multipart/form-data"},
		{"too large", largeKind, large, 413, "CF-RequestEntityTooLarge", ""},
		{"no parts", nothingKind, nothing, 422, "CF-UnprocessableEntity", "neither"},
		{"zip slip", slipKind, slip, 422, "CF-UnprocessableEntity", "../../etc/passwd"},
		{"no zip", noZipKind, noZip, 422, "CF-UnprocessableEntity", "zip"},
		{"resources are words", wordsKind, words, 400, "CF-MessageParseError", "invalid request body"},
		{"resources are numbers", numbersKind, numbers, 422, "CF-UnprocessableEntity", "path must be a string"},
		{"resources that nobody has", lieKind, lie, 422, "CF-UnprocessableEntity", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := w.createPackage(a.GUID)
			got := w.upload(p.GUID, tt.body, tt.kind)
			if got.Code != tt.status {
				t.Fatalf("status = %d %s, want %d", got.Code, got.Body, tt.status)
			}
			wantError(t, got, tt.title, tt.detail)
			if w.want(200, "GET", "/v3/packages/"+p.GUID, "", &p); p.State == v3.PackageReady {
				t.Error("the package is READY")
			}
			w.wantNoUploads()
		})
	}
	// Chunked, so that the server learns the length only when it exceeds the limit.
	p := w.createPackage(a.GUID)
	r := httptest.NewRequest("POST", "/v3/packages/"+p.GUID+"/upload", bytes.NewReader(large))
	r.ContentLength = -1
	r.Header.Set("Content-Type", largeKind)
	wantError(t, w.send(r), "CF-RequestEntityTooLarge", "")
	w.wantNoUploads()
	if logged := w.logged.String(); strings.Contains(logged, "level=ERROR") {
		t.Errorf("bad uploads are somebody else's fault, and the log has them as ours: %s", logged)
	}
}

func FuzzUpload(f *testing.F) {
	w := newTestServer(f)
	a := w.createApp("shop")
	body, kind := form(f, "[]", zipped(f, map[string]string{"serve": "x"}))
	f.Add(body, kind)
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"bits\"\r\n\r\n"), "multipart/form-data; boundary=b")
	f.Add([]byte("--b--\r\n"), "multipart/mixed; boundary=b")
	f.Fuzz(func(t *testing.T, body []byte, kind string) {
		w.t = t
		p := w.createPackage(a.GUID)
		if got := w.upload(p.GUID, body, kind); got.Code >= 500 {
			t.Errorf("%q %q = %d %s\n%s", kind, body, got.Code, got.Body, w.logged.String())
		}
		w.wantNoUploads()
	})
}
