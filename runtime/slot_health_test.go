package runtime_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// An instance that fails its liveness check ends with a record that says so.
func TestUnhealthyInstanceEnds(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		task := w.fake.Last()
		w.pass(45 * time.Second)
		task.Refuse(true)
		w.pass(15*time.Second - ms)
		w.wantState(p, runtime.Running)
		w.pass(time.Second)
		r := w.record(p)
		if !strings.HasPrefix(r.Description, "APP/PROC/WEB: Instance became unhealthy: port check failed: ") ||
			!strings.Contains(r.Description, "10.201.0.2:8080") {
			t.Errorf("description = %q", r.Description)
		}
		var got []string
		for _, f := range r.Followers {
			got = append(got, fmt.Sprintf("%s %d %s", f.Exec, f.Code, f.Cause))
		}
		if diff := cmp.Diff(got, []string{"main 143 unhealthy", sideA + " 143 peer_exited"}); r.First.Cause != runtime.CauseUnhealthy || diff != "" {
			t.Errorf("cause %s, followers (-got +want):\n%s", r.First.Cause, diff)
		}
		w.wantStarts(2)
	})
}

// A paused instance answers nobody: its liveness check counts again when it goes on.
func TestPausedInstanceIsNotUnhealthy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		task := w.fake.Last()
		w.pass(time.Second)
		task.Refuse(true)
		task.Pause(true)
		w.pass(10 * time.Minute)
		w.wantState(p, runtime.Running)
		w.wantStarts(1)
		task.Pause(false)
		w.pass(10 * time.Minute)
		if r := w.records(p); len(r) == 0 || r[0].First.Cause != runtime.CauseUnhealthy {
			t.Errorf("records = %v, want one of an unhealthy instance", r)
		}
	})
}

// The check asks the port it names, else the first of the process.
func TestHealthCheckPort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check int
		ports []int
		want  string
	}{
		{0, nil, "10.201.0.2:8080"},
		{0, []int{9000, 9001}, "10.201.0.2:9000"},
		{9001, []int{9000, 9001}, "10.201.0.2:9001"},
	} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000")
			w.change(p, func(p *app.Process) { p.HealthCheck.Port, p.Ports = c.check, c.ports })
			w.fake.Refuse(true)
			w.daemon()
			w.pass(61 * time.Second)
			if rs := w.records(p); len(rs) == 0 || !strings.Contains(rs[0].Description, c.want) {
				t.Errorf("records = %v, want a check of %s", rs, c.want)
			}
		})
	}
}

// An instance that is not healthy in time ends with a record, too.
func TestStartTimeout(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.Refuse(true)
		p := w.push("sleep 1000")
		w.daemon()
		w.wantState(p, runtime.Starting)
		w.pass(time.Minute - ms)
		w.wantRecords(p, 0)
		w.pass(time.Second)
		r := w.record(p)
		if !strings.HasPrefix(r.Description, "APP/PROC/WEB: Instance never healthy after 1m0s: port check failed: ") ||
			r.First.Cause != runtime.CauseStartTimeout || r.Phase != runtime.PhaseStarting {
			t.Errorf("record = %+v", r)
		}
		w.wantStarts(2)
	})
}

// A check that fails because the process has just died does not hide the death.
func TestDeathBeatsTheCheckThatSawIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		task := w.fake.Last()
		task.Refuse(true)
		time.Sleep(30*time.Second + 2*ms) // the check has failed, the exit comes 2 ms later
		task.End(main, 3)
		w.pass(time.Second)
		if r := w.record(p); !strings.HasSuffix(r.Description, ": Exited with status 3") {
			t.Errorf("description = %q, want the exit", r.Description)
		}
	})
}

// A process check is healthy at once, and a sidecar that only hangs is no crash.
func TestProcessCheckIsHealthyAtOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.Refuse(true)
		p := w.push("sleep 1000", "sleep 1000")
		w.change(p, func(p *app.Process) { p.HealthCheck = app.HealthCheck{Type: app.CheckProcess} })
		w.daemon()
		w.wantState(p, runtime.Running)
		w.pass(time.Hour)
		w.wantRecords(p, 0)
	})
}

// Readiness withdraws and gives back, and never ends anything.
func TestReadinessOnlySteersRoutes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.Refuse(true)
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) {
			p.HealthCheck = app.HealthCheck{Type: app.CheckProcess}
			p.Readiness = app.HealthCheck{Type: app.CheckPort}
		})
		w.daemon()
		for i, refuse := range []bool{true, false, true} {
			w.fake.Last().Refuse(refuse)
			w.pass(time.Minute)
			if st := w.wantState(p, runtime.Running); st.Ready == refuse {
				t.Errorf("turn %d: ready = %v", i, st.Ready)
			}
		}
		w.wantRecords(p, 0)
		if len(w.logs.matching("passed the readiness")) != 1 || len(w.logs.matching("failed the readiness")) != 1 {
			t.Errorf("lines = %v", w.logs.lines())
		}
	})
}
