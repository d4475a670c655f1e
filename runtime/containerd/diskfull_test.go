//go:build integration

package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/private"
	"github.com/dewrun/dew/testkit"
)

// If the disk is full while an instance is created, the record says so. Nothing
// half-created stays, and the instance runs as soon as there is space.
func TestDiskFullWhileCreating(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("dew-test", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	run := filepath.Join(shared.dir, "full")
	d, err := private.Start(t.Context(), private.Config{Binary: "containerd", Root: dir, Run: run, Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(cleanupContext(t)); err != nil {
			t.Error(err)
		}
	})
	w := newWorldOn(t, d.Address())
	w.policy = crashLoop
	w.policy.ImmediateRestarts, w.policy.FirstBackoff = 0, testkit.Patience/20
	w.boot()
	// A little space stays, so that containerd itself can still write its records.
	filler := fillUp(t, dir, 1<<20)
	p := w.put(testApp{name: "full", memory: 64, command: "sleep 1000"})
	r := w.record(p, 1)
	if r.First.Cause != runtime.CauseStartFailed || !strings.Contains(r.Description, "the disk is full: free some space") {
		t.Errorf("record = %s (%s), want start_failed with the remedy", r.Description, r.First.Cause)
	}
	if got := w.containers(); len(got) != 0 {
		t.Errorf("containers = %v, want none", got)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.running(p)
}

// fillUp fills a file system, except for some space.
func fillUp(t *testing.T, dir string, space int64) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 64<<10)
	for {
		if _, err := f.Write(chunk); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			break
		}
	}
	fi, err := f.Stat()
	if err == nil {
		err = f.Truncate(fi.Size() - space)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// dewd could not read the last output of a process when it exited, for example because
// the log could not be written. The lines are in the log before the instance is deleted.
func TestDeleteStoresTheRest(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	const count = 500
	p := w.put(testApp{
		name: "rest", memory: 64,
		command: fmt.Sprintf(`trap 'for i in $(seq %d); do echo "line $i."; done; exit 3' USR1; echo ready; while :; do sleep 0.1; done`, count),
	})
	st := w.running(p)
	w.line(p.App, "PROC/WEB", "ready")
	w.engine.known.get(st.Instance).procs[0].Close()
	if err := w.sup.Signal(t.Context(), p.GUID, 0, "", runtime.SentSignal{Number: int(syscall.SIGUSR1), User: "admin"}); err != nil {
		t.Fatal(err)
	}
	w.running(p, st.Instance)
	next := 1
	for _, e := range w.lines(p.App) {
		if e.Flags == logstream.Gap {
			t.Errorf("gap in the log: %s", e.Text)
		}
		if e.Source.InstanceID == string(st.Instance) && string(e.Text) == fmt.Sprintf("line %d.", next) {
			next++
		}
	}
	if next != count+1 {
		t.Errorf("the log has %d of %d lines in order:\n%s", next-1, count, printed(w.lines(p.App)))
	}
}
