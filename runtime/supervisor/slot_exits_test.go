package supervisor_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// A sidecar that exits crashes the instance. Last lines and record are written in one
// batch, the record is stored, the other processes are stopped, and a new instance
// starts.
func TestSidecarEndCrashesTheInstance(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000", "sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		container := w.fake.Last()
		container.Print(sideA, "my last words")
		container.Print(main, "goodbye")
		at := time.Now()
		container.End(sideA, 137)
		w.pass(time.Second)

		r := w.record(p)
		source := "APP/PROC/WEB/SIDECAR/CONFIG SERVER A"
		if r.Description != source+": Exited with status 137" || r.CrashCount != 1 || !r.CrashedAt.Equal(at) ||
			r.Phase != runtime.PhaseRunning || r.ProbableSignal != 9 || r.Order != "" || !r.Complete ||
			r.Instance != container.Spec().Instance || r.Cell != "cell-1" || !r.NextStart.Equal(at) {
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
		if after := w.logs.batchOf("killed by SIGKILL from an unknown sender"); len(after) != 1 || after[0].Source.Type != "CELL" || string(after[0].Text) != r.LogSentence() {
			t.Errorf("after the record: %v, want its explanation", after)
		}
		if want := []runtime.Output{{Exec: main, Stdout: []string{"goodbye"}}, {Exec: sideA, Stdout: []string{"my last words"}}}; !cmp.Equal(r.Output, want) {
			t.Errorf("output = %v, want %v", r.Output, want)
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
		if st.Instance == container.Spec().Instance {
			t.Error("the new instance has the id of the old one")
		}
		w.wantStarts(2)
		w.wantLeases(1)
	})
}

// Any exit of main or of a sidecar is a crash, even with status 0.
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

// The record does not wait for the other processes, but the next instance does.
func TestRecordDoesNotWaitForTheOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		container := w.fake.Last()
		container.IgnoreSignals(main, syscall.SIGTERM)
		container.End(sideA, 1)
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

// Exits closer than 5 ms are simultaneous: one record has both, the sidecar first.
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
			container := w.fake.Last()
			for _, e := range []string{main, sideA, sideB} {
				container.IgnoreSignals(e, syscall.SIGTERM)
			}
			container.End(main, 1)
			time.Sleep(c.gap)
			container.End(sideA, 2)
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

// The record is written 5 ms after the exit, not later.
func TestRecordComesAfterTheWindow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		container := w.fake.Last()
		died := time.Now()
		w.pass(2 * ms) // the exit is reported a little late
		container.EndAt(sideA, 1, died)
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

// An exit that becomes known long after the record does not change the line. The stored
// record says that the order was different.
func TestEarlierExitKnownLate(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		container := w.fake.Last()
		container.IgnoreSignals(sideA, syscall.SIGTERM)
		w.pass(time.Minute)
		died := time.Now()
		w.pass(20 * ms)
		container.End(main, 1)
		w.pass(40 * ms)
		container.EndAt(sideA, 2, died)
		w.pass(time.Second)
		if r := w.record(p); r.First.Exec != main || r.Order != runtime.OrderLate || r.Followers[0].Cause != runtime.CauseExited {
			t.Errorf("first %s, order %q, follower %s, want main, late, exited", r.First.Exec, r.Order, r.Followers[0].Cause)
		}
	})
}

// Only the leaf with the OOM kill is reported as out of memory.
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

// If the container's own first process or its shim is gone, that is the cause.
func TestContainerEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end   func(w *world)
		cause runtime.Cause
		text  string
	}{
		{func(w *world) { w.fake.Last().EndInit() }, runtime.CauseInitExited, "Container ended: its first process exited"},
		{func(w *world) { w.fake.Last().LoseShim() }, runtime.CauseRuntimeLost, "Container lost: its shim is gone"},
		{func(w *world) { w.fake.Last().CloseExits() }, runtime.CauseRuntimeLost, "Container lost: its shim is gone"},
	} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000")
			w.daemon()
			c.end(w)
			w.pass(10 * time.Second) // a process without a known exit cannot be reaped in time
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

// If a reap takes too long, the record has no last lines. They follow it in the log.
func TestSlowReapDoesNotLoseTheRecord(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		container := w.fake.Last()
		container.Print(sideA, "slow words")
		container.IgnoreSignals(main, syscall.SIGTERM)
		release := container.HoldReap(sideA)
		container.End(sideA, 1)
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
		if !strings.Contains(w.slog.String(), "cannot read the last log lines yet") {
			t.Error("the slow reap is not in the daemon's log")
		}
		w.wantStarts(2)
	})
}

