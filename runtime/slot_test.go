package runtime_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

const (
	main  = runtime.MainExec
	sideA = "sidecar-0"
	sideB = "sidecar-1"
	ms    = time.Millisecond
)

// A wished process runs: one instance with main and its sidecars, told to the
// log as on the platform.
func TestWishedProcessRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
		w.daemon()
		st := w.wantState(p, runtime.Running)
		task := w.fake.Last()
		if diff := cmp.Diff(task.Alive(), []string{main, sideA, sideB}); diff != "" {
			t.Errorf("processes (-got +want):\n%s", diff)
		}
		if st.Instance != task.Spec().Instance || !st.Instance.Valid() || st.Address.String() != "10.201.0.2" || !st.Ready {
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
		for _, task := range w.fake.Tasks() {
			want := map[string]int{"web": 2, "worker": 1}[task.Spec().Type]
			if got := len(task.Spec().Processes); got != want {
				t.Errorf("%s has %d processes, want %d", task.Spec().Type, got, want)
			}
		}
	})
}

// A sidecar that ends takes the instance with it: last lines and record in one
// batch, record stored, the others ended, then a new instance.
func TestSidecarEndCrashesTheInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		task := w.fake.Last()
		task.Print(sideA, "my last words")
		task.Print(main, "goodbye")
		at := time.Now()
		task.End(sideA, 137)
		w.pass(time.Second)

		r := w.record(p)
		source := "APP/PROC/WEB/SIDECAR/CONFIG SERVER A"
		if r.Description != source+": Exited with status 137" || r.CrashCount != 1 || !r.CrashedAt.Equal(at) ||
			r.Phase != runtime.PhaseRunning || r.ProbableSignal != 9 || r.Order != "" || !r.Complete ||
			r.Instance != task.Spec().Instance || r.Cell != "cell-1" || !r.NextStart.Equal(at) {
			t.Errorf("record = %+v", r)
		}
		if r.First.Cause != runtime.CauseExited || r.First.Memory.Limit != 32<<20 || r.First.Memory.Peak == 0 {
			t.Errorf("first = %+v, want cause exited with its memory", r.First)
		}
		var followers []string
		for _, f := range r.Followers {
			followers = append(followers, fmt.Sprintf("%s %d %s", f.Exec, f.Code, f.Cause))
		}
		if diff := cmp.Diff(followers, []string{"main 143 peer_exited", sideB + " 143 peer_exited"}); diff != "" {
			t.Errorf("followers (-got +want):\n%s", diff)
		}
		batch := w.logs.batchOf("my last words")
		if len(batch) != 2 || string(batch[1].Text) != r.Line() ||
			batch[1].Source != (logstream.Source{Type: "API"}) || batch[1].Stream != logstream.Out {
			t.Errorf("batch = %v, want the last line and the record", batch)
		}
		if want := []runtime.Lines{
			{Exec: sideA, From: batch[0].Seq, To: batch[0].Seq},
			{Exec: main, From: w.logs.batchOf("goodbye")[0].Seq, To: w.logs.batchOf("goodbye")[0].Seq},
		}; !slices.Equal(r.Lines, want) {
			t.Errorf("sequence ranges = %v, want %v", r.Lines, want)
		}
		if diff := cmp.Diff(w.fake.Calls(), []string{
			"reap " + sideA, "signal terminated main " + sideB, "reap main", "reap " + sideB, "delete",
		}); diff != "" {
			t.Errorf("calls (-got +want):\n%s", diff)
		}
		st := w.wantState(p, runtime.Running)
		if st.Instance == task.Spec().Instance {
			t.Error("the new instance has the id of the old one")
		}
		w.wantStarts(2)
		w.wantLeases(1)
	})
}

// Any exit counts, of main and of a sidecar, also a clean one.
func TestAnyExitCounts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		n := 0
		for _, exec := range []string{main, sideA} {
			for _, code := range []int{0, 3, 137, 139, 143} {
				w.pass(10 * time.Minute) // long enough for the count to start over
				w.fake.Last().End(exec, code)
				w.pass(time.Second)
				n++
				rs := w.records(p)
				if len(rs) != n {
					t.Fatalf("%s %d: %d records, want %d", exec, code, len(rs), n)
				}
				r := rs[n-1]
				if r.First.Exec != exec || r.CrashCount != 1 || !strings.HasSuffix(r.Description, fmt.Sprintf(": Exited with status %d", code)) {
					t.Errorf("%s %d: count %d, description %q", exec, code, r.CrashCount, r.Description)
				}
				w.wantStarts(n + 1)
			}
		}
	})
}

