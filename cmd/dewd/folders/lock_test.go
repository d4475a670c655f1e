package folders

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// signalWriter reports every log line.
type signalWriter chan string

func (w signalWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// orphan creates a lock that a killed process left to a child. The file has the PID of
// the dead process, and the child holds the lock. It returns the path and a function
// that stops the child.
func orphan(t *testing.T) (path string, end func()) {
	t.Helper()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, []byte(strconv.Itoa(dead.Process.Pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "3600")
	child.ExtraFiles = []*os.File{f}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		if err := child.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = child.Wait() // it was killed
	}
	t.Cleanup(end)
	return path, end
}

// dewd waits for a lock that is held for a moment after its dewd was killed, and logs
// one line.
func TestLockWaitsForADeadHolder(t *testing.T) {
	path, end := orphan(t)
	lines := make(signalWriter, 8)
	taken := make(chan error, 1)
	go func() {
		f, err := lockFile(t.Context(), path, slog.New(slog.NewTextHandler(lines, nil)))
		if err == nil {
			err = f.Close()
		}
		taken <- err
	}()
	select {
	case line := <-lines:
		if !strings.Contains(line, "waiting for the lock") {
			t.Errorf("log = %q, want the wait", line)
		}
	case err := <-taken:
		t.Fatalf("the lock was not waited for: %v", err)
	}
	end()
	if err := <-taken; err != nil {
		t.Errorf("error = %v, want the lock", err)
	}
	if len(lines) > 0 {
		t.Errorf("a second line in the log: %q", <-lines)
	}
	if b, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(os.Getpid()) {
		t.Errorf("pid in the file = %q, %v, want our own", b, err)
	}
}

// A dewd that is stopped while it waits for the lock stops.
func TestLockWaitEnds(t *testing.T) {
	path, _ := orphan(t)
	ctx, cancel := context.WithCancel(t.Context())
	lines := make(signalWriter, 8)
	taken := make(chan error, 1)
	go func() {
		_, err := lockFile(ctx, path, slog.New(slog.NewTextHandler(lines, nil)))
		taken <- err
	}()
	<-lines
	cancel()
	if err := <-taken; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want that of the context", err)
	}
}

// Only a process that has the file open and is not being killed holds a lock.
func TestIsRunning(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !IsRunning(strconv.Itoa(os.Getpid()), f) {
		t.Error("this process has the file, and is said not to run")
	}
	stranger := exec.Command("cat") // another process that got the PID of a former dewd
	in, err := stranger.StdinPipe()
	if err == nil {
		err = stranger.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(stranger.Process.Pid)
	if IsRunning(pid, f) {
		t.Error("a process without the file is said to hold it")
	}
	// A zombie is a process that has exited and was not waited for.
	zombie := exec.Command("true")
	out, err := zombie.StdoutPipe()
	if err == nil {
		err = zombie.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(out) // this returns when the process exits
	if err := unix.Waitid(unix.P_PID, zombie.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !exiting(filepath.Join("/proc", strconv.Itoa(zombie.Process.Pid), "status")) {
		t.Error("a zombie is said to run")
	}
	in.Close()
	if err := errors.Join(stranger.Wait(), zombie.Wait()); err != nil {
		t.Error(err)
	}
	if IsRunning("unknown", f) || IsRunning(pid, f) {
		t.Error("a process that is gone is said to run")
	}
}

func TestExiting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status")
	for _, tt := range []struct {
		name, status string
		want         bool
	}{
		{"running", "Name:\tdewd\nState:\tS (sleeping)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n", false},
		{"other signals", "State:\tD (disk sleep)\nSigPnd:\t0000000000004000\nShdPnd:\t0000000000010000\n", false},
		{"killed while it waits for the disk", "State:\tD (disk sleep)\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n", true},
		{"killed as a whole", "State:\tR (running)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n", true},
		{"zombie", "State:\tZ (zombie)\n", true},
		{"dead", "State:\tX (dead)\n", true},
	} {
		if err := os.WriteFile(path, []byte(tt.status), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := exiting(path); got != tt.want {
			t.Errorf("%s: exiting = %t, want %t", tt.name, got, tt.want)
		}
	}
	if !exiting(path + "-none") {
		t.Error("a process that is gone is said to run")
	}
	if exiting(filepath.Join("/proc", strconv.Itoa(syscall.Getpid()), "status")) {
		t.Error("this process is said to exit")
	}
}

// In a Pod, every dewd has PID 1. A lock of the last Pod is not the lock of this process.
func TestLockOfAnotherPod(t *testing.T) {
	path, end := orphan(t)
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := make(signalWriter, 8)
	taken := make(chan error, 1)
	go func() {
		f, err := lockFile(t.Context(), path, slog.New(slog.NewTextHandler(lines, nil)))
		if err == nil {
			err = f.Close()
		}
		taken <- err
	}()
	select {
	case <-lines: // it waits
	case err := <-taken:
		t.Fatalf("the lock was not waited for: %v", err)
	}
	end()
	if err := <-taken; err != nil {
		t.Errorf("error = %v, want the lock", err)
	}
}
