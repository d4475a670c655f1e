package supervisor_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// withSpare starts an app and waits until it has a spare.
func (w *world) withSpare() (process string, created func() []runtime.Spec) {
	w.t.Helper()
	w.spares = 10
	process = w.push("sleep 1000", "sleep 1000")
	created = w.created()
	w.daemon()
	w.wantSpares(0) // not during the start
	w.pass(2 * time.Second)
	w.wantState(process, runtime.Running)
	w.wantSpares(1)
	w.wantLeases(2)
	if got := len(created()); got != 2 {
		w.t.Fatalf("%d containers created, want the instance and a spare", got)
	}
	return process, created
}

func (w *world) wantSpares(want int) {
	w.t.Helper()
	if got := w.sup.Stats().Spares; got != want {
		w.t.Errorf("%d spares, want %d", got, want)
	}
}

func (w *world) rename(guid, name string) {
	w.t.Helper()
	_, err := w.registry.UpdateApp(guid, func(a *app.App) error {
		a.Name = name
		return nil
	})
	w.must(err)
	synctest.Wait()
}

func TestSpareRunsAfterACrash(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, created := w.withSpare()
		w.pass(24 * time.Hour) // longer than any time limit of a start
		w.wantStarts(1)        // no process of the spare runs
		if got := w.logs.matching("Creating container"); len(got) != 1 {
			t.Errorf("lines %q, want none about the spare", got)
		}
		w.fake.Last().End(sideA, 1)
		w.pass(500 * time.Millisecond)
		st := w.wantState(p, runtime.Running)
		if want := created()[1].Instance; st.Instance != want {
			t.Errorf("instance %s is running, want the spare %s", st.Instance, want)
		}
		if got := w.logs.matching("Creating container"); len(got) != 2 {
			t.Errorf("lines %q, want one for each instance that ran", got)
		}
		w.wantRecords(p, 1)
		w.wantSpares(0)
		w.pass(2 * time.Second)
		w.wantSpares(1) // the next one
		w.wantLeases(2)
	})
}

func TestSpareOfAStoppedAppIsRemoved(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, _ := w.withSpare()
		w.state(p, app.Stopped)
		w.pass(time.Minute)
		w.wantSpares(0)
		w.wantStarts(1)
		w.wantNothing()
	})
}

// A spare has the environment of the time when it was created. If a start now would have
// another one, it is replaced.
func TestSpareThatIsOutOfDateIsReplaced(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, created := w.withSpare()
		w.rename(p, "store")
		w.pass(2 * time.Second)
		w.wantState(p, runtime.Running)
		w.wantSpares(1)
		w.wantLeases(2)
		w.fake.Last().End(main, 1)
		w.pass(500 * time.Millisecond)
		st := w.wantState(p, runtime.Running)
		last := created()[len(created())-1]
		if env := strings.Join(last.Processes[0].Env, "\n"); st.Instance != last.Instance || !strings.Contains(env, `"name":"store"`) {
			t.Errorf("instance %s is running, want %s, with the new name:\n%s", st.Instance, last.Instance, env)
		}
	})
}

// A health check is no part of a container, so a change of it keeps the spare and is in
// effect after the crash.
func TestSpareHasTheNewHealthCheck(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, created := w.withSpare()
		w.change(p, func(p *app.Process) { p.HealthCheck = app.HealthCheck{Type: app.CheckPort, Timeout: time.Minute} })
		w.fake.RefuseConnections(true)
		w.fake.Last().End(main, 1)
		w.pass(500 * time.Millisecond)
		if st := w.wantState(p, runtime.Starting); st.Instance != created()[1].Instance {
			t.Errorf("instance %s is starting, want the spare %s", st.Instance, created()[1].Instance)
		}
	})
}

func TestRestartReplacesTheSpare(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, created := w.withSpare()
		w.restart(p)
		w.pass(time.Minute)
		if st := w.wantState(p, runtime.Running); st.Instance == created()[1].Instance {
			t.Error("a spare from before the restart is running")
		}
		w.wantStarts(2)
		w.wantSpares(1)
		w.wantLeases(2)
	})
}