// The record is stored even if the log refuses its lines.
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
		container := w.fake.Last()
		container.Print(main, "bad line")
		container.End(main, 1)
		w.pass(time.Second)
		w.wantRecords(p, 1)
	})
}

// Processes that survive SIGKILL do not block the slot forever.
func TestProcessThatDoesNotDie(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.fake.Last().IgnoreSignals(main, syscall.SIGTERM, syscall.SIGKILL)
		w.fake.Last().End(sideA, 1)
		w.pass(20 * time.Second)
		w.wantStarts(1)
		w.pass(10 * ms)
		w.wantStarts(2)
		if !strings.Contains(w.slog.String(), "processes do not exit") {
			t.Error("giving up is not in the daemon's log")
		}
		if w.record(p).Complete {
			t.Error("the record is complete although main was never seen to end")
		}
	})
}

// A clock that was set back does not delay the next start.
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

// An instance that the cluster removed has a record, starts again at once, and does not
// count as a crash.
func TestRemovalIsNotCounted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		newest := func() runtime.ExitRecord {
			rs := w.records(p)
			return slices.MaxFunc(rs, func(a, b runtime.ExitRecord) int { return int(a.Number) - int(b.Number) })
		}
		end := func(cause runtime.Cause, detail string) {
			c := w.fake.Last()
			for _, exec := range []string{sideA, main} {
				c.EndWith(runtime.Exit{Exec: exec, Code: 143, Cause: cause, Detail: detail, At: time.Now()})
			}
			w.pass(time.Second)
		}
		end(runtime.CauseExited, "")
		if r := newest(); r.CrashCount != 1 || r.First.Exec != sideA {
			t.Fatalf("record = %+v, want a crash of the sidecar", r)
		}
		for range 5 {
			before := w.fake.Last()
			end(runtime.CauseRemoved, "someone evicted it")
			r := newest()
			if r.CrashCount != 1 || !r.NextStart.Equal(r.CrashedAt) || r.GivenUp || !r.Complete || r.First.Exec != main ||
				r.Description != "APP/PROC/WEB: Container removed: someone evicted it" {
				t.Fatalf("record = %+v, want a removal that does not count", r)
			}
			if w.fake.Last() == before {
				t.Fatal("no new instance was started")
			}
		}
		end(runtime.CauseExited, "")
		if r := newest(); r.CrashCount != 2 {
			t.Errorf("crash count = %d, want 2", r.CrashCount)
		}
	})
}

// While the cluster removes an instance, no route leads to it, whatever its checks say.
func TestRemovalEndsRoutes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		if st := w.status(p); !st.Ready {
			t.Fatalf("status = %+v, want ready", st)
		}
		c := w.fake.Last()
		c.Leave()
		w.pass(time.Second)
		if st := w.status(p); st.Ready || st.State != runtime.Running {
			t.Errorf("status = %+v, want running and not ready", st)
		}
		w.wantRecords(p, 0)
		for _, exec := range []string{sideA, main} {
			c.EndWith(runtime.Exit{Exec: exec, Code: 143, Cause: runtime.CauseRemoved, Detail: "someone evicted it", At: time.Now()})
		}
		w.pass(time.Minute)
		if st := w.status(p); !st.Ready || st.Instance == c.Spec().Instance {
			t.Errorf("status = %+v, want the next instance", st)
		}
		w.wantRecords(p, 1)
	})
}

// If the log refuses the exit line, it is written once later, when the other processes
// have exited.
func TestExitLineOutlivesAFailingDisk(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		w.fake.Last().IgnoreSignals(sideA, syscall.SIGTERM)
		failing := true
		w.logs.refuse = func([]logstream.Envelope) error {
			if failing {
				return syscall.EROFS
			}
			return nil
		}
		w.fake.Last().End(main, 1)
		w.pass(time.Second)
		w.logs.mu.Lock()
		failing = false
		w.logs.mu.Unlock()
		w.pass(time.Minute)
		r := w.record(p)
		n := 0
		for _, line := range w.logs.lines() {
			if strings.HasSuffix(line, r.Line()) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("exit lines = %d, want 1:\n%s", n, strings.Join(w.logs.lines(), "\n"))
		}
	})
}

// exitLines returns the positions of the exit line of r in the log.
func (w *world) exitLines(r runtime.ExitRecord) (at []int) {
	for i, line := range w.logs.lines() {
		if strings.HasSuffix(line, r.Line()) {
			at = append(at, i)
		}
	}
	return at
}

