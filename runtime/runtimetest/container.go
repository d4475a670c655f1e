package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// Container is an instance of a Fake, for tests. It can end in every way that a real
// one can.
type Container struct {
	machine     *fakeMachine
	spec        runtime.Spec
	procs       []*proc
	exits       []runtime.Exit // in the order in which they happened
	handles     []*handle
	sessions    []*session
	consumption runtime.Consumption
	crashState  runtime.CrashState
	files       int64 // number of written files
	refuse      bool
	paused      bool
	deleted     bool
	crashed     *time.Time // time of the crash, if its files must be stored
	deleteErr   error
	dialErr     error
	leaving     chan struct{} // closed when the cluster removes it
}

// proc is one process.
type proc struct {
	runtime.ProcessSpec
	ended   chan struct{} // closed when it exits
	over    bool
	ignored map[syscall.Signal]bool
	lines   []logstream.Envelope // printed, not in the log yet
	holding chan struct{}        // Reap waits until it is closed
}

// All fields of Container and proc are guarded by machine.mu.

func newContainer(g *fakeMachine, s runtime.Spec) *Container {
	c := &Container{machine: g, spec: s, refuse: g.refuse, consumption: runtime.Consumption{Entitled: 1}, leaving: make(chan struct{})}
	for _, p := range s.Processes {
		c.procs = append(c.procs, &proc{ProcessSpec: p, ended: make(chan struct{}), ignored: map[syscall.Signal]bool{}})
	}
	return c
}

// Leave says that the cluster removes the container soon.
func (c *Container) Leave() { close(c.leaving) }

// Spec returns the spec that the instance was started from.
func (c *Container) Spec() runtime.Spec { return c.spec }

// End ends a process with an exit code.
func (c *Container) End(exec string, code int) { c.EndAt(exec, code, time.Now()) }

// EndAt ends a process with an exit code and the given time.
func (c *Container) EndAt(exec string, code int, at time.Time) {
	c.EndWith(runtime.Exit{Exec: exec, Code: code, Cause: runtime.CauseExited, At: at})
}

// OOM simulates an OOM kill in the leaf of a process.
func (c *Container) OOM(exec string) {
	c.EndWith(runtime.Exit{Exec: exec, Code: 137, OOM: true, Cause: runtime.CauseOutOfMemory, At: time.Now()})
}

// LoseShim ends all processes without a status, like a killed shim.
func (c *Container) LoseShim() {
	for _, p := range c.spec.Processes {
		c.EndWith(runtime.Exit{Exec: p.Exec, Code: -1, Cause: runtime.CauseRuntimeLost, At: time.Now()})
	}
}

// EndInit ends the container's first process, and all others with it.
func (c *Container) EndInit() {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.report(runtime.Exit{
		Exec: runtime.InitExec, Source: runtime.ProcessSource(c.spec.Type, ""), Code: 137,
		Cause: runtime.CauseInitExited, At: time.Now(),
	})
	for _, p := range c.procs {
		c.end(p, runtime.Exit{Exec: p.Exec, Code: 137, Cause: runtime.CauseExited, At: time.Now()})
	}
}

// EndWith ends a process with exactly this exit. It fills in name, source and memory.
func (c *Container) EndWith(e runtime.Exit) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.end(c.proc(e.Exec), e)
}

// Print makes a process print a line that is not in the log before it is reaped.
func (c *Container) Print(exec, text string) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.print(c.proc(exec), text)
}

// IgnoreSignals makes a process ignore these signals.
func (c *Container) IgnoreSignals(exec string, signals ...syscall.Signal) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	for _, s := range signals {
		c.proc(exec).ignored[s] = true
	}
}

// SetConsumption sets the resources that the instance has used so far.
func (c *Container) SetConsumption(used runtime.Consumption) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.consumption = used
}

// SetCrashState sets what CrashState returns.
func (c *Container) SetCrashState(st runtime.CrashState) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.crashState = st
}

