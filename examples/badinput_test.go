//go:build integration

package examples_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The exit statuses of dew for wrong input.
const (
	statusFailed      = 1
	statusUsage       = 2
	statusUnreachable = 6
)

// stored returns all resources that wrong input could leave behind, from the API.
func stored(t *testing.T) string {
	t.Helper()
	out := dew(t, "", "apps").out
	for _, path := range []string{"/v3/apps", "/v3/processes", "/v3/routes", "/v3/audit_events", "/v3/packages?states=READY"} {
		out += dew(t, "", "curl", path).out
	}
	for _, a := range read[[]struct{ GUID string }](t, "apps", "--json") {
		// The manifest already has the variables, and reading them separately creates
		// an event.
		for _, path := range []string{"/sidecars", "/manifest", "/builds"} {
			out += dew(t, "", "curl", "/v3/apps/"+a.GUID+path).out
		}
	}
	return out
}

// unchanged checks at the end of a test that it left nothing behind.
func unchanged(t *testing.T) {
	t.Helper()
	before := stored(t)
	t.Cleanup(func() {
		if after := stored(t); after != before {
			t.Errorf("wrong input changed what is stored from\n%s\nto\n%s", before, after)
		}
	})
}

// refused checks a response: a client error, in the platform's format, that says what
// is wrong.
func refused(t *testing.T, p page, status int, want ...string) {
	t.Helper()
	if p.status != status {
		t.Errorf("status %d %s, want %d", p.status, p.body, status)
	}
	var body struct {
		Errors []struct {
			Code          int
			Title, Detail string
		}
	}
	if err := json.Unmarshal([]byte(p.body), &body); err != nil || len(body.Errors) == 0 || body.Errors[0].Code == 0 || body.Errors[0].Title == "" {
		t.Fatalf("answer %q (%v), want an error of the platform", p.body, err)
	}
	for _, w := range want {
		if !strings.Contains(body.Errors[0].Detail, w) {
			t.Errorf("error %q does not say %q", body.Errors[0].Detail, w)
		}
	}
}

// fileLine matches the position of a mistake in dew's messages.
var fileLine = regexp.MustCompile(`manifest\.yml:([0-9]+):`)

// A manifest with one mistake is refused as a whole, by dew and by the daemon itself.
// The app before the mistake is not created either.
func TestBadManifests(t *testing.T) {
	space := read[struct{ Resources []struct{ GUID string } }](t, "curl", "/v3/spaces").Resources[0].GUID
	unchanged(t)
	for name, tt := range map[string]struct {
		text string // entry of the second app, from line 4
		want []string
	}{
		"broken YAML":                   {"  env: {A: [\n", []string{"line ", "not YAML"}},
		"memory in fruit":               {"  memory: 256 bananas\n", []string{`app "bad"`, "line 4", "memory: ", "256 bananas", "64M"}},
		"instances are text":            {"  instances: many\n", []string{`app "bad"`, "line 4", "instances: ", "whole number"}},
		"env is a list":                 {"  env: [A, B]\n", []string{`app "bad"`, "line 4", "env: ", "map"}},
		"sidecars are a map":            {"  sidecars: {name: s}\n", []string{`app "bad"`, "line 4", "sidecars: ", "list"}},
		"sidecar without command":       {"  sidecars:\n  - {name: s, process_types: [web]}\n", []string{`app "bad"`, "line 5", "sidecars[s].command: ", "missing"}},
		"sidecar without name":          {"  sidecars:\n  - {command: ./s, process_types: [web]}\n", []string{`app "bad"`, "line 5", "sidecars[0].name: ", "missing"}},
		"sidecar without process types": {"  sidecars:\n  - {name: s, command: ./s}\n", []string{`app "bad"`, "line 5", "sidecars[s].process_types: ", "missing"}},
		"sidecar names twice": {
			"  sidecars:\n  - {name: s, command: ./s, process_types: [web]}\n  - {name: s, command: ./t, process_types: [web]}\n",
			[]string{`app "bad"`, "line 6", "sidecars[s].name: ", "line 5"},
		},
		"app names twice": {"- name: bad\n", []string{`app "bad"`, "line 4", "name: ", "line 3"}},
		"health check under a sidecar": {
			"  sidecars:\n  - {name: s, command: ./s, process_types: [web], health-check-type: http}\n",
			[]string{`app "bad"`, "line 5", "sidecars[s].health-check-type: ", "not allowed"},
		},
		"sidecar as large as its process": {
			"  memory: 64M\n  sidecars:\n  - {name: s, command: ./s, process_types: [web], memory: 64MB}\n",
			[]string{`app "bad"`, "line 6", "sidecars[s].memory: ", "less than", "64M"},
		},
		"sidecars together too large": {
			"  memory: 64M\n  sidecars:\n  - {name: s, command: ./s, process_types: [web], memory: 40M}\n  - {name: t, command: ./t, process_types: [web], memory: 40M}\n",
			[]string{`app "bad"`, "sidecars[", ".memory: ", "80M", "less than"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := "applications:\n- name: bystander\n- name: bad\n" + tt.text
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "manifest.yml"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"apply-manifest", "-f", "manifest.yml"}, {"push"}, {"push", "-f", "manifest.yml", "bad"}} {
				r := dewd.dew(dir, args...)
				if r.code != statusFailed {
					t.Errorf("dew %s: status %d, want %d\n%s", args, r.code, statusFailed, r.err)
				}
				message := fileLine.ReplaceAllString(r.err, "in the file, line $1:") // the daemon's form of the message
				for _, w := range append(tt.want, "in the file") {
					if !strings.Contains(message, w) {
						t.Errorf("dew %s says %q, want %q in it", args, r.err, w)
					}
				}
			}
			for _, path := range []string{"/actions/apply_manifest", "/manifest_diff"} {
				refused(t, socketRequest(t, "POST", "/v3/spaces/"+space+path, "application/x-yaml", text), 422, tt.want...)
			}
		})
	}
}

