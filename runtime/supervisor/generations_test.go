package supervisor_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// What runs keeps its crashes however many deployments were cancelled; those of what
// was cancelled are forgotten after a while.
func TestCancelledDeploymentsForgetTheirOwnCrashes(t *testing.T) {
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
		defer w.holdAt(0)() // the others crash no more
		for range 11 {
			cancelled()
		}
		if by = w.recordsByGeneration(p); by[0] != 1 || by[1] != 0 {
			t.Errorf("records by generation = %v, want that of what runs alone", by)
		}
	})
}

// recordsByGeneration counts the exit records of a process.
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

// What is replaced and has not ended yet is not what somebody means by an index.
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
