package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// site holds the files of an app and the settings for serving them.
type site struct {
	root    *os.Root
	o       options
	users   map[string]check // empty means all clients
	version string
	known   sync.Map // sha256 of names and passwords that were right, because bcrypt is slow
}

// openSite reads the settings of an app. Links that point outside the served folder are
// not found.
func openSite(dir string) (*site, error) {
	app, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = app.Close() }() // opened only for reading
	s := &site{version: version()}
	text, err := readConfig(app, staticfileName)
	if err != nil {
		return nil, err
	}
	if s.o, err = parseStaticfile(text); err != nil {
		return nil, err
	}
	if s.o.https = s.o.https || os.Getenv("FORCE_HTTPS") == "true"; s.o.root == "" {
		s.root, err = app.OpenRoot(".")
	} else {
		s.root, err = app.OpenRoot(s.o.root)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: root: %w", staticfileName, err)
	}
	if text, err = readConfig(app, authName); err != nil {
		return nil, err
	}
	s.users, err = parseAuth(text)
	return s, err
}

// ServeHTTP serves a file.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if s.o.hsts != "" {
		h.Set("Strict-Transport-Security", s.o.hsts)
	}
	name := path.Clean("/" + r.URL.Path)[1:]
	switch {
	case s.o.https && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "http"):
		http.Redirect(w, r, "https://"+r.Host+r.URL.RequestURI(), http.StatusMovedPermanently)
	case !s.authorized(r):
		h.Set("WWW-Authenticate", `Basic realm="Restricted", charset="UTF-8"`)
		s.refuse(w, r, http.StatusUnauthorized)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		s.refuse(w, r, http.StatusMethodNotAllowed)
	case s.isHidden(name) || strings.ContainsRune(name, 0):
		s.serveNotFound(w, r)
	default:
		s.serve(w, r, name)
	}
}

// authorized reports whether the client is one of the users.
func (s *site) authorized(r *http.Request) bool {
	if len(s.users) == 0 {
		return true
	}
	user, password, ok := r.BasicAuth()
	right, known := s.users[user]
	if !ok || !known {
		return false
	}
	sum := sha256.Sum256([]byte(user + "\x00" + password))
	if _, ok := s.known.Load(sum); ok {
		return true
	}
	if !right(password) {
		return false
	}
	s.known.Store(sum, true)
	return true
}

// isHidden reports whether a file is not part of the site: files that start with a dot,
// and files that only the platform reads.
func (s *site) isHidden(name string) bool {
	if !s.o.dotFiles && strings.Contains("/"+name, "/.") {
		return true
	}
	top, _, _ := strings.Cut(name, "/")
	return s.o.root == "" && slices.Contains([]string{staticfileName, authName, "manifest.yml", "Procfile"}, top)
}

// serve serves the file or folder with a name.
func (s *site) serve(w http.ResponseWriter, r *http.Request, name string) {
	at := name
	if at == "" {
		at = "."
	}
	fi, err := s.root.Stat(at)
	slash := strings.HasSuffix(r.URL.Path, "/")
	switch {
	case err != nil, fi.Mode().IsRegular() && slash, !fi.IsDir() && !fi.Mode().IsRegular():
		s.serveNotFound(w, r)
	case fi.IsDir() && !slash:
		to := url.URL{Path: "/" + name + "/", RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
	case fi.IsDir():
		s.folder(w, r, at)
	default:
		s.file(w, r, name, http.StatusOK)
	}
}

// indexes are the index files of a folder. The first that exists is served.
var indexes = []string{"index.html", "index.htm", "Default.htm"}

func (s *site) folder(w http.ResponseWriter, r *http.Request, name string) {
	for _, index := range indexes {
		if s.regular(path.Join(name, index)) {
			s.file(w, r, path.Join(name, index), http.StatusOK)
			return
		}
	}
	if !s.o.listing {
		s.refuse(w, r, http.StatusForbidden)
		return
	}
	s.list(w, r, name)
}

func (s *site) regular(name string) bool {
	fi, err := s.root.Stat(name)
	return err == nil && fi.Mode().IsRegular()
}

// serveNotFound responds for a file that does not exist.
func (s *site) serveNotFound(w http.ResponseWriter, r *http.Request) {
	if s.o.pushState && s.regular(indexes[0]) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		s.file(w, r, indexes[0], http.StatusOK)
		return
	}
	s.refuse(w, r, http.StatusNotFound)
}

