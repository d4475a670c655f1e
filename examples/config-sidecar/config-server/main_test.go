package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestHandler(t *testing.T) {
	tests := []struct {
		method, path string
		status       int
		body         string
	}{
		{http.MethodGet, "/config/", 200, `{"scope":"s","password":"p\"w"}` + "\n"},
		{http.MethodGet, "/config/other", 404, "404 page not found\n"},
		{http.MethodPost, "/config/", 405, "Method Not Allowed\n"},
	}
	for _, tt := range tests {
		rec := httptest.NewRecorder()
		handler(Config{Scope: "s", Password: `p"w`}).ServeHTTP(rec, httptest.NewRequest(tt.method, tt.path, http.NoBody))
		if rec.Code != tt.status || rec.Body.String() != tt.body {
			t.Errorf("%s %s = %d %q, want %d %q", tt.method, tt.path, rec.Code, rec.Body, tt.status, tt.body)
		}
	}
}

func TestListensOnLocalhostOnly(t *testing.T) {
	l, err := listen("0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if addr := l.Addr().(*net.TCPAddr); !addr.IP.IsLoopback() {
		t.Errorf("listens on %s, want a loopback address", addr)
	}
}

func TestServeEnds(t *testing.T) {
	l, err := listen("0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := serve(ctx, l, handler(Config{})); err != nil {
		t.Errorf("serve = %v, want nil", err)
	}
	if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("still listens after its end")
	}
}

func TestRunNeedsPort(t *testing.T) {
	for _, port := range []string{"", "no-port"} {
		if err := run(t.Context(), port); err == nil {
			t.Errorf("run with port %q succeeded", port)
		}
	}
}
