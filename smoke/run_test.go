package smoke

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/testkit"
)

// tested runs one folder with this smoke.yml against a cloud.
func tested(t *testing.T, c *cloud, v *fakeCommands, spec string) (Report, string) {
	t.Helper()
	return testedWith(t, c, v, spec, Config{})
}

// tried is like tested, but the time of a check is over after its first failed try. So
// the test does not depend on the speed of the machine.
func tried(t *testing.T, c *cloud, v *fakeCommands, spec string) (Report, string) {
	t.Helper()
	var over context.CancelFunc // cancels the current check
	return testedWith(t, c, v, spec, Config{
		bound: func(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
			ctx, over = context.WithTimeout(ctx, limit)
			return ctx, over
		},
		OnRetry: func(error) { over() },
	})
}

func testedWith(t *testing.T, c *cloud, v *fakeCommands, spec string, cfg Config) (Report, string) {
	t.Helper()
	dir := write(t, map[string]string{"manifest.yml": "applications: [{name: ((name))}]", File: "variables: {name: shop}\n" + spec})
	folders, err := Find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said strings.Builder
	cfg.Client = c.newClient(t)
	cfg.Connect = func(context.Context, TestSpace) (SpaceClient, error) {
		return SpaceClient{Client: cfg.Client, Commands: v, Env: append(os.Environ(), "GIVEN=yes"), Close: func() {}}, nil
	}
	cfg.Progress = func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&said, format+"\n", args...)
	}
	cfg.Bundle = func(ctx context.Context, s Evidence) (string, error) {
		file := filepath.Join(dir, "kept.tar.gz")
		return file, Bundle{File: file}.Write(ctx, s)
	}
	r := Run(t.Context(), cfg, folders)
	mu.Lock()
	defer mu.Unlock()
	return r, said.String()
}

// states returns the steps of a report, on one line.
func states(r Report) string {
	var out []string
	for _, s := range r.Folders[0].Steps {
		out = append(out, s.Name+"="+s.State)
	}
	return strings.Join(out, " ")
}

func TestRun(t *testing.T) {
	c := newCloud(t)
	v := &fakeCommands{c: c, out: Output{Text: "/home/vcap/app\n"}}
	c.lines = []v3.Line{{Source: "APP/PROC/WEB", Stream: "OUT", Text: []byte("ready")}}
	c.signal = func(v3.Kill) v3.Crash {
		c.stats[0].InstanceGUID = "i-2"
		return crash("i-1", "APP/PROC/WEB: Exited with status 137", 0)
	}
	v.after = func() { // a mail that is sent with the push
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mails = []v3.Mail{{ID: "m", To: "ada@example.com", Subject: "hello", Text: "dear ada"}}
	}
	r, said := tested(t, c, v, `
build: echo built > made
services: [{name: db, offering: postgres, plan: small}]
before: test "$GIVEN" = yes && test -f made
checks:
- http: {path: /x, equals: hello from shop.dew.localhost/x}
- http: {path: /x, port: 9000, equals: hello from debug.dew.localhost/x}
- http: {path: /x, port: 1234, contains: "hello from localhost:1234/x"}
- http: {path: /x, host: other.test, equals: hello from other.test/x}
- log: {contains: ready, source: APP/PROC/WEB}
- ssh: {command: pwd, equals: /home/vcap/app}
- mail: {to: ada@example.com, contains: dear ada}
- kill: {signal: SIGKILL}
  exit: {description: "APP/PROC/WEB: Exited with status 137", reason: CRASHED}
- run: test "$APP" = shop; case "$APP_URL" in http://shop.dew.localhost:*) ;; *) exit 1;; esac
`)
	if r.Status != 0 {
		t.Fatalf("status %d\n%s", r.Status, said)
	}
	if v.dials != 1 || len(v.services) != 1 || v.pushes[0].Variables["name"] != "shop" {
		t.Errorf("dials %d, services %v, pushes %v", v.dials, v.services, v.pushes)
	}
	if !c.did("DELETE /v3/organizations/org-1") {
		t.Error("the org was left")
	}
	if ok, bad, skipped := r.Counts(); ok != 15 || bad != 0 || skipped != 0 {
		t.Errorf("%d ok, %d failed, %d skipped: %s", ok, bad, skipped, states(r))
	}
	if rows := r.Rows(); len(rows) != 16 || rows[6][2] != "shop" {
		t.Errorf("table = %q", rows)
	}
}

