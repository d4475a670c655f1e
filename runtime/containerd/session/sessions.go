package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
)

// The time limits for the creation and the cleanup of a session.
const (
	createTimeout  = 2 * time.Minute // of the creation: it waits for runc
	finishTimeout  = 30 * time.Second
	cleanupTimeout = time.Minute // of a session of an earlier daemon
)

// Config is the configuration of the sessions of one container.
type Config struct {
	Conn      *connection.Connection
	Cgroups   *cgroup.Hierarchies
	Base      ocispec.Base
	Instance  runtime.InstanceID
	Container string          // id of containerd's container
	Dir       string          // folder of the instance's run-time files
	Context   context.Context // done when the daemon releases the instance
	Work      *sync.WaitGroup // has the background work of the instance
	Deleting  func() bool     // whether the daemon deletes the instance
	Exited    func() bool     // whether PID 1 of the container has exited
	Reason    func() string   // which process's exit ended the instance
	Logger    *slog.Logger
}

// Sessions are the sessions of one container.
type Sessions struct {
	cfg      Config
	log      *slog.Logger
	last     atomic.Int64  // number of the last opened session
	creating chan struct{} // one entry for every session that is being created
	mu       sync.RWMutex  // guards closed, held for reading while a session is created
	closed   bool          // no more sessions
}

// New returns the sessions of a container.
func New(cfg Config) *Sessions {
	return &Sessions{
		cfg: cfg, log: cfg.Logger.With("instance", cfg.Instance), creating: make(chan struct{}, MaxCreating),
	}
}

// Open opens a session with the environment env. A session at a socket is open when it
// is connected.
func (ss *Sessions) Open(ctx context.Context, env Context, spec runtime.ExecSpec) (*Session, error) {
	ses, err := ss.create(ctx, env, spec)
	if err != nil || spec.Kind != runtime.ExecSocket {
		return ses, err
	}
	if err := ses.connected(ctx); err != nil {
		return nil, errors.Join(err, ses.Close())
	}
	return ses, nil
}

// MaxCreating is the number of processes of an instance that are created at the same
// time. Before a process runs its command, it is the runtime, and then the launcher.
// That uses up to two megabytes of the instance's memory: many at once would kill a
// small app.
const MaxCreating = 2

// create creates a session and holds a lock during that. A deletion in between would
// miss the new leaf.
func (ss *Sessions) create(ctx context.Context, env Context, spec runtime.ExecSpec) (*Session, error) {
	select {
	case ss.creating <- struct{}{}:
		defer func() { <-ss.creating }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	if ss.closed {
		return nil, runtime.ErrEnding
	}
	ses := &Session{
		all: ss, exec: Prefix + strconv.FormatInt(ss.last.Add(1), 10), tty: spec.TTY != nil,
		ended: make(chan struct{}), gone: make(chan struct{}),
	}
	if err := ses.start(ctx, ss.process(ses.exec, env, spec), spec); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		return nil, errors.Join(err, ses.closePipes(), ss.remove(clean, ses.exec))
	}
	ss.cfg.Work.Go(ses.watch)
	return ses, nil
}

// Closed reports whether no more sessions can be opened.
func (ss *Sessions) Closed() bool {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.closed
}

// process returns the process of the exec.
func (ss *Sessions) process(exec string, env Context, spec runtime.ExecSpec) *specs.Process {
	args := []string{ocispec.InitPath, "session", "--cgroup", ss.cfg.Cgroups.LastController() + ":" + exec}
	if env.Shell != "" {
		args = append(args, "--shell", env.Shell)
	}
	if env.Profile && env.User == nil { // an image app has no profile scripts
		args = append(args, "--profile")
	}
	if spec.TTY != nil && len(spec.TTY.Modes) > 0 {
		args = append(args, "--modes", modeList(spec.TTY.Modes))
	}
	switch spec.Kind {
	case runtime.ExecCommand:
		args = append(args, "--", spec.Command)
	case runtime.ExecFiles:
		args = append(args, "--exec", "--", ocispec.SFTPPath)
	case runtime.ExecSocket:
		args = append(args, "--socket", spec.Command)
	}
	p := ocispec.As(ss.cfg.Base.Process(args, env.Dir, runtime.MergeEnv(env.Env, spec.Env)), env.User)
	if spec.TTY != nil {
		p.Terminal = true
		p.ConsoleSize = &specs.Box{Width: uint(spec.TTY.Size.Columns), Height: uint(spec.TTY.Size.Rows)}
	}
	return p
}

func modeList(modes []runtime.TerminalMode) string {
	items := make([]string, len(modes))
	for i, m := range modes {
		items[i] = fmt.Sprintf("%d=%d", m.Opcode, m.Value)
	}
	return strings.Join(items, ",")
}

// remove removes the rest of a session, of this daemon or an earlier one.
func (ss *Sessions) remove(ctx context.Context, exec string) error {
	if err := ss.cfg.Cgroups.Kill(ctx, ss.cfg.Instance, exec); err != nil {
		return err
	}
	// The leaf is removed last, because the next daemon finds the rest by its leaf.
	return errors.Join(ss.cfg.Conn.DeleteExec(ctx, ss.cfg.Container, exec), ss.removePipes(exec), ss.cfg.Cgroups.RemoveLeaf(ctx, ss.cfg.Instance, exec))
}

func (ss *Sessions) removePipes(exec string) error {
	var errs error
	for _, kind := range []string{"in", "out", "err"} {
		if err := os.Remove(filepath.Join(ss.cfg.Dir, exec+"."+kind)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = errors.Join(errs, fmt.Errorf("cannot remove pipe: %w", err))
		}
	}
	return errs
}

// Kill kills all sessions of the instance and allows no more. It returns when
// all of them have reported their end.
func (ss *Sessions) Kill(ctx context.Context) error {
	ss.Close()
	leaves, err := ss.cfg.Cgroups.Leaves(ss.cfg.Instance)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		if !strings.HasPrefix(leaf, Prefix) {
			continue
		}
		if err := ss.cfg.Cgroups.Kill(ctx, ss.cfg.Instance, leaf); err != nil {
			return err
		}
	}
	return nil
}

// Close allows no more sessions.
func (ss *Sessions) Close() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
}

// Sweep stops, in the background, the sessions of an earlier daemon. Their
// clients were disconnected with that daemon.
func (ss *Sessions) Sweep() error {
	leaves, err := ss.cfg.Cgroups.Leaves(ss.cfg.Instance)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		number, ok := strings.CutPrefix(leaf, Prefix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			ss.last.Store(max(ss.last.Load(), n))
		}
		ss.log.Info("swept session", "exec", leaf)
		ss.cfg.Work.Go(func() { ss.sweepOne(leaf) })
	}
	return nil
}

func (ss *Sessions) sweepOne(exec string) {
	ctx, cancel := context.WithTimeout(ss.cfg.Context, cleanupTimeout)
	defer cancel()
	var drained sync.WaitGroup
	for _, kind := range []string{"out", "err"} {
		// Unread output would delay the shim for two seconds.
		f, err := os.OpenFile(filepath.Join(ss.cfg.Dir, exec+"."+kind), os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		defer f.Close()
		drained.Go(func() { _, _ = io.Copy(io.Discard, f) })
	}
	if err := ss.remove(ctx, exec); err != nil && ss.cfg.Context.Err() == nil {
		ss.log.Warn("cannot sweep a session", "exec", exec, "err", err)
	}
}
