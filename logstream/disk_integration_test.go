//go:build integration

package logstream

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream/disk"
)

// smallSize is the size of the file systems in these tests. All bounds shrink with it.
var smallSize = int64(larger(24, 64)) << 20

// larger returns the size for a short run or for a long run.
func larger(short, proof int) int {
	if os.Getenv("DEW_PROOF") != "" {
		return proof
	}
	return short
}

// mountTmpfs mounts a small file system in memory.
func mountTmpfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallSize)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// mountExt4 mounts a small ext4 file system in a file.
func mountExt4(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, args := range [][]string{
		{"truncate", "-s", fmt.Sprint(smallSize), image},
		{"mkfs.ext4", "-q", "-m", "0", image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func small(t *testing.T, fn func(t *testing.T, dir string)) {
	for name, mount := range map[string]func(*testing.T) string{"tmpfs": mountTmpfs, "ext4": mountExt4} {
		t.Run(name, func(t *testing.T) { fn(t, mount(t)) })
	}
}

// checkNumbers reads all stored lines. Their numbers are consecutive, and the last line
// is the last one printed.
func checkNumbers(t *testing.T, l *Log, s *shim) {
	t.Helper()
	cur := l.Cursor(0)
	want, kept, gaps := -1, 0, 0
	for cur.oldest || cur.next <= l.LastSeq() {
		es, err := cur.Next(t.Context())
		if errors.Is(err, ErrTrimmed) { // the disk is still being cleared
			cur, _ = cur.Skip()
			want = -1
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			if e.Source.Type != "APP/PROC/WEB" || e.Flags&Partial != 0 {
				gaps++
				continue
			}
			var n int
			if _, err := fmt.Sscan(string(e.Text), &n); err != nil || (want >= 0 && n != want) {
				t.Fatalf("line %d is %q, want number %d: %v", e.Seq, e.Text, want, err)
			}
			want = n + 1
			kept++
		}
	}
	if want != s.n {
		t.Errorf("the last line kept is %d, %d were printed", want-1, s.n)
	}
	r := verify(t, l)
	t.Logf("%d lines printed, %d kept, %d others; first kept is %d; %+v", s.n, kept, gaps, r.First, r)
}

// A disk that filled up while no daemon ran is drained.
func TestSmallDiskFull(t *testing.T) {
	small(t, func(t *testing.T, dir string) {
		ls := newLogsOn(t, dir, Options{}, disk.Real())
		l := newApp(t, ls)
		s := newShim(capture(t, l, Out))
		if err := ls.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.print(smallSize); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk did not run full: %v", err)
		}
		t.Logf("full with %d bytes", s.at)
		l = newApp(t, newLogsOn(t, dir, Options{}, disk.Real()))
		last, err := follow(t, l, Capture{Late: true, Freeze: s.freeze}).Finish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Append(last...); err != nil {
			t.Fatal(err)
		}
		checkNumbers(t, l, s)
		if err := l.RemoveCapture("i-1"); err != nil {
			t.Error(err)
		}
	})
}

// A process prints without pause while the daemon stops and starts again. The process
// never meets a full disk.
func TestSmallDiskPrintsOn(t *testing.T) {
	small(t, func(t *testing.T, dir string) {
		ls := newLogsOn(t, dir, Options{}, disk.Real())
		l := newApp(t, ls)
		s := newShim(capture(t, l, Out))
		if err := ls.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.print(smallSize / 8 * 5); err != nil {
			t.Fatal(err)
		}
		ls = newLogsOn(t, dir, Options{}, disk.Real())
		l = newApp(t, ls)
		tail := follow(t, l, Capture{Late: true, Freeze: s.freeze})
		done := make(chan error)
		begin := time.Now()
		total := smallSize * int64(larger(2, 16))
		go func() { done <- s.print(total) }()
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("after %d bytes: %v", s.at, err)
			}
		case <-time.After(10 * time.Minute): // a limit that only a hang reaches
			t.Fatalf("the process hangs: %+v", ls.Stats())
		}
		t.Logf("printed %d MiB in %v: %+v", total>>20, time.Since(begin), ls.Stats())
		last, err := tail.Finish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Append(last...); err != nil {
			t.Fatal(err)
		}
		checkNumbers(t, l, s)
	})
}

// Other data has taken most of the disk. A process that prints more than the remaining
// space keeps running.
func TestSmallDiskForeign(t *testing.T) {
	small(t, func(t *testing.T, dir string) {
		ls := newLogsOn(t, filepath.Join(dir, "logs"), Options{}, disk.Real())
		foreign, err := os.Create(filepath.Join(dir, "foreign"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = foreign.Close() }()
		free, rest := ls.Stats().Free, smallSize/4-1<<20 // a little less than the reserve
		if err := unix.Fallocate(int(foreign.Fd()), 0, 0, free-rest); err != nil {
			t.Fatal(err)
		}
		l := newApp(t, ls)
		s := newShim(capture(t, l, Out))
		s.pause = time.Millisecond // a busy machine can be late to check
		tail := follow(t, l, Capture{Freeze: s.freeze})
		done := make(chan error)
		begin := time.Now()
		go func() { done <- s.print(smallSize / 8 * 5) }()
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("after %d bytes: %v", s.at, err)
			}
		case <-time.After(10 * time.Minute): // a limit that only a hang reaches
			t.Fatalf("the process hangs: %+v", ls.Stats())
		}
		t.Logf("printed it in %v: %+v, floor %d", time.Since(begin), ls.Stats(), ls.floor)
		last, err := tail.Finish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Append(last...); err != nil {
			t.Fatal(err)
		}
		checkNumbers(t, l, s)
	})
}

// Open refuses a file system that cannot punch holes.
func TestNoHoles(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	_, err := Open(dir, Options{})
	if err == nil || !strings.Contains(err.Error(), "does not support hole punching") {
		t.Errorf("err = %v", err)
	}
}
