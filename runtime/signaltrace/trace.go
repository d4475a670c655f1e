package signaltrace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Trace is a ring buffer of the kernel with the newest signals. A nil Trace has no
// senders.
type Trace struct {
	mount *os.File // tracefs, which is mounted nowhere
	dir   string   // of the ring buffer
}

// traced are the signals that people and programs send to end a process. Programs send
// others, such as SIGCHLD and SIGURG, all the time.
var traced = []syscall.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGKILL, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGTERM,
}

// bufferKB is the size of the ring buffer for each CPU: several hundred signals.
const bufferKB = 64

// initialPIDs is the inode of the first PID namespace. The kernel's process ids are
// those of this namespace.
const initialPIDs = "pid:[4026531836]"

// Open starts to trace signals, or continues the trace with this name.
func Open(name string) (*Trace, error) {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != initialPIDs {
		return nil, errors.New("cannot trace signals: dewd runs in a PID namespace of its own")
	}
	mount, err := tracefs()
	if err != nil {
		return nil, fmt.Errorf("cannot trace signals: %w", err)
	}
	t := &Trace{mount: mount, dir: fmt.Sprintf("/proc/self/fd/%d/instances/%s", mount.Fd(), name)}
	if err := t.start(); err != nil {
		mount.Close()
		return nil, fmt.Errorf("cannot trace signals: %w", err)
	}
	return t, nil
}

// tracefs opens the kernel's tracing files. Not every machine has mounted them, so this
// is a mount that only dewd can see.
func tracefs() (*os.File, error) {
	config, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot open tracefs: %w", err)
	}
	defer unix.Close(config)
	if err := unix.FsconfigCreate(config); err != nil {
		return nil, fmt.Errorf("cannot open tracefs: %w", err)
	}
	fd, err := unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot mount tracefs: %w", err)
	}
	return os.NewFile(uintptr(fd), "tracefs"), nil
}

func (t *Trace) start() error {
	if err := os.Mkdir(t.dir, 0o700); err == nil {
		// The size first: by default the kernel takes more than 1 MB for each CPU.
		if err := t.set("buffer_size_kb", fmt.Sprint(bufferKB)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	var terms []string
	for _, s := range traced {
		terms = append(terms, fmt.Sprintf("sig == %d", int(s)))
	}
	// Setting the clock or the filter again does not empty the buffer.
	return errors.Join(
		t.set("options/record-tgid", "1"), // the process of a thread
		t.set("trace_clock", "mono"),
		t.set("events/signal/signal_generate/filter", strings.Join(terms, " || ")),
		t.set("events/signal/signal_generate/enable", "1"),
	)
}

func (t *Trace) set(file, value string) error {
	if old, err := os.ReadFile(filepath.Join(t.dir, file)); err == nil && strings.Contains(string(old), "["+value+"]") {
		return nil // a clock that is set again empties the buffer
	}
	f, err := os.OpenFile(filepath.Join(t.dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Close ends the trace.
func (t *Trace) Close() error {
	if t == nil {
		return nil
	}
	return errors.Join(os.Remove(t.dir), t.mount.Close())
}

// Sender is the process that sent a signal.
type Sender struct {
	PID  int
	Name string // of the program, as ps shows it; empty if the kernel does not know it any more
}

// Find returns the sender of the newest signal to a process, if that is in the buffer
// and was sent between two times.
func (t *Trace) Find(pid int, sig syscall.Signal, from, to time.Time) (Sender, bool) {
	if t == nil {
		return Sender{}, false
	}
	text, err := os.ReadFile(filepath.Join(t.dir, "trace"))
	if err != nil {
		return Sender{}, false
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return Sender{}, false
	}
	boot := time.Now().Add(-time.Duration(now.Nano()))
	var found *event
	for line := range strings.Lines(string(text)) {
		e, ok := parse(line)
		if !ok || e.target != pid || e.signal != int(sig) {
			continue
		}
		if at := boot.Add(e.at); at.Before(from) || at.After(to) {
			continue
		}
		if found == nil || e.at >= found.at {
			found = &e
		}
	}
	if found == nil {
		return Sender{}, false
	}
	return found.sender, true
}
