package sshd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/runtime"
)

// TerminalRequest is a shell that a user opens without SSH, such as in a browser. The
// caller has authenticated the user.
type TerminalRequest struct {
	Who     auth.Principal
	Process string             // guid
	Index   int                // of the instance
	Crashed runtime.InstanceID // not empty: the files of this crashed instance, and Index has no meaning
	Size    runtime.Size
	Peer    string // the client's address
}

// Terminal is an open shell. Its owner must close it.
type Terminal struct {
	runtime.Session
	s       *Server
	g       grant
	release func()
	began   time.Time
	last    atomic.Int64 // time of the last activity, in nanoseconds since began
}

// terminalType is the type of terminal that browsers have.
const terminalType = "xterm-256color"

// errStopped is the error for terminals while the daemon exits.
var errStopped = errors.New("dewd is stopping")

// ErrLost is the error of a terminal whose client does not respond.
var ErrLost = errors.New("the client does not respond")

// OpenTerminal opens a shell with the same checks, limits and records as an SSH login.
func (s *Server) OpenTerminal(ctx context.Context, r TerminalRequest) (*Terminal, error) {
	g, err := s.grant(r.Who, login{guid: r.Process, index: r.Index, crashed: r.Crashed})
	s.record(g, r.Peer, err)
	if err != nil {
		return nil, err
	}
	release, err := s.admitTerminal(g.instanceKey())
	if err != nil {
		return nil, err
	}
	ses, err := s.exec(ctx, g, runtime.ExecSpec{
		Kind: runtime.ExecShell, Env: []string{"TERM=" + terminalType}, TTY: &runtime.Terminal{Size: r.Size},
	})
	if err != nil {
		release()
		s.log.Warn("cannot open a terminal", "user", g.who.Name, "app", g.app.GUID, "process", g.process.GUID, "index", g.index, "err", err)
		return nil, err
	}
	return &Terminal{Session: ses, s: s, g: g, release: release, began: time.Now()}, nil
}

// admitTerminal counts a terminal as a connection and as a session of its instance.
func (s *Server) admitTerminal(at instanceKey) (release func(), err error) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil, errStopped
	}
	s.terminals.Add(1)
	s.mu.Unlock()
	select {
	case s.connections <- struct{}{}:
	default:
		s.terminals.Done()
		return nil, fmt.Errorf("there are already %d connections, which is the limit", s.limits.Connections)
	}
	if !s.countSession(at) {
		<-s.connections
		s.terminals.Done()
		return nil, fmt.Errorf("instance %d already has %d sessions, which is the limit", at.index, s.limits.Sessions)
	}
	return sync.OnceFunc(func() {
		s.uncountSession(at)
		<-s.connections
		s.terminals.Done()
	}), nil
}

// waitForTerminals refuses new terminals and waits until all are closed.
func (s *Server) waitForTerminals() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.terminals.Wait()
}

// Close ends the shell and everything that it started.
func (t *Terminal) Close() error {
	defer t.release()
	return t.Session.Close()
}

// Touch records an activity of the client or of the shell.
func (t *Terminal) Touch() { t.last.Store(int64(time.Since(t.began))) }

// Watch returns the reason why the terminal must be closed: it is idle, its user is no
// longer allowed, or its client does not respond. It returns nil when ctx is done.
func (t *Terminal) Watch(ctx context.Context, alive func(ctx context.Context) bool) error {
	ticker := time.NewTicker(t.s.limits.Alive)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if idle := time.Since(t.began) - time.Duration(t.last.Load()); idle >= t.s.limits.Idle {
			return fmt.Errorf("the terminal was idle for %s", idle.Round(time.Second))
		}
		if err := t.s.stillAllowed(t.g); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, t.s.limits.Answer)
		ok := alive(bounded)
		cancel()
		if !ok && ctx.Err() == nil {
			return ErrLost
		}
	}
}
