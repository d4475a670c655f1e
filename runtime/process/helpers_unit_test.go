package process

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

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