// The record does not wait for the others, and the next instance does.
func TestRecordDoesNotWaitForTheOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		task := w.fake.Last()
		task.Deafen(main, syscall.SIGTERM)
		task.End(sideA, 1)
		w.pass(5 * ms)
		w.wantRecords(p, 1)
		st := w.wantState(p, runtime.Crashed)
		if !strings.Contains(st.Details, "SIDECAR/CONFIG SERVER A: Exited with status 1") || st.Ready {
			t.Errorf("status = %+v, want the description, not ready", st)
		}
		if w.record(p).Complete {
			t.Error("the record is complete although main lives")
		}
		w.pass(10*time.Second - ms)
		w.wantStarts(1)
		w.pass(ms)
		w.wantStarts(2)
		r := w.record(p)
		if len(r.Followers) != 1 || r.Followers[0].Code != 137 || !r.Complete {
			t.Errorf("followers = %+v, want main killed", r.Followers)
		}
	})
}

// Exits closer than 5 ms have no order: one record with both, a sidecar first.
func TestExitsTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gap   time.Duration
		first string
		order runtime.Order
	}{
		{0, sideA, runtime.OrderTogether},
		{3 * ms, sideA, runtime.OrderTogether},
		{20 * ms, main, ""},
	} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
			w.daemon()
			w.pass(time.Minute)
			task := w.fake.Last()
			for _, e := range []string{main, sideA, sideB} {
				task.Deafen(e, syscall.SIGTERM)
			}
			task.End(main, 1)
			time.Sleep(c.gap)
			task.End(sideA, 2)
			w.pass(time.Minute)
			r := w.record(p)
			if r.First.Exec != c.first || r.Order != c.order || len(r.Followers) != 2 {
				t.Errorf("gap %v: first %s, order %q, %d followers, want %s, %q, 2", c.gap, r.First.Exec, r.Order, len(r.Followers), c.first, c.order)
			}
			if c.order == runtime.OrderTogether && r.Followers[0].Cause != runtime.CauseExited {
				t.Errorf("gap %v: the other one's cause is %s, want its own", c.gap, r.Followers[0].Cause)
			}
			w.wantRecords(p, 1)
			w.wantStarts(2)
		})
	}
}

// The record comes 5 ms after the death, not later.
func TestRecordComesAfterTheWindow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		task := w.fake.Last()
		died := time.Now()
		w.pass(2 * ms) // it becomes known a little late
		task.EndAt(sideA, 1, died)
		w.pass(0)
		if st := w.wantState(p, runtime.Crashed); st.Ready { // routes do not wait for the record
			t.Error("a crashed instance is ready")
		}
		w.pass(2 * ms)
		w.wantRecords(p, 0)
		w.pass(ms)
		w.wantRecords(p, 1)
	})
}

// An exit that becomes known long after the record does not change the line, but
// the stored record says that the order was another one.
func TestEarlierExitKnownLate(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		task := w.fake.Last()
		task.Deafen(sideA, syscall.SIGTERM)
		w.pass(time.Minute)
		died := time.Now()
		w.pass(20 * ms)
		task.End(main, 1)
		w.pass(40 * ms)
		task.EndAt(sideA, 2, died)
		w.pass(time.Second)
		if r := w.record(p); r.First.Exec != main || r.Order != runtime.OrderLate || r.Followers[0].Cause != runtime.CauseExited {
			t.Errorf("first %s, order %q, follower %s, want main, late, exited", r.First.Exec, r.Order, r.Followers[0].Cause)
		}
	})
}

// Out of memory is said of the leaf that had it and of no other.
func TestOutOfMemoryNamesItsLeaf(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.fake.Last().OOM(sideA)
		w.pass(time.Second)
		r := w.record(p)
		if !strings.HasSuffix(r.Description, "SIDECAR/CONFIG SERVER A: Exited with status 137 (out of memory)") ||
			r.First.Cause != runtime.CauseOutOfMemory || r.First.Memory.Peak != 32<<20 || r.Followers[0].OOM {
			t.Errorf("record = %+v", r)
		}
		if got := w.sup.Stats(); got.Crashes[runtime.CauseOutOfMemory] != 1 || got.Restarts[runtime.CauseOutOfMemory] != 1 || got.Starts != 2 {
			t.Errorf("stats = %+v, want one restart for memory", got)
		}
	})
}