// Sidecars that are created one by one must follow the same rules.
func TestBadSidecars(t *testing.T) {
	const name = "sidecar-target"
	dew(t, "", "create-app", name)
	deleteLater(t, name)
	unchanged(t)
	sidecars := "/v3/apps/" + guidOf(t, name) + "/sidecars"
	for what, tt := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"broken JSON":           {`{"name":`, 400, ""},
		"without command":       {`{"name":"s","process_types":["web"]}`, 422, "command"},
		"without name":          {`{"command":"./s","process_types":["web"]}`, 422, "name"},
		"without process types": {`{"name":"s","command":"./s"}`, 422, "process_types"},
		"name is a number":      {`{"name":7,"command":"./s","process_types":["web"]}`, 422, "name must be a string"},
		"types are text":        {`{"name":"s","command":"./s","process_types":"web"}`, 422, "process_types must be"},
		"with a health check":   {`{"name":"s","command":"./s","process_types":["web"],"health_check":{"type":"http"}}`, 422, "'health_check'"},
		"memory in fruit":       {`{"name":"s","command":"./s","process_types":["web"],"memory_in_mb":"256 bananas"}`, 422, `memory_in_mb must be`},
		"as large as the app":   {`{"name":"s","command":"./s","process_types":["web"],"memory_in_mb":1024}`, 422, "less than the memory of the process"},
	} {
		t.Run(what, func(t *testing.T) {
			refused(t, socketRequest(t, "POST", sidecars, "application/json", tt.body), tt.status, tt.want)
		})
	}
}

