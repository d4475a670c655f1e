package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// requestStatus sends a request to a socket.
func requestStatus(t *testing.T, socket, method, path string) int {
	t.Helper()
	tr := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://dew"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestSocket(t *testing.T) {
	run := t.TempDir()
	socket := filepath.Join(run, socketName)
	// A daemon that was killed left its socket.
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openSocket(run)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode = %v, %v, want 0660", info.Mode(), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, &http.Server{Handler: http.NotFoundHandler()}, quiet) }()
	if status := requestStatus(t, socket, "GET", "/healthz"); status != 404 {
		t.Errorf("answer = %d, want the handler's 404", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve = %v, want nil after leaving", err)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is still there")
	}
}

func TestServeReportsFailure(t *testing.T) {
	l, err := openSocket(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := serve(t.Context(), l, &http.Server{Handler: http.NotFoundHandler()}, quiet); err == nil || !strings.Contains(err.Error(), "cannot accept connections at ") {
		t.Errorf("error = %v, want one that says so", err)
	}
}

func TestChooseSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, tt := range []struct {
		name   string
		passed map[string][]net.Listener
		want   net.Listener
		says   string
	}{
		{"none", nil, nil, ""},
		{"ours", map[string][]net.Listener{socketName: {l}}, l, ""},
		{"two of ours", map[string][]net.Listener{socketName: {l, l}}, nil, "FileDescriptorName="},
		{"not a listener", map[string][]net.Listener{socketName: {nil}}, nil, "FileDescriptorName="},
		{"another", map[string][]net.Listener{socketName: {l}, "http": {l}}, nil, `"http"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := chooseSocket(tt.passed)
			if got != tt.want {
				t.Errorf("listener = %v, want %v", got, tt.want)
			}
			if (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v, want one with %q", err, tt.says)
			}
		})
	}
}

// A start that fails because another program has its port leaves no files.
func TestFailedStartLeavesNothing(t *testing.T) {
	testkit.NeedRoot(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	cfg := defaultConfig()
	cfg.Root, cfg.Run, cfg.Listen = filepath.Join(dir, "x", "root"), filepath.Join(dir, "y", "run"), l.Addr().String()
	if _, err := open(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("error = %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
