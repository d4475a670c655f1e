package api

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

func TestNewWants(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	for name, spoil := range map[string]func(c *Config){
		"Registry":   func(c *Config) { c.Registry = nil },
		"Processes":  func(c *Config) { c.Processes = nil },
		"Logs":       func(c *Config) { c.Logs = nil },
		"Auth":       func(c *Config) { c.Auth = nil },
		"Roles":      func(c *Config) { c.Roles = nil },
		"public URL": func(c *Config) { c.PublicURL = "127.0.0.1:8484" },
	} {
		c := w.c
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New without %s = %v, want an error that names it", name, err)
		}
	}
}

// All users of the machine and all pages in their browsers can reach the listener. It
// accepts only its own host names, and reveals nothing without a token.
func TestListenerIsSafe(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	for _, tt := range []struct {
		name, method, host, origin, path string
		status                           int
		title                            string
	}{
		{"front page", "GET", "127.0.0.1:8484", "", "/", 200, ""},
		{"health", "GET", "localhost:8484", "", "/healthz", 200, ""},
		{"another port is somebody's forward", "GET", "LOCALHOST:9999", "", "/healthz", 200, ""},
		{"IPv6", "GET", "[::1]:8484", "", "/healthz", 200, ""},
		{"dot at the end", "GET", "localhost.", "", "/healthz", 200, ""},
		{"given name", "GET", "api.dew.internal:8484", "", "/healthz", 200, ""},
		{"same origin", "GET", "127.0.0.1:8484", "http://127.0.0.1:8484", "/healthz", 200, ""},
		{"foreign host", "GET", "evil.example:8484", "", "/", 421, "CF-MisdirectedRequest"},
		{"name that begins like ours", "GET", "localhost.evil.example", "", "/", 421, "CF-MisdirectedRequest"},
		{"no host", "GET", "", "", "/", 421, "CF-MisdirectedRequest"},
		{"foreign origin", "GET", "127.0.0.1:8484", "http://evil.example", "/healthz", 403, "CF-NotAuthorized"},
		{"another port is another origin", "GET", "127.0.0.1:8484", "http://127.0.0.1:3000", "/healthz", 403, "CF-NotAuthorized"},
		{"sandboxed page", "GET", "127.0.0.1:8484", "null", "/healthz", 403, "CF-NotAuthorized"},
		{"no token", "GET", "127.0.0.1:8484", "", "/v3/apps/" + a.GUID, 401, "CF-NotAuthenticated"},
		{"no token, unknown path", "GET", "127.0.0.1:8484", "", "/nothing", 401, "CF-NotAuthenticated"},
		{"no token, metrics", "GET", "127.0.0.1:8484", "", "/metrics", 401, "CF-NotAuthenticated"},
		{"no token, log stream", "GET", "127.0.0.1:8484", "", "/stream/v1/apps/" + a.GUID, 401, "CF-NotAuthenticated"},
		{"dew's own", "POST", "127.0.0.1:8484", "", "/dew/v1/shutdown", 401, "CF-NotAuthenticated"},
		{"post to the front page", "POST", "127.0.0.1:8484", "", "/", 401, "CF-NotAuthenticated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := w.c
			c.Names, c.Metrics = []string{"api.dew.internal"}, nil
			r := httptest.NewRequest(tt.method, tt.path, nil)
			r.Host = tt.host
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			got := httptest.NewRecorder()
			must(New(c))(t).Handler().ServeHTTP(got, r)
			if got.Code != tt.status {
				t.Fatalf("status = %d %s, want %d", got.Code, got.Body, tt.status)
			}
			if tt.title != "" {
				wantError(t, got, tt.title, "")
			}
		})
	}
	if len(w.shutdown) > 0 {
		t.Error("a stranger ended the daemon")
	}
}

// wantError checks for an error in Cloud Foundry's format, with a title and a text in
// one of the details.
func wantError(t testing.TB, got *httptest.ResponseRecorder, title, detail string) {
	t.Helper()
	var es v3.Errors
	if err := json.Unmarshal(got.Body.Bytes(), &es); err != nil || len(es.Errors) == 0 {
		t.Fatalf("body = %s, want errors: %v", got.Body, err)
	}
	for _, e := range es.Errors {
		if e.Title == title && e.Code > 0 && strings.Contains(e.Detail, detail) {
			return
		}
	}
	t.Errorf("errors = %+v, want %s with %q", es.Errors, title, detail)
}

// A panic affects only one response. The response has an ID, and the log describes the
// panic under that ID. The client sees no internal details.
func TestPanic(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.startedApp("shop")
	w.fake.panics = true
	got := w.request("GET", "/v3/processes/"+a.GUID+"/stats", "")
	if got.Code != http.StatusInternalServerError {
		t.Errorf("status = %d, want 500", got.Code)
	}
	wantError(t, got, "UnknownError", "An unknown error occurred.")
	id := got.Header().Get("X-Vcap-Request-Id")
	if logged := w.logged.String(); id == "" || !strings.Contains(logged, id) || !strings.Contains(logged, "a bug") {
		t.Errorf("the log does not tell of request %q: %s", id, logged)
	}
	if strings.Contains(got.Body.String(), "a bug") {
		t.Errorf("the answer tells of the inside: %s", got.Body)
	}
}

// A request over the socket is recorded under the name of the local user.
func TestPeerIsActor(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	l := must(net.Listen("unix", filepath.Join(t.TempDir(), "s")))(t)
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: w.local, ConnContext: PeerContext}}
	srv.Start()
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", l.Addr().String()) },
	}}
	defer client.CloseIdleConnections()
	body := `{"name":"shop","relationships":{"space":{"data":{"guid":"` + w.space.GUID + `"}}}}`
	resp := must(client.Post("http://localhost/v3/apps", "application/json", strings.NewReader(body)))(t)
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("status = %d %s, want 201", resp.StatusCode, read(t, resp.Body))
	}
	resp.Body.Close()
	var events v3.List[v3.Event]
	w.want(200, "GET", "/v3/audit_events?types=audit.app.create", "", &events)
	me := must(user.Current())(t)
	if len(events.Resources) != 1 || events.Resources[0].Actor != (v3.Party{GUID: "uid-" + me.Uid, Type: "user", Name: me.Username}) {
		t.Errorf("events = %+v, want one by %s", events.Resources, me.Username)
	}
}

func TestRoot(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	golden(t, "root", w.request("GET", "/", "").Body.Bytes())
	golden(t, "healthz", w.request("GET", "/healthz", "").Body.Bytes())
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	w.s.c.Metrics.ContainerdCall("task.Start", 20e6, nil)
	w.s.c.Metrics.StoreCommit(2e6)
	w.print(w.createApp("shop").GUID, "a line")
	got := w.request("GET", "/metrics", "")
	for _, want := range []string{
		"dew_log_backlog_bytes 0", "dew_log_frozen_leaves 0", "dew_log_append_seconds_count 2",
		`dew_containerd_call_seconds_count{call="task.Start",result="ok"} 1`, "dew_store_commit_seconds_count 1",
		`dew_instance_restarts_total{cause="exited"} 2`, `dew_health_checks_total{outcome="unchecked"} 5`, "dew_instance_starts_total 3", "go_goroutines ", "process_open_fds ",
	} {
		if !strings.Contains(got.Body.String(), want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}
