package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/mainprocess"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/containerd/session"
	"github.com/dewrun/dew/runtime/network"
	"github.com/dewrun/dew/runtime/process"
)

// finishTimeout is the time limit for the cleanup of an exited process.
const finishTimeout = 30 * time.Second

// container is the container of one instance, task, build or Server.
type container struct {
	e      *Engine
	spec   runtime.Spec
	id     string // id of containerd's container and task
	dir    string // folder of run-time files
	appLog *logstream.Log
	limit  *logstream.Limit // of the output of all its processes, or nil
	procs  []*proc
	users  containerUsers
	// unanswered: the outcome of a call that creates a part of it is unknown.
	unanswered bool

	ctx    context.Context // done when the daemon releases the instance
	cancel context.CancelFunc
	work   sync.WaitGroup

	init     initProcess
	main     *mainprocess.Main
	exits    *exitCollector
	sessions *session.Sessions
	crashed  atomic.Pointer[time.Time] // time of the crash, if its files must be stored
}

// proc is one process of an instance.
type proc struct {
	runtime.ProcessSpec
	output
	dir      string // folder of the instance's run-time files
	pid      int
	born     uint64
	main     *mainprocess.Main // of the main process, unless it is an exec of an earlier dewd
	missed   *runtime.Exit     // its exit, if an earlier daemon saw it or it is lost
	ended    atomic.Bool
	reported atomic.Bool // its exit is sent
	exitTime *process.ExitTime
	measured atomic.Pointer[measurement] // nil before the first one
	reaped   chan struct{}               // closed when the process has left nothing behind
}

var _ runtime.Container = (*container)(nil)

func (e *Engine) newContainer(ctx context.Context, s runtime.Spec) (*container, error) {
	l, err := e.appLog(s.App)
	if err != nil {
		return nil, err
	}
	c := &container{
		e: e, spec: s, id: names.Container(s.Instance), dir: e.instanceDir(s.Instance), appLog: l, users: e.usersOf(s),
	}
	if s.LogRate != nil {
		c.limit = logstream.NewLimit(*s.LogRate)
	}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, p := range s.Processes {
		c.procs = append(c.procs, newProc(c, p))
	}
	c.main = &mainprocess.Main{Conn: e.conn, Cgroups: e.cg, Instance: s.Instance, Container: c.id, Dir: c.dir}
	c.exits = newExitCollector(c.procs, &c.init, e.Outage)
	c.sessions = session.New(session.Config{
		Conn: e.conn, Cgroups: e.cg, Base: e.base, Instance: s.Instance, Container: c.id, Dir: c.dir,
		Context: c.ctx, Work: &c.work, Deleting: c.init.stopping.Load, Exited: c.init.exited, Reason: c.exits.reason, Logger: e.log,
	})
	return c, nil
}

func newProc(c *container, s runtime.ProcessSpec) *proc {
	id := c.spec.Instance
	p := &proc{ProcessSpec: s, dir: c.dir, reaped: make(chan struct{})}
	p.Log = c.appLog
	p.Frozen = func() bool { return c.e.cg.Frozen(id, s.Exec) }
	p.Capture = logstream.Capture{
		Source: logstream.Source{Type: s.Source, Index: c.spec.Slot.Index, InstanceID: string(id)},
		Exec:   s.Exec, Limit: c.limit,
		Freeze: func(frozen bool) error { return c.e.cg.Freeze(id, s.Exec, frozen) },
	}
	return p
}

// Spec returns the spec that the instance was started from.
func (c *container) Spec() runtime.Spec { return c.spec }

// Exits reports the exit of every process.
func (c *container) Exits() <-chan runtime.Exit { return c.exits.sent }

// watch starts to wait for the exit of every process.
func (c *container) watch() {
	for _, p := range c.procs {
		c.work.Go(func() { c.watchProcess(p) })
		if !c.e.cg.IsV2() && p.missed == nil {
			c.work.Go(func() { c.watchOOM(p) })
		}
	}
	c.work.Go(c.watchInit)
	c.work.Go(func() { c.exits.collect(c.ctx) })
}