// When the container's own first process or its shim is gone, that is the cause.
func TestContainerEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end   func(w *world)
		cause runtime.Cause
		text  string
	}{
		{func(w *world) { w.fake.Last().EndInit() }, runtime.CauseInitExited, "Container ended: its first process exited"},
		{func(w *world) { w.fake.Last().Lose() }, runtime.CauseRuntimeLost, "Container lost: its shim is gone"},
		{func(w *world) { w.fake.Last().CloseExits() }, runtime.CauseRuntimeLost, "Container lost: its shim is gone"},
	} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000")
			w.daemon()
			c.end(w)
			w.pass(10 * time.Second) // what is not known to have ended cannot be reaped in time
			r := w.record(p)
			if r.First.Cause != c.cause || !strings.Contains(r.Description, c.text) {
				t.Errorf("cause %s, description %q, want %s, %q", r.First.Cause, r.Description, c.cause, c.text)
			}
			if r.First.Cause == runtime.CauseInitExited && (r.First.Exec != runtime.InitExec || len(r.Followers) != 2) {
				t.Errorf("first %s, %d followers, want the first process and two that followed", r.First.Exec, len(r.Followers))
			}
			if strings.Contains(strings.Join(w.fake.Calls(), ","), "reap init") {
				t.Error("the first process was reaped, it has no output")
			}
			if got := w.logs.matching("Stopping instance"); len(got) != 0 {
				t.Errorf("lines = %v, want none: nobody was left to be stopped", got)
			}
			w.wantStarts(2)
			w.wantLeases(1)
		})
	}
}

// A reap that takes too long costs the record its last lines, not the log: they
// come after it.
func TestSlowReapDoesNotLoseTheRecord(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		task := w.fake.Last()
		task.Print(sideA, "slow words")
		task.Deafen(main, syscall.SIGTERM)
		release := task.HoldReap(sideA)
		task.End(sideA, 1)
		w.pass(5*ms + 2*time.Second - ms)
		w.wantRecords(p, 0)
		w.pass(ms)
		w.wantRecords(p, 1)
		release()
		w.pass(time.Minute)
		w.wantRecords(p, 1)
		lines := w.logs.lines()
		record := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "App instance exited") })
		words := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "slow words") })
		if words < record {
			t.Errorf("lines = %v, want the slow words after the record", lines)
		}
		if !strings.Contains(w.slog.String(), "cannot read the last lines yet") {
			t.Error("the slow reap is not in the daemon's log")
		}
		w.wantStarts(2)
	})
}

// What the log refuses does not take the record along.
func TestRecordSurvivesLinesThatTheLogRefuses(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		w.logs.refuse = func(es []logstream.Envelope) error {
			if len(es) > 1 {
				return errBoom
			}
			return nil
		}
		task := w.fake.Last()
		task.Print(main, "bad line")
		task.End(main, 1)
		w.pass(time.Second)
		w.wantRecords(p, 1)
	})
}

// Processes that survive SIGKILL hold nothing up for ever.
func TestProcessThatDoesNotDie(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.fake.Last().Deafen(main, syscall.SIGTERM, syscall.SIGKILL)
		w.fake.Last().End(sideA, 1)
		w.pass(20 * time.Second)
		w.wantStarts(1)
		w.pass(10 * ms)
		w.wantStarts(2)
		if !strings.Contains(w.slog.String(), "processes do not end") {
			t.Error("giving up is not in the daemon's log")
		}
		if w.record(p).Complete {
			t.Error("the record is complete although main was never seen to end")
		}
	})
}

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

// A command that is not there is a start failure, and keeps its status.
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

// An engine that says it can never start is believed: a record, counted.
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

