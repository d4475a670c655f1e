package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"
)

// siteOf opens a site of files. A value that starts with -> is a link.
func siteOf(t *testing.T, files map[string]string) *site {
	t.Helper()
	s, err := openSite(folderOf(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if to, ok := strings.CutPrefix(text, "->"); ok {
			err = errors.Join(err, os.Symlink(to, p))
		} else {
			err = errors.Join(err, os.WriteFile(p, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func ask(s *site, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", nil)
	r.URL.Path, r.URL.RawQuery, _ = strings.Cut(target, "?")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	s := siteOf(t, map[string]string{
		"Staticfile": "", "Staticfile.auth": "", "manifest.yml": "x", "Procfile": "x",
		"index.html": "home", "a/index.htm": "a", "a/page.css": "css", "b/x.txt": "0123456789", "b/.env": "secret", ".git/config": "secret",
		"unknown": "<script>", "font.WOFF2": "f", "in": "->b/x.txt", "out": "->/etc/passwd", "up": "->../../../../etc/passwd", "outdir": "->/etc", "round": "->round",
	})
	if err := syscall.Mkfifo(filepath.Join(s.root.Name(), "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		status       int
		kind, body   string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8", "home"},
		{"HEAD", "/", 200, "text/html; charset=utf-8", ""},
		{"GET", "/index.html", 200, "text/html; charset=utf-8", "home"},
		{"GET", "/a/", 200, "text/html; charset=utf-8", "a"},
		{"GET", "/a?q=1", 301, "/a/?q=1", ""},
		{"GET", "//a", 301, "/a/", ""},
		{"GET", "/a/page.css", 200, "text/css; charset=utf-8", "css"},
		{"GET", "/a/page.css/", 404, "", ""},
		{"GET", "/a/../b/x.txt", 200, "text/plain; charset=utf-8", "0123456789"},
		{"GET", "/unknown", 200, "application/octet-stream", "<script>"},
		{"GET", "/font.WOFF2", 200, "font/woff2", "f"},
		{"GET", "/in", 200, "application/octet-stream", "0123456789"},
		{"GET", "/b/", 403, "", ""},
		{"GET", "/nothing", 404, "", ""},
		{"GET", "/b/.env", 404, "", ""},
		{"GET", "/.git/config", 404, "", ""},
		{"GET", "/../../../etc/passwd", 404, "", ""},
		{"GET", "/out", 404, "", ""},
		{"GET", "/up", 404, "", ""},
		{"GET", "/outdir/passwd", 404, "", ""},
		{"GET", "/round", 404, "", ""},
		{"GET", "/fifo", 404, "", ""},
		{"GET", "/a\x00b", 404, "", ""},
		{"GET", "/Staticfile", 404, "", ""},
		{"GET", "/Staticfile.auth", 404, "", ""},
		{"GET", "/manifest.yml", 404, "", ""},
		{"POST", "/", 405, "", ""},
	} {
		w := ask(s, c.method, c.path)
		got := w.Header().Get("Content-Type")
		if c.status == 301 {
			got = w.Header().Get("Location")
		}
		if w.Code != c.status || c.kind != "" && got != c.kind || c.status == 200 && w.Body.String() != c.body {
			t.Errorf("%s %s: %d %s %q, want %d %s %q", c.method, c.path, w.Code, got, w.Body, c.status, c.kind, c.body)
		}
		if strings.Contains(w.Body.String(), "root:") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s", c.path, w.Body)
		}
	}
}

func TestRangesAndTags(t *testing.T) {
	files := map[string]string{"x.txt": "0123456789"}
	t.Setenv("VCAP_APPLICATION", `{"application_version":"one"}`)
	s := siteOf(t, files)
	w := ask(s, "GET", "/x.txt", "Range", "bytes=2-4")
	if w.Code != 206 || w.Body.String() != "234" || w.Header().Get("Content-Range") != "bytes 2-4/10" {
		t.Errorf("a range: %d %q %v", w.Code, w.Body, w.Header())
	}
	if w := ask(s, "GET", "/x.txt", "Range", "bytes=20-"); w.Code != 416 {
		t.Errorf("a range that is not there: %d", w.Code)
	}
	tag := w.Header().Get("ETag")
	if w := ask(s, "GET", "/x.txt", "If-None-Match", tag); tag == "" || w.Code != 304 || w.Body.Len() != 0 {
		t.Errorf("the same: %d %q, tag %s", w.Code, w.Body, tag)
	}
	if w := ask(s, "GET", "/x.txt", "Range", "bytes=0-0", "If-Range", tag); w.Code != 206 {
		t.Errorf("a range of the same: %d", w.Code)
	}
	// Every file of an image has the same time, whatever its contents.
	t.Setenv("VCAP_APPLICATION", `{"application_version":"two"}`)
	other := siteOf(t, files)
	same, err := os.Stat(filepath.Join(s.root.Name(), "x.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(other.root.Name(), "x.txt"), same.ModTime(), same.ModTime()); err != nil {
		t.Fatal(err)
	}
	if w := ask(other, "GET", "/x.txt", "If-None-Match", tag); w.Code != 200 || w.Header().Get("Last-Modified") != "" {
		t.Errorf("after another push: %d %v", w.Code, w.Header())
	}
}

func TestCompressedFiles(t *testing.T) {
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	io.WriteString(g, "let x") //nolint:errcheck // into memory
	g.Close()
	s := siteOf(t, map[string]string{"a.js": "let x", "a.js.gz": z.String(), "b.js": "b"})
	for accept, compressed := range map[string]bool{
		"gzip": true, "br, GZIP;q=0.5": true, "deflate,gzip": true, "": false, "br": false, "gzip;q=0": false, "gzip; q=0.0": false, "xgzip": false,
	} {
		w := ask(s, "GET", "/a.js", "Accept-Encoding", accept)
		h := w.Header()
		if got := h.Get("Content-Encoding") == "gzip"; w.Code != 200 || got != compressed || h.Get("Vary") != "Accept-Encoding" || !strings.HasPrefix(h.Get("Content-Type"), "text/javascript") {
			t.Errorf("%q: %d %v, want it compressed: %v", accept, w.Code, h, compressed)
		}
		if want := map[bool]string{true: z.String(), false: "let x"}[compressed]; w.Body.String() != want {
			t.Errorf("%q: %q", accept, w.Body)
		}
	}
	if w := ask(s, "GET", "/b.js", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "" || w.Body.String() != "b" {
		t.Errorf("not compressed: %v %q", w.Header(), w.Body)
	}
}

func TestOptions(t *testing.T) {
	s := siteOf(t, map[string]string{
		"Staticfile": "root: public/\ndirectory: visible\nforce_https: true\nhttp_strict_transport_security: true\nssi: enabled\n" +
			"status_codes:\n  404: /lost.html\n",
		"public/lost.html": "lost", "public/d/<b>.txt": "x", "public/d/.hidden": "x", "public/d/sub/x": "x", "public/manifest.yml": "mine", "secret": "x",
	})
	if w := ask(s, "GET", "/secret"); w.Code != 404 || w.Body.String() != "lost" || w.Header().Get("ETag") != "" {
		t.Errorf("outside of the root: %d %q", w.Code, w.Body)
	}
	if w := ask(s, "GET", "/manifest.yml"); w.Code != 200 {
		t.Errorf("a file of that name in the root: %d", w.Code)
	}
	w := ask(s, "GET", "/d/")
	text := w.Body.String()
	for _, want := range []string{`<a href="./%3Cb%3E.txt">&lt;b&gt;.txt</a>`, `<a href="./sub/">sub/</a>`, "<h1>/d</h1>"} {
		if w.Code != 200 || !strings.Contains(text, want) {
			t.Errorf("listing %d, want %s:\n%s", w.Code, want, text)
		}
	}
	if strings.Contains(text, "hidden") || w.Header().Get("Strict-Transport-Security") == "" {
		t.Errorf("%v\n%s", w.Header(), text)
	}
	if w := ask(s, "GET", "/d/?x=1", "X-Forwarded-Proto", "http"); w.Code != 301 || w.Header().Get("Location") != "https://example.com/d/?x=1" {
		t.Errorf("by http: %d %v", w.Code, w.Header())
	}
	var out bytes.Buffer
	s.printSettings(&out)
	if diff := cmp.Diff("       Serving the files of public\n       Listing the files of folders without index.html\n       Redirecting clients to https\n       Staticfile: ssi is ignored\n", out.String()); diff != "" {
		t.Error(diff)
	}
	push := siteOf(t, map[string]string{"Staticfile": "pushstate: enabled # for the router of the page\nhost_dot_files: true", "index.html": "app", ".well-known/x": "x", "a.js": "js"})
	for path, want := range map[string]string{"/": "app", "/any/where": "app", "/a.js": "js", "/.well-known/x": "x", "/Staticfile": "app"} {
		if w := ask(push, "GET", path); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %q, want %q", path, w.Code, w.Body, want)
		}
	}
	if w := ask(push, "POST", "/any"); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestUsers(t *testing.T) {
	slow, err := bcrypt.GenerateFromPassword([]byte("b"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	s := siteOf(t, map[string]string{"index.html": "home", "Staticfile.auth": strings.Join([]string{
		"# users", "bob:" + string(slow), "ann:$apr1$abcdefgh$ZAdX7G.l3eDbgTYbm5ePE0", "eve:$apr1$xy$DQgqcn401lLtinS5x7xF5.",
		"sha:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=", "plain:{PLAIN}word:more",
	}, "\n")})
	for user, password := range map[string]string{"bob": "b", "ann": "secret pass", "eve": "s", "sha": "test", "plain": "word"} {
		for _, c := range []struct {
			password string
			want     int
		}{{"wrong", 401}, {password, 200}, {password, 200}, {"wrong", 401}, {"", 401}} {
			r := httptest.NewRequest("GET", "/", nil)
			r.SetBasicAuth(user, c.password)
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, r); w.Code != c.want {
				t.Errorf("%s with %q: %d, want %d", user, c.password, w.Code, c.want)
			}
		}
	}
	if w := ask(s, "GET", "/"); w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Basic") || strings.Contains(w.Body.String(), "home") {
		t.Errorf("nobody: %d %v", w.Code, w.Header())
	}
}

func TestInvalidSettings(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"line 2: must have the form KEY: VALUE": {"Staticfile": "root: .\nwhat"},
		"root must be a folder in the app":      {"Staticfile": "root: ../x"},
		"root: openat":                          {"Staticfile": "root: nowhere"},
		"path escapes":                          {"Staticfile": "root: out", "out": "->/etc"},
		"is not the status code of an error":    {"Staticfile": "status_codes:\n  200: /x"},
		"line 1: must have the form USER:HASH":  {"Staticfile.auth": "bob"},
		"line 2: the hash must be":              {"Staticfile.auth": "\nbob:secret"},
		"not a valid bcrypt hash":               {"Staticfile.auth": "bob:$2y$x"},
		"contains no user":                      {"Staticfile.auth": "# bob:$2y$x"},
		"not a valid apr1 hash":                 {"Staticfile.auth": "bob:$apr1$x"},
		"is larger than":                        {"Staticfile": strings.Repeat("#\n", maxConfig)},
	} {
		var out, errs bytes.Buffer
		if code := run([]string{"--check", folderOf(t, files)}, &out, &errs); code != exitFailed || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "secret") {
			t.Errorf("%d %q, want %q", code, errs.String(), want)
		}
	}
	var errs bytes.Buffer
	if code := run(nil, io.Discard, &errs); code != exitUsage || !strings.Contains(errs.String(), "usage") {
		t.Errorf("no folder: %d %s", code, &errs)
	}
}

// A server that is stopping finishes active requests.
func TestServe(t *testing.T) {
	t.Setenv("PORT", "0")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	s := siteOf(t, map[string]string{"index.html": "home"})
	go func() { ended <- serve(ctx, s, w) }()
	line, err := bufio.NewReader(r).ReadString('\n') // the message that it serves
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimSpace(line), "Serving files on "))
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r) //nolint:errcheck // the rest of it
	answer, err := http.Get("http://127.0.0.1:" + port + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if b, err := io.ReadAll(answer.Body); err != nil || string(b) != "home" {
		t.Errorf("%q, %v", b, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func FuzzStaticfile(f *testing.F) {
	f.Add("root: public\nstatus_codes:\n  404: /x\n")
	f.Add("a:\n\tb: c # d\n---\n:")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := parseStaticfile(text)
		if err == nil && (strings.HasPrefix(o.root, "/") || strings.Contains("/"+o.root+"/", "/../")) {
			t.Errorf("root %q", o.root)
		}
	})
}

func FuzzAuth(f *testing.F) {
	f.Add("bob:{SHA}x\nann:$apr1$ab$c:d\n#", "x")
	f.Fuzz(func(t *testing.T, text, password string) {
		users, err := parseAuth(text)
		if err != nil || strings.Contains(text, "$2") { // bcrypt is slow
			return
		}
		for _, right := range users {
			right(password)
		}
	})
}
