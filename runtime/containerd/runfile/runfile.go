package runfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// Write writes a run-time file atomically: a reader sees all of it or nothing. It
// does not sync the file, because the run folder does not survive a reboot.
func Write(path, data string, mode fs.FileMode) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	_, err = f.WriteString(data)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil { // independent of the umask
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// openTimeout is how long the reader of a FIFO can take to open it.
const openTimeout = 30 * time.Second

// OpenGate writes the line that a launcher waits for: the time of the start. If the gate
// does not exist, it was already opened. It gives up if the launcher has ended.
func OpenGate(ctx context.Context, path string, launcher Process, start time.Time) error {
	f, err := OpenFIFO(ctx, path, launcher)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(start.UTC().Format(runtime.StartFormat) + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

// Process is a process with its start time.
type Process struct {
	PID  int
	Born uint64
}

// OpenFIFO opens the write end. When the shim reports the process as started, it has
// possibly not opened its own end yet. If the process has ended, the shim never does. The
// zero reader is a process that can end at any time.
func OpenFIFO(ctx context.Context, path string, reader Process) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.ENXIO) {
			return f, err
		}
		if process.Ended(reader.PID, reader.Born) {
			return nil, fmt.Errorf("%w: the process ended before it could run", runtime.ErrUnavailable)
		}
		if perr := process.Sleep(ctx, wait); perr != nil {
			// The app is not known to be at fault: the start is tried again.
			return nil, fmt.Errorf("%w: %w: %w", runtime.ErrUnavailable, err, perr)
		}
	}
}
