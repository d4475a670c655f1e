package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitEnd returns when the process with that pid and start time has exited. The caller
// need not be its parent.
func AwaitEnd(ctx context.Context, pid int, born uint64) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err == nil {
		err = unix.SetNonblock(fd, true) // for the poller of Go
	}
	if err != nil {
		return fmt.Errorf("cannot watch process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "process")
	defer func() { _ = f.Close() }() // nothing was written
	if BornAt(pid) != born {
		return nil // it exited before, and another process has its number
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot watch process %d: %w", pid, err)
	}
	err = conn.Read(exited)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot watch process %d: %w", pid, err)
	}
	return nil
}

// exited reports whether the process of a pidfd has exited.
func exited(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
