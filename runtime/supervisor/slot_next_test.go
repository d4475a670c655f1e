package supervisor_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// created returns a function that counts the containers that the engine was told to
// create, including those whose processes do not run yet.
func (w *world) created() func() []runtime.Spec {
	var specs []runtime.Spec
	w.fake.OnStart(func(s runtime.Spec) { specs = append(specs, s) })
	return func() []runtime.Spec { return specs }
}

// stoppingSlowly starts an app whose processes ignore SIGTERM, and requests a restart.
func (w *world) stoppingSlowly() (process string, created func() []runtime.Spec) {
	w.t.Helper()
	process = w.push("sleep 1000", "sleep 1000")
	created = w.created()
	w.daemon()
	for _, exec := range []string{main, sideA} {
		w.fake.Last().IgnoreSignals(exec, syscall.SIGTERM)
	}
	w.restart(process)
	w.wantState(process, runtime.Stopping)
	return process, created
}

func (w *world) restart(process string) {
	w.t.Helper()
	w.must(w.registry.Restart(process))
	synctest.Wait()
}

func TestNextInstanceIsPreparedDuringTheStop(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, created := w.stoppingSlowly()
		if got := len(created()); got != 2 {
			t.Fatalf("%d containers created while the old instance stops, want 2", got)
		}
		w.wantStarts(1) // no process of the next instance runs yet
		w.wantLeases(2)
		w.pass(time.Minute)
		st := w.wantState(p, runtime.Running)
		if want := created()[1].Instance; st.Instance != want {
			t.Errorf("instance %s is running, want the prepared %s", st.Instance, want)
		}
		if old := w.fake.Containers()[0]; !old.Deleted() {
			t.Error("the old instance was not deleted")
		}
		w.wantStarts(2)
		w.wantLeases(1)
		w.wantRecords(p, 0)
	})
}

func TestNextInstanceIsPreparedAfterACrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		created := w.created()
		w.daemon()
		w.fake.Last().IgnoreSignals(main, syscall.SIGTERM)
		w.fake.Last().End(sideA, 1)
		w.pass(time.Second)
		w.wantState(p, runtime.Crashed)
		if got := len(created()); got != 2 {
			t.Errorf("%d containers created while the crashed instance stops, want 2", got)
		}
		w.wantStarts(1)
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
		w.wantLeases(1)
		w.wantRecords(p, 1)
	})
}

// A crash with a delay before the next start prepares nothing.
func TestNothingIsPreparedForALaterStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.policy.MaxCrashes = 1
		p := w.push("sleep 1000")
		created := w.created()
		w.daemon()
		w.fake.Last().End(main, 1)
		w.pass(time.Minute)
		w.wantState(p, runtime.Crashed)
		if got := len(created()); got != 1 {
			t.Errorf("%d containers created, want 1: the app is given up", got)
		}
		w.wantNothing()
	})
}

func TestPreparedInstanceOfAStoppedAppIsRemoved(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, _ := w.stoppingSlowly()
		w.state(p, app.Stopped)
		w.pass(time.Minute)
		if got := w.sup.Instances(p); len(got) != 0 {
			t.Errorf("slots %+v, want none", got)
		}
		w.wantStarts(1)
		w.wantNothing()
	})
}

func TestPreparedInstanceThatIsOutOfDateIsReplaced(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, created := w.stoppingSlowly()
		w.restart(p)
		w.pass(time.Minute)
		if st := w.wantState(p, runtime.Running); st.Version == created()[1].Version {
			t.Errorf("version %s is running, want that of the second restart", st.Version)
		}
		if got := len(created()); got != 3 {
			t.Errorf("%d containers created, want 3", got)
		}
		w.wantStarts(2)
		w.wantLeases(1)
	})
}

// If the next instance cannot be prepared, it starts in the usual way.
func TestFailedPreparationIsRepeated(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.fake.FailStart(nil)
		p, created := w.stoppingSlowly()
		w.fake.FailStart(&runtime.StartError{Reason: "no room for two"})
		w.fake.OnStart(func(s runtime.Spec) {
			if s.Instance != created()[1].Instance {
				w.fake.FailStart(nil)
			}
		})
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantRecords(p, 0)
		w.wantLeases(1)
	})
}

// A daemon that exits removes the prepared instance. The next daemon adopts the old one.
func TestPreparedInstanceDoesNotOutliveItsDaemon(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, _ := w.stoppingSlowly()
		w.stopDaemon()
		if got := len(w.fake.Present()); got != 1 {
			t.Errorf("%d containers are left, want the old one", got)
		}
		w.daemon()
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantLeases(1)
	})
}

// The container of an instance that has ended is removed after the next one has started, so
// that the app does not wait for it. If dewd exits before that, the next one removes it.
func TestRemovalComesAfterThePreparedStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		old, release := w.fake.Last(), w.fake.BlockStart()
		defer release()
		w.restart(p)
		w.pass(time.Second)
		w.wantState(p, runtime.Starting)
		if old.Deleted() {
			t.Error("the old container was removed before the next instance ran")
		}
		release()
		synctest.Wait()
		w.wantState(p, runtime.Running)
		if !old.Deleted() {
			t.Error("the old container was not removed")
		}
		w.wantLeases(1)

		old, release = w.fake.Last(), w.fake.BlockStart()
		defer release()
		w.restart(p)
		w.pass(time.Second)
		w.stopDaemon()
		release()
		w.daemon()
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		if !old.Deleted() {
			t.Error("the next daemon did not remove the old container")
		}
		w.wantStarts(3)
		w.wantLeases(1)
		w.wantRecords(p, 0)
	})
}

// If there is no room for two instances, the next start waits for the removal.
func TestFailedPreparationWaitsForTheRemoval(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		old := w.fake.Last()
		w.fake.OnStart(func(runtime.Spec) {
			w.fake.FailStart(nil)
			if !old.Deleted() {
				w.fake.FailStart(&runtime.StartError{Reason: "no room for two"})
			}
		})
		old.FailDelete(runtime.ErrUnavailable)
		w.restart(p)
		w.pass(time.Minute)
		w.wantState(p, runtime.Starting)
		old.FailDelete(nil)
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
		w.wantRecords(p, 0)
		w.wantLeases(1)
	})
}
