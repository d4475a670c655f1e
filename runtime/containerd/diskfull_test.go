//go:build integration

package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
