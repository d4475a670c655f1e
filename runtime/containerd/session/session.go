package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/process"
)

// Prefix is the prefix of the exec id of every session, which is also its leaf and the
// name of its pipes.
const Prefix = "ssh-"

// Session is an exec for a client. Its output goes through pipes: the shim copies the
// process's output into them and closes its end after the last byte. Only the end of a
// pipe shows that all output was read, and only then is the exec deleted. A deletion
// waits at most two seconds for a slow reader and then drops the rest.
type Session struct {
	all  *Sessions
	exec string
	tty  bool
	in   *os.File
	out  *output
	err  *output

	end   runtime.SessionEnd // set before ended is closed
	ended chan struct{}
	gone  chan struct{} // closed when the session is removed, or the daemon released the instance
	once  sync.Once
}

// output is the read end of a pipe.
type output struct {
	f    *os.File
	once sync.Once
	done chan struct{} // closed at its end
}

func (o *output) Read(b []byte) (int, error) {
	n, err := o.f.Read(b)
	if err != nil {
		o.once.Do(func() { close(o.done) })
	}
	return n, err
}

// socketPatience is how long a program can take to accept a session at its socket.
const socketPatience = 10 * time.Second

// connected waits until a session is connected to its socket. The session then writes a
// zero to its standard error; anything else is the reason of a failure. The limit is
// for a program that listens and never accepts.
func (s *Session) connected(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, socketPatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // this ends its output
	defer stop()
	first := make([]byte, 1)
	if _, err := io.ReadFull(s.err, first); err == nil && first[0] == 0 {
		return nil
	}
	rest, _ := io.ReadAll(io.LimitReader(s.err, 1<<10)) // as much of the reason as there is
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("no program listens on the socket: %w", err)
	}
	return errors.New(strings.TrimPrefix(strings.TrimSpace(string(first)+string(rest)), "dew-init: "))
}

func (s *Session) pipe(kind string) string {
	return filepath.Join(s.all.cfg.Dir, s.exec+"."+kind)
}

// start creates the session and opens its gate.
func (s *Session) start(ctx context.Context, p *specs.Process, spec runtime.ExecSpec) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	cfg := s.all.cfg
	// The leaf comes first, because the next daemon finds the session by its leaf.
	if err := cfg.Cgroups.CreateLeaf(cfg.Instance, s.exec, 0); err != nil {
		return err
	}
	if err := s.openPipes(); err != nil {
		return err
	}
	oci, err := typeurl.MarshalAnyToProto(p)
	if err != nil {
		return fmt.Errorf("cannot encode process: %w", err)
	}
	req := &tasks.ExecProcessRequest{
		ContainerID: s.all.cfg.Container, ExecID: s.exec, Spec: oci, Terminal: s.tty, Stdin: s.pipe("in"), Stdout: s.pipe("out"),
	}
	if !s.tty {
		req.Stderr = s.pipe("err")
	}
	if _, err := cfg.Conn.Tasks.Exec(ctx, req); err != nil {
		return connection.Native(err)
	}
	r, err := cfg.Conn.Tasks.Start(ctx, &tasks.StartRequest{ContainerID: s.all.cfg.Container, ExecID: s.exec})
	if err != nil {
		return connection.Native(err)
	}
	if s.in, err = runfile.OpenFIFO(ctx, s.pipe("in"), runfile.Process{}); err != nil {
		return err
	}
	if s.tty {
		// Set the size of the terminal before the program reads it. A client can omit
		// the size.
		if size := spec.TTY.Size; size.Columns > 0 && size.Rows > 0 {
			if err := s.Resize(ctx, size); err != nil {
				return err
			}
		}
	}
	// When the instance is out of memory, the app survives and the session does not.
	if err := process.SetOOMScore(int(r.Pid), 1000); err != nil {
		return err
	}
	return cfg.Cgroups.Place(cfg.Instance, s.exec, int(r.Pid))
}

// openPipes creates the pipes and opens the read ends. Otherwise the shim would wait
// for them.
func (s *Session) openPipes() error {
	kinds := []string{"in", "out"}
	if !s.tty {
		kinds = append(kinds, "err")
	}
	s.err = endedOutput()
	for _, kind := range kinds {
		if err := unix.Mkfifo(s.pipe(kind), 0o600); err != nil {
			return fmt.Errorf("cannot create pipe: %w", err)
		}
		if kind == "in" {
			continue
		}
		f, err := os.OpenFile(s.pipe(kind), os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("cannot open pipe: %w", err)
		}
		o := &output{f: f, done: make(chan struct{})}
		if kind == "out" {
			s.out = o
		} else {
			s.err = o
		}
	}
	return nil
}

// endedOutput returns an output that is empty and closed.
func endedOutput() *output {
	done := make(chan struct{})
	close(done)
	o := &output{done: done}
	o.once.Do(func() {})
	return o
}

