package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// The container of an attached task has one session, which runs the command of the task
// with the input and output of a client:
//
//	container started ──▶ Attach: session with the command ──▶ session closed ──▶ result stored, container removed
//	        └── no client attaches within attachLimit ──▶ failed
//
// The main process of the container only waits. The task ends with its session: when
// the command exits, when the client disconnects, or when the daemon that serves the
// client stops.

// attachLimit is how long the container of an attached task waits for its session.
const attachLimit = time.Minute

// Failure reasons of an attached task whose command did not exit by itself.
const (
	attachDisconnected = "dew run disconnected"
	attachLost         = "dewd was restarted, which disconnected dew run"
)

var attachLate = fmt.Sprintf("dew run did not connect within %s", attachLimit)

// errNotAttachable reports that a task is not waiting for a session.
var errNotAttachable = errors.New("the task is not waiting for a session")

// attachment is the session of an attached task.
type attachment struct {
	ended chan attachEnd // buffer of 1

	mu        sync.Mutex        // guards the fields below
	container runtime.Container // for the session; nil: no session can be opened
	session   runtime.Session   // nil: none yet
}

// attachEnd is the result of the session of an attached task.
type attachEnd struct {
	code int    // exit status of its command
	why  string // not empty: the command did not exit by itself, for this reason
}

// Attach opens the session of a task that was created to be attached to. It always runs
// the command of the task, not that of spec. The task ends when the session is closed.
func (s *Supervisor) Attach(ctx context.Context, task string, spec runtime.ExecSpec) (runtime.Session, error) {
	t, err := s.c.Registry.Task(task)
	if err != nil {
		return nil, err
	}
	r := s.tasks.of(task)
	if r == nil || !t.Attached {
		return nil, errNotAttachable
	}
	spec.Kind, spec.Command = runtime.ExecCommand, t.Command
	if t.Command == app.ShellCommand {
		spec.Kind, spec.Command = runtime.ExecShell, ""
	}
	return r.attached.open(ctx, spec)
}

// open opens the only session.
func (a *attachment) open(ctx context.Context, spec runtime.ExecSpec) (runtime.Session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.container == nil {
		return nil, errNotAttachable
	}
	ses, err := a.container.Exec(ctx, runtime.MainExec, spec)
	if err != nil {
		return nil, err
	}
	a.container, a.session = nil, ses
	return &attachedSession{Session: ses, ended: a.ended}, nil
}

// offer allows a session in c.
func (a *attachment) offer(c runtime.Container) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.container = c
}

// withdraw allows no more sessions. It returns false if there is one.
func (a *attachment) withdraw() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.container = nil
	return a.session == nil
}

// terminate sends SIGTERM to the command, and waits a limited time until it has exited.
func (a *attachment) terminate(ctx context.Context, patience time.Duration) {
	if a.withdraw() {
		return
	}
	a.mu.Lock()
	ses := a.session
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if ses.Signal(syscall.SIGTERM) == nil {
		_, _ = ses.Wait(ctx) // processes that still run are killed with their container
	}
}

// attachedSession reports its result to its task when it is closed. Before that, output
// can be unread, and it would be lost with the container.
type attachedSession struct {
	runtime.Session
	ended chan<- attachEnd
	once  sync.Once

	mu  sync.Mutex
	end *attachEnd // guarded by mu; nil: it is running
}

// Wait returns the result of the session.
func (a *attachedSession) Wait(ctx context.Context) (runtime.SessionEnd, error) {
	end, err := a.Session.Wait(ctx)
	if err == nil {
		a.note(attachEnd{code: end.Code, why: end.Why})
	}
	return end, err
}

// note stores the first of the results that it receives.
func (a *attachedSession) note(end attachEnd) attachEnd {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end == nil {
		a.end = &end
	}
	return *a.end
}

// Close stops the command if it still runs, and then the task.
func (a *attachedSession) Close() error {
	end := a.note(attachEnd{why: attachDisconnected})
	err := a.Session.Close()
	a.once.Do(func() { a.ended <- end })
	return err
}
