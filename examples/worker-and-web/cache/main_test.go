package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestNotes(t *testing.T) {
	h := (&cache{notes: map[string][]byte{}}).handler()
	for i, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/notes/milk", "", 404, "there is no such note\n"},
		{"PUT", "/notes/milk", "two litres", 204, ""},
		{"GET", "/notes/milk", "", 200, "two litres"},
		{"PUT", "/notes/milk", "none", 204, ""},
		{"GET", "/notes/milk", "", 200, "none"},
		{"GET", "/notes/bread", "", 404, "there is no such note\n"},
		{"PUT", "/notes/long", strings.Repeat("a", maxNote+1), 413, "a note has at most 4096 bytes\n"},
		{"GET", "/notes/long", "", 404, "there is no such note\n"},
		{"POST", "/notes/milk", "", 405, "Method Not Allowed\n"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.status || w.Body.String() != c.want {
			t.Errorf("%d: %s %s: %d %q, want %d %q", i, c.method, c.path, w.Code, w.Body, c.status, c.want)
		}
	}
}

// A full cache can change existing notes but refuses new ones.
func TestFull(t *testing.T) {
	c := &cache{notes: map[string][]byte{}}
	for i := range maxNotes {
		if !c.put(strconv.Itoa(i), nil) {
			t.Fatalf("no room for note %d", i)
		}
	}
	if c.put("another", nil) {
		t.Error("it took one too many")
	}
	if !c.put("0", []byte("changed")) {
		t.Error("it does not change what it has")
	}
}

// It listens on its socket until it is stopped, and exits without an error.
func TestRun(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cache.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, socket) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cache/notes/none", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			time.Sleep(time.Millisecond) // it is about to listen
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("answer %s", resp.Status)
		}
		break
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
}
