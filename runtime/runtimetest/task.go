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

// Task is an instance of a Fake, as a test sees it: it can be ended in every way
// that a real one can.
type Task struct {
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

// All fields of Task and proc are guarded by ground.mu.

func newTask(g *ground, s runtime.Spec) *Task {
	t := &Task{ground: g, spec: s, refuse: g.refuse, taken: runtime.Consumption{Entitled: 1}}
	for _, p := range s.Processes {
		t.procs = append(t.procs, &proc{ProcessSpec: p, ended: make(chan struct{}), deaf: map[syscall.Signal]bool{}})
	}
	return t
}

// Spec is what the instance was started from.
func (t *Task) Spec() runtime.Spec { return t.spec }

// End ends a process with a code.
func (t *Task) End(exec string, code int) { t.EndAt(exec, code, time.Now()) }

// EndAt ends a process with a code and a time of its own.
func (t *Task) EndAt(exec string, code int, at time.Time) {
	t.EndWith(runtime.Exit{Exec: exec, Code: code, Cause: runtime.CauseExited, At: at})
}

// OOM lets the kernel kill in the leaf of a process.
func (t *Task) OOM(exec string) {
	t.EndWith(runtime.Exit{Exec: exec, Code: 137, OOM: true, Cause: runtime.CauseOutOfMemory, At: time.Now()})
}

// Lose ends all processes without a status, as a killed shim does.
func (t *Task) Lose() {
	for _, p := range t.spec.Processes {
		t.EndWith(runtime.Exit{Exec: p.Exec, Code: -1, Cause: runtime.CauseRuntimeLost, At: time.Now()})
	}
}

// EndInit ends the container's first process, and all others with it.
func (t *Task) EndInit() {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	t.tell(runtime.Exit{
		Exec: runtime.InitExec, Source: runtime.ProcessSource(t.spec.Type, ""), Code: 137,
		Cause: runtime.CauseInitExited, At: time.Now(),
	})
	for _, p := range t.procs {
		t.end(p, runtime.Exit{Exec: p.Exec, Code: 137, Cause: runtime.CauseExited, At: time.Now()})
	}
}

// EndWith ends a process with exactly this exit; name, source and memory are
// filled in.
func (t *Task) EndWith(e runtime.Exit) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	t.end(t.proc(e.Exec), e)
}

// Print makes a process print a line that is not in the log before it is reaped.
func (t *Task) Print(exec, text string) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	t.print(t.proc(exec), text)
}

// Deafen makes a process live on after these signals.
func (t *Task) Deafen(exec string, signals ...syscall.Signal) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	for _, s := range signals {
		t.proc(exec).deaf[s] = true
	}
}

// Take sets what the instance has taken so far.
func (t *Task) Take(c runtime.Consumption) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	t.taken = c
}

// HoldReap makes Reap of a process wait until release is called.
func (t *Task) HoldReap(exec string) (release func()) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	c := make(chan struct{})
	t.proc(exec).holding = c
	return func() { close(c) }
}

// Refuse makes the instance refuse connections, or take them again. It takes
// them from its start on.
func (t *Task) Refuse(refuse bool) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	t.refuse = refuse
}

// FailDial makes Dial fail with err before it reaches the app, until it is nil.
func (t *Task) FailDial(err error) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	t.dialErr = err
}

// Pause makes the instance stand still for its output, or go on.
func (t *Task) Pause(paused bool) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	t.paused = paused
}

// FailDelete makes Delete fail with err, until it is nil.
func (t *Task) FailDelete(err error) {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	t.deleteErr = err
}

// CloseExits closes the channel of exits although processes live.
func (t *Task) CloseExits() {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	for _, h := range t.handles {
		h.close()
	}
}

// Deleted tells whether the instance is gone.
func (t *Task) Deleted() bool {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	return t.deleted
}

// Alive are the execs that live.
func (t *Task) Alive() []string {
	t.ground.mu.Lock()
	defer t.ground.mu.Unlock()
	var out []string
	for _, p := range t.procs {
		if !p.over {
			out = append(out, p.Exec)
		}
	}
	return out
}

func (t *Task) proc(exec string) *proc {
	i := slices.IndexFunc(t.procs, func(p *proc) bool { return p.Exec == exec })
	if i < 0 {
		panic(fmt.Sprintf("instance %s has no exec %q", t.spec.Instance, exec))
	}
	return t.procs[i]
}

func (t *Task) print(p *proc, text string) {
	p.lines = append(p.lines, logstream.Envelope{
		Source: logstream.Source{Type: p.Source, Index: t.spec.Slot.Index, InstanceID: string(t.spec.Instance)},
		Stream: logstream.Out,
		Text:   []byte(text),
	})
}