// zipped returns an archive with a good file and one more.
func zipped(t *testing.T, name string, mode fs.FileMode, content string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, f := range []struct {
		name    string
		mode    fs.FileMode
		content string
	}{{"good.txt", 0o644, "good"}, {name, mode, content}} {
		h := &zip.FileHeader{Name: f.name, Method: zip.Store}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(f.content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// form returns an upload of an archive.
func form(t *testing.T, archive []byte) (contentType, body string) {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	part, err := w.CreateFormFile("bits", "bits.zip")
	if err == nil {
		_, err = part.Write(archive)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), buf.String()
}

// Uploads that would write to forbidden paths, or that are incomplete, are refused.
// None of their files is stored afterwards.
func TestBadUploads(t *testing.T) {
	const name = "upload-target"
	dew(t, "", "create-app", name)
	deleteLater(t, name)
	guid := guidOf(t, name)
	newPackage := func(t *testing.T) string {
		t.Helper()
		p := socketRequest(t, "POST", "/v3/packages", "application/json", fmt.Sprintf(`{"type":"bits","relationships":{"app":{"data":{"guid":%q}}}}`, guid))
		var v struct{ GUID string }
		if err := json.Unmarshal([]byte(p.body), &v); err != nil || p.status != 201 {
			t.Fatalf("answer %d %s: %v", p.status, p.body, err)
		}
		return v.GUID
	}
	for name, tt := range map[string]struct {
		archive []byte
		cut     int // bytes missing from the body
		status  int
		want    []string
	}{
		"zip slip":                 {zipped(t, "../../evil.txt", 0o644, "evil"), 0, 422, []string{"../../evil.txt", ".."}},
		"absolute path":            {zipped(t, "/etc/evil.txt", 0o644, "evil"), 0, 422, []string{"/etc/evil.txt"}},
		"link out of the tree":     {zipped(t, "link", fs.ModeSymlink|0o777, "../../../etc/passwd"), 0, 422, []string{"link", "../../../etc/passwd", "outside the app"}},
		"absolute link":            {zipped(t, "link", fs.ModeSymlink|0o777, "/etc/passwd"), 0, 422, []string{"link", "/etc/passwd", "outside the app"}},
		"no zip":                   {[]byte("PK, or not"), 0, 422, []string{"not a complete zip"}},
		"half a zip":               {zipped(t, "second.txt", 0o644, "second")[:60], 0, 422, []string{"not a complete zip"}},
		"form without its end":     {zipped(t, "second.txt", 0o644, "second"), 20, 400, []string{"the request body is incomplete"}},
		"form cut within its file": {zipped(t, "second.txt", 0o644, "second"), 200, 400, []string{"the request body is incomplete"}},
	} {
		t.Run(name, func(t *testing.T) {
			pkg := "/v3/packages/" + newPackage(t)
			before := dew(t, "", "apps").out
			contentType, body := form(t, tt.archive)
			refused(t, socketRequest(t, "POST", pkg+"/upload", contentType, body[:len(body)-tt.cut]), tt.status, tt.want...)
			if state := read[struct{ State string }](t, "curl", pkg).State; state == "READY" {
				t.Error("the package is READY")
			}
			refused(t, socketRequest(t, "POST", "/v3/builds", "application/json", fmt.Sprintf(`{"package":{"guid":%q}}`, filepath.Base(pkg))), 400, "not ready")
			if after := dew(t, "", "apps").out; after != before {
				t.Errorf("dew apps says\n%s\nwant\n%s", after, before)
			}
		})
	}
	t.Run("over the limit", func(t *testing.T) {
		refused(t, sendHeadersOnly(t, "/v3/packages/"+newPackage(t)+"/upload", 1<<40), http.StatusRequestEntityTooLarge)
	})
	t.Run("no form", func(t *testing.T) {
		refused(t, socketRequest(t, "POST", "/v3/packages/"+newPackage(t)+"/upload", "application/zip", "PK"), 422, "multipart/form-data")
	})
	if v := read[struct{ Resources []struct{} }](t, "curl", "/v3/packages?states=READY&app_guids="+guid); len(v.Resources) != 0 {
		t.Errorf("%d packages are ready, want none", len(v.Resources))
	}
	if v := read[struct{ Resources []struct{} }](t, "curl", "/v3/apps/"+guid+"/builds"); len(v.Resources) != 0 {
		t.Errorf("there are %d builds, want none", len(v.Resources))
	}
}

// sendHeadersOnly sends the headers of a body that never comes, and reads the response.
func sendHeadersOnly(t *testing.T, path string, size int64) page {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(dewd.run, "dew.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: dew\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: %d\r\n\r\n", path, size)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return page{resp.StatusCode, resp.Header, body.String()}
}

// dew reports what is wrong with its input, and its status says who caused the error.
func TestBadCommands(t *testing.T) {
	const name = "command-target"
	dew(t, "", "create-app", name)
	deleteLater(t, name)
	unchanged(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"pusch"}, statusUsage, `did you mean "push"`},
		{[]string{"push", name, "--no-such-flag"}, statusUsage, "no-such-flag"},
		{[]string{"push", name, "-m", "256 bananas"}, statusUsage, "-m: "},
		{[]string{"push", name, "-i", "-1"}, statusUsage, "-i"},
		{[]string{"push", name, "-u", "smell"}, statusUsage, "port, http, process"},
		{[]string{"push", "-f", "nowhere.yml"}, statusUsage, "nowhere.yml"},
		{[]string{"push"}, statusUsage, "manifest"},
		{[]string{"apply-manifest"}, statusUsage, "manifest.yml"},
		{[]string{"kill", name, "--signal", "FEATHER"}, statusUsage, "FEATHER"},
		{[]string{"kill", name, "--sidecar", "nobody"}, statusFailed, "no sidecars"},
		{[]string{"kill", name}, statusFailed, "instance 0"},
		{[]string{"app", "nobody"}, statusFailed, `"nobody"`},
		{[]string{"logs", "comand-target"}, statusFailed, `did you mean "command-target"`},
		{[]string{"scale", name, "-m", "bananas"}, statusUsage, "bananas"},
		{[]string{"--run", "/nowhere", "apps"}, statusUnreachable, "/nowhere/dew.sock"},
	} {
		r := dewd.dew(dir, tt.args...)
		if r.code != tt.status || !strings.Contains(r.err, tt.want) || r.out != "" {
			t.Errorf("dew %q: status %d, %q, and %q as data; want status %d, %q and no data", tt.args, r.code, r.err, r.out, tt.status, tt.want)
		}
	}
}

// Files that an app must not have are also refused in a push. The app is unchanged, and
// nothing is staged.
func TestBadPushes(t *testing.T) {
	const name = "push-target"
	dew(t, "", "create-app", name)
	deleteLater(t, name)
	dir := t.TempDir()
	guid, before := guidOf(t, name), dew(t, "", "apps").out
	if err := os.Mkdir(filepath.Join(dir, "linked"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../secret", filepath.Join(dir, "linked", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "slip.zip"), zipped(t, "../../evil.txt", 0o644, "evil"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"linked": `"../../secret", which is outside the app`, "slip.zip": `"../../evil.txt"`, "nowhere": "nowhere"} {
		r := dewd.dew(dir, "push", name, "--no-manifest", "--no-route", "-p", path)
		if r.code != statusFailed || !strings.Contains(r.err, want) {
			t.Errorf("dew push -p %s: status %d, %q; want status %d and %q", path, r.code, r.err, statusFailed, want)
		}
	}
	if after := dew(t, "", "apps").out; after != before {
		t.Errorf("dew apps says\n%s\nwant\n%s", after, before)
	}
	if v := read[struct{ Resources []struct{} }](t, "curl", "/v3/apps/"+guid+"/builds"); len(v.Resources) != 0 {
		t.Errorf("there are %d builds, want none", len(v.Resources))
	}
}

// The listener accepts only its own names, refuses foreign pages, and requires a token
// for everything that is not public.
func TestListenerKeepsStrangersOut(t *testing.T) {
	unchanged(t)
	for name, tt := range map[string]struct {
		method, path, host, origin string
		status                     int
	}{
		"own name":          {"GET", "/", "", "", 200},
		"foreign host":      {"GET", "/", "evil.example", "", http.StatusMisdirectedRequest},
		"foreign host asks": {"GET", "/v3/apps", "evil.example", "", http.StatusMisdirectedRequest},
		"foreign origin":    {"GET", "/", "", "http://evil.example", http.StatusForbidden},
		"foreign page":      {"POST", "/v3/apps", "", "http://evil.example", http.StatusForbidden},
		"no origin at all":  {"POST", "/v3/apps", "", "null", http.StatusForbidden},
		"no token":          {"GET", "/v3/apps", "", "", http.StatusUnauthorized},
		"no token, change":  {"POST", "/v3/apps", "", "", http.StatusUnauthorized},
		"dew's own":         {"POST", "/dew/v1/shutdown", "", "", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, dewd.status.API+tt.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = tt.host
			if tt.origin != "" {
				req.Header.Set("Origin", tt.origin)
			}
			p := ask(t, http.DefaultTransport, req)
			if tt.status != 200 {
				refused(t, p, tt.status)
			} else if p.status != 200 {
				t.Errorf("status %d %s, want 200", p.status, p.body)
			}
		})
	}
}