// HoldReap makes Reap of a process wait until release is called.
func (c *Container) HoldReap(exec string) (release func()) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	held := make(chan struct{})
	c.proc(exec).holding = held
	return func() { close(held) }
}

// RefuseConnections makes the instance refuse or accept connections. After the start it accepts
// them.
func (c *Container) RefuseConnections(refuse bool) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.refuse = refuse
}

// FailDial makes Dial fail with err before it reaches the app, until err is nil.
func (c *Container) FailDial(err error) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.dialErr = err
}

// Pause pauses the instance for its output, or continues it.
func (c *Container) Pause(paused bool) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.paused = paused
}

// FailDelete makes Delete fail with err, until err is nil.
func (c *Container) FailDelete(err error) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.deleteErr = err
}

// CloseExits closes the channel of exits although processes are running.
func (c *Container) CloseExits() {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	for _, h := range c.handles {
		h.close()
	}
}

// Deleted reports whether the instance is deleted.
func (c *Container) Deleted() bool {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	return c.deleted
}

// Alive returns the running execs.
func (c *Container) Alive() []string {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	var out []string
	for _, p := range c.procs {
		if !p.over {
			out = append(out, p.Exec)
		}
	}
	return out
}

func (c *Container) proc(exec string) *proc {
	i := slices.IndexFunc(c.procs, func(p *proc) bool { return p.Exec == exec })
	if i < 0 {
		panic(fmt.Sprintf("instance %s has no exec %q", c.spec.Instance, exec))
	}
	return c.procs[i]
}

func (c *Container) print(p *proc, text string) {
	p.lines = append(p.lines, logstream.Envelope{
		Source: logstream.Source{Type: p.Source, Index: c.spec.Slot.Index, InstanceID: string(c.spec.Instance)},
		Stream: logstream.Out,
		Text:   []byte(text),
	})
}

// interpret runs the command of a process up to the point where it waits.
func (c *Container) interpret(p *proc) {
	exit := func(code int) {
		c.end(p, runtime.Exit{Exec: p.Exec, Code: code, Cause: runtime.CauseExited, At: time.Now()})
	}
	for _, command := range strings.Split(p.Command, "; ") {
		word, rest, _ := strings.Cut(command, " ")
		switch {
		case word == "echo":
			c.print(p, rest)
		case command == "trap '' TERM":
			p.ignored[syscall.SIGTERM] = true
		case command == "kill -9 $$":
			exit(137)
			return
		case word == "exit":
			code, err := strconv.Atoi(rest)
			if err != nil {
				code = 2 // the status of a shell for an invalid number
			}
			exit(code)
			return
		case strings.HasPrefix(command, "./"):
			c.print(p, command+": not found")
			exit(127)
			return
		default: // it keeps running, so its output is read
			c.machine.logged[c.spec.App] = append(c.machine.logged[c.spec.App], p.lines...)
			p.lines = nil
			return
		}
	}
	exit(0)
}

// end ends a process.
func (c *Container) end(p *proc, e runtime.Exit) {
	if p.over {
		return
	}
	p.over = true
	close(p.ended)
	e.Name, e.Source = p.Name, p.Source
	e.Memory = runtime.Memory{Limit: p.Memory, Peak: 1 << 20}
	if e.OOM {
		e.Memory.Peak = p.Memory
	}
	c.report(e)
}

// report reports an exit to all engines that have the container.
func (c *Container) report(e runtime.Exit) {
	c.exits = append(c.exits, e)
	over := c.over()
	c.machine.deliver(func() {
		for _, h := range c.handles {
			h.report(e)
			h.closeIf(over)
		}
	})
}

// over reports whether all processes have exited.
func (c *Container) over() bool {
	return !slices.ContainsFunc(c.procs, func(p *proc) bool { return !p.over })
}

func (c *Container) remove() {
	for _, p := range c.procs {
		c.end(p, runtime.Exit{Exec: p.Exec, Code: 137, Cause: runtime.CauseExited, At: time.Now()})
	}
	c.endSessions("the instance has stopped")
	c.deleted = true
}

