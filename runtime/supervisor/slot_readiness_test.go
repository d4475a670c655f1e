package supervisor_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
)

// readinessEvents returns the readiness events of the app's instances, oldest first.
func (w *world) readinessEvents(guid string) (out []string) {
	w.t.Helper()
	all, err := registry.NewEvents(w.db).List(app.EventFilter{Targets: []string{guid}})
	w.must(err)
	for _, e := range all {
		st := w.status(guid)
		if e.Actor != (app.Actor{GUID: guid, Type: "process", Name: "web"}) || e.Data["instance"] != string(st.Instance) || e.Data["index"] != 0.0 ||
			e.Data["cell_id"] != "cell-1" || e.Data["version"] != st.Version || e.Data["process_guid"] != guid || e.Data["ready"] != (e.Type == runtime.EventReady) {
			w.t.Errorf("event = %+v", e)
		}
		out = append(out, e.Type)
	}
	return out
}

// Every change of readiness is reported once, in the audit events and in the log, even
// if the daemon is restarted.
func TestReadinessChangesAreRecorded(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) {
			p.HealthCheck = app.HealthCheck{Type: app.CheckProcess}
			p.Readiness = app.HealthCheck{Type: app.CheckPort}
		})
		ready, not := runtime.EventReady, runtime.EventNotReady
		var want []string
		w.daemon()
		for i, step := range []struct {
			refuse, another bool
			news            []string
		}{
			{false, false, []string{ready}},
			{false, true, nil},
			{true, true, []string{not}},
			{true, true, nil},
			{false, false, []string{ready}},
			{true, false, []string{not}},
		} {
			w.fake.Last().RefuseConnections(step.refuse)
			if step.another {
				w.daemon()
				w.fake.Last().RefuseConnections(step.refuse)
			}
			w.pass(time.Minute)
			if st := w.wantState(p, runtime.Running); st.Ready == step.refuse {
				t.Errorf("step %d: ready = %v", i, st.Ready)
			}
			if want = append(want, step.news...); !slices.Equal(w.readinessEvents(p), want) {
				t.Errorf("step %d: events = %v, want %v", i, w.readinessEvents(p), want)
			}
		}
		if n, not := len(w.logs.matching("Process became ready with guid "+p)), len(w.logs.matching("Process became not ready with guid "+p)); n != 2 || not != 2 {
			t.Errorf("%d and %d lines, want 2 of each:\n%v", n, not, w.logs.lines())
		}
	})
}

// An app without a readiness check has no readiness events.
func TestNoReadinessCheckRecordsNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		if st := w.wantState(p, runtime.Running); !st.Ready || len(w.readinessEvents(p)) > 0 {
			t.Errorf("ready = %v, events = %v", st.Ready, w.readinessEvents(p))
		}
	})
}

// Active requests of an instance finish before it is restarted, unless the whole app is
// stopped.
func TestRestartedOneIsDrained(t *testing.T) {
	t.Parallel()
	const told = "signal terminated main"
	for name, tt := range map[string]struct {
		after func(w *world, p string)
		wait  time.Duration
		want  bool // whether the instance has been signalled by then
	}{
		"busy":      {func(*world, string) {}, 3 * time.Second, false},
		"no longer": {func(*world, string) {}, 5 * time.Second, true},
		"stopped":   {func(w *world, p string) { w.state(p, app.Stopped) }, time.Second, true},
		"scaled":    {func(w *world, p string) { w.change(p, func(p *app.Process) { p.Instances = 1 }) }, 3 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				began := time.Now()
				w.busy = func(runtime.InstanceID) bool { return time.Since(began) < 4*time.Second }
				p := w.shopOf(2)
				began = time.Now()
				w.must(w.sup.RestartInstance(p, 1))
				w.pass(100 * time.Millisecond)
				st := w.sup.Instances(p)[1]
				if st.State != runtime.Stopping || st.Ready {
					t.Errorf("while it is drained: %s, ready %v", st.State, st.Ready)
				}
				tt.after(w, p)
				w.pass(tt.wait)
				if got := slices.Contains(w.fake.Calls(), told); got != tt.want {
					t.Errorf("told to end = %v, want %v", got, tt.want)
				}
				w.state(p, app.Stopped)
				w.pass(time.Minute)
			})
		})
	}
}

// A restart of one instance waits for active requests once. The next change of the
// whole app does not wait for them.
func TestRestartIsGentleOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		busy := false
		w.busy = func(runtime.InstanceID) bool { return busy }
		p := w.shopOf(2)
		w.must(w.sup.RestartInstance(p, 1))
		w.pass(time.Minute)
		before := len(w.fake.Calls())
		busy = true
		w.sup.Restart(p)
		w.pass(time.Second)
		ended := 0
		for _, c := range w.fake.Calls()[before:] {
			if c == "signal terminated main" {
				ended++
			}
		}
		if ended != 2 {
			t.Errorf("%d instances were told to end, want both: %v", ended, w.fake.Calls()[before:])
		}
	})
}
