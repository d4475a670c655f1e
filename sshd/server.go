// Package sshd is the SSH server for instances. It provides shells, commands, file
// transfer and port forwarding to users with a one-time code.
//
//	client ─▶ Server: handshake, code ─▶ connection ─┬▶ session: shell, exec, sftp ─▶ runtime.Session
//	                                                 └▶ forward: a port or a socket ─▶ dialled inside the instance
//
// A session is an additional process in the instance, with the environment, folder and
// memory limit of the others. It ends with its instance, with its client and with the
// daemon. Its own exit affects nothing else.
package sshd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
)

// Instances gives access to the running instances for sessions and forwards.
// supervisor.Supervisor implements it.
type Instances interface {
	// Exec opens a session next to a process of a running instance.
	Exec(ctx context.Context, t runtime.ExecTarget, spec runtime.ExecSpec) (runtime.Session, error)
	// Attach opens the session of a task that was created to be attached to. The task
	// ends with it.
	Attach(ctx context.Context, task string, spec runtime.ExecSpec) (runtime.Session, error)
	// Crashed returns the stored files of crashed instances of a process, newest first.
	Crashed(process string) []runtime.CrashFiles
	// ExecCrashed opens a session on a copy of the files of a crashed instance.
	ExecCrashed(ctx context.Context, id runtime.InstanceID, sidecar string, spec runtime.ExecSpec) (runtime.Session, error)
	// Instances returns the status of the slots of a process.
	Instances(process string) []runtime.Status
	// Dial connects from inside a running instance.
	Dial(ctx context.Context, id runtime.InstanceID, network, address string) (net.Conn, error)
}

// Config configures a Server.
type Config struct {
	HostKey   string // file of the host key; created if missing
	Registry  *registry.Registry
	Instances Instances
	// Redeem consumes a one-time code. auth.Server implements it.
	Redeem func(code string) (auth.Principal, error)
	// Allow returns an error if the user cannot enter the instances of an app. It is
	// called again during the connection.
	Allow func(p auth.Principal, a app.App) error
	// Append adds lines to the log of an app.
	Append func(app string, es ...logstream.Envelope) error
	// Record is called for every login with a valid code. It can be nil.
	Record func(Access)
	Limits Limits
	Logger *slog.Logger
}

// Access is a login with a valid code, accepted or refused.
type Access struct {
	Who   auth.Principal
	App   app.App
	Type  string // of the process
	Index int
	Peer  string // the client's address
	Err   error  // the reason of a refusal; nil: accepted
}

// Limits limit the resources of clients. Zero means the default.
type Limits struct {
	Connections int           // logged in (256)
	Handshakes  int           // not logged in yet (64)
	Sessions    int           // of one instance (32)
	Channels    int           // of one connection, sessions and forwards (128)
	Dials       int           // forwards that wait for a connection (16)
	Tries       int           // login attempts of one connection (3)
	Handshake   time.Duration // from the first byte to the login (30 s)
	Idle        time.Duration // without data or requests from the client (1 h)
	Alive       time.Duration // between checks that the client responds and is still allowed (30 s)
	Answer      time.Duration // for the client's response (30 s)
}

func (l Limits) withDefaults() Limits {
	set := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	last := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&l.Connections, 256)
	set(&l.Handshakes, 64)
	set(&l.Sessions, 32)
	set(&l.Channels, 128)
	set(&l.Dials, 16)
	set(&l.Tries, 3)
	last(&l.Handshake, 30*time.Second)
	last(&l.Idle, time.Hour)
	last(&l.Alive, 30*time.Second)
	last(&l.Answer, 30*time.Second)
	return l
}

// Server is the SSH server.
type Server struct {
	c           Config
	log         *slog.Logger
	limits      Limits
	signer      ssh.Signer
	config      *ssh.ServerConfig
	handshakes  chan struct{}       // capacity: the maximum number of handshakes
	connections chan struct{}       // capacity: the maximum number of connections
	dials       chan struct{}       // capacity: the maximum number of forwards that wait for a connection
	mu          sync.Mutex          // guards the fields below
	connected   map[instanceKey]int // number of sessions by instance
	stopped     bool                // no more terminals are opened
	terminals   sync.WaitGroup      // Add only under mu, if not stopped
}

