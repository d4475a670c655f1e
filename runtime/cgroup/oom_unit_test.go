package cgroup

import (
	"bufio"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeOOM is a v1 leaf whose events are raised by the test. The file event_control is
// a FIFO, so that the test reads the descriptor as soon as it is registered.
type fakeOOM struct {
	c   *Hierarchies
	dir string
}

func newFakeOOM(t *testing.T) fakeOOM {
	t.Helper()
	c := fakeV1(t, false)
	dir := c.Memory(someInstance, "main")
	writeTestFile(t, filepath.Join(dir, "memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
	touch(t, dir, "cgroup.procs")
	if err := unix.Mkfifo(filepath.Join(dir, "cgroup.event_control"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fakeOOM{c: c, dir: dir}
}

// watch runs WatchOOM and returns the event descriptor that it registered.
func (m fakeOOM) watch(ctx context.Context, t *testing.T) (fd int, done chan error) {
	t.Helper()
	done = make(chan error, 1)
	go func() { done <- m.c.WatchOOM(ctx, someInstance, "main") }()
	f, err := os.Open(filepath.Join(m.dir, "cgroup.event_control"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	if !sc.Scan() {
		t.Fatalf("nothing registered: %v", sc.Err())
	}
	fields := strings.Fields(sc.Text())
	if len(fields) != 2 {
		t.Fatalf("registered %q, want two descriptors", sc.Text())
	}
	if fd, err = strconv.Atoi(fields[0]); err != nil {
		t.Fatal(err)
	}
	return fd, done
}

func raise(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
		t.Fatal(err)
	}
}

// One kill by the kernel kills the whole leaf, as on v2.
func TestOOMEndsTheLeaf(t *testing.T) {
	t.Parallel()
	m := newFakeOOM(t)
	survivor := sleeper(t)
	writeTestFile(t, filepath.Join(m.dir, "cgroup.procs"), strconv.Itoa(survivor.Process.Pid)+"\n")
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	fd, done := m.watch(ctx, t)
	raise(t, fd)                       // memory is short
	time.Sleep(500 * time.Millisecond) // the kernel kills a process when it gets a processor
	writeTestFile(t, filepath.Join(m.dir, "memory.oom_control"), "oom_kill_disable 0\nunder_oom 1\noom_kill 1\n")
	awaitDeath(t, survivor)
	writeTestFile(t, filepath.Join(m.dir, "cgroup.procs"), "")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := signalOf(survivor.Wait()); got != syscall.SIGKILL {
		t.Errorf("ended by signal %d, want SIGKILL", got)
	}
}

func TestOOMWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	m := newFakeOOM(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, done := m.watch(ctx, t)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// The kernel reports the removal of a leaf as an event.
func TestOOMWatchEndsWithItsLeaf(t *testing.T) {
	t.Parallel()
	m := newFakeOOM(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	fd, done := m.watch(ctx, t)
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	raise(t, fd)
	if err := <-done; err != nil || ctx.Err() != nil {
		t.Fatalf("watch ended with %v, context %v", err, ctx.Err())
	}
}

func TestOOMWatch(t *testing.T) {
	t.Parallel()
	if err := fakeV2(t).WatchOOM(t.Context(), someInstance, "main"); err != nil {
		t.Errorf("on v2, where the kernel does it: %v", err)
	}
	err := fakeV1(t, false).WatchOOM(t.Context(), someInstance, "absent")
	if err == nil || !strings.Contains(err.Error(), "cannot watch for OOM kills") {
		t.Errorf("without a leaf: %v, want that it cannot be watched", err)
	}
}