// Every failure has its exit status. Later steps are skipped, and the org is still
// removed.
func TestRunFailures(t *testing.T) {
	for _, tt := range []struct {
		name, spec string
		set        func(c *cloud, v *fakeCommands)
		status     int
		want       string // in the sentence
	}{
		{name: "build", spec: "build: echo oops; exit 3", status: StatusFailed, want: "build failed: the script failed: exit status 3"},
		{name: "before", spec: "before: exit 1", status: StatusFailed, want: "before failed"},
		{name: "service", spec: "services: [{name: none, offering: x, plan: y}]", status: StatusFailed, want: "no such plan"},
		{
			name: "push", spec: "", status: StatusStaging, want: "cannot stage",
			set: func(_ *cloud, v *fakeCommands) {
				v.err = &Failure{Status: StatusStaging, Err: errors.New("cannot stage")}
			},
		},
		{name: "app", spec: "checks: [{app: shoop, run: x}]", status: StatusUsage, want: `the manifests have no app "shoop"; their apps are shop`},
		{name: "http", spec: "checks: [{http: GET /, timeout: 2m}]", status: StatusAssertion, want: "the status is 503, want 200: the body is \"busy\" (tried for 2m0s)", set: busy},
		{name: "refused", spec: "checks: [{http: GET /}]", status: StatusAssertion, want: "got no response", set: func(c *cloud, _ *fakeCommands) { c.router = "http://127.0.0.1:1" }},
		{name: "log", spec: "checks: [{log: ready, timeout: 120ms}]", status: StatusAssertion, want: `no log line of app shop matches (contains "ready"); dew read 0 lines`},
		{name: "ssh", spec: "checks: [{ssh: {command: x, status: 0}}]", status: StatusAssertion, want: "the command exited with status 7, want 0", set: func(_ *cloud, v *fakeCommands) { v.out.Status = 7 }},
		{name: "mail", spec: "checks: [{mail: {to: a@b.c}}]", status: StatusAssertion, want: "no matching mail to a@b.c was received"},
		{name: "run", spec: "checks: [{run: echo why; exit 4}]", status: StatusAssertion, want: `the script failed: exit status 4: the output ends with "why"`},
		{name: "no process", spec: "checks: [{kill: {process: worker}}]", status: StatusUsage, want: `has no process "worker"; its processes are web`},
		{
			name: "exit", spec: "checks: [{kill: {}, exit: {description: other}}]", status: StatusAssertion, want: `the exit record says "ended", want "other"`,
			set: func(c *cloud, _ *fakeCommands) { c.signal = func(v3.Kill) v3.Crash { return crash("i-1", "ended", 0) } },
		},
		{
			name: "not again", spec: "checks: [{kill: {}}]", status: StatusAssertion, want: "instance 0 of process web is not running again: its state is crashed",
			set: func(c *cloud, _ *fakeCommands) {
				c.signal = func(v3.Kill) v3.Crash {
					c.stats[0].State = v3.StateCrashed
					return crash("i-1", "ended", 0)
				}
			},
		},
		{name: "crash at the start", spec: "", status: StatusCrashed, want: "app shop crashed: APP/PROC/WEB: Exited with status 1", set: crashes("APP/PROC/WEB: Exited with status 1", 0)},
		{name: "out of memory", spec: "", status: StatusMemory, want: "out of memory", set: crashes("APP/PROC/WEB: Exited with status 137 (out of memory)", 0)},
		{name: "crash in a check", spec: "checks: [{log: never}]", status: StatusCrashed, want: "app shop crashed: later", set: crashes("later", 200*time.Millisecond)},
		{name: "never runs", spec: "timeout: 2s", status: StatusTimeout, want: "instance 0 of process web of app shop was not running in time", set: func(c *cloud, _ *fakeCommands) { c.stats[0].State = v3.StateStarting }},
		{name: "too long", spec: "timeout: 1s\nchecks: [{run: sleep 60}]", status: StatusTimeout, want: "took longer than 1s"},
		{name: "no rights", spec: "", status: StatusFailed, want: "cannot create an org for the test", set: func(c *cloud, _ *fakeCommands) { c.refuse["POST /v3/organizations"] = http.StatusForbidden }},
		{name: "stays", spec: "", status: StatusInfrastructure, want: "cannot delete the org", set: func(c *cloud, _ *fakeCommands) {
			c.refuse["DELETE /v3/organizations/org-1"] = http.StatusInternalServerError
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			v := &fakeCommands{c: c}
			if tt.set != nil {
				tt.set(c, v)
			}
			r, said := tried(t, c, v, tt.spec)
			_, step, bad := r.Failed()
			if !bad || r.Status != tt.status || step.Status != tt.status || !strings.Contains(step.Detail, tt.want) {
				t.Errorf("status %d, %q, want %d with %q\n%s", r.Status, step.Detail, tt.status, tt.want, said)
			}
			if tt.name != "no rights" && tt.name != "build" && !c.did("DELETE /v3/organizations/org-1") {
				t.Error("the org was left")
			}
		})
	}
}

func busy(c *cloud, _ *fakeCommands) {
	c.page = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, "busy")
	}
}

