package supervisor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor"
)

// An instance that fails its liveness check is stopped, and its record gives that
// reason.
func TestUnhealthyInstanceEnds(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		container := w.fake.Last()
		w.pass(45 * time.Second)
		container.RefuseConnections(true)
		w.pass(w.untilCheck() - ms)
		w.wantState(p, runtime.Running)
		w.pass(time.Second - ms) // it has failed twice
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

// untilCheck returns the time until the next liveness check of the instance that was
// started or adopted last.
func (w *world) untilCheck() time.Duration {
	w.t.Helper()
	spec := w.fake.Last().Spec()
	first := supervisor.FirstCheck(spec.Instance, 30*time.Second)
	since := time.Since(spec.StartedAt)
	for first < since {
		first += 30 * time.Second
	}
	return first - since
}

// A failure that is followed by a success does not stop the instance. With
// --health-failures 1, as on the platform, it does.
func TestOneFailureIsNoCrash(t *testing.T) {
	t.Parallel()
	for failures, records := range map[int]int{0: 0, 1: 1} {
		inWorld(t, func(w *world) {
			w.policy.HealthFailures = failures
			p := w.push("sleep 1000")
			w.daemon()
			container := w.fake.Last()
			for range 10 {
				w.pass(w.untilCheck() - ms)
				container.RefuseConnections(true)
				w.pass(500 * ms) // two checks
				container.RefuseConnections(false)
				w.pass(time.Second)
			}
			if failures == 0 {
				w.wantRecords(p, records)
			} else if len(w.records(p)) < records {
				t.Error("no record, want one for a failed check")
			}
		})
	}
}

// Instances that are adopted together are not checked together, and each is checked
// within its interval.
func TestChecksAreSpread(t *testing.T) {
	const n, interval = 50, 30 * time.Second
	var seconds [interval / time.Second]int
	for range n {
		first := supervisor.FirstCheck(runtime.NewInstanceID(), interval)
		if first < 0 || first >= interval {
			t.Fatalf("first check after %s", first)
		}
		seconds[first/time.Second]++
	}
	if most := slices.Max(seconds[:]); most > n/3 {
		t.Errorf("checks by second: %v, want them spread", seconds)
	}
	id := runtime.NewInstanceID()
	if a, b := supervisor.FirstCheck(id, interval), supervisor.FirstCheck(id, interval); a != b {
		t.Errorf("first check of one instance after %s and %s, want the same", a, b)
	}
}

// An instance that cannot be checked is not stopped. After a minute its status says so,
// until it can be checked again.
func TestInstanceThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) { p.Readiness = app.HealthCheck{Type: app.CheckPort} })
		w.daemon()
		container := w.fake.Last()
		w.pass(time.Minute)
		began := time.Now()
		container.FailDial(errors.New("no network namespace"))
		w.pass(30 * time.Second)
		if st := w.wantState(p, runtime.Running); !st.HealthUnknown.Since.IsZero() || !st.ReadinessUnknown.Since.IsZero() {
			t.Errorf("status after 30 s = %+v, want nothing about the checks yet", st)
		}
		w.pass(10 * time.Minute)
		st := w.wantState(p, runtime.Running)
		for _, u := range []runtime.Unknown{st.HealthUnknown, st.ReadinessUnknown} {
			if u.Since.Before(began) || u.Since.After(began.Add(30*time.Second)) || u.Reason != "cannot run the port check: no network namespace" {
				t.Errorf("unknown = %+v", u)
			}
		}
		if !st.Ready {
			t.Error("the instance is no longer ready, want it as it was")
		}
		container.FailDial(nil)
		w.pass(time.Minute)
		if st := w.wantState(p, runtime.Running); st.HealthUnknown != (runtime.Unknown{}) || st.ReadinessUnknown != (runtime.Unknown{}) {
			t.Errorf("status = %+v, want nothing about the checks", st)
		}
		w.wantRecords(p, 0)
		if checks := w.sup.Stats().Checks; checks[runtime.CheckPassed] == 0 || checks[runtime.CheckUnchecked] < 600 || checks[runtime.CheckFailed] != 0 {
			t.Errorf("checks = %v", checks)
		}
	})
}

// A paused instance answers no requests. Its liveness check counts again when it
// resumes.
func TestPausedInstanceIsNotUnhealthy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		container := w.fake.Last()
		w.pass(time.Second)
		container.RefuseConnections(true)
		container.Pause(true)
		w.pass(10 * time.Minute)
		w.wantState(p, runtime.Running)
		w.wantStarts(1)
		container.Pause(false)
		w.pass(10 * time.Minute)
		if r := w.records(p); len(r) == 0 || r[0].First.Cause != runtime.CauseUnhealthy {
			t.Errorf("records = %v, want one of an unhealthy instance", r)
		}
	})
}

// The check uses its own port, otherwise the first port of the process.
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
			w.fake.RefuseConnections(true)
			w.daemon()
			w.pass(61 * time.Second)
			if rs := w.records(p); len(rs) == 0 || !strings.Contains(rs[0].Description, c.want) {
				t.Errorf("records = %v, want a check of %s", rs, c.want)
			}
		})
	}
}

// An instance that is not healthy before the timeout is stopped, and leaves a record.
func TestStartTimeout(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.RefuseConnections(true)
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

// With a process check the instance is healthy at once, and a sidecar that only hangs
// is not a crash.
func TestProcessCheckIsHealthyAtOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.RefuseConnections(true)
		p := w.push("sleep 1000", "sleep 1000")
		w.change(p, func(p *app.Process) { p.HealthCheck = app.HealthCheck{Type: app.CheckProcess} })
		w.daemon()
		w.wantState(p, runtime.Running)
		w.pass(time.Hour)
		w.wantRecords(p, 0)
	})
}

// The readiness check removes and restores routes, and never stops an instance.
func TestReadinessOnlySteersRoutes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.RefuseConnections(true)
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) {
			p.HealthCheck = app.HealthCheck{Type: app.CheckProcess}
			p.Readiness = app.HealthCheck{Type: app.CheckPort}
		})
		w.daemon()
		for i, refuse := range []bool{true, false, true} {
			w.fake.Last().RefuseConnections(refuse)
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
