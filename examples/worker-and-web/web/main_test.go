package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeSidecar responds on the socket of a sidecar with its name and the request.
func fakeSidecar(t *testing.T, folder, name string) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(folder, name+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the response shows the body
		fmt.Fprintf(w, "%s: %s %s %s", name, r.Method, r.URL.Path, body)
	})}
	go func() { _ = srv.Serve(l) }() // stops with the test
	t.Cleanup(func() { _ = srv.Close() })
}

func TestEveryPathHasItsSidecar(t *testing.T) {
	folder := t.TempDir()
	fakeSidecar(t, folder, "clock")
	fakeSidecar(t, folder, "cache")
	h := handler(folder)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/time", "", 200, "clock: GET /time "},
		{"GET", "/notes/milk", "", 200, "cache: GET /notes/milk "},
		{"PUT", "/notes/milk", "two litres", 200, "cache: PUT /notes/milk two litres"},
		{"POST", "/time", "", 405, "Method Not Allowed\n"},
		{"GET", "/else", "", 404, "404 page not found\n"},
		{"GET", "/", "", 200, "GET /time asks the clock; GET and PUT /notes/NAME ask the cache.\n"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.status || w.Body.String() != c.want {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, w.Code, w.Body, c.status, c.want)
		}
	}
}

// A missing sidecar has its own response, and is found once it starts.
func TestSidecarComesLater(t *testing.T) {
	folder := t.TempDir()
	h := handler(folder)
	request := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/time", http.NoBody))
		return w
	}
	if w := request(); w.Code != http.StatusBadGateway || w.Body.String() != "the clock does not answer\n" {
		t.Errorf("without a clock: %d %q", w.Code, w.Body)
	}
	fakeSidecar(t, folder, "clock")
	if w := request(); w.Code != http.StatusOK {
		t.Errorf("with a clock: %d %q", w.Code, w.Body)
	}
}

func TestNoPort(t *testing.T) {
	if err := run(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "PORT must be set") {
		t.Errorf("%v, want the variable's name", err)
	}
}