// interpret runs the command of a process as far as it goes by itself.
func (t *Task) interpret(p *proc) {
	exit := func(code int) {
		t.end(p, runtime.Exit{Exec: p.Exec, Code: code, Cause: runtime.CauseExited, At: time.Now()})
	}
	for _, c := range strings.Split(p.Command, "; ") {
		word, rest, _ := strings.Cut(c, " ")
		switch {
		case word == "echo":
			t.print(p, rest)
		case c == "trap '' TERM":
			p.deaf[syscall.SIGTERM] = true
		case c == "kill -9 $$":
			exit(137)
			return
		case word == "exit":
			code, err := strconv.Atoi(rest)
			if err != nil {
				code = 2 // what a shell says to a number that is none
			}
			exit(code)
			return
		case strings.HasPrefix(c, "./"):
			t.print(p, c+": not found")
			exit(127)
			return
		default: // it goes on, so what it printed is read
			t.ground.logged[t.spec.App] = append(t.ground.logged[t.spec.App], p.lines...)
			p.lines = nil
			return
		}
	}
	exit(0)
}

// end is the end of a process.
func (t *Task) end(p *proc, e runtime.Exit) {
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
	t.tell(e)
}

// tell reports an exit to everybody who has the task.
func (t *Task) tell(e runtime.Exit) {
	t.exits = append(t.exits, e)
	over := t.over()
	t.ground.deliver(func() {
		for _, h := range t.handles {
			h.tell(e)
			h.closeIf(over)
		}
	})
}

// over tells whether all processes have ended.
func (t *Task) over() bool {
	return !slices.ContainsFunc(t.procs, func(p *proc) bool { return !p.over })
}

func (t *Task) remove() {
	for _, p := range t.procs {
		t.end(p, runtime.Exit{Exec: p.Exec, Code: 137, Cause: runtime.CauseExited, At: time.Now()})
	}
	t.endSessions("its instance has ended")
	t.deleted = true
}

func (t *Task) endSessions(why string) {
	for _, s := range t.sessions {
		s.finish(runtime.SessionEnd{Code: 137, Why: why})
	}
}

// attach is the task for one engine: it tells again what has ended already.
func (t *Task) attach() *handle {
	h := &handle{t: t, exits: make(chan runtime.Exit, len(t.procs)+1)}
	t.handles = append(t.handles, h)
	for _, e := range t.exits {
		h.tell(e)
	}
	h.closeIf(t.over())
	return h
}

// handle is a Task in the hands of one engine: runtime.Task.
type handle struct {
	t      *Task
	exits  chan runtime.Exit // room for all and init: telling never waits
	closed bool
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

func (h *handle) Spec() runtime.Spec         { return h.t.spec }
func (h *handle) Exits() <-chan runtime.Exit { return h.exits }

func (h *handle) Settle(ctx context.Context) error {
	g := h.t.ground
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.silent {
		return runtime.ErrUnavailable
	}
	return ctx.Err()
}

func (h *handle) Paused() bool {
	h.t.ground.mu.Lock()
	defer h.t.ground.mu.Unlock()
	return h.t.paused
}

func (h *handle) Reap(ctx context.Context, exec string) ([]logstream.Envelope, error) {
	g := h.t.ground
	g.mu.Lock()
	p := h.t.proc(exec)
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
	g := h.t.ground
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, fmt.Sprintf("signal %v %s", sig, strings.Join(execs, " ")))
	for _, exec := range execs {
		p := h.t.proc(exec)
		if p.over || p.deaf[sig] {
			continue
		}
		h.t.end(p, runtime.Exit{Exec: exec, Code: 128 + int(sig), Cause: runtime.CauseExited, At: time.Now()})
	}
	return ctx.Err()
}

func (h *handle) Consumption(context.Context) (runtime.Consumption, error) {
	h.t.ground.mu.Lock()
	defer h.t.ground.mu.Unlock()
	return h.t.taken, nil
}

// Dial answers like an app that takes every connection, for as long as its main
// process lives, and says nothing.
func (h *handle) Dial(_ context.Context, network, address string) (net.Conn, error) {
	g := h.t.ground
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.t.dialErr != nil {
		return nil, h.t.dialErr
	}
	if h.t.refuse || h.t.deleted || h.t.proc(runtime.MainExec).over {
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
	g := h.t.ground
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, "delete")
	if h.t.deleteErr != nil {
		return h.t.deleteErr
	}
	g.keep(h.t)
	h.t.remove()
	return ctx.Err()
}