// refuse responds with the app's own page for a status, or with the status text.
func (s *site) refuse(w http.ResponseWriter, r *http.Request, status int) {
	if page := s.o.pages[status]; page != "" && s.regular(page) {
		s.file(w, r, page, status)
		return
	}
	http.Error(w, fmt.Sprintf("%d %s", status, http.StatusText(status)), status)
}

// file serves a file. It serves the compressed version if the app has one and the
// client accepts it.
func (s *site) file(w http.ResponseWriter, r *http.Request, name string, status int) {
	h := w.Header()
	h.Set("Content-Type", typeOf(name))
	if s.regular(name + ".gz") {
		h.Add("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Values("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			name += ".gz"
		}
	}
	f, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		http.Error(w, "404 Not Found", http.StatusNotFound)
		return
	}
	if err != nil {
		serveError(w)
		return
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		serveError(w)
		return
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = io.Copy(w, f) // ignore a client that closed its connection
		}
		return
	}
	h.Set("ETag", s.tag(name, fi))
	http.ServeContent(w, r, "", time.Time{}, f)
}

// serveError responds for a file that exists but cannot be read.
func serveError(w http.ResponseWriter) {
	http.Error(w, "500 Internal Server Error", http.StatusInternalServerError)
}

// tag changes with the file, and with every push of the app.
func (s *site) tag(name string, fi fs.FileInfo) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", s.version, name, fi.Size(), fi.ModTime().UnixNano()))
	return fmt.Sprintf(`"%x"`, sum[:12])
}

// acceptsGzip parses Accept-Encoding.
func acceptsGzip(accept []string) bool {
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, q, _ := strings.Cut(item, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q = strings.TrimRight(strings.TrimPrefix(strings.TrimSpace(q), "q="), "0.")
			return q != "" || !strings.Contains(item, ";")
		}
	}
	return false
}

// types are media types that a stack possibly does not know.
var types = map[string]string{
	".csv": "text/csv; charset=utf-8", ".eot": "application/vnd.ms-fontobject", ".gz": "application/gzip", ".ico": "image/x-icon",
	".map": "application/json", ".md": "text/markdown; charset=utf-8", ".mp3": "audio/mpeg", ".mp4": "video/mp4", ".otf": "font/otf",
	".tar": "application/x-tar", ".ttf": "font/ttf", ".txt": "text/plain; charset=utf-8", ".webm": "video/webm",
	".webmanifest": "application/manifest+json", ".woff": "font/woff", ".woff2": "font/woff2", ".zip": "application/zip",
}

// typeOf returns the media type by the file name. It does not check the content, so
// that a text is never mistaken for a page.
func typeOf(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if t, ok := types[ext]; ok {
		return t
	}
	if t := mime.TypeByExtension(ext); t != "" {
		return t
	}
	return "application/octet-stream"
}

// maxListed limits the number of entries shown of a folder.
const maxListed = 10_000

// list shows the contents of a folder.
func (s *site) list(w http.ResponseWriter, r *http.Request, name string) {
	f, err := s.root.Open(name)
	if err != nil {
		s.serveNotFound(w, r)
		return
	}
	defer f.Close()
	entries, err := f.ReadDir(maxListed)
	if err != nil && !errors.Is(err, io.EOF) {
		serveError(w)
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	title := html.EscapeString(path.Join("/", name))
	fmt.Fprintf(w, "<!doctype html>\n<title>%s</title>\n<h1>%s</h1>\n<ul>\n", title, title)
	for _, e := range entries {
		if s.isHidden(path.Join(name, e.Name())) {
			continue
		}
		text := e.Name()
		if e.IsDir() {
			text += "/"
		}
		to := url.URL{Path: "./" + text}
		fmt.Fprintf(w, "<li><a href=\"%s\">%s</a>\n", html.EscapeString(to.String()), html.EscapeString(text))
	}
	fmt.Fprintln(w, "</ul>")
}
