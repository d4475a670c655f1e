// Package sshd is the SSH door into an instance: shells, commands, files and
// forwards, for those who have a one-time code.
//
//	client ─▶ Server: handshake, code ─▶ connection ─┬▶ session: shell, exec, sftp ─▶ runtime.Session
//	                                                 └▶ forward: a port or a socket ─▶ dialled inside the instance
//
// A session is a process beside those of the instance, with their environment,
// folder and memory. It ends with its instance, with its client and with the
// daemon, and its own end ends nothing else.
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

// Instances is what runs, as far as sessions and forwards reach it.
// supervisor.Supervisor is the real one.
type Instances interface {
	// Exec opens a session beside a process of a running instance.
	Exec(ctx context.Context, t runtime.ExecTarget, spec runtime.ExecSpec) (runtime.Session, error)
	// Attach opens the session of a task that was created to be attached to. The task
	// ends with it.
	Attach(ctx context.Context, task string, spec runtime.ExecSpec) (runtime.Session, error)
	// Crashed is what is kept of crashed instances of a process, newest first.
	Crashed(process string) []runtime.CrashFiles
	// ExecCrashed opens a session on a copy of what a crashed instance left.
	ExecCrashed(ctx context.Context, id runtime.InstanceID, sidecar string, spec runtime.ExecSpec) (runtime.Session, error)
	// Instances is what is known of the slots of a process.
	Instances(process string) []runtime.Status
	// Dial connects from inside a running instance.
	Dial(ctx context.Context, id runtime.InstanceID, network, address string) (net.Conn, error)
}

// Config is what a Server needs.
type Config struct {
	HostKey   string // file of the host key; made when it is not there
	Registry  *registry.Registry
	Instances Instances
	// Redeem uses a one-time code up. auth.Server has the real one.
	Redeem func(code string) (auth.Principal, error)
	// Allow tells why somebody may not enter the instances of an app; nil: they may.
	// It is asked again while they are inside.
	Allow func(p auth.Principal, a app.App) error
	// Append puts lines into the log of an app.
	Append func(app string, es ...logstream.Envelope) error
	// Record is told of everybody who came with a good code. It may be nil.
	Record func(Access)
	Limits Limits
	Logger *slog.Logger
}

// Access is somebody with a good code who was let in, or not.
type Access struct {
	Who   auth.Principal
	App   app.App
	Type  string // of the process
	Index int
	Peer  string // their address
	Err   error  // why they were not let in; nil: they were
}

// Limits bound what clients may take. Zero is the default.
type Limits struct {
	Connections int           // that have logged in; 256
	Handshakes  int           // that have not yet; 64
	Sessions    int           // of one instance; 32
	Channels    int           // of one connection, sessions and forwards; 128
	Dials       int           // forwards that wait for an answer; 16
	Tries       int           // of one connection to log in; 3
	Handshake   time.Duration // from the first byte to the login; 30 s
	Idle        time.Duration // without a byte of data or a word of the client; 1 h
	Alive       time.Duration // between questions whether the client is there, and may be; 30 s
	Answer      time.Duration // for its answer; 30 s
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

// Server is the door.
type Server struct {
	c           Config
	log         *slog.Logger
	limits      Limits
	signer      ssh.Signer
	config      *ssh.ServerConfig
	handshakes  chan struct{} // holds one for every handshake
	connections chan struct{} // holds one for every connection
	dials       chan struct{} // holds one for every forward that waits for an answer
	mu          sync.Mutex    // guards the field below
	connected   map[place]int // sessions by instance
}

// place is where an instance stands.
type place struct {
	process string
	index   int
	task    bool
	crashed runtime.InstanceID // not empty: what it left
}

// New makes a Server and, the first time, its host key.
func New(c Config) (*Server, error) {
	for name, missing := range map[string]bool{
		"HostKey": c.HostKey == "", "Registry": c.Registry == nil, "Instances": c.Instances == nil, "Redeem": c.Redeem == nil,
		"Allow": c.Allow == nil, "Append": c.Append == nil, "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot make the ssh door without %s", name)
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
		dials: make(chan struct{}, l.Dials), connected: map[place]int{},
	}
	s.config = &ssh.ServerConfig{
		ServerVersion:    "SSH-2.0-dew",
		MaxAuthTries:     l.Tries,
		PasswordCallback: s.authenticate,
	}
	s.config.AddHostKey(signer)
	return s, nil
}

// Serve takes connections from l until ctx ends, then lets all of them go.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept then ends
	defer stop()
	var guests sync.WaitGroup
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
			return fmt.Errorf("cannot take ssh connections: %w", err)
		default: // out of files, say: later there may be some
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.log.Warn("cannot take an ssh connection, trying again", "err", err)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// admit carries one connection from its first byte to its last.
func (s *Server) admit(ctx context.Context, raw net.Conn) {
	defer raw.Close()
	// One bug costs one connection.
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
	defer func() { _ = sc.Close() }() // it may be closed already
	select {
	case s.connections <- struct{}{}:
		defer func() { <-s.connections }()
	default:
		s.log.Warn("ssh connection refused: there are too many", "peer", raw.RemoteAddr(), "limit", s.limits.Connections)
		return
	}
	newConnection(s, sc).serve(ctx, chans, reqs)
}

// handshake agrees on keys and finds out who comes.
func (s *Server) handshake(ctx context.Context, raw net.Conn) (*ssh.ServerConn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	select {
	case s.handshakes <- struct{}{}:
		defer func() { <-s.handshakes }()
	default:
		return nil, nil, nil, fmt.Errorf("%d others are at their handshake", s.limits.Handshakes)
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

// enter counts one more session of an instance, unless there are enough.
func (s *Server) enter(at place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected[at] >= s.limits.Sessions {
		return false
	}
	s.connected[at]++
	return true
}

func (s *Server) leave(at place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connected[at]--; s.connected[at] == 0 {
		delete(s.connected, at)
	}
}
