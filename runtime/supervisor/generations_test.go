package supervisor_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// A running generation keeps its crash records after any number of canceled
// deployments. The records of the canceled generations are deleted after a while.
func TestCancelledDeploymentsDeleteTheirCrashRecords(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		p := w.shopOf(1)
		w.endOne(p)
		w.pass(time.Second)
		cancelled := func() {
			d := w.deploy(p, "exit 1", app.NewDeployment{})
			w.cancel(d.GUID)
			w.pass(time.Second)
			w.wantStatus(d.GUID, "FINALIZED CANCELED")
		}
		cancelled()
		by := w.recordsByGeneration(p)
		if by[0] != 1 || by[1] == 0 {
			t.Errorf("records by generation = %v, want one of what runs, and some of what crashed", by)
		}
		defer w.holdAt(0)() // the other starts wait, so that they do not crash
		for range 11 {
			cancelled()
		}
		if by = w.recordsByGeneration(p); by[0] != 1 || by[1] != 0 {
			t.Errorf("records by generation = %v, want that of what runs alone", by)
		}
	})
}

// recordsByGeneration returns the number of exit records of a process by generation.
func (w *world) recordsByGeneration(process string) map[int]int {
	w.t.Helper()
	rs, err := w.sup.Exits().Process(process)
	w.must(err)
	by := map[int]int{}
	for _, r := range rs {
		by[r.Slot.Generation]++
	}
	return by
}

// An index means the new instance, not a replaced one that has not exited yet.
func TestIndexMeansWhatReplaced(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		var idle atomic.Bool
		w.busy = func(runtime.InstanceID) bool { return !idle.Load() }
		p := w.shopOf(1)
		d := w.deploy(p, newCommand, app.NewDeployment{})
		w.pass(time.Second)
		w.wantStatus(d.GUID, "FINALIZED DEPLOYED")
		w.wantGenerations(p, 0, 1)
		idle.Store(true)
		w.must(w.sup.RestartInstance(p, 0))
		w.pass(time.Minute)
		w.wantStarts(3)
		w.wantReady(p, map[string]int{newCommand: 1})
	})
}