// A wish that cannot become an instance is refused with a reason.
func TestWishThatCannotStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(a *app.App)
		want   string
	}{
		{func(a *app.App) { a.Droplet = "gone" }, "APP/PROC/WEB: cannot start: its droplet gone is gone: push the app again"},
		{func(a *app.App) { a.Stack = "windows" }, "APP/PROC/WEB: cannot start: its stack cannot be used: there is no stack 'windows'"},
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

// A container service that does not answer is no crash: nothing is counted, it
// is asked again after growing waits, and said once.
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

// A subnet without addresses left is no crash either.
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

// Three immediate restarts, then 30 s doubling to 16 min, given up after 200.
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

// 200 crashes are the default, and they are counted across daemons.
func TestGivenUpAfter200(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("exit 1")
		proc, err := w.registry.Process(p)
		w.must(err)
		_, err = runtime.NewExitLog(w.db).Add(runtime.ExitRecord{
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

// After 5 min of health the count starts over, not before; also across daemons.
func TestHealthForgives(t *testing.T) {
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
				w.leave()
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

// Every order in which three processes die ends in the same state: a record that
// names the first and knows all, and a new instance.
func TestEveryOrderOfDeaths(t *testing.T) {
	t.Parallel()
	for _, order := range permutations(main, sideA, sideB) {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
			w.daemon()
			task := w.fake.Last()
			for _, exec := range order {
				task.Deafen(exec, syscall.SIGTERM, syscall.SIGKILL)
			}
			for i, exec := range order {
				task.End(exec, i)
				time.Sleep(20 * ms)
			}
			w.pass(time.Minute)
			r := w.record(p)
			known := []string{r.First.Exec}
			for _, f := range r.Followers {
				known = append(known, f.Exec)
			}
			if diff := cmp.Diff(known, order); diff != "" || !r.Complete {
				t.Errorf("complete %v, order of the record (-got +want):\n%s", r.Complete, diff)
			}
			w.wantState(p, runtime.Running)
			w.wantStarts(2)
			w.wantLeases(1)
		})
	}
}

// Every order in which three processes obey a stop ends in the same state.
func TestEveryOrderOfStopping(t *testing.T) {
	t.Parallel()
	for _, order := range permutations(main, sideA, sideB) {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
			w.daemon()
			task := w.fake.Last()
			for _, exec := range order {
				task.Deafen(exec, syscall.SIGTERM)
			}
			w.state(p, app.Stopped)
			w.wantState(p, runtime.Stopping)
			for i, exec := range order {
				w.pass(time.Second)
				task.End(exec, i)
			}
			w.pass(time.Second)
			if got := w.sup.Instances(p); len(got) != 0 {
				t.Errorf("order %v: slots %+v, want none", order, got)
			}
			w.wantRecords(p, 0)
			w.wantNothing()
		})
	}
}

// Every order in which three processes come to their end at the start, whoever
// it is, ends in the same state.
func TestEveryOrderOfStarting(t *testing.T) {
	t.Parallel()
	for _, commands := range permutations("exit 1", "sleep 1000", "echo hello; sleep 1000") {
		inWorld(t, func(w *world) {
			w.policy.MaxCrashes = 1
			p := w.push(commands[0], commands[1], commands[2])
			w.daemon()
			w.pass(time.Minute)
			dead := []string{main, sideA, sideB}[slices.Index(commands, "exit 1")]
			r := w.record(p)
			if r.First.Exec != dead || len(r.Followers) != 2 || !r.Complete {
				t.Errorf("commands %v: first %s, %d followers, want %s and 2", commands, r.First.Exec, len(r.Followers), dead)
			}
			w.wantState(p, runtime.Crashed)
			w.wantNothing()
		})
	}
}

func permutations(of ...string) [][]string {
	if len(of) == 0 {
		return [][]string{nil}
	}
	var out [][]string
	for i := range of {
		rest := slices.Delete(slices.Clone(of), i, i+1)
		for _, p := range permutations(rest...) {
			out = append(out, append([]string{of[i]}, p...))
		}
	}
	return out
}

// A stop sends SIGTERM, after 10 s SIGKILL, deletes, and leaves no record.
func TestStop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000", "sleep 1000")
		w.daemon()
		task := w.fake.Last()
		task.Print(main, "not yet")
		w.state(p, app.Stopped)
		st := w.wantState(p, runtime.Stopping)
		if st.Ready {
			t.Error("a stopping instance is ready")
		}
		w.pass(10*time.Second - ms)
		w.wantState(p, runtime.Stopping)
		w.pass(ms)
		if got := w.sup.Instances(p); len(got) != 0 {
			t.Errorf("slots = %+v, want none", got)
		}
		if diff := cmp.Diff(w.fake.Calls(), []string{
			"signal terminated main " + sideA, "reap " + sideA, "signal killed main", "reap main", "delete",
		}); diff != "" {
			t.Errorf("calls (-got +want):\n%s", diff)
		}
		if diff := cmp.Diff(w.logs.lines()[4:], []string{
			"[CELL/0] OUT Stopping instance " + string(task.Spec().Instance),
			"[APP/PROC/WEB/0] OUT not yet",
			"[CELL/0] OUT Destroying container",
			"[CELL/0] OUT Successfully destroyed container",
		}); diff != "" {
			t.Errorf("lines (-got +want):\n%s", diff)
		}
		w.wantRecords(p, 0)
		w.wantNothing()
		w.pass(time.Hour)
		w.wantStarts(1)
	})
}

// What is being stopped, or ends in the same moment, did not crash.
func TestExitWhileStoppingIsNoCrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000", "trap '' TERM; sleep 1000")
		w.daemon()
		task := w.fake.Last()
		_, err := w.registry.UpdateApp(p, func(a *app.App) error {
			a.State = app.Stopped
			return nil
		})
		w.must(err)
		synctest.Wait()
		task.OOM(main)
		task.End(sideA, 3)
		w.pass(time.Minute)
		w.wantRecords(p, 0)
		w.wantNothing()
	})
}

