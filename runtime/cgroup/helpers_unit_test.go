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
	"github.com/dewrun/dew/testkit"
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

// touchInstance creates the control files of the parent and of an instance in place of
// the kernel.
func touchInstance(t testing.TB, c *Hierarchies) {
	t.Helper()
	if c.IsV2() {
		dir := c.path(c.Unified, someInstance, "")
		for _, d := range []string{c.Unified, filepath.Dir(dir), dir} {
			testkit.Touch(t, d, "cgroup.subtree_control", "cpu.weight")
		}
		testkit.Touch(t, dir, "memory.max", "pids.max", "cpu.max")
		return
	}
	testkit.Touch(t, c.path(c.V1["memory"], someInstance, ""), "memory.limit_in_bytes")
	testkit.Touch(t, c.path(c.V1["pids"], someInstance, ""), "pids.max")
	testkit.Touch(t, filepath.Join(c.V1["cpu"], c.Parent), "cpu.shares")
	testkit.Touch(t, c.path(c.V1["cpu"], someInstance, ""), "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us")
}

// emptyTree deletes the control files of an instance. The kernel removes them with their
// folder.
func emptyTree(t testing.TB, c *Hierarchies, id runtime.InstanceID) {
	t.Helper()
	for _, m := range c.All {
		files, err := filepath.Glob(filepath.Join(c.path(m, id, ""), "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
}