func (s *Session) closePipes() error {
	var errs error
	if s.in != nil {
		errs = s.in.Close()
	}
	for _, o := range []*output{s.out, s.err} {
		if o != nil && o.f != nil {
			errs = errors.Join(errs, o.f.Close())
		}
	}
	return ignoreClosed(errs)
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// watch handles the session from its exit to its removal.
func (s *Session) watch() {
	defer close(s.gone)
	cfg := s.all.cfg
	code, _, err := cfg.Conn.Wait(cfg.Context, cfg.Container, s.exec)
	s.end = runtime.SessionEnd{Code: code}
	switch {
	case cfg.Context.Err() != nil && !cfg.Deleting():
		s.end = runtime.SessionEnd{Code: lostCode, Why: "dewd is stopping"}
	case s.all.Closed() || cfg.Exited():
		s.end = runtime.SessionEnd{Code: lostCode, Why: "its instance has ended" + cfg.Reason()}
	case err != nil:
		s.end = runtime.SessionEnd{Code: lostCode, Why: "containerd lost the session"}
	}
	ctx, cancel := context.WithTimeout(cfg.Context, finishTimeout)
	defer cancel()
	log := s.all.log.With("exec", s.exec)
	// Processes in the background would keep its pipes open.
	if err := cfg.Cgroups.Kill(ctx, cfg.Instance, s.exec); err != nil && cfg.Context.Err() == nil {
		log.Warn("cannot kill the remaining processes of a session", "err", err)
	}
	close(s.ended)
	for _, o := range []*output{s.out, s.err} {
		select {
		case <-o.done:
		case <-cfg.Context.Done():
			return // removed with the instance, or by the next daemon
		}
	}
	ctx, cancel = context.WithTimeout(cfg.Context, finishTimeout)
	defer cancel()
	if err := s.all.remove(ctx, s.exec); err != nil && cfg.Context.Err() == nil {
		log.Warn("cannot remove a session; the next dewd removes it", "err", err)
	}
}

// lostCode is the status of a session that did not exit by itself.
const lostCode = 255

// Streams returns the ends of its input and output.
func (s *Session) Streams() runtime.Streams {
	st := runtime.Streams{In: &input{s: s}, Out: s.out, Err: s.err}
	if s.tty {
		st.Err = strings.NewReader("")
	}
	return st
}

// input is the write end of a session's pipe.
type input struct {
	s    *Session
	once sync.Once
	err  error
}

func (i *input) Write(b []byte) (int, error) { return i.s.in.Write(b) }

// endOfText is the character that ends the input of a terminal.
const endOfText = 4

// Close ends the input. The shim holds the pipe open until CloseIO. CloseIO must not be
// called for a terminal, because it would drop the terminal with all unread output.
func (i *input) Close() error {
	i.once.Do(func() {
		if i.s.tty {
			_, i.err = i.s.in.Write([]byte{endOfText})
			return
		}
		i.err = ignoreClosed(i.s.in.Close())
		ctx, cancel := context.WithTimeout(i.s.all.cfg.Context, connection.CallTimeout)
		defer cancel()
		_, err := i.s.all.cfg.Conn.Tasks.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: i.s.all.cfg.Container, ExecID: i.s.exec, Stdin: true})
		// If the process has already exited, there is nothing to close.
		if err = connection.Native(err); err != nil && !errdefs.IsNotFound(err) && i.s.running() {
			i.err = errors.Join(i.err, err)
		}
	})
	return i.err
}

func (s *Session) running() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Resize changes the size of its terminal.
func (s *Session) Resize(ctx context.Context, size runtime.Size) error {
	if !s.tty {
		return errors.New("cannot resize: the session has no terminal")
	}
	ctx, cancel := context.WithTimeout(ctx, connection.CallTimeout)
	defer cancel()
	_, err := s.all.cfg.Conn.Tasks.ResizePty(ctx, &tasks.ResizePtyRequest{
		ContainerID: s.all.cfg.Container, ExecID: s.exec, Width: uint32(size.Columns), Height: uint32(size.Rows),
	})
	if err = connection.Native(err); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot resize the terminal: %w", err)
	}
	return nil
}

// Signal sends sig to every process of the session.
func (s *Session) Signal(sig syscall.Signal) error {
	return s.all.cfg.Cgroups.Signal(s.all.cfg.Instance, s.exec, sig)
}

// Wait returns the result of the session.
func (s *Session) Wait(ctx context.Context) (runtime.SessionEnd, error) {
	select {
	case <-s.ended:
		return s.end, nil
	case <-ctx.Done():
		return runtime.SessionEnd{}, fmt.Errorf("cannot wait for the session: %w", context.Cause(ctx))
	}
}

// Close kills the processes that still run in the session and removes it.
func (s *Session) Close() error {
	s.once.Do(func() {
		cfg := s.all.cfg
		// After the daemon has released the instance, nothing of it is changed.
		if cfg.Context.Err() == nil {
			ctx, cancel := context.WithTimeout(cfg.Context, finishTimeout)
			defer cancel()
			if err := cfg.Cgroups.Kill(ctx, cfg.Instance, s.exec); err != nil && cfg.Context.Err() == nil {
				s.all.log.Warn("cannot kill the processes of a session", "exec", s.exec, "err", err)
			}
		}
		// The output ends now: drain the unread part.
		var drained sync.WaitGroup
		for _, o := range []*output{s.out, s.err} {
			if o.f != nil {
				drained.Go(func() { _, _ = io.Copy(io.Discard, o) })
			}
		}
		select {
		case <-s.gone:
		case <-time.After(finishTimeout):
		}
		_ = s.closePipes() // readers stop, if they have not: no more errors to report
		drained.Wait()
	})
	return nil
}

var _ runtime.Session = (*Session)(nil)
