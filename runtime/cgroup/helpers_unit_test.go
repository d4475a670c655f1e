package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

// someInstance is the instance id in the golden files.
const someInstance runtime.InstanceID = "0a1b2c3d-0000-4000-8000-abcd"

// soon is the limit for waits for other threads and processes. Only a hang reaches it.
const soon = time.Minute

func contents(t testing.TB, dir string, files ...string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		got[f] = string(b)
	}
	return got
}

// checkFiles compares control files with the expected content.
func checkFiles(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	var names []string
	for f := range want {
		names = append(names, f)
	}
	if diff := cmp.Diff(contents(t, dir, names...), want); diff != "" {
		t.Errorf("%s (-got +want):\n%s", filepath.Base(dir), diff)
	}
}

func signalOf(err error) syscall.Signal {
	var ee *exec.ExitError
	if !errors.As(err, &ee) {
		return 0
	}
	return ee.Sys().(syscall.WaitStatus).Signal()
}

// awaitDeath returns when a child has exited. It does not reap the child, so that the
// pid is not reused while it can still be signalled.
func awaitDeath(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

func fakeV2(t testing.TB) *Hierarchies {
	root := t.TempDir()
	return &Hierarchies{Parent: "dew", Unified: root, V1: map[string]string{}, All: []string{root}}
}
