package process

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// noPID is above every limit of pids, so that no process has it.
const noPID = 1 << 30

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

func atoi(t *testing.T, s string) int {
	t.Helper()
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			t.Fatalf("%q is no number", s)
		}
		n = 10*n + int(c-'0')
	}
	return n
}
