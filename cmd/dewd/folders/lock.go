package folders

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lockTimeout limits the wait for the lock of a dewd that no longer runs. SIGKILL
	// does not release a lock at once: a thread that waits for the disk first finishes
	// its write. A child holds the lock until it has called exec.
	lockTimeout = 10 * time.Second
	// lockInterval is the time between two attempts.
	lockInterval = 50 * time.Millisecond
	// lockChecks is how often in a row the holder must be seen running before the lock
	// is refused. The kernel shows a process that is being killed as running for a
	// moment: after it received the signal, before it starts to exit.
	lockChecks = 3
)

// errHeld says that another daemon holds a folder.
var errHeld = errors.New("already uses it")

// lockFile locks a file and writes the PID into it. The kernel releases the lock when
// the process exits, for any reason. lockFile waits for a holder that is exiting, and
// fails at once if the holder is running.
func lockFile(ctx context.Context, path string, log *slog.Logger) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = waitLock(ctx, f, log)
	if err == nil && !isAt(path, f) {
		err = fmt.Errorf("the lock file %s was removed by the dewd that held it: %w", path, os.ErrNotExist) // a lock on a removed file has no effect
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// isAt reports whether the path leads to the open file.
func isAt(path string, f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

func waitLock(ctx context.Context, f *os.File, log *slog.Logger) error {
	running, waiting := 0, false
	for began := time.Now(); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		pid := readPID(io.NewSectionReader(f, 0, 20))
		if holdsLock(pid, f) {
			running++
		} else {
			running = 0
		}
		if running == lockChecks || time.Since(began) > lockTimeout {
			return fmt.Errorf("dewd with pid %s %w", pid, errHeld)
		}
		if running == 0 && !waiting {
			waiting = true
			log.Info("waiting for the lock of a dewd that is exiting", "file", f.Name(), "pid", pid, "limit", lockTimeout)
		}
		select {
		case <-time.After(lockInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// holdsLock reports whether the process that wrote its PID runs. The PID can be that of
// this process: then the holder is in another Pod, unless this process has the file open a
// second time.
func holdsLock(pid string, f *os.File) bool {
	if pid == strconv.Itoa(os.Getpid()) {
		return opened(pid, f) > 1
	}
	return IsRunning(pid, f)
}

// IsRunning reports whether the process has the file open and is not being killed.
// The PID alone is not enough, because another process can have got it since.
func IsRunning(pid string, f *os.File) bool {
	return !exiting(filepath.Join("/proc", pid, "status")) && opened(pid, f) > 0
}

// opened returns how often a process has the file open.
func opened(pid string, f *os.File) (n int) {
	mine, err := f.Stat()
	if err != nil {
		return 0
	}
	dir := filepath.Join("/proc", pid, "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, fd := range fds {
		if theirs, err := os.Stat(filepath.Join(dir, fd.Name())); err == nil && os.SameFile(mine, theirs) {
			n++
		}
	}
	return n
}

// exiting checks the status file of a process. A zombie, or a process with a pending
// SIGKILL, is exiting. A process without a readable status file has exited.
func exiting(status string) bool {
	const kill = 1 << (unix.SIGKILL - 1)
	file, err := os.Open(status)
	if err != nil {
		return true
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			if set, err := strconv.ParseUint(value, 16, 64); err == nil && set&kill != 0 {
				return true
			}
		}
	}
	return lines.Err() != nil
}

func readPID(r io.Reader) string {
	b, err := io.ReadAll(io.LimitReader(r, 20))
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" {
		return pid
	}
	return "unknown"
}

// HolderOf returns the PID of the daemon that holds the lock, or nothing if the lock is
// free.
func HolderOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	// A shared lock is enough for the check, and two checks do not block each other.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return ""
	}
	return readPID(f)
}
