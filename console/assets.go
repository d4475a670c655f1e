package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var embedded embed.FS

const indexName = "index.html"

// contentTypes are the types of the files, by extension. The list of the system could
// have other ones.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon",
	".woff2": "font/woff2", ".json": "application/json", ".map": "application/json", ".txt": "text/plain; charset=utf-8",
	".webmanifest": "application/manifest+json",
}

// assets are the files of the page.
type assets struct {
	files map[string]*asset // by path below assets
	index *asset
}

// asset is one file of the page.
type asset struct {
	contentType string
	body        []byte
	etag        func() string // computed at the first use
	gzipped     func() []byte // nil if it is not smaller; computed at the first use
}

// loadAssets reads the embedded files and renders the index page.
func loadAssets(version string) (*assets, error) {
	root, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, fmt.Errorf("cannot read the files of the console: %w", err)
	}
	return readAssets(root, version)
}

func readAssets(root fs.FS, version string) (*assets, error) {
	out := &assets{files: map[string]*asset{}}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if name == indexName {
			out.index, err = renderIndex(body, version)
			return err
		}
		kind := contentTypes[path.Ext(name)]
		if kind == "" {
			kind = contentTypes[".txt"] // licenses
		}
		out.files[name] = newAsset(kind, body)
		return nil
	})
	if err == nil && out.index == nil {
		err = fmt.Errorf("%s is missing", indexName)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the files of the console: %w", err)
	}
	return out, nil
}

// renderIndex renders the index page, which is the same for all users.
func renderIndex(text []byte, version string) (*asset, error) {
	t, err := template.New(indexName).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, struct{ Version string }{version}); err != nil {
		return nil, err
	}
	return newAsset(contentTypes[".html"], b.Bytes()), nil
}

func newAsset(kind string, body []byte) *asset {
	return &asset{
		contentType: kind, body: body,
		etag: sync.OnceValue(func() string {
			sum := sha256.Sum256(body)
			return `"` + hex.EncodeToString(sum[:12]) + `"`
		}),
		gzipped: sync.OnceValue(func() []byte { return compress(kind, body) }),
	}
}

// compress returns the file as gzip, or nil if that does not help.
func compress(kind string, body []byte) []byte {
	if strings.HasPrefix(kind, "image/p") || strings.HasPrefix(kind, "font/") {
		return nil // already compressed
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return nil
	}
	if err := w.Close(); err != nil || b.Len() >= len(body) {
		return nil
	}
	return b.Bytes()
}

// serve sends the file. Browsers ask each time whether it has changed, so a new dewd
// never runs with the files of an old one.
func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	body, etag := a.body, a.etag()
	if zipped := a.gzipped(); zipped != nil {
		h.Set("Vary", "Accept-Encoding")
		if acceptsGzip(r) {
			h.Set("Content-Encoding", "gzip")
			body, etag = zipped, strings.TrimSuffix(etag, `"`)+`-gzip"`
		}
	}
	h.Set("ETag", etag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Type", a.contentType)
	if matches(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // the browser may have disconnected
}

// acceptsGzip reports whether the client accepts gzip. A client that names it with a
// weight of 0 does not.
func acceptsGzip(r *http.Request) bool {
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		q, given := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(weight), " ", ""), "q=")
		return !given || strings.Trim(q, "0.") != ""
	}
	return false
}

// matches reports whether a list of entity tags contains one. Proxies can mark it as
// weak.
func matches(list, etag string) bool {
	for _, one := range strings.Split(list, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == etag {
			return true
		}
	}
	return false
}
