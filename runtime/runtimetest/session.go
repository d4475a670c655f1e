package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/dewrun/dew/runtime"
)

// session is a session of a Fake. It understands the commands of this package, and
// three more: "cat", "echo text >&2", and "size", which prints the size of its
// terminal. A shell without a command reads commands from its input.
type session struct {
	spec runtime.ExecSpec
	in   *io.PipeWriter
	from *io.PipeReader
	out  *outbox
	err  *outbox

	mu    sync.Mutex // guards the fields below
	size  runtime.Size
	end   runtime.SessionEnd
	over  bool
	ended chan struct{}
}

// Sessions returns the number of sessions that are still running.
func (c *Container) Sessions() int {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(c.sessions), (*session).isOver))
}

func (h *handle) Exec(ctx context.Context, exec string, s runtime.ExecSpec) (runtime.Session, error) {
	g := h.container.machine
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(h.container.procs, func(p *proc) bool { return p.Exec == exec })
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case h.container.deleted:
		return nil, fmt.Errorf("cannot open a session: %w", runtime.ErrEnding)
	case i < 0 || h.container.procs[i].over:
		return nil, fmt.Errorf("cannot open a session beside %s: %w", exec, runtime.ErrNoInstance)
	}
	ses := newSession(s)
	h.container.sessions = append(h.container.sessions, ses)
	go ses.run()
	return ses, nil
}

func newSession(s runtime.ExecSpec) *session {
	ses := &session{spec: s, out: newOutbox(), err: newOutbox(), ended: make(chan struct{})}
	ses.from, ses.in = io.Pipe()
	if s.TTY != nil {
		ses.size = s.TTY.Size
	}
	return ses
}

func (s *session) run() {
	switch s.spec.Kind {
	case runtime.ExecCommand:
		s.finish(runtime.SessionEnd{Code: s.script(s.spec.Command)})
	case runtime.ExecShell:
		b, _ := io.ReadAll(s.from) // an error means that the session has ended
		s.finish(runtime.SessionEnd{Code: s.script(strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", "; "))})
	default: // a server that sends back its input
		s.finish(runtime.SessionEnd{Code: s.script("cat")})
	}
}

// script runs commands and returns the status of the last.
func (s *session) script(commands string) int {
	for _, c := range strings.Split(commands, "; ") {
		word, rest, _ := strings.Cut(c, " ")
		switch {
		case word == "echo" && strings.HasSuffix(rest, " >&2"):
			s.err.write([]byte(strings.TrimSuffix(rest, " >&2") + "\n"))
		case word == "echo":
			s.out.write([]byte(rest + "\n"))
		case c == "cat":
			_, _ = io.Copy(s.out, s.from) // an error means that the session has ended
		case c == "size":
			s.mu.Lock()
			s.out.write(fmt.Appendf(nil, "%dx%d\n", s.size.Columns, s.size.Rows))
			s.mu.Unlock()
		case word == "sleep":
			<-s.ended
		case c == "kill -9 $$":
			return 137
		case word == "exit":
			code, err := strconv.Atoi(rest)
			if err != nil {
				return 2
			}
			return code
		case c != "":
			s.err.write([]byte(c + ": not found\n"))
			return 127
		}
	}
	return 0
}

func (s *session) finish(e runtime.SessionEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over, s.end = true, e
	close(s.ended)
	s.from.CloseWithError(syscall.EPIPE)
	s.in.CloseWithError(io.EOF)
	s.out.close()
	s.err.close()
}

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (s *session) Streams() runtime.Streams {
	return runtime.Streams{In: s.in, Out: s.out, Err: s.err}
}

func (s *session) Resize(ctx context.Context, size runtime.Size) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spec.TTY == nil {
		return errors.New("cannot resize: the session has no terminal")
	}
	s.size = size
	return ctx.Err()
}

func (s *session) Signal(sig syscall.Signal) error {
	s.finish(runtime.SessionEnd{Code: 128 + int(sig)})
	return nil
}

func (s *session) Wait(ctx context.Context) (runtime.SessionEnd, error) {
	select {
	case <-s.ended:
		return s.end, nil
	case <-ctx.Done():
		return runtime.SessionEnd{}, ctx.Err()
	}
}

func (s *session) Close() error {
	s.finish(runtime.SessionEnd{Code: 137})
	return nil
}

// outbox is an unlimited buffer for output that waits for its reader.
type outbox struct {
	mu     sync.Mutex
	data   bytes.Buffer
	closed bool
	more   chan struct{} // buffer of 1
}

func newOutbox() *outbox { return &outbox{more: make(chan struct{}, 1)} }

func (o *outbox) Write(b []byte) (int, error) {
	o.write(b)
	return len(b), nil
}

func (o *outbox) write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data.Write(b)
	o.wake()
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// Read supports one reader at a time.
func (o *outbox) Read(b []byte) (int, error) {
	for {
		o.mu.Lock()
		n, _ := o.data.Read(b) // empty: wait for more, or return the end
		closed := o.closed
		o.mu.Unlock()
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		if closed {
			return 0, io.EOF
		}
		<-o.more
	}
}
