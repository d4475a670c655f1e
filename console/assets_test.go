package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func testAssets(t *testing.T) *assets {
	t.Helper()
	a, err := readAssets(fstest.MapFS{
		"index.html":      {Data: []byte("<p>{{.Version}}</p>" + strings.Repeat(" ", 200))},
		"app.js":          {Data: []byte(strings.Repeat("let x = 1;\n", 100))},
		"vendor/a.woff2":  {Data: bytes.Repeat([]byte("a"), 100)},
		"vendor/LICENSE":  {Data: []byte("MIT")},
		"vendor/term.mjs": {Data: []byte("export {}")},
	}, `1.2.3"<b>`)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAssets(t *testing.T) {
	a := testAssets(t)
	for name, kind := range map[string]string{
		"app.js": "text/javascript; charset=utf-8", "vendor/a.woff2": "font/woff2", "vendor/LICENSE": "text/plain; charset=utf-8",
		"vendor/term.mjs": "text/javascript; charset=utf-8",
	} {
		if f := a.files[name]; f == nil || f.contentType != kind {
			t.Errorf("%s = %+v, want %s", name, f, kind)
		}
	}
	if got := string(a.index.body); !strings.HasPrefix(got, "<p>1.2.3&#34;&lt;b&gt;</p>") {
		t.Errorf("index = %s", got)
	}
	if _, err := readAssets(fstest.MapFS{"app.js": {}}, ""); err == nil {
		t.Error("assets without an index page are accepted")
	}
	if _, err := readAssets(fstest.MapFS{"index.html": {Data: []byte("{{.Nothing}}")}}, ""); err == nil {
		t.Error("an index page with an unknown field is accepted")
	}
}

func TestServeAsset(t *testing.T) {
	a := testAssets(t).files["app.js"]
	get := func(header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/console/app.js", nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		got := httptest.NewRecorder()
		a.serve(got, r)
		return got
	}
	plain := get()
	if plain.Code != 200 || plain.Body.String() != string(a.body) || plain.Header().Get("Content-Encoding") != "" || plain.Header().Get("Vary") == "" {
		t.Errorf("plain = %d %v", plain.Code, plain.Header())
	}
	zipped := get("Accept-Encoding", "br, gzip;q=0.5")
	if zipped.Header().Get("Content-Encoding") != "gzip" || zipped.Header().Get("ETag") == plain.Header().Get("ETag") {
		t.Fatalf("gzip = %v", zipped.Header())
	}
	r, err := gzip.NewReader(zipped.Body)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != string(a.body) {
		t.Errorf("unzipped = %q %v", b, err)
	}
	for _, none := range []string{"gzip;q=0", "br", "gzip; q=0.0", "gzippy"} {
		if got := get("Accept-Encoding", none); got.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s got gzip", none)
		}
	}
	etag := plain.Header().Get("ETag")
	if got := get("If-None-Match", `"other", W/`+etag); got.Code != 304 || got.Body.Len() != 0 {
		t.Errorf("known = %d, want 304", got.Code)
	}
	if got := get("If-None-Match", `"other"`); got.Code != 200 {
		t.Errorf("unknown = %d, want 200", got.Code)
	}
}

// The content security policy forbids inline scripts and styles, so the page has none.
func TestIndexHasNoInlineCode(t *testing.T) {
	a, err := loadAssets("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`(?i)<script(?:\s[^>]*)?>\s*[^<\s]`, `(?i)<style`, `(?i)\sstyle=`, `(?i)\son[a-z]+=`, `(?i)(?:src|href)="https?://`} {
		if found := regexp.MustCompile(bad).Find(a.index.body); found != nil {
			t.Errorf("index.html contains %q, which the content security policy blocks", found)
		}
	}
}
