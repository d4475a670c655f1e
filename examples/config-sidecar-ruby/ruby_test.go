//go:build integration

// Package configsidecarruby_test tests the app in Ruby without a platform.
package configsidecarruby_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// start runs the app and returns its address.
func start(t *testing.T, configPort string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "ruby", "app.rb")
	cmd.Env = append(os.Environ(), "PORT=0", "CONFIG_SERVER_PORT="+configPort)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("%v (make setup-test installs what is missing)", err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was stopped
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the end of the app: %s, want status 0", cmd.ProcessState)
		}
	})
	lines := bufio.NewScanner(out)
	lines.Scan()
	var port int
	if _, err := fmt.Sscanf(lines.Text(), "app listens on 0.0.0.0:%d", &port); err != nil {
		t.Fatalf("the app says %q: %v", lines.Text(), err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // nothing else reads its output
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}

func ask(t *testing.T, method, url string) (status int, contentType, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
}

// It responds like the app in Go: with the sidecar's response, or one line why not.
func TestRuby(t *testing.T) {
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"asked":"`+r.Method+" "+r.URL.Path+`"}`)
	}))
	defer sidecar.Close()
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, c := range map[string]struct {
		sidecar, method, path string
		status                int
		contentType, body     string
	}{
		"config":           {sidecar.URL, "GET", "/config", 200, "application/json", `{"asked":"GET /config/"}`},
		"with a question":  {sidecar.URL, "GET", "/config?a=b", 200, "application/json", `{"asked":"GET /config/"}`},
		"another path":     {sidecar.URL, "GET", "/config/", 404, "text/plain", "404 page not found\n"},
		"another method":   {sidecar.URL, "POST", "/config", 405, "text/plain", "Method Not Allowed\n"},
		"no such config":   {broken.URL, "GET", "/config", 502, "text/plain", "the config server answered 404\n"},
		"no config server": {gone.URL, "GET", "/config", 502, "text/plain", "the config server does not answer: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, port, err := net.SplitHostPort(strings.TrimPrefix(c.sidecar, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			status, contentType, body := ask(t, c.method, start(t, port)+c.path)
			if status != c.status || contentType != c.contentType || !strings.HasPrefix(body, c.body) || strings.Count(body, "\n") > 1 {
				t.Errorf("answer %d %s %q, want %d %s %q", status, contentType, body, c.status, c.contentType, c.body)
			}
		})
	}
}

func TestRubyNeedsItsPorts(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "ruby", "app.rb")
	cmd.Env = append(os.Environ(), "PORT=", "CONFIG_SERVER_PORT=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "PORT and CONFIG_SERVER_PORT must be set") {
		t.Errorf("%v: %s", err, out)
	}
}