// When a process ends and the app is stopped before anybody looked, the stop
// counts, whichever is seen first.
func TestExitAndStopInTheSameMoment(t *testing.T) {
	t.Parallel()
	for range 8 { // a select of both goes either way
		inWorld(t, func(w *world) {
			held := make(chan struct{})
			w.onChange = func(st runtime.Status) {
				if st.Ready {
					<-held // the slot looks away
				}
			}
			p := w.push("sleep 1000")
			w.daemon()
			w.fake.Last().End(main, 1)
			w.state(p, app.Stopped)
			close(held)
			w.pass(time.Minute)
			w.wantRecords(p, 0)
			w.wantNothing()
		})
	}
}

// A clock that was set back does not postpone the next start.
func TestExitFromTheFuture(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		w.fake.Last().EndAt(main, 1, time.Now().Add(time.Hour))
		w.pass(time.Second)
		w.wantRecords(p, 1)
		w.wantStarts(2)
	})
}

// A start that is under way is given up when the app is stopped.
func TestStopDuringStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		release := w.fake.BlockStart()
		defer release()
		w.daemon()
		w.wantState(p, runtime.Starting)
		w.state(p, app.Stopped)
		if got := w.sup.Instances(p); len(got) != 0 {
			t.Errorf("slots = %+v, want none", got)
		}
		w.wantRecords(p, 0)
		w.wantNothing()
	})
}

// So is the wait for a container service, and the back-off.
func TestStopDuringWaits(t *testing.T) {
	t.Parallel()
	for _, err := range []error{runtime.ErrUnavailable, &runtime.StartError{Reason: "never"}} {
		inWorld(t, func(w *world) {
			w.fake.FailStart(err)
			p := w.push("sleep 1000")
			w.daemon()
			w.pass(20 * time.Second)
			w.state(p, app.Stopped)
			if got := w.sup.Instances(p); len(got) != 0 {
				t.Errorf("%v: slots = %+v, want none", err, got)
			}
			w.wantNothing()
			w.fake.FailStart(nil)
			w.state(p, app.Started)
			w.wantState(p, runtime.Running)
			w.fake.Last().End(main, 1)
			w.pass(time.Second)
			rs := w.records(p)
			if r := rs[len(rs)-1]; r.CrashCount != 1 {
				t.Errorf("%v: crash count %d after stop and start, want 1", err, r.CrashCount)
			}
		})
	}
}

// A stop while followers end takes over: STOPPING, then gone, no new instance.
func TestStopWhileFollowersEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000", "sleep 1000")
		w.daemon()
		w.fake.Last().End(sideA, 1)
		w.pass(time.Second)
		w.wantState(p, runtime.Crashed)
		w.state(p, app.Stopped)
		w.wantState(p, runtime.Stopping)
		w.pass(time.Minute)
		w.wantRecords(p, 1)
		w.wantStarts(1)
		w.wantNothing()
	})
}

// An app that is started while it still stops starts when that is done.
func TestStartWhileStopping(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000")
		w.daemon()
		w.state(p, app.Stopped)
		w.state(p, app.Started)
		w.wantStarts(1)
		w.pass(10 * time.Second)
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
		w.wantRecords(p, 0)
	})
}

// A deletion that fails is tried again: until it works when the service did not
// answer, a few times when it says no.
func TestDeleteIsTriedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		task := w.fake.Last()
		task.FailDelete(runtime.ErrUnavailable)
		task.End(main, 1)
		w.pass(time.Hour)
		w.wantStarts(1)
		w.wantState(p, runtime.Crashed)
		task.FailDelete(nil)
		w.pass(30 * time.Second)
		w.wantStarts(2)

		task = w.fake.Last()
		task.FailDelete(errBoom)
		task.End(main, 1)
		w.pass(time.Minute)
		w.wantStarts(3)
		w.wantLeases(2) // the address of what is still there is not given to another
	})
}

// A panic in one slot costs that slot a pause and the others nothing.
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

// A slot that panics while its instance lives goes on with that instance.
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

// The listener hears every state once, in order.
func TestListenerHearsTheStates(t *testing.T) {
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

// A hang of the engine's Start ends by itself.
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

// A StartError gives what lies behind it.
func TestStartErrorUnwraps(t *testing.T) {
	t.Parallel()
	err := error(&runtime.StartError{Reason: "why", Err: errBoom})
	if !errors.Is(err, errBoom) || err.Error() != "cannot start: why" {
		t.Errorf("error = %v", err)
	}
}
