package supervisor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

const (
	main  = runtime.MainExec
	sideA = "sidecar-0"
	sideB = "sidecar-1"
	ms    = time.Millisecond
)

// A desired process runs: one instance with main and its sidecars, with the same log
// lines as on the platform.
func TestDesiredProcessRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
		w.daemon()
		st := w.wantState(p, runtime.Running)
		container := w.fake.Last()
		if diff := cmp.Diff(container.Alive(), []string{main, sideA, sideB}); diff != "" {
			t.Errorf("processes (-got +want):\n%s", diff)
		}
		if st.Instance != container.Spec().Instance || !st.Instance.Valid() || st.Address.String() != "10.201.0.2" || !st.Ready {
			t.Errorf("status = %+v, want the instance that was started, ready, at 10.201.0.2", st)
		}
		if diff := cmp.Diff(w.logs.lines(), []string{
			"[CELL/0] OUT Creating container",
			"[CELL/0] OUT Successfully created container",
			"[CELL/0] OUT Starting health monitoring of container",
			"[CELL/0] OUT Container became healthy",
		}); diff != "" {
			t.Errorf("lines (-got +want):\n%s", diff)
		}
		w.pass(time.Hour)
		w.wantStarts(1)
	})
}

// A sidecar attaches only to the process types it lists.
func TestSidecarAttachesToItsTypes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		guid := w.push("sleep 1000", "sleep 1000")
		worker, err := w.registry.PutProcess(app.Process{App: guid, Type: "worker", Command: "sleep 1000", Instances: 1})
		w.must(err)
		w.daemon()
		w.wantState(worker.GUID, runtime.Running)
		for _, container := range w.fake.Containers() {
			want := map[string]int{"web": 2, "worker": 1}[container.Spec().Type]
			if got := len(container.Spec().Processes); got != want {
				t.Errorf("%s has %d processes, want %d", container.Spec().Type, got, want)
			}
		}
	})
}

// A missing command is a failed start, and the record keeps the exit status.
func TestCommandNotFound(t *testing.T) {
	t.Parallel()
	for _, check := range []string{app.CheckPort, app.CheckProcess} {
		inWorld(t, func(w *world) {
			p := w.push("./does-not-exist")
			w.change(p, func(p *app.Process) { p.HealthCheck = app.HealthCheck{Type: check} })
			w.daemon()
			w.pass(ms * 10)
			r := w.records(p)[0]
			if r.Description != "APP/PROC/WEB: Exited with status 127" || r.First.Cause != runtime.CauseStartFailed ||
				r.First.Detail != "the command was not found" {
				t.Errorf("%s: record = %+v", check, r)
			}
			w.state(p, app.Stopped)
			w.pass(time.Minute)
		})
	}
}

// A StartError of the engine becomes a record and counts as a crash.
func TestStartErrorIsARecord(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.FailStart(&runtime.StartError{
			Exec: sideA, Source: "APP/PROC/WEB/SIDECAR/X", Reason: "the folder is missing", Err: errBoom,
		})
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.pass(time.Second)
		rs := w.records(p)
		if len(rs) != 4 {
			t.Fatalf("%d records, want 4 before the first wait", len(rs))
		}
		for i, r := range rs {
			if r.Description != "APP/PROC/WEB/SIDECAR/X: cannot start: the folder is missing" ||
				r.First.Cause != runtime.CauseStartFailed || r.CrashCount != i+1 || !r.Complete {
				t.Errorf("record %d = %+v", i, r)
			}
		}
		w.wantState(p, runtime.Crashed)
		w.wantNothing()
	})
}

// A desired state that cannot become an instance is refused with a reason.
func TestDesiredStateThatCannotStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(a *app.App)
		want   string
	}{
		{func(a *app.App) { a.Droplet = "gone" }, "APP/PROC/WEB: cannot start: droplet gone does not exist: push the app again"},
		{func(a *app.App) { a.Stack = "windows" }, "APP/PROC/WEB: cannot start: cannot use the stack: there is no stack 'windows'"},
	} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000")
			_, err := w.registry.UpdateApp(p, func(a *app.App) error {
				c.change(a)
				return nil
			})
			w.must(err)
			w.daemon()
			if rs := w.records(p); len(rs) == 0 || rs[0].Description != c.want {
				t.Errorf("records = %+v, want %q", rs, c.want)
			}
			w.wantStarts(0)
		})
	}
}

