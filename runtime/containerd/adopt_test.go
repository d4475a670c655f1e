//go:build integration

package containerd

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
)

// An adoption that fails half-way is tried again and finds all: nothing that was
// found before is taken for a stray one.
func TestFailedAdoptionIsRepeated(t *testing.T) {
	w := newWorld(t)
	w.boot()
	a, b := w.put(wish{name: "one", memory: 64, command: idle}), w.put(wish{name: "two", memory: 64, command: idle})
	pids := []int{w.commandPID(w.running(a).Instance, "main"), w.commandPID(w.running(b).Instance, "main")}
	w.leave()
	w.open()
	ctx := context.Background()
	store := w.engine.client.ContainerService()
	cs, err := store.List(ctx)
	if err != nil || len(cs) != 2 {
		t.Fatalf("containers: %d, %v", len(cs), err)
	}
	last := cs[1] // the other one is adopted before it
	good := maps.Clone(last.Labels)
	last.Labels[labelPrefix+"index"] = "spoilt"
	if _, err := store.Update(ctx, last, "labels"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.engine.Adopt(ctx); err == nil {
		t.Fatal("a spoilt label was adopted")
	}
	last.Labels = good
	if _, err := store.Update(ctx, last, "labels"); err != nil {
		t.Fatal(err)
	}
	w.boot()
	w.running(a)
	w.running(b)
	for i, p := range []app.Process{a, b} {
		if got := w.commandPID(w.running(p).Instance, "main"); got != pids[i] {
			t.Errorf("main process of %s = %d, want %d as before", p.GUID, got, pids[i])
		}
	}
}

// A process that merges or closes its streams has no broken capture.
func TestOddStreamsAreNoBrokenCapture(t *testing.T) {
	w := newWorld(t)
	w.boot()
	var ps []app.Process
	for i, redirect := range []string{"2>&1", ">&2", ">/dev/null", "2>/dev/null", ">/dev/null 2>&1", ">&- 2>&-", ""} {
		ps = append(ps, w.put(wish{name: "odd" + string(rune('a'+i)), memory: 64, command: "exec ./testapp sleep " + redirect}))
	}
	for _, p := range ps {
		st := w.running(p)
		w.eventually("the command runs", func() error { return w.isCommand(st.Instance, "testapp") })
	}
	time.Sleep(300 * time.Millisecond) // the shim has seen the ends of pipes
	w.engine.checkCaptures(context.Background())
	for _, p := range ps {
		if rs, err := w.sup.Exits().Process(p.GUID); err != nil || len(rs) != 0 {
			t.Errorf("records of %s = %+v, %v, want none", p.GUID, rs, err)
		}
	}
}
