//go:build integration

package containerd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/policy"
	"github.com/dewrun/dew/testkit"
)

// An instance that fails its check has a record that names the check and the failure.
func TestSickInstanceHasARecord(t *testing.T) {
	// Only checks that must time out have a short timeout: delays of a busy machine
	// must not cause other failures.
	as := func(typ, endpoint string, timeout time.Duration) app.HealthCheck {
		return app.HealthCheck{Type: typ, Endpoint: endpoint, Timeout: timeout, Interval: time.Second, InvocationTimeout: testkit.Patience}
	}
	tests := []struct {
		name    string
		check   app.HealthCheck
		command string
		sicken  string // requested after it runs
		cause   runtime.Cause
		want    []string
	}{
		{"http turns 500", as("http", "/health", testkit.Patience), "exec ./testapp serve 0.0.0.0:8080", "/sicken", runtime.CauseUnhealthy, []string{"Instance became unhealthy", "/health", "500"}},
		{"never listens", as("port", "", 3*time.Second), "exec ./testapp sleep", "", runtime.CauseStartTimeout, []string{"8080", "refused"}},
		{"loopback only", as("port", "", 10*time.Second), "exec ./testapp serve 127.0.0.1:8080", "", runtime.CauseStartTimeout, []string{"listens only on 127.0.0.1:8080; it must listen on 0.0.0.0"}},
	}
	w := newWorld(t)
	w.policy = policy.Policy{KillDelay: time.Second}
	w.boot()
	ps := make([]app.Process, len(tests))
	for i, tt := range tests { // they wait for their checks in parallel
		ps[i] = w.put(testApp{name: fmt.Sprintf("h%d", i), memory: 128, command: tt.command, check: tt.check})
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := ps[i]
			if tt.sicken != "" {
				w.get(w.running(p), tt.sicken)
			}
			r := w.record(p, 1)
			if r.First.Cause != tt.cause {
				t.Errorf("cause = %s, want %s", r.First.Cause, tt.cause)
			}
			for _, want := range tt.want {
				if !strings.Contains(r.Description, want) {
					t.Errorf("description = %q, want %q in it", r.Description, want)
				}
			}
			w.stop(p)
		})
	}
}

// get sends a request to a running instance from inside its network namespace.
func (w *world) get(st runtime.Status, path string) int {
	w.t.Helper()
	c := http.Client{Timeout: testkit.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return w.engine.net.Dial(ctx, st.Instance, network, addr)
		},
	}}
	r, err := c.Get(fmt.Sprintf("http://%s:8080%s", st.Address, path))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}

// A healthy app answers at its address, from inside its namespace.
func TestHealthyInstanceRuns(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "fit", memory: 64, command: "exec ./testapp serve 0.0.0.0:8080", check: app.HealthCheck{Type: "http", Endpoint: "/health"}})
	if got := w.get(w.running(p), "/"); got != http.StatusOK {
		t.Errorf("status = %d, want 200", got)
	}
}

// A sidecar that hangs but runs is not a crash: only its PID is checked.
func TestHungSidecarIsNoCrash(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{
		name: "hung", memory: 128, command: "exec ./testapp serve 0.0.0.0:8080", check: app.HealthCheck{Type: "port", Interval: time.Second, InvocationTimeout: testkit.Patience},
		sidecars: []app.Sidecar{sidecar("s", "exec ./testapp serve 127.0.0.1:9000", 32)},
	})
	st := w.running(p)
	w.line(p.App, "SIDECAR/S", "listening")
	if err := syscall.Kill(w.mainPID(st.Instance, "sidecar-0"), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const rounds = 2500 * time.Millisecond // two rounds of the main process's check
	testkit.Stays(t, "the instance runs although a sidecar hangs", rounds, func() error {
		if got := w.running(p); got.Instance != st.Instance {
			return fmt.Errorf("the instance was replaced by %s", got.Instance)
		}
		if rs, _ := w.sup.Exits().Process(p.GUID); len(rs) != 0 {
			return fmt.Errorf("records = %+v, want none", rs)
		}
		return nil
	})
}

// An app that cannot start gives a reason, not an exit with status 0.
func TestStartFailures(t *testing.T) {
	t.Run("command not found", func(t *testing.T) {
		w := newWorld(t)
		w.boot()
		p := w.put(testApp{name: "nocmd", memory: 64, command: "./does-not-exist"})
		r := w.record(p, 1)
		if r.First.Cause != runtime.CauseStartFailed || r.First.Code != 127 || !strings.Contains(r.First.Detail, "not found") {
			t.Errorf("record = %s, %+v; want start_failed with status 127 and its reason", r.Description, r.First)
		}
		w.line(p.App, "PROC/WEB", "does-not-exist")
		w.stop(p)
	})
	t.Run("image missing", func(t *testing.T) {
		w := newWorld(t)
		w.boot()
		p := w.put(testApp{name: "noimg", memory: 64, command: "sleep 1000", spoil: func() {
			if err := os.Remove(filepath.Join(w.root, "droplets", w.image+".tar")); err != nil {
				t.Fatal(err)
			}
		}})
		r := w.record(p, 1)
		if r.First.Cause != runtime.CauseStartFailed || !strings.Contains(r.Description, "push or restage the app") {
			t.Errorf("record = %s, %+v; want start_failed with the remedy", r.Description, r.First)
		}
		w.stop(p)
		if got := w.containers(); len(got) != 0 {
			t.Errorf("containers = %v, want none", got)
		}
	})
}