// A container service that does not answer is not a crash. Nothing is counted, the
// start is tried again after growing delays, and it is logged once.
func TestUnavailableIsNoCrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var tries []time.Duration
		begin := time.Now()
		w.fake.OnStart(func(runtime.Spec) { tries = append(tries, time.Since(begin)/time.Second) })
		w.fake.FailStart(fmt.Errorf("cannot create container: %w", runtime.ErrUnavailable))
		p := w.push("sleep 1000")
		w.daemon()
		w.pass(2 * time.Minute)
		if diff := cmp.Diff(tries, []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}); diff != "" {
			t.Errorf("tries in seconds (-got +want):\n%s", diff)
		}
		st := w.wantState(p, runtime.Starting)
		if !strings.Contains(st.Details, "container service unavailable") {
			t.Errorf("details = %q", st.Details)
		}
		w.fake.FailStart(errBoom)
		w.pass(time.Minute)
		w.fake.FailStart(nil)
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantRecords(p, 0)
		w.wantLeases(1)
		if diff := cmp.Diff(w.logs.lines()[:4], []string{
			"[CELL/0] OUT Creating container",
			"[CELL/0] ERR cannot start instance: cannot create container: container service unavailable",
			"[CELL/0] ERR cannot start instance: boom",
			"[CELL/0] OUT Successfully created container",
		}); diff != "" {
			t.Errorf("lines (-got +want):\n%s", diff)
		}
	})
}

// A subnet without free addresses is not a crash either.
func TestNoAddressLeft(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.subnet = "10.201.0.0/30"
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) { p.Instances = 2 })
		w.daemon()
		states := map[runtime.State]int{}
		for _, st := range w.sup.Instances(p) {
			states[st.State]++
		}
		if states[runtime.Running] != 1 || states[runtime.Starting] != 1 {
			t.Errorf("states = %v, want one running, one starting", states)
		}
		if got := w.logs.matching("no free address in 10.201.0.0/30"); len(got) == 0 {
			t.Error("the app's log does not say that addresses ran out")
		}
		w.wantRecords(p, 0)
	})
}

// Three immediate restarts, then a delay of 30 s that doubles up to 16 min. The slot is
// given up after 200 crashes.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var starts []time.Time
		w.fake.OnStart(func(runtime.Spec) { starts = append(starts, time.Now()) })
		w.policy.MaxCrashes = 12
		p := w.push("exit 1")
		w.daemon()
		w.pass(24 * time.Hour)
		var waits []time.Duration
		for i := range starts[1:] {
			waits = append(waits, starts[i+1].Sub(starts[i]).Round(time.Second)/time.Second)
		}
		if diff := cmp.Diff(waits, []time.Duration{0, 0, 0, 30, 60, 120, 240, 480, 960, 960, 960}); diff != "" {
			t.Errorf("waits in seconds (-got +want):\n%s", diff)
		}
		st := w.wantState(p, runtime.Crashed)
		if !st.GivenUp || st.CrashCount != 12 || !st.NextStart.IsZero() {
			t.Errorf("status = %+v, want given up after 12", st)
		}
		w.daemon()
		w.pass(24 * time.Hour)
		if st := w.wantState(p, runtime.Crashed); !st.GivenUp || len(starts) != 12 {
			t.Errorf("after a new daemon: status %+v, %d starts, want given up still", st, len(starts))
		}
		w.sup.Restart(p)
		w.pass(time.Second)
		rs := w.records(p)
		if r := rs[len(rs)-1]; r.CrashCount != 4 || len(starts) != 16 {
			t.Errorf("after a restart: count %d, %d starts, want a count that began anew", r.CrashCount, len(starts))
		}
	})
}

// The default limit is 200 crashes, and they are counted across daemons.
func TestGivenUpAfter200(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("exit 1")
		proc, err := w.registry.Process(p)
		w.must(err)
		_, err = runtime.NewExitLog(w.db, 0).Add(runtime.ExitRecord{
			Slot: runtime.SlotID{Process: p}, Version: proc.Version, CrashCount: 197,
		})
		w.must(err)
		w.daemon()
		w.pass(24 * time.Hour)
		w.wantStarts(3)
		if st := w.wantState(p, runtime.Crashed); !st.GivenUp || st.CrashCount != 200 {
			t.Errorf("status = %+v, want given up after 200", st)
		}
	})
}

