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

// Container is an instance of a Fake, as a test sees it: it can be ended in every way
// that a real one can.
type Container struct {
	ground    *ground
	spec      runtime.Spec
	procs     []*proc
	exits     []runtime.Exit // in the order they happened
	handles   []*handle
	sessions  []*session
	taken     runtime.Consumption
	files     int64 // written
	refuse    bool
	paused    bool
	deleted   bool
	crashed   *time.Time // when, once its files are to be kept
	deleteErr error
	dialErr   error
}

// proc is one process.
type proc struct {
	runtime.ProcessSpec
	ended   chan struct{} // closed at its end
	over    bool
	deaf    map[syscall.Signal]bool
	lines   []logstream.Envelope // printed, not in the log yet
	holding chan struct{}        // Reap waits for it
}

// All fields of Container and proc are guarded by ground.mu.

func newContainer(g *ground, s runtime.Spec) *Container {
	c := &Container{ground: g, spec: s, refuse: g.refuse, taken: runtime.Consumption{Entitled: 1}}
	for _, p := range s.Processes {
		c.procs = append(c.procs, &proc{ProcessSpec: p, ended: make(chan struct{}), deaf: map[syscall.Signal]bool{}})
	}
	return c
}

// Spec is what the instance was started from.
func (c *Container) Spec() runtime.Spec { return c.spec }

// End ends a process with a code.
func (c *Container) End(exec string, code int) { c.EndAt(exec, code, time.Now()) }

// EndAt ends a process with a code and a time of its own.
func (c *Container) EndAt(exec string, code int, at time.Time) {
	c.EndWith(runtime.Exit{Exec: exec, Code: code, Cause: runtime.CauseExited, At: at})
}

// OOM lets the kernel kill in the leaf of a process.
func (c *Container) OOM(exec string) {
	c.EndWith(runtime.Exit{Exec: exec, Code: 137, OOM: true, Cause: runtime.CauseOutOfMemory, At: time.Now()})
}

// Lose ends all processes without a status, as a killed shim does.
func (c *Container) Lose() {
	for _, p := range c.spec.Processes {
		c.EndWith(runtime.Exit{Exec: p.Exec, Code: -1, Cause: runtime.CauseRuntimeLost, At: time.Now()})
	}
}

// EndInit ends the container's first process, and all others with it.
func (c *Container) EndInit() {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	c.tell(runtime.Exit{
		Exec: runtime.InitExec, Source: runtime.ProcessSource(c.spec.Type, ""), Code: 137,
		Cause: runtime.CauseInitExited, At: time.Now(),
	})
	for _, p := range c.procs {
		c.end(p, runtime.Exit{Exec: p.Exec, Code: 137, Cause: runtime.CauseExited, At: time.Now()})
	}
}

// EndWith ends a process with exactly this exit; name, source and memory are
// filled in.
func (c *Container) EndWith(e runtime.Exit) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	c.end(c.proc(e.Exec), e)
}

// Print makes a process print a line that is not in the log before it is reaped.
func (c *Container) Print(exec, text string) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	c.print(c.proc(exec), text)
}

// Deafen makes a process live on after these signals.
func (c *Container) Deafen(exec string, signals ...syscall.Signal) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	for _, s := range signals {
		c.proc(exec).deaf[s] = true
	}
}

// Take sets what the instance has taken so far.
func (c *Container) Take(used runtime.Consumption) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	c.taken = used
}

// HoldReap makes Reap of a process wait until release is called.
func (c *Container) HoldReap(exec string) (release func()) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	held := make(chan struct{})
	c.proc(exec).holding = held
	return func() { close(held) }
}

// Refuse makes the instance refuse connections, or take them again. It takes
// them from its start on.
func (c *Container) Refuse(refuse bool) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	c.refuse = refuse
}

// FailDial makes Dial fail with err before it reaches the app, until it is nil.
func (c *Container) FailDial(err error) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	c.dialErr = err
}

// Pause makes the instance stand still for its output, or go on.
func (c *Container) Pause(paused bool) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	c.paused = paused
}

// FailDelete makes Delete fail with err, until it is nil.
func (c *Container) FailDelete(err error) {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	c.deleteErr = err
}

// CloseExits closes the channel of exits although processes live.
func (c *Container) CloseExits() {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	for _, h := range c.handles {
		h.close()
	}
}

