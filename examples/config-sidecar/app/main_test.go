package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	const config = `{"scope":"x","password":"y"}` + "\n"
	sidecar := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/config/" {
				t.Errorf("sidecar was asked %s %s, want GET /config/", r.Method, r.URL.Path)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	broken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	tests := []struct {
		name    string
		sidecar http.Handler
		path    string
		status  int
		body    string // prefix of the body
	}{
		{"answers", sidecar(200, config), "/config", 200, config},
		{"fails", sidecar(500, "oops"), "/config", 502, "the config server answered 500 Internal Server Error\n"},
		{"hangs up", broken, "/config", 502, "the config server does not answer: "},
		{"is not asked", broken, "/other", 404, "404 page not found\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(tt.sidecar)
			defer srv.Close()
			rec := httptest.NewRecorder()
			handler(srv.URL+"/config/").ServeHTTP(rec, httptest.NewRequest(http.MethodGet, tt.path, http.NoBody))
			if rec.Code != tt.status || !strings.HasPrefix(rec.Body.String(), tt.body) {
				t.Errorf("GET %s = %d %q, want %d %q", tt.path, rec.Code, rec.Body, tt.status, tt.body)
			}
			if lines := strings.Count(rec.Body.String(), "\n"); lines != 1 {
				t.Errorf("body %q has %d lines, want 1", rec.Body, lines)
			}
		})
	}
}

func TestSidecarNotThere(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	url := srv.URL
	srv.Close()
	rec := httptest.NewRecorder()
	handler(url).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/config", http.NoBody))
	if rec.Code != http.StatusBadGateway || !strings.HasSuffix(rec.Body.String(), "connection refused\n") {
		t.Errorf("GET /config = %d %q, want 502 and one line with the reason", rec.Code, rec.Body)
	}
}

// After SIGTERM, active requests are still finished.
func TestServeFinishes(t *testing.T) {
	var lines bytes.Buffer
	log.SetOutput(&lines)
	defer log.SetOutput(os.Stderr)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, terminate := context.WithCancel(t.Context())
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		terminate()
		_, _ = io.WriteString(w, "done")
	})
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, h) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "done" || err != nil {
		t.Errorf("answer = %q, %v; want done", body, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve = %v, want nil", err)
	}
	if got, want := lines.String(), "GET /slow\n"; !strings.HasSuffix(got, want) {
		t.Errorf("log = %q, want %q", got, want)
	}
}

func TestRunNeedsPorts(t *testing.T) {
	for _, ports := range [][2]string{{"", "8082"}, {"8080", ""}, {"no-port", "8082"}} {
		if err := run(t.Context(), ports[0], ports[1]); err == nil {
			t.Errorf("run with ports %q succeeded", ports)
		}
	}
}