// instanceKey identifies an instance.
type instanceKey struct {
	process string
	index   int
	task    bool
	crashed runtime.InstanceID // not empty: the crashed instance
}

// New creates a Server and, on the first start, its host key.
func New(c Config) (*Server, error) {
	for name, missing := range map[string]bool{
		"HostKey": c.HostKey == "", "Registry": c.Registry == nil, "Instances": c.Instances == nil, "Redeem": c.Redeem == nil,
		"Allow": c.Allow == nil, "Append": c.Append == nil, "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot create the SSH server without %s", name)
		}
	}
	signer, err := hostKey(c.HostKey)
	if err != nil {
		return nil, err
	}
	l := c.Limits.withDefaults()
	s := &Server{
		c: c, log: c.Logger, limits: l, signer: signer,
		handshakes: make(chan struct{}, l.Handshakes), connections: make(chan struct{}, l.Connections),
		dials: make(chan struct{}, l.Dials), connected: map[instanceKey]int{},
	}
	s.config = &ssh.ServerConfig{
		ServerVersion:    "SSH-2.0-dew",
		MaxAuthTries:     l.Tries,
		PasswordCallback: s.authenticate,
	}
	s.config.AddHostKey(signer)
	return s, nil
}

// Serve accepts connections from l until ctx is cancelled, then closes all of them. It
// also waits for the terminals, whose callers end with the same ctx.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // makes Accept return
	defer stop()
	var guests sync.WaitGroup
	defer s.waitForTerminals()
	defer guests.Wait()
	for wait := time.Duration(0); ; {
		raw, err := l.Accept()
		switch {
		case err == nil:
			wait = 0
			guests.Go(func() { s.admit(ctx, raw) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("cannot accept ssh connections: %w", err)
		default: // a temporary error, such as too many open files
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.log.Warn("cannot accept an ssh connection, trying again", "err", err)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// admit handles one connection from start to end.
func (s *Server) admit(ctx context.Context, raw net.Conn) {
	defer raw.Close()
	// A panic affects only one connection.
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in an ssh connection", "peer", raw.RemoteAddr(), "panic", fmt.Sprint(p))
		}
	}()
	sc, chans, reqs, err := s.handshake(ctx, raw)
	if err != nil {
		s.log.Info("ssh connection refused", "peer", raw.RemoteAddr(), "err", err)
		return
	}
	defer func() { _ = sc.Close() }() // it may already be closed
	select {
	case s.connections <- struct{}{}:
		defer func() { <-s.connections }()
	default:
		s.log.Warn("ssh connection refused: too many connections", "peer", raw.RemoteAddr(), "limit", s.limits.Connections)
		return
	}
	newConnection(s, sc).serve(ctx, chans, reqs)
}

// handshake negotiates the keys and authenticates the client.
func (s *Server) handshake(ctx context.Context, raw net.Conn) (*ssh.ServerConn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	select {
	case s.handshakes <- struct{}{}:
		defer func() { <-s.handshakes }()
	default:
		return nil, nil, nil, fmt.Errorf("too many handshakes at the same time (the limit is %d)", s.limits.Handshakes)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	if err := raw.SetDeadline(time.Now().Add(s.limits.Handshake)); err != nil {
		return nil, nil, nil, err
	}
	sc, chans, reqs, err := ssh.NewServerConn(raw, s.config)
	if err != nil {
		return nil, nil, nil, err
	}
	return sc, chans, reqs, raw.SetDeadline(time.Time{})
}

// countSession counts a new session of an instance, unless the limit is reached.
func (s *Server) countSession(at instanceKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected[at] >= s.limits.Sessions {
		return false
	}
	s.connected[at]++
	return true
}

func (s *Server) uncountSession(at instanceKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected[at]--; s.connected[at] == 0 {
		delete(s.connected, at)
	}
}