// The count starts over after 5 min in RUNNING, not before, even across daemons.
func TestHealthyInstanceResetsCrashCount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		health time.Duration
		away   bool
		want   int
	}{
		{5*time.Minute - time.Second, false, 2},
		{5*time.Minute + time.Second, false, 1},
		{5*time.Minute + time.Second, true, 1},
	} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000")
			w.daemon()
			w.fake.Last().End(main, 1)
			w.pass(10 * ms)
			w.pass(c.health)
			if c.away {
				w.stopDaemon()
				w.fake.Last().End(main, 1)
				w.daemon()
			} else {
				w.fake.Last().End(main, 1)
			}
			w.pass(time.Second)
			if rs := w.records(p); len(rs) != 2 || rs[1].CrashCount != c.want {
				t.Errorf("after %v of health (away: %v): records %+v, want count %d", c.health, c.away, rs, c.want)
			}
		})
	}
}

// A panic in one slot delays that slot and does not affect the others.
func TestPanicCostsOneSlot(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) { p.Instances = 2 })
		panics := 0
		w.fake.OnStart(func(s runtime.Spec) {
			if s.Slot.Index == 1 && panics < 3 {
				panics++
				panic("a bug")
			}
		})
		w.daemon()
		w.pass(2 * time.Second)
		all := w.sup.Instances(p)
		if all[0].State != runtime.Running || all[1].State == runtime.Running {
			t.Errorf("states = %s, %s, want the first running", all[0].State, all[1].State)
		}
		w.pass(10 * time.Second)
		if all := w.sup.Instances(p); all[1].State != runtime.Running {
			t.Errorf("state = %s, want running again", all[1].State)
		}
		if got := w.sup.Stats().Panics; got != 3 {
			t.Errorf("%d panics counted, want 3", got)
		}
		if got := w.slog.String(); !strings.Contains(got, "a bug") || !strings.Contains(got, "runtimetest") {
			t.Error("the panic and its stack are not in the daemon's log")
		}
	})
}

// A slot that panics while its instance is running continues with that instance.
func TestPanicDoesNotLoseTheInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		panics := 0
		w.onChange = func(st runtime.Status) {
			if st.State == runtime.Running && panics < 2 {
				panics++
				panic("a bug of the listener")
			}
		}
		p := w.push("sleep 1000")
		w.daemon()
		w.pass(10 * time.Second)
		w.wantState(p, runtime.Running)
		w.wantStarts(1)
		w.fake.Last().End(main, 1)
		w.pass(time.Second)
		w.wantRecords(p, 1)
		w.wantStarts(2)
	})
}

// The listener receives every state once, in order.
func TestListenerGetsTheStates(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var states []runtime.State
		w.onChange = func(st runtime.Status) {
			if len(states) == 0 || states[len(states)-1] != st.State {
				states = append(states, st.State)
			}
		}
		p := w.push("sleep 1000")
		w.daemon()
		w.fake.Last().End(main, 1)
		w.pass(time.Second)
		w.state(p, app.Stopped)
		w.pass(time.Second)
		if diff := cmp.Diff(states, []runtime.State{
			runtime.Starting, runtime.Running, runtime.Crashed, runtime.Starting, runtime.Running, runtime.Stopping, runtime.Down,
		}); diff != "" {
			t.Errorf("states (-got +want):\n%s", diff)
		}
	})
}

// A blocked Start of the engine is canceled after a time limit.
func TestStartHasALimit(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := w.fake.BlockStart()
		p := w.push("sleep 1000")
		w.daemon()
		w.pass(5*time.Minute + 100*ms)
		st := w.wantState(p, runtime.Starting)
		if !strings.Contains(st.Details, "deadline exceeded") {
			t.Errorf("details = %q, want the deadline", st.Details)
		}
		release()
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantRecords(p, 0)
	})
}

var _ error = (*runtime.StartError)(nil)

// A StartError unwraps to its cause.
func TestStartErrorUnwraps(t *testing.T) {
	t.Parallel()
	err := error(&runtime.StartError{Reason: "why", Err: errBoom})
	if !errors.Is(err, errBoom) || err.Error() != "cannot start: why" {
		t.Errorf("error = %v", err)
	}
}
