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

// An attached task lends its container to one session, which runs the command of
// the task with the input and output of a client:
//
//	container started ──▶ Attach: session with the command ──▶ session closed ──▶ result kept, container removed
//	        └── nobody attaches within attachLimit ──▶ failed
//
// The main process of the container only waits. The task ends with its session: when
// the command ends, when the client is gone, or when the daemon that serves the
// client is.

// attachLimit is how long the container of an attached task waits for its session.
const attachLimit = time.Minute

// Why an attached task failed whose command did not end by itself.
const (
	attachDisconnected = "dew run disconnected"
	attachLost         = "dewd was restarted, which disconnected dew run"
)

var attachLate = fmt.Sprintf("dew run did not connect within %s", attachLimit)

// errNotAttachable says that a task has no session to give.
var errNotAttachable = errors.New("the task is not waiting for a session")

// attachment is the session of an attached task.
type attachment struct {
	ended chan attachEnd // holds one

	mu        sync.Mutex        // guards the fields below
	container runtime.Container // where the session can be opened; nil: nowhere, or nowhere any more
	session   runtime.Session   // nil: none yet
}

// attachEnd is how the session of an attached task ended.
type attachEnd struct {
	code int    // of its command
	why  string // not empty: not by itself, and this is why
}

// Attach opens the session of a task that was created to be attached to. It runs the
// command of the task, whatever spec says. The task ends when the session is closed.
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

// open opens the one session.
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

// offer lets a session be opened in t.
func (a *attachment) offer(c runtime.Container) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.container = c
}

// withdraw lets no session be opened any more. It returns false if there is one.
func (a *attachment) withdraw() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.container = nil
	return a.session == nil
}

// terminate asks the command to end, and waits until it has, for a while.
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
		_, _ = ses.Wait(ctx) // what still runs is killed with its container
	}
}

// attachedSession tells its task how it ended. It does so when it is closed: before
// that, output may be unread, which would go with the container.
type attachedSession struct {
	runtime.Session
	ended chan<- attachEnd
	once  sync.Once

	mu  sync.Mutex
	end *attachEnd // guarded by mu; nil: it runs
}

// Wait returns how it ended.
func (a *attachedSession) Wait(ctx context.Context) (runtime.SessionEnd, error) {
	end, err := a.Session.Wait(ctx)
	if err == nil {
		a.note(attachEnd{code: end.Code, why: end.Why})
	}
	return end, err
}

// note keeps the first of the ends that it is told.
func (a *attachedSession) note(end attachEnd) attachEnd {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end == nil {
		a.end = &end
	}
	return *a.end
}

// Close ends the command if it still runs, and then the task.
func (a *attachedSession) Close() error {
	end := a.note(attachEnd{why: attachDisconnected})
	err := a.Session.Close()
	a.once.Do(func() { a.ended <- end })
	return err
}
