package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "clock.sock")
	// A socket that a killed clock left behind does not prevent listening.
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, socket) }()

	body := ask(t, socket, "/time")
	answered, err := time.Parse(time.RFC3339+"\n", body)
	if err != nil || time.Since(answered).Abs() > time.Hour {
		t.Errorf("the clock says %q, %v; want about now", body, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("it leaves its socket behind")
	}
}

// ask waits for the socket and returns the response.
func ask(t *testing.T, socket, path string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://clock"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			time.Sleep(time.Millisecond) // it is about to listen
			continue
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("answer %s, %v", resp.Status, err)
		}
		return string(b)
	}
}

func TestNoPlaceForTheSocket(t *testing.T) {
	if err := run(t.Context(), filepath.Join(t.TempDir(), "missing", "clock.sock")); err == nil {
		t.Error("it listens in a folder that is not there")
	}
}