func (c *Container) endSessions(why string) {
	for _, s := range c.sessions {
		s.finish(runtime.SessionEnd{Code: 137, Why: why})
	}
}

// attach returns the container for one engine. It reports earlier exits again.
func (c *Container) attach() *handle {
	h := &handle{container: c, exits: make(chan runtime.Exit, len(c.procs)+1)}
	c.handles = append(c.handles, h)
	for _, e := range c.exits {
		h.report(e)
	}
	h.closeIf(c.over())
	return h
}

// handle is the runtime.Container of one engine.
type handle struct {
	container *Container
	exits     chan runtime.Exit // large enough for all processes and init, so that sending never blocks
	closed    bool
}

func (h *handle) report(e runtime.Exit) {
	if !h.closed {
		h.exits <- e
	}
}

func (h *handle) closeIf(over bool) {
	if over {
		h.close()
	}
}

func (h *handle) close() {
	if !h.closed {
		h.closed = true
		close(h.exits)
	}
}

func (h *handle) Spec() runtime.Spec         { return h.container.spec }
func (h *handle) Exits() <-chan runtime.Exit { return h.exits }

func (h *handle) Settle(ctx context.Context) error {
	g := h.container.machine
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.serviceHangs {
		return runtime.ErrUnavailable
	}
	return ctx.Err()
}

func (h *handle) Paused() bool {
	h.container.machine.mu.Lock()
	defer h.container.machine.mu.Unlock()
	return h.container.paused
}

func (h *handle) Reap(ctx context.Context, exec string) ([]logstream.Envelope, error) {
	g := h.container.machine
	g.mu.Lock()
	p := h.container.proc(exec)
	g.calls = append(g.calls, "reap "+exec)
	holding := p.holding
	g.mu.Unlock()
	gates := []chan struct{}{p.ended}
	if holding != nil {
		gates = append(gates, holding)
	}
	for _, c := range gates {
		select {
		case <-c:
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot reap %s: %w", exec, ctx.Err())
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return lines, nil
}

func (h *handle) Signal(ctx context.Context, sig syscall.Signal, execs ...string) error {
	g := h.container.machine
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, fmt.Sprintf("signal %v %s", sig, strings.Join(execs, " ")))
	for _, exec := range execs {
		p := h.container.proc(exec)
		if p.over || p.ignored[sig] {
			continue
		}
		h.container.end(p, runtime.Exit{Exec: exec, Code: 128 + int(sig), Cause: runtime.CauseExited, At: time.Now()})
	}
	return ctx.Err()
}

// CrashState returns the state that SetCrashState set.
func (h *handle) CrashState(context.Context) runtime.CrashState {
	h.container.machine.mu.Lock()
	defer h.container.machine.mu.Unlock()
	return h.container.crashState
}

func (h *handle) Consumption(context.Context, bool) (runtime.Consumption, error) {
	h.container.machine.mu.Lock()
	defer h.container.machine.mu.Unlock()
	return h.container.consumption, nil
}

// Dial behaves like an app that accepts every connection while its main process is
// running, and sends nothing.
func (h *handle) Dial(_ context.Context, network, address string) (net.Conn, error) {
	g := h.container.machine
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.container.dialErr != nil {
		return nil, h.container.dialErr
	}
	if h.container.refuse || h.container.deleted || h.container.proc(runtime.MainExec).over {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.Join(
			fmt.Errorf("cannot connect to %s", address), os.NewSyscallError("connect", syscall.ECONNREFUSED))}
	}
	here, there := net.Pipe()
	if err := there.Close(); err != nil {
		return nil, err
	}
	return here, nil
}

func (h *handle) Delete(ctx context.Context) error {
	g := h.container.machine
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, "delete")
	if h.container.deleteErr != nil {
		return h.container.deleteErr
	}
	g.keep(h.container)
	h.container.remove()
	return ctx.Err()
}
