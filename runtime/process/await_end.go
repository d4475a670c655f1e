package process

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// endInterval is how often a process is checked if the kernel cannot report its end.
const endInterval = 50 * time.Millisecond

// AwaitEnd returns when the process with that pid and start time has exited, or with the
// error of ctx. The caller need not be its parent.
func AwaitEnd(ctx context.Context, pid int, born uint64) error {
	if pidfd := openProcess(pid); pidfd != nil {
		defer func() { _ = pidfd.Close() }() // nothing was written
		if s, ok, gone := readStat(Dir(pid)); gone || ok && s.born != born {
			return nil // it exited before, and another process can have its number
		}
		defer context.AfterFunc(ctx, func() { _ = pidfd.SetReadDeadline(time.Unix(1, 0)) })()
		if conn, err := pidfd.SyscallConn(); err == nil {
			_ = conn.Read(exited) // the loop below checks the result
		}
	}
	for !Ended(pid, born) {
		if err := Sleep(ctx, endInterval); err != nil {
			return err
		}
	}
	return nil
}

// openProcess returns a file that can be read from when the process has exited, or nil.
func openProcess(pid int) *os.File {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for the poller of Go
		_ = unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "process")
}

// exited reports whether the process of a pidfd has exited.
func exited(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}