func (c *container) watchOOM(p *proc) {
	if err := c.e.cg.WatchOOM(c.ctx, c.spec.Instance, p.Exec); err != nil && c.ctx.Err() == nil {
		c.e.log.Warn("cannot watch for out-of-memory kills", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
	}
}

// watchProcess handles one process from its exit to its last line.
func (c *container) watchProcess(p *proc) {
	x, ok := c.await(p)
	if !ok {
		return
	}
	p.ended.Store(true)
	c.exits.reports <- x
	c.finish(p)
}

// await waits for the exit of a process and stores it.
func (c *container) await(p *proc) (runtime.Exit, bool) {
	if p.missed != nil {
		return *p.missed, true
	}
	code, at, err := awaitStatus(c, p)
	if c.ctx.Err() != nil {
		return runtime.Exit{}, false
	}
	at, exact := p.exitTime.Earlier(c.ctx, at)
	x := c.describeExit(p, code, at)
	x.Exact = exact
	if err != nil {
		x.Code, x.Cause, x.Detail = -1, runtime.CauseRuntimeLost, "its shim is gone and its status with it"
	}
	// containerd forgets the status when the exec is deleted, so it is stored here
	// until the instance is deleted.
	if err := p.saveExit(x); err != nil {
		c.e.log.Warn("cannot store exit status", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
	}
	return x, true
}

// awaitStatus returns the status and the time of an exit. An error means that they are lost.
func awaitStatus(c *container, p *proc) (int, time.Time, error) {
	if p.main != nil {
		return p.main.Wait(c.ctx, runfile.Process{PID: p.pid, Born: p.born}, mainprocess.Parents{Init: c.init.process(), Shim: c.init.shim})
	}
	return c.e.conn.Wait(c.ctx, c.id, p.Exec)
}

// describeExit reads from the leaf how a process exited.
func (c *container) describeExit(p *proc, code int, at time.Time) runtime.Exit {
	x := runtime.Exit{
		Exec: p.Exec, Name: p.Name, Source: p.Source, Code: code, At: at, Cause: runtime.CauseExited,
		OOM: c.e.cg.OOMKills(c.spec.Instance, p.Exec) > 0, Memory: c.e.cg.MemoryOf(c.spec.Instance, p.Exec),
		Usage: exitUsage(c.e.cg, c.spec.Instance, p),
	}
	switch {
	case p.captureFailed.Load():
		x.Cause, x.Detail = runtime.CauseCaptureFailed, "its output could no longer be written down"
	case x.OOM:
		x.Cause = runtime.CauseOutOfMemory
	case x.ProbableSignal() > 0:
		x.Signal = c.e.tracedSignal(p.pid, x.ProbableSignal(), c.spec.StartedAt, at)
	}
	return x
}

// watchInit reports the exit of PID 1, which ends all processes.
func (c *container) watchInit() {
	code, at, err := c.e.conn.Wait(c.ctx, c.id, "")
	if c.ctx.Err() != nil || c.init.stopping.Load() || err != nil { // lost: the processes report it
		c.init.settled.Store(true)
		return
	}
	x := runtime.Exit{
		Exec: runtime.InitExec, Source: runtime.ProcessSource(c.spec.Type, ""), Code: code, At: at, Cause: runtime.CauseInitExited,
		Detail: "the first process of the container ended", OOM: c.e.cg.OOMKills(c.spec.Instance, cgroup.InitLeaf) > 0,
	}
	c.exits.reports <- x
}

// finish cleans up after an exited process, in the only order that neither blocks nor
// loses output. While a child holds the pipe, deleting the exec would wait for seconds
// and then drop later output. The main process is not an exec, but its output ends in the
// same way.
func (c *container) finish(p *proc) {
	defer close(p.reaped)
	ctx, cancel := context.WithTimeout(c.ctx, finishTimeout)
	defer cancel()
	log := c.e.log.With("instance", c.spec.Instance, "exec", p.Exec)
	if err := c.e.cg.Kill(ctx, c.spec.Instance, p.Exec); err != nil {
		log.Warn("cannot kill the remaining child processes of a process", "err", err)
	}
	if p.main != nil {
		if err := mainprocess.Copied(ctx, c.init.shim.PID, p.OutPath, p.ErrPath); err != nil && c.ctx.Err() == nil {
			log.Warn("cannot wait for the last output of the main process", "err", err)
		}
	} else if err := c.e.conn.DeleteExec(ctx, c.id, p.Exec); err != nil {
		log.Warn("cannot delete process", "err", err)
	}
	// A separate time limit: even if the steps above took long, the lines are on disk.
	ctx, cancel = context.WithTimeout(c.ctx, finishTimeout)
	defer cancel()
	if err := p.Finish(ctx); err != nil && c.ctx.Err() == nil {
		log.Error("cannot read all output of a process", "err", err)
	}
}

// Exec opens a session next to one of the processes.
func (c *container) Exec(ctx context.Context, exec string, s runtime.ExecSpec) (runtime.Session, error) {
	ses, err := c.openSession(ctx, exec, s)
	switch {
	case err == nil:
		return ses, nil
	case c.sessions.Closed():
		return nil, fmt.Errorf("cannot open a session: %w", runtime.ErrEnding)
	case connection.IsUnavailable(err):
		return nil, fmt.Errorf("cannot open a session: %w: %w", runtime.ErrUnavailable, err)
	}
	return nil, fmt.Errorf("cannot open a session: %w", err)
}

func (c *container) openSession(ctx context.Context, exec string, s runtime.ExecSpec) (*session.Session, error) {
	for _, p := range c.procs {
		if p.Exec != exec || p.ended.Load() || p.pid == 0 {
			continue
		}
		env, err := c.sessions.ContextOf(ctx, exec, p.pid)
		if err != nil {
			return nil, err
		}
		return c.sessions.Open(ctx, env, s)
	}
	return nil, fmt.Errorf("process %s: %w", exec, runtime.ErrNoInstance)
}

// Reap returns the last lines of an exited process.
func (c *container) Reap(ctx context.Context, exec string) ([]logstream.Envelope, error) {
	for _, p := range c.procs {
		if p.Exec != exec {
			continue
		}
		select {
		case <-p.reaped:
			return p.TakeLast(), nil
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot read the last lines of %s: %w", exec, context.Cause(ctx))
		case <-c.ctx.Done():
		}
		select {
		case <-p.reaped: // before the daemon released the instance
			return p.TakeLast(), nil
		default:
			return nil, fmt.Errorf("cannot read the last lines of %s: the engine was closed", exec)
		}
	}
	return nil, nil
}

// Signal sends sig to every process in the leaves of the named execs. It does not need
// containerd, so it works even while containerd is down.
func (c *container) Signal(_ context.Context, sig syscall.Signal, execs ...string) error {
	var errs error
	for _, p := range c.procs {
		if !slices.Contains(execs, p.Exec) || p.ended.Load() {
			continue
		}
		errs = errors.Join(errs, restoreGroup(c, p))
		if sig == syscall.SIGKILL {
			// A frozen leaf must be thawed before its processes can exit.
			errs = errors.Join(errs, c.e.cg.Freeze(c.spec.Instance, p.Exec, false))
			c.e.cg.KillAtOnce(c.spec.Instance, p.Exec)
		}
		errs = errors.Join(errs, c.e.cg.Signal(c.spec.Instance, p.Exec, sig))
	}
	return errs
}

// Delete stops the processes that still run and removes the instance.
func (c *container) Delete(ctx context.Context) error {
	err := c.delete(ctx)
	if err != nil && connection.IsUnavailable(err) {
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return err
}

func (c *container) delete(ctx context.Context) error {
	c.init.stopping.Store(true)
	id := c.spec.Instance
	if err := c.sessions.Kill(ctx); err != nil {
		return err
	}
	for _, p := range c.procs {
		if err := errors.Join(restoreGroup(c, p), c.e.cg.Kill(ctx, id, p.Exec)); err != nil {
			return err
		}
	}
	// Output that was not requested with Reap still belongs in the log.
	for _, p := range c.procs {
		last, err := c.Reap(ctx, p.Exec)
		if err != nil {
			return err
		}
		if err := c.appLog.Append(last...); err != nil {
			return fmt.Errorf("cannot store the last log lines: %w", err)
		}
	}
	c.detach()
	// Without this, lines are lost if the log could not be written when the process exited.
	if c.appLog.Unread(string(id)) > 0 {
		if err := c.drain(ctx); err != nil {
			return fmt.Errorf("cannot store the rest of the output: %w", err)
		}
	}
	c.e.crashed.keepFiles(ctx, c)
	if c.spec.Kind == runtime.KindService {
		// The next instance has the same address: the kernel must not answer for this
		// one.
		if err := c.e.net.RemoveVeth(network.VethName(id)); err != nil {
			return err
		}
	}
	if err := c.e.removeAll(ctx, id, c.spec.App); err != nil {
		return err
	}
	c.e.known.remove(id)
	return nil
}

// detach stops all watching and reading, and does nothing else.
func (c *container) detach() {
	c.sessions.Close()
	c.cancel()
	c.work.Wait()
	for _, p := range c.procs {
		c.e.exitTimes.Forget(p.pid)
		p.Close()
	}
}
