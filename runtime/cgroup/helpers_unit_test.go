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

// noPID is above every limit of pids, so that no process has it.
const noPID = 1 << 30

func writeTestFile(t testing.TB, path, data string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func touch(t testing.TB, dir string, files ...string) {
	t.Helper()
	for _, f := range files {
		writeTestFile(t, filepath.Join(dir, f), "")
	}
}

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

// sleeper starts a process that exits with the test, or by itself after a minute. A
// test that waits for its exit without success then fails instead of hanging.
func sleeper(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	if args == nil {
		args = []string{"sleep", "60"}
	}
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
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
