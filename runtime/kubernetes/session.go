package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes/link"
)

// session is a program next to the processes of a Pod.
type session struct {
	c      *container
	tty    bool
	s      *link.Stream
	frames *link.Frames
	out    *buffer
	err    *buffer

	once  sync.Once
	end   runtime.SessionEnd // set before ended is closed
	ended chan struct{}
	close sync.Once
}

// lostCode is the status of a session that did not exit by itself.
const lostCode = 255

// Exec opens a session next to one of the processes.
func (c *container) Exec(ctx context.Context, exec string, spec runtime.ExecSpec) (runtime.Session, error) {
	if c.stopping.Load() {
		return nil, fmt.Errorf("cannot open a session: %w", runtime.ErrEnding)
	}
	for _, p := range c.procs {
		c.mu.Lock()
		exited := p.exited
		c.mu.Unlock()
		if p.Exec != exec || exited {
			continue
		}
		return c.openSession(ctx, p, spec)
	}
	return nil, fmt.Errorf("cannot open a session: process %s: %w", exec, runtime.ErrNoInstance)
}

func (c *container) openSession(ctx context.Context, p *proc, spec runtime.ExecSpec) (*session, error) {
	agent, err := c.agent(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot open a session: %w", err)
	}
	first, err := link.Frame(link.KindSpec, c.sessionOf(p, spec))
	if err != nil {
		return nil, err
	}
	s, err := agent.Stream(ctx, link.PathSession+"?exec="+p.Exec, first)
	if err != nil {
		return nil, callError("cannot open a session", err)
	}
	ses := &session{c: c, tty: spec.TTY != nil, s: s, frames: link.NewFrames(s), out: newBuffer(), err: newBuffer(), ended: make(chan struct{})}
	c.mu.Lock()
	c.sessions[ses] = true
	c.spawn(ses.read)
	released := c.released
	c.mu.Unlock()
	if released {
		_ = s.Close() // its output would not be read
		return nil, fmt.Errorf("cannot open a session: %w", runtime.ErrEnding)
	}
	if spec.Kind == runtime.ExecSocket {
		if err := ses.connected(ctx); err != nil {
			return nil, errors.Join(err, ses.Close())
		}
	}
	return ses, nil
}

// sessionOf returns the settings of a session.
func (c *container) sessionOf(p *proc, spec runtime.ExecSpec) link.Session {
	args := []string{"session"}
	if shell := c.spec.Stack.Shell; shell != "" {
		args = append(args, "--shell", shell)
	}
	if spec.TTY != nil && len(spec.TTY.Modes) > 0 {
		var modes []string
		for _, m := range spec.TTY.Modes {
			modes = append(modes, strconv.Itoa(int(m.Opcode))+"="+strconv.FormatUint(uint64(m.Value), 10))
		}
		args = append(args, "--modes", strings.Join(modes, ","))
	}
	var rest []string
	switch spec.Kind {
	case runtime.ExecCommand:
		rest = []string{"--", spec.Command}
	case runtime.ExecFiles:
		rest = []string{"--exec", "--", sftpProgram}
	case runtime.ExecSocket:
		rest = []string{"--socket", spec.Command}
	}
	out := link.Session{Env: spec.Env, TTY: spec.TTY != nil, Dir: p.Dir, Given: p.Env}
	out.Args = append(append(out.Args, args...), rest...)
	out.Profile = append(out.Profile, args...)
	if p.User == nil { // an image app has no profile scripts
		out.Profile = append(out.Profile, "--profile")
	}
	out.Profile = append(out.Profile, rest...)
	if spec.TTY != nil {
		out.Size = link.Size(spec.TTY.Size)
	}
	return out
}

// socketPatience is how long a program can take to accept a session at its socket.
const socketPatience = 10 * time.Second

// connected waits until a session is connected to its socket. The session then writes a
// zero to its standard error; anything else is the reason of a failure.
func (s *session) connected(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, socketPatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.abandon("no program accepted the connection") })
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

