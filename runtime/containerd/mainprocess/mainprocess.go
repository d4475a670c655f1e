package mainprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/mainfile"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/runtime/userns"
)

// fileName is the name of the file in the folder of an instance.
const fileName = "main"

// Main is the main process of one container.
type Main struct {
	Conn      *connection.Connection
	Cgroups   *cgroup.Hierarchies
	Instance  runtime.InstanceID
	Container string
	Dir       string // run-time files of the instance
}

// Path returns the path of the file for PID 1.
func (m *Main) Path() string { return filepath.Join(m.Dir, fileName) }

// Requested reports whether PID 1 started the process of an existing container. Earlier
// versions of dewd started it as an exec.
func (m *Main) Requested() (bool, error) {
	_, err := os.Stat(m.Path())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("cannot find out how the main process was started: %w", err)
	}
	return err == nil, nil
}

// Request writes the file. Root of the container must be able to open it.
func (m *Main) Request(p *specs.Process, root userns.Range) error {
	b, err := mainfile.Request{UID: p.User.UID, GID: p.User.GID, Dir: p.Cwd, Args: p.Args, Env: p.Env}.Encode()
	if err != nil {
		return fmt.Errorf("cannot start the main process: %w", err)
	}
	if err := runfile.Write(m.Path(), string(b), 0o600); err != nil {
		return err
	}
	return root.Own(m.Path())
}

// FailedError is the reason why PID 1 could not start the process.
type FailedError struct{ Reason string }

func (e *FailedError) Error() string { return e.Reason }

// Started returns the process after PID 1 has started it. It waits at its gate.
func (m *Main) Started(ctx context.Context, init runfile.Process) (runfile.Process, error) {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		over := process.Ended(init.PID, init.Born) // before the last look
		p, found, err := m.started(init)
		if failed := (*FailedError)(nil); found || errors.As(err, &failed) || errors.Is(err, errNotFound) {
			return p, err
		}
		if over && err == nil {
			return p, errors.New("the first process of the container ended before it started the main process")
		}
		// Another error can pass, such as too many open files.
		if serr := process.Sleep(ctx, wait); serr != nil {
			return p, errors.Join(fmt.Errorf("the first process of the container did not start the main process: %w", serr), err)
		}
	}
}

// started returns the process if PID 1 has reported its start.
func (m *Main) started(init runfile.Process) (p runfile.Process, found bool, err error) {
	b, err := mainfile.ReadReports(m.Path())
	if err != nil {
		return p, false, fmt.Errorf("cannot read the reports of PID 1: %w", err)
	}
	s, ok := mainfile.ReadStart(b)
	switch {
	case !ok:
		return p, false, nil
	case s.Failure != "":
		return p, false, &FailedError{Reason: s.Failure}
	}
	p, err = m.find(s.PID, init, cgroup.InitLeaf)
	return p, err == nil, err
}

// Running returns the process of an instance that an earlier daemon started, or zero if it
// has exited.
func (m *Main) Running(init runfile.Process, leaf string) (runfile.Process, error) {
	b, err := mainfile.ReadReports(m.Path())
	if err != nil {
		return runfile.Process{}, fmt.Errorf("cannot read the reports of PID 1: %w", err)
	}
	s, ok := mainfile.ReadStart(b)
	if _, exited := mainfile.ReadExit(b); exited || !ok || process.Ended(init.PID, init.Born) {
		return runfile.Process{}, nil
	}
	p, err := m.find(s.PID, init, leaf, cgroup.InitLeaf)
	if errors.Is(err, errNotFound) {
		return runfile.Process{}, nil // it is exiting
	}
	return p, err
}

// errNotFound reports that no process has the number that PID 1 reported.
var errNotFound = errors.New("the main process cannot be found")

// find returns the process that PID 1 sees with a number.
func (m *Main) find(number int, init runfile.Process, leaves ...string) (runfile.Process, error) {
	own, err := process.Numbers(init.PID)
	if err != nil {
		return runfile.Process{}, err
	}
	depth := len(own)
	for _, leaf := range leaves {
		pids, err := m.Cgroups.Procs(m.Instance, leaf)
		if err != nil {
			return runfile.Process{}, err
		}
		for _, pid := range pids {
			born := process.BornAt(pid)
			seen, err := process.Numbers(pid)
			if err != nil {
				return runfile.Process{}, err
			}
			if len(seen) == 0 || len(seen) != depth || seen[depth-1] != number {
				continue
			}
			if born == 0 {
				return runfile.Process{}, errors.New("cannot read the start time of the main process")
			}
			return runfile.Process{PID: pid, Born: born}, nil
		}
	}
	return runfile.Process{}, errNotFound
}

// reportLimit is how long the report about an exited process can be missing.
const reportLimit = 10 * time.Second

const killed = 128 + 9

// errNoShim reports that the shim of the container ended first. What the process did after
// that, such as the end by SIGPIPE, is not the fault of the app.
var errNoShim = errors.New("the shim of the container is gone")

// Parents are the processes above the main process. One without a start time is not known.
type Parents struct{ Init, Shim runfile.Process }

func (p Parents) shimEnded() bool { return p.Shim.Born != 0 && process.Ended(p.Shim.PID, p.Shim.Born) }

// Wait returns the status and the time of the exit. An error means that they are lost.
func (m *Main) Wait(ctx context.Context, p runfile.Process, parents Parents) (int, time.Time, error) {
	init := parents.Init
	if p.PID != 0 {
		if err := process.AwaitEnd(ctx, p.PID, p.Born); err != nil {
			return 0, time.Now(), err
		}
	}
	ended := time.Now()
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 50*time.Millisecond) {
		over := init.PID == 0 || process.Ended(init.PID, init.Born)
		b, err := mainfile.ReadReports(m.Path())
		x, ok := mainfile.ReadExit(b)
		switch {
		case ok && parents.shimEnded():
			return 0, x.At, errNoShim
		case ok:
			return x.Code, x.At, nil
		case errors.Is(err, os.ErrNotExist):
			return 0, ended, fmt.Errorf("cannot read the reports of PID 1: %w", err)
		case err != nil: // such as too many open files, which passes
			over = false
			ended = time.Now()
		}
		if over {
			break
		}
		if time.Since(ended) > reportLimit {
			return 0, ended, errors.New("the first process of the container did not report the exit status")
		}
		if err := process.Sleep(ctx, wait); err != nil {
			return 0, ended, err
		}
	}
	// When PID 1 ends, the kernel kills the others. If the shim is gone, containerd has killed
	// PID 1, and the status is lost like that of an exec.
	_, at, err := m.Conn.Wait(ctx, m.Container, "")
	return killed, at, err
}

// copyLimit is how long a shim has to copy the last output. containerd has the same limit
// for an exec.
const copyLimit = 10 * time.Second

// Copied returns when the shim has copied all output of a process whose leaf is empty: then
// it closes the files.
func Copied(ctx context.Context, shim int, files ...string) error {
	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		held := process.OpenFiles(shim)
		open := held == nil && process.Alive(shim) // it could not be read
		for _, path := range files {
			id, err := process.FileID(path)
			open = open || err == nil && held[id]
		}
		if !open {
			return nil
		}
		if err := process.Sleep(ctx, wait); err != nil {
			return fmt.Errorf("the shim still copies output: %w", err)
		}
	}
}