// Deleted tells whether the instance is gone.
func (c *Container) Deleted() bool {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
	return c.deleted
}

// Alive are the execs that live.
func (c *Container) Alive() []string {
	c.ground.mu.Lock()
	defer c.ground.mu.Unlock()
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

// interpret runs the command of a process as far as it goes by itself.
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
			p.deaf[syscall.SIGTERM] = true
		case command == "kill -9 $$":
			exit(137)
			return
		case word == "exit":
			code, err := strconv.Atoi(rest)
			if err != nil {
				code = 2 // what a shell says to a number that is none
			}
			exit(code)
			return
		case strings.HasPrefix(command, "./"):
			c.print(p, command+": not found")
			exit(127)
			return
		default: // it goes on, so what it printed is read
			c.ground.logged[c.spec.App] = append(c.ground.logged[c.spec.App], p.lines...)
			p.lines = nil
			return
		}
	}
	exit(0)
}

// end is the end of a process.
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
	c.tell(e)
}

// tell reports an exit to everybody who has the container.
func (c *Container) tell(e runtime.Exit) {
	c.exits = append(c.exits, e)
	over := c.over()
	c.ground.deliver(func() {
		for _, h := range c.handles {
			h.tell(e)
			h.closeIf(over)
		}
	})
}

// over tells whether all processes have ended.
func (c *Container) over() bool {
	return !slices.ContainsFunc(c.procs, func(p *proc) bool { return !p.over })
}

func (c *Container) remove() {
	for _, p := range c.procs {
		c.end(p, runtime.Exit{Exec: p.Exec, Code: 137, Cause: runtime.CauseExited, At: time.Now()})
	}
	c.endSessions("its instance has ended")
	c.deleted = true
}

func (c *Container) endSessions(why string) {
	for _, s := range c.sessions {
		s.finish(runtime.SessionEnd{Code: 137, Why: why})
	}
}

// attach is the container for one engine: it tells again what has ended already.
func (c *Container) attach() *handle {
	h := &handle{container: c, exits: make(chan runtime.Exit, len(c.procs)+1)}
	c.handles = append(c.handles, h)
	for _, e := range c.exits {
		h.tell(e)
	}
	h.closeIf(c.over())
	return h
}

// handle is a Container in the hands of one engine: runtime.Container.
type handle struct {
	container *Container
	exits     chan runtime.Exit // room for all and init: telling never waits
	closed    bool
}

func (h *handle) tell(e runtime.Exit) {
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
	g := h.container.ground
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.silent {
		return runtime.ErrUnavailable
	}
	return ctx.Err()
}

func (h *handle) Paused() bool {
	h.container.ground.mu.Lock()
	defer h.container.ground.mu.Unlock()
	return h.container.paused
}

func (h *handle) Reap(ctx context.Context, exec string) ([]logstream.Envelope, error) {
	g := h.container.ground
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
	g := h.container.ground
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, fmt.Sprintf("signal %v %s", sig, strings.Join(execs, " ")))
	for _, exec := range execs {
		p := h.container.proc(exec)
		if p.over || p.deaf[sig] {
			continue
		}
		h.container.end(p, runtime.Exit{Exec: exec, Code: 128 + int(sig), Cause: runtime.CauseExited, At: time.Now()})
	}
	return ctx.Err()
}

func (h *handle) Consumption(context.Context) (runtime.Consumption, error) {
	h.container.ground.mu.Lock()
	defer h.container.ground.mu.Unlock()
	return h.container.taken, nil
}

// Dial answers like an app that takes every connection, for as long as its main
// process lives, and says nothing.
func (h *handle) Dial(_ context.Context, network, address string) (net.Conn, error) {
	g := h.container.ground
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.container.dialErr != nil {
		return nil, h.container.dialErr
	}
	if h.container.refuse || h.container.deleted || h.container.proc(runtime.MainExec).over {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.Join(
			fmt.Errorf("cannot reach %s", address), os.NewSyscallError("connect", syscall.ECONNREFUSED))}
	}
	here, there := net.Pipe()
	if err := there.Close(); err != nil {
		return nil, err
	}
	return here, nil
}

func (h *handle) Delete(ctx context.Context) error {
	g := h.container.ground
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