// read handles the frames of the session until its end.
func (s *session) read() {
	for buf := make([]byte, 4<<10); ; {
		k, b, err := link.ReadFrame(s.s, buf)
		if err != nil {
			break
		}
		switch k {
		case link.KindStdout:
			s.out.put(b)
		case link.KindStderr:
			s.err.put(b)
		case link.KindResult:
			var r link.SessionResult
			if json.Unmarshal(b, &r) == nil {
				s.finish(runtime.SessionEnd{Code: r.Code})
			}
		}
	}
	s.out.end()
	s.err.end()
	why := "the connection with its instance was lost"
	if s.c.stopping.Load() {
		why = "its instance has ended"
	} else if s.c.ctx.Err() != nil {
		why = "dewd is stopping"
	}
	s.finish(runtime.SessionEnd{Code: lostCode, Why: why})
	s.c.mu.Lock()
	delete(s.c.sessions, s)
	s.c.mu.Unlock()
}

func (s *session) finish(end runtime.SessionEnd) {
	s.once.Do(func() {
		s.end = end
		close(s.ended)
	})
}

// abandon ends the session for a reason.
func (s *session) abandon(why string) {
	s.finish(runtime.SessionEnd{Code: lostCode, Why: why})
	_ = s.s.Close() // this ends its output
}

// Streams returns the ends of its input and output.
func (s *session) Streams() runtime.Streams {
	st := runtime.Streams{In: input{s}, Out: s.out, Err: s.err}
	if s.tty {
		st.Err = strings.NewReader("")
	}
	return st
}

// input is the input of a session.
type input struct{ s *session }

// inputSize is the maximum number of bytes in one frame.
const inputSize = 32 << 10

func (i input) Write(b []byte) (int, error) {
	written := 0
	for len(b) > 0 {
		n := min(len(b), inputSize)
		if err := i.s.frames.Write(link.KindInput, b[:n]); err != nil {
			return written, err
		}
		written, b = written+n, b[n:]
	}
	return written, nil
}

// Close ends the input.
func (i input) Close() error {
	err := i.s.frames.Write(link.KindInputEnd)
	select {
	case <-i.s.ended: // there is nothing to close
		return nil
	default:
		return err
	}
}

// Resize changes the size of its terminal.
func (s *session) Resize(_ context.Context, size runtime.Size) error {
	if !s.tty {
		return errors.New("cannot resize: the session has no terminal")
	}
	return s.frames.JSON(link.KindResize, link.Size(size))
}

// Signal sends sig to every process of the session.
func (s *session) Signal(sig syscall.Signal) error {
	return s.frames.Write(link.KindSignal, link.Number(uint64(sig)))
}

// Wait returns the result of the session.
func (s *session) Wait(ctx context.Context) (runtime.SessionEnd, error) {
	select {
	case <-s.ended:
		return s.end, nil
	case <-ctx.Done():
		return runtime.SessionEnd{}, fmt.Errorf("cannot wait for the session: %w", context.Cause(ctx))
	}
}

// Close kills the processes that still run in the session and removes it.
func (s *session) Close() error {
	s.close.Do(func() {
		s.out.drop()
		s.err.drop()
		if s.Signal(syscall.SIGKILL) == nil {
			select {
			case <-s.ended:
			case <-time.After(finishTimeout):
			}
		}
		_ = s.s.Close() // this ends the processes that are left
	})
	return nil
}

// bufferSize is how much unread output a session keeps. More output waits in the Pod.
const bufferSize = 1 << 20

// buffer is output that was not read yet.
type buffer struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    []byte
	ended   bool
	dropped bool
}

func newBuffer() *buffer {
	b := &buffer{}
	b.changed = sync.NewCond(&b.mu)
	return b
}

func (b *buffer) put(data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.data) >= bufferSize && !b.dropped {
		b.changed.Wait()
	}
	if !b.dropped {
		b.data = append(b.data, data...)
	}
	b.changed.Broadcast()
}

func (b *buffer) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.changed.Broadcast()
}

// drop discards all output.
func (b *buffer) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data, b.dropped = nil, true
	b.changed.Broadcast()
}

// Read returns output, and io.EOF after the last.
func (b *buffer) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.data) == 0 {
		if b.ended || b.dropped {
			return 0, io.EOF
		}
		b.changed.Wait()
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	if len(b.data) == 0 {
		b.data = nil
	}
	b.changed.Broadcast()
	return n, nil
}