// An app that waits for its next start needs no spare.
func TestNoSpareForALaterStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.policy.MaxCrashes = 1
		p, _ := w.withSpare()
		w.fake.Last().End(main, 1)
		w.pass(time.Minute)
		w.wantState(p, runtime.Crashed)
		w.wantSpares(0)
		w.wantNothing()
	})
}

// There is one spare for each app, and a limit for all.
func TestNumberOfSpares(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.spares = 1
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) { p.Instances = 3 })
		w.daemon()
		w.pass(time.Minute)
		w.wantSpares(1)
		w.wantLeases(4)
		other, err := w.registry.PutApp(app.App{Name: "other", Space: "dev", State: app.Stopped})
		w.must(err)
		w.change(other.GUID, func(p *app.Process) { p.Command = "sleep 1000" })
		w.state(other.GUID, app.Started)
		w.pass(time.Minute)
		w.wantSpares(1)
		w.wantLeases(5)
		w.state(p, app.Stopped)
		w.pass(time.Minute)
		w.wantSpares(1) // of the other app
		w.wantLeases(2)
	})
}

// A spare starts before the container of the crashed instance is removed. A slot leaves at
// most one container behind.
func TestSpareDoesNotWaitForTheRemoval(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, _ := w.withSpare()
		crashed := w.fake.Last()
		crashed.FailDelete(runtime.ErrUnavailable)
		crashed.End(main, 1)
		w.pass(time.Hour)
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
		w.wantLeases(3) // with that of the crashed instance

		w.fake.Last().End(main, 1)
		w.pass(time.Hour)
		w.wantState(p, runtime.Crashed)
		w.wantStarts(2)
		crashed.FailDelete(nil)
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantStarts(3)
		w.wantLeases(2)
		w.wantRecords(p, 2)

		crashed = w.fake.Last()
		crashed.FailDelete(runtime.ErrUnavailable)
		crashed.End(main, 1)
		w.pass(time.Minute)
		w.state(p, app.Stopped)
		w.pass(time.Minute)
		if got := len(w.sup.Instances(p)); got != 1 {
			t.Errorf("%d slots, want one that waits for the removal", got)
		}
		crashed.FailDelete(nil)
		w.pass(time.Minute)
		w.wantNothing()
	})
}

// A daemon that exits during such a removal leaves two containers. The next one keeps the
// newer one, and the crash has one record.
func TestRemovalBehindASpareOverDaemons(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, _ := w.withSpare()
		crashed := w.fake.Last()
		crashed.FailDelete(runtime.ErrUnavailable)
		crashed.End(main, 1)
		w.pass(500 * time.Millisecond)
		second := w.wantState(p, runtime.Running)
		w.stopDaemon()
		if got := len(w.fake.Present()); got != 2 {
			t.Errorf("%d containers are left, want the crashed one and the running one", got)
		}
		crashed.FailDelete(nil)
		w.daemon()
		w.pass(time.Minute)
		if st := w.wantState(p, runtime.Running); st.Instance != second.Instance {
			t.Errorf("instance %s is running, want %s", st.Instance, second.Instance)
		}
		if !crashed.Deleted() {
			t.Error("the crashed instance was not deleted")
		}
		w.wantRecords(p, 1)
		w.wantStarts(2)
		w.wantLeases(2) // the instance and its next spare
	})
}

func TestSpareThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.spares = 10
		p := w.push("sleep 1000")
		w.daemon()
		w.fake.FailStart(&runtime.StartError{Reason: "no room for two"})
		w.pass(2 * time.Second)
		w.wantState(p, runtime.Running)
		w.wantSpares(0)
		w.wantLeases(1)
		w.pass(time.Minute)
		w.wantSpares(0)
		w.fake.FailStart(nil)
		w.pass(20 * time.Second)
		w.wantSpares(1)
		w.wantLeases(2)
		w.wantStarts(1)
		w.wantRecords(p, 0)
	})
}

// A daemon that exits removes its spares. The next one creates others.
func TestSparesDoNotOutliveTheirDaemon(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p, _ := w.withSpare()
		w.stopDaemon()
		if got := len(w.fake.Present()); got != 1 {
			t.Errorf("%d containers are left, want the instance", got)
		}
		w.daemon()
		w.pass(2 * time.Second)
		w.wantState(p, runtime.Running)
		w.wantStarts(1)
		w.wantSpares(1)
		w.wantLeases(2)
	})
}
