package supervisor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// A stop sends SIGTERM, and SIGKILL after 10 s, deletes the container, and leaves no
// record.
func TestStop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000", "sleep 1000")
		w.daemon()
		container := w.fake.Last()
		container.Print(main, "not yet")
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
			"[CELL/0] OUT Stopping instance " + string(container.Spec().Instance),
			"[CELL/0] ERR APP/PROC/WEB did not exit within 10s after SIGTERM, so dew sends SIGKILL",
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

// An exit during a stop, or at the same moment, is not a crash.
func TestExitWhileStoppingIsNoCrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000", "trap '' TERM; sleep 1000")
		w.daemon()
		container := w.fake.Last()
		_, err := w.registry.UpdateApp(p, func(a *app.App) error {
			a.State = app.Stopped
			return nil
		})
		w.must(err)
		synctest.Wait()
		container.OOM(main)
		container.End(sideA, 3)
		w.pass(time.Minute)
		w.wantRecords(p, 0)
		w.wantNothing()
	})
}

// If a process exits and the app is stopped before the slot reads either, the stop
// counts, in whichever order the slot reads them.
func TestExitAndStopInTheSameMoment(t *testing.T) {
	t.Parallel()
	for range 8 { // a select of both can choose either
		inWorld(t, func(w *world) {
			held := make(chan struct{})
			w.onChange = func(st runtime.Status) {
				if st.Ready {
					<-held // the slot is blocked here
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

// A stop cancels a start in progress.
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

// A stop also ends the wait for a container service, and the back-off.
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

// A stop while the other processes exit takes effect: STOPPING, then down, no new
// instance.
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

// An app that is started while it is still stopping starts when the stop is done.
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

// A failed deletion is tried again: until it works if the service did not answer, and a
// few times if the service refused it.
func TestDeleteIsTriedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		container := w.fake.Last()
		container.FailDelete(runtime.ErrUnavailable)
		container.End(main, 1)
		w.pass(time.Hour)
		w.wantStarts(1)
		w.wantState(p, runtime.Crashed)
		container.FailDelete(nil)
		w.pass(30 * time.Second)
		w.wantStarts(2)

		container = w.fake.Last()
		container.FailDelete(errBoom)
		container.End(main, 1)
		w.pass(time.Minute)
		w.wantStarts(3)
		w.wantLeases(2) // the address of an existing container is not assigned again
	})
}
