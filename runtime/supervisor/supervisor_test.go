package supervisor_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor"
)

// Scaling up adds slots, and scaling down stops the highest ones. The others keep
// running.
func TestScale(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		kept := w.status(p).Instance
		w.change(p, func(p *app.Process) { p.Instances = 3 })
		if got := len(w.sup.Instances(p)); got != 3 {
			t.Errorf("%d slots, want 3", got)
		}
		w.change(p, func(p *app.Process) { p.Instances = 1 })
		w.pass(time.Second)
		if st := w.wantState(p, runtime.Running); st.Instance != kept {
			t.Error("the instance that should stay was replaced")
		}
		w.change(p, func(p *app.Process) { p.Instances = 0 })
		w.pass(time.Second)
		w.wantStarts(3)
		w.wantRecords(p, 0)
		w.wantNothing()
	})
}

// A slot that was removed by scaling down returns without its crashes.
func TestRecordsOfRemovedInstancesAreDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("exit 1")
		w.daemon()
		w.pass(time.Second)
		w.wantStarts(4)
		for _, n := range []int{0, 1} {
			w.change(p, func(p *app.Process) { p.Instances = n })
		}
		w.pass(time.Second)
		w.wantStarts(8)
	})
}

// A change of the desired state alone replaces nothing. The next instance has the
// change.
func TestChangeAloneReplacesNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		old := w.status(p)
		w.change(p, func(p *app.Process) { p.MemoryMB = 512 })
		w.pass(time.Minute)
		if st := w.wantState(p, runtime.Running); st.Instance != old.Instance {
			t.Error("the instance was replaced")
		}
		w.fake.Last().End(main, 1)
		w.pass(time.Second)
		if got := w.fake.Last().Spec(); got.Memory != 512<<20 || got.Version == old.Version {
			t.Errorf("next instance: memory %d, version %s, want the new desired state", got.Memory, got.Version)
		}
		if got := w.record(p).Version; got != old.Version {
			t.Errorf("record's version %s, want that of the instance, %s", got, old.Version)
		}
	})
}

// A restart replaces the instance by one in the desired state, forgets the crashes and
// leaves no record.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(w *world, p string){
		"desired": func(w *world, p string) { w.must(w.registry.Restart(p)) },
		"ordered": func(w *world, p string) { w.sup.Restart(p) },
	} {
		inWorld(t, func(w *world) {
			p := w.push("sleep 1000")
			w.daemon()
			w.fake.Last().End(main, 1)
			w.pass(time.Second)
			old := w.wantState(p, runtime.Running)
			restart(w, p)
			w.pass(time.Second)
			st := w.wantState(p, runtime.Running)
			if st.Instance == old.Instance || st.CrashCount != 0 {
				t.Errorf("%s: status %+v, want another instance without crashes", name, st)
			}
			w.wantRecords(p, 1)
			w.wantStarts(3)
			w.fake.Last().End(main, 1)
			w.pass(time.Second)
			if rs := w.records(p); rs[len(rs)-1].CrashCount != 1 {
				t.Errorf("%s: crash count %d after the restart, want 1", name, rs[len(rs)-1].CrashCount)
			}
			w.pass(time.Hour)
			w.wantStarts(4)
		})
	}
}

// A restart ends the back-off.
func TestRestartDuringBackoff(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("exit 1")
		w.daemon()
		w.pass(time.Second)
		w.wantStarts(4)
		w.must(w.registry.Restart(p))
		w.pass(time.Second)
		w.wantStarts(8)
	})
}

// A restart that is requested while an instance starts is not lost, and causes only one
// replacement.
func TestRestartDuringStart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		release := w.fake.BlockStart()
		p := w.push("sleep 1000")
		w.daemon()
		w.must(w.registry.Restart(p))
		synctest.Wait()
		release()
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
		w.wantRecords(p, 0)
	})
}

// An instance that is larger than the machine is down, even after a restart of one that
// fitted. It starts when it fits.
func TestPlacement(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.memory = 512 << 20
		p := w.push("sleep 1000")
		w.daemon()
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.change(p, func(p *app.Process) { p.MemoryMB = 1024 })
		w.must(w.registry.Restart(p))
		w.pass(time.Minute)
		st := w.wantState(p, runtime.Down)
		want, err := w.registry.Process(p)
		w.must(err)
		if st.Version != want.Version || !strings.HasPrefix(st.Details, "insufficient resources: memory (the instance can use up to 1024M, but this machine has 512M)") {
			t.Errorf("status = %+v, want version %s", st, want.Version)
		}
		w.change(p, func(p *app.Process) { p.MemoryMB = 64 })
		w.must(w.registry.Restart(p))
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantRecords(p, 0)
	})
}

// A restart that is requested during another one is combined with it.
func TestRestartDuringRestart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("trap '' TERM; sleep 1000")
		w.daemon()
		w.must(w.registry.Restart(p))
		synctest.Wait()
		w.wantState(p, runtime.Stopping)
		w.sup.Restart(p)
		w.pass(time.Minute)
		w.wantState(p, runtime.Running)
		w.wantStarts(2)
	})
}

// A stop and an immediate start are a restart, even if the supervisor did not see the
// stop.
func TestStopAndStartAtOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.daemon()
		old := w.status(p).Instance
		for _, s := range []app.State{app.Stopped, app.Started} {
			_, err := w.registry.UpdateApp(p, func(a *app.App) error {
				a.State = s
				return nil
			})
			w.must(err)
		}
		w.pass(time.Second)
		if st := w.wantState(p, runtime.Running); st.Instance == old {
			t.Error("the instance from before the stop still runs")
		}
		w.wantStarts(2)
	})
}

// A deleted app leaves nothing behind: no instance, no address, no exit records.
func TestDeletedApp(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000", "sleep 1000")
		w.daemon()
		w.fake.Last().End(sideA, 1)
		w.pass(time.Second)
		w.wantRecords(p, 1)
		w.must(w.registry.DeleteApp(p))
		w.pass(time.Minute)
		w.wantNothing()
		if got := len(w.records(p)); got != 0 {
			t.Errorf("%d exit records are left, want none", got)
		}
	})
}

// New names the missing setting in its error.
func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		c := w.config()
		c.Registry = nil
		if _, err := supervisor.New(c); err == nil || !strings.Contains(err.Error(), "Registry") {
			t.Errorf("error = %v, want one that names Registry", err)
		}
		c = w.config()
		c.Subnet = netip.Prefix{}
		if _, err := supervisor.New(c); err == nil || !strings.Contains(err.Error(), "10.201.0.0/20") {
			t.Errorf("error = %v, want one with an example of a subnet", err)
		}
	})
}

// Status is a copy: changes to it have no effect on the slot.
func TestStatusIsACopy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.push("sleep 1000")
		w.change(p, func(p *app.Process) { p.Ports = []int{8080, 9090}; p.Instances = 12 })
		w.daemon()
		w.sup.Instances(p)[0].Ports[0] = 1
		all := w.sup.Instances(p)
		if diff := cmp.Diff(all[0].Ports, []int{8080, 9090}); diff != "" {
			t.Errorf("ports (-got +want):\n%s", diff)
		}
		if !slices.IsSortedFunc(all, func(a, b runtime.Status) int { return a.Slot.Index - b.Slot.Index }) || len(all) != 12 {
			t.Errorf("%d slots, want 12 by index", len(all))
		}
		stats := w.sup.Stats()
		stats.Crashes[runtime.CauseExited] = 99
		if got := w.sup.Stats().Crashes[runtime.CauseExited]; got != 0 {
			t.Errorf("a reader changed the count to %d", got)
		}
	})
}