// crashes makes the app crash a while after the push.
func crashes(description string, after time.Duration) func(*cloud, *fakeCommands) {
	return func(c *cloud, v *fakeCommands) {
		v.after = func() {
			crash := func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.crashes = []v3.Crash{crash("i-1", description, 0)}
			}
			if after == 0 {
				crash()
				return
			}
			time.AfterFunc(after, crash)
		}
	}
}

// A folder that needs missing programs is skipped with the reason, in every report, and
// the status is 0. With NoSkip it fails, and the other folders are still tested.
func TestRunNeeds(t *testing.T) {
	here := filepath.Join(t.TempDir(), "v1.2", "tool")
	if err := os.MkdirAll(filepath.Dir(here), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(here, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(filepath.Dir(filepath.Dir(here)), "*", "tool")
	const reason = "not installed on this machine: no-such-program, /no/such/*/file"
	spec := "needs: [sh, '" + there + "', no-such-program, /no/such/*/file]\nbuild: exit 1\nchecks:\n- http: GET /\n"
	c := newCloud(t)
	r, said := tested(t, c, &fakeCommands{c: c}, spec)
	if r.Status != 0 || r.Folders[0].Skip != reason || !strings.Contains(said, "skipped: "+reason) {
		t.Errorf("status %d, skipped %q\n%s", r.Status, r.Folders[0].Skip, said)
	}
	if ok, bad, skipped := r.Counts(); ok != 0 || bad != 0 || skipped != len(r.Folders[0].Steps) || skipped < 4 {
		t.Errorf("%d ok, %d failed, %d skipped: %s", ok, bad, skipped, states(r))
	}
	if n := strings.Count(string(r.JUnit()), `<skipped message="`+reason+`">`); n != len(r.Folders[0].Steps) {
		t.Errorf("JUnit has %d reasons:\n%s", n, r.JUnit())
	}
	if rows := r.Rows(); len(rows) != 2 || rows[1][3] != StateSkipped || rows[1][5] != reason {
		t.Errorf("the table has %q", rows)
	}
	r, _ = testedWith(t, c, &fakeCommands{c: c}, spec, Config{NoSkip: true})
	if step := r.Folders[0].Steps[0]; r.Status != StatusInfrastructure || step.State != StateFailed || step.Detail != reason {
		t.Errorf("status %d: %+v", r.Status, step)
	}
	if r, _ = tested(t, c, &fakeCommands{c: c}, "needs: [sh, '"+there+"']\n"); r.Status != 0 || r.Folders[0].Skip != "" {
		t.Errorf("status %d, skipped %q", r.Status, r.Folders[0].Skip)
	}
}

func TestRunRetries(t *testing.T) {
	c := newCloud(t)
	n := 0
	c.page = func(w http.ResponseWriter, _ *http.Request) {
		if n++; n < 3 {
			w.WriteHeader(http.StatusBadGateway)
		}
	}
	r, said := tested(t, c, &fakeCommands{c: c}, "checks: [{http: GET /}]")
	if r.Status != 0 || n != 3 {
		t.Errorf("status %d after %d tries\n%s", r.Status, n, said)
	}
}

// A folder without checks is pushed, its apps must run, and the output says that there
// are no checks.
func TestRunWithoutChecks(t *testing.T) {
	c := newCloud(t)
	r, said := tested(t, c, &fakeCommands{c: c}, "")
	if r.Status != 0 || states(r) != "push=ok wait=ok" || !strings.Contains(said, "no checks are defined") {
		t.Errorf("status %d, %s\n%s", r.Status, states(r), said)
	}
}

// An interruption stops running steps, keeps nothing, and removes the org.
func TestRunInterrupted(t *testing.T) {
	c := newCloud(t)
	ask := c.newClient(t)
	dir := write(t, map[string]string{"manifest.yml": "applications: [{name: shop}]", File: "checks: [{run: 'touch began; sleep 600'}]"})
	folders, err := Find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		_ = testkit.Until(func() error { // if it never happens, the test fails below
			_, err := os.Stat(filepath.Join(dir, "began"))
			return err
		})
	}()
	kept := false
	r := Run(ctx, Config{
		Client: ask, Connect: func(context.Context, TestSpace) (SpaceClient, error) {
			return SpaceClient{Client: ask, Commands: &fakeCommands{c: c}, Env: os.Environ()}, nil
		},
		Progress: func(string, ...any) {},
		Bundle:   func(context.Context, Evidence) (string, error) { kept = true; return "", nil },
	}, append(folders, folders...))
	if len(r.Folders) != 1 || r.Status != StatusFailed || kept || !c.did("DELETE /v3/organizations/org-1") {
		t.Errorf("report = %+v, bundle %t", r, kept)
	}
}