// failLogs makes the log refuse all lines until the returned function is called.
func (w *world) failLogs() (repair func()) {
	set := func(refuse func([]logstream.Envelope) error) {
		w.logs.mu.Lock()
		defer w.logs.mu.Unlock()
		w.logs.refuse = refuse
	}
	set(func([]logstream.Envelope) error { return syscall.EIO })
	return func() { set(nil) }
}

// A daemon whose log refuses the exit line is killed. The next daemon writes the line once,
// before the lines of the next instance, and so does a daemon after it.
func TestNextDaemonWritesTheMissingExitLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refused bool // the start of the instance was refused, so it never had a container
		written bool // the first daemon is killed after the line is written and before it stored that
	}{
		"container": {}, "no container": {refused: true}, "written": {written: true}, "no container, written": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				p := w.push("sleep 1000")
				if c.refused {
					w.fake.FailStart(&runtime.StartError{Reason: "no such command"})
				} else {
					w.daemon()
				}
				repair := w.failLogs()
				if c.refused {
					w.daemon()
				} else {
					w.fake.Last().End(main, 1)
				}
				w.pass(time.Minute)
				r := w.record(p)
				if !r.Unlogged || len(w.exitLines(r)) != 0 {
					t.Fatalf("record = %+v, want one without a line:\n%s", r, strings.Join(w.logs.lines(), "\n"))
				}
				w.stopDaemon()
				repair()
				if c.written {
					w.must(w.logs.Append(r.App, r.Envelope()))
				}
				before := len(w.logs.lines())
				w.fake.FailStart(nil)
				for range 2 {
					w.daemon()
					w.pass(time.Minute)
				}
				at := w.exitLines(r)
				next := slices.IndexFunc(w.logs.lines()[before:], func(l string) bool { return strings.Contains(l, "Creating container") })
				if len(at) != 1 || next < 0 || at[0] > before+next {
					t.Errorf("the exit line is at %v, want it once, before line %d:\n%s", at, before+next, strings.Join(w.logs.lines(), "\n"))
				}
				w.wantState(p, runtime.Running)
				if r := w.record(p); r.Unlogged {
					t.Error("the record still says that its line is missing")
				}
			})
		})
	}
}

// A daemon can be killed at any time. If a start was refused, no container tells the next
// daemon about it, so the record must be stored when the exit line is written.
func TestRecordOfRefusedStartIsStoredBeforeItsLine(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.fake.FailStart(&runtime.StartError{Reason: "no such command"})
		lines := 0
		w.logs.refuse = func(es []logstream.Envelope) error {
			for _, e := range es {
				if !strings.Contains(string(e.Text), "App instance exited") {
					continue
				}
				lines++
				if rs := w.records(p); len(rs) != lines || !rs[lines-1].Unlogged || !rs[lines-1].Complete {
					t.Errorf("%d records are stored at exit line %d, want one each that says that its line is missing", len(rs), lines)
				}
			}
			return nil
		}
		w.daemon()
		w.pass(30 * time.Second)
		if lines < 2 {
			t.Errorf("%d exit lines, want some", lines)
		}
		w.wantRecords(p, lines)
		for _, r := range w.records(p) {
			if r.Unlogged {
				t.Errorf("the record of %s says that its line is missing", r.Instance)
			}
		}
	})
}

// The next instance waits until the log accepts the exit line of the one before it. A
// requested stop does not wait, and the line is written at the next start.
func TestNextInstanceComesAfterTheExitLine(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000", "sleep 1000")
			w.daemon()
			w.pass(time.Minute)
			before := len(w.logs.lines())
			repair := w.failLogs()
			w.fake.Last().End(main, 1)
			w.pass(10 * time.Minute)
			w.wantStarts(1)
			if stop {
				w.state(p, app.Stopped)
				w.pass(time.Minute)
				w.wantNothing()
				repair()
				w.state(p, app.Started)
			}
			repair() // the second call has no effect
			w.pass(time.Minute)
			w.wantStarts(2)
			at := w.exitLines(w.record(p))
			next := slices.IndexFunc(w.logs.lines()[before:], func(l string) bool { return strings.Contains(l, "Creating container") })
			if len(at) != 1 || next < 0 || at[0] > before+next {
				t.Errorf("the exit line is at %v, want it once, before line %d:\n%s", at, before+next, strings.Join(w.logs.lines(), "\n"))
			}
		})
	}
}
