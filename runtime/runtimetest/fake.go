package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// Fake is an Engine in memory. Its instances live on a fakeMachine that outlives it, as
// containers outlive a daemon. NextDaemon returns the engine of the next daemon.
type Fake struct {
	machine *fakeMachine
	known   map[*Container]bool // containers that this engine returned, guarded by machine.mu
}

// fakeMachine has the instances, independently of an engine.
type fakeMachine struct {
	mu           sync.Mutex
	containers   []*Container // all that were ever started, in order
	startErr     error
	adoptErr     error
	onStart      func(runtime.Spec)
	refuse       bool // whether new instances refuse connections
	blocked      chan struct{}
	logged       map[string][]logstream.Envelope
	calls        []string
	serviceHangs bool          // the container service does not answer
	held         []func()      // its reports for the time when it answers again
	kept         []*crashFiles // newest first

	unadoptable    runtime.InstanceID // cannot be adopted while unadoptableErr returns an error
	unadoptableErr func() error
}

// NewFake returns an engine on a new machine.
func NewFake() *Fake {
	return &Fake{
		machine: &fakeMachine{logged: map[string][]logstream.Envelope{}},
		known:   map[*Container]bool{},
	}
}

// NextDaemon returns the engine of the next daemon on the same machine.
func (f *Fake) NextDaemon() *Fake {
	return &Fake{machine: f.machine, known: map[*Container]bool{}}
}

// FailStart makes every Start fail with err, until err is nil.
func (f *Fake) FailStart(err error) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	f.machine.startErr = err
}

// FailAdopt makes every Adopt fail with err, until err is nil.
func (f *Fake) FailAdopt(err error) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	f.machine.adoptErr = err
}

// FailAdoptionOf makes every attempt to adopt an instance fail while why returns an
// error.
func (f *Fake) FailAdoptionOf(id runtime.InstanceID, why func() error) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	f.machine.unadoptable, f.machine.unadoptableErr = id, why
}

// RefuseConnections makes new instances refuse or accept connections from their start on.
func (f *Fake) RefuseConnections(refuse bool) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	f.machine.refuse = refuse
}

// OnStart sets a function that every Start calls first.
func (f *Fake) OnStart(fn func(runtime.Spec)) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	f.machine.onStart = fn
}

// BlockStart makes every Start wait until release is called or its context is done.
func (f *Fake) BlockStart() (release func()) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	c := make(chan struct{})
	f.machine.blocked = c
	return sync.OnceFunc(func() {
		f.machine.mu.Lock()
		defer f.machine.mu.Unlock()
		f.machine.blocked = nil
		close(c)
	})
}

// errServiceHangs is the outage of a silenced engine.
var errServiceHangs = errors.New("the container service does not answer")

// HangService stops all answers of the container service, as if it hangs. Exits are
// reported, and states are known, only after release is called.
func (f *Fake) HangService() (release func()) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	f.machine.serviceHangs = true
	return sync.OnceFunc(func() {
		f.machine.mu.Lock()
		defer f.machine.mu.Unlock()
		f.machine.serviceHangs = false
		for _, report := range f.machine.held {
			report()
		}
		f.machine.held = nil
	})
}

// deliver sends a report now, or when the container service answers again.
func (g *fakeMachine) deliver(report func()) {
	if g.serviceHangs {
		g.held = append(g.held, report)
		return
	}
	report()
}

// Outage implements Engine.Outage.
func (f *Fake) Outage() error {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	if f.machine.serviceHangs {
		return errServiceHangs
	}
	return nil
}

// Containers returns all instances that were ever started, in order.
func (f *Fake) Containers() []*Container {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	return slices.Clone(f.machine.containers)
}

// Last returns the instance that was started last. It panics if there is none.
func (f *Fake) Last() *Container {
	cs := f.Containers()
	return cs[len(cs)-1]
}

// Present returns the instances that were not deleted, in the order of their starts.
func (f *Fake) Present() []*Container {
	return slices.DeleteFunc(f.Containers(), func(c *Container) bool { return c.Deleted() })
}

// Lines returns the lines of an app that are in its log before a Reap.
func (f *Fake) Lines(app string) []logstream.Envelope {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	return slices.Clone(f.machine.logged[app])
}

// Calls returns the calls that stopped or changed something, in order: "signal
// terminated sidecar-0", "reap main", "delete".
func (f *Fake) Calls() []string {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	return slices.Clone(f.machine.calls)
}

// Start implements Engine.Start.
func (f *Fake) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	return f.Prepare(ctx, s, nil)
}

// Prepare implements PreparingEngine.Prepare.
func (f *Fake) Prepare(ctx context.Context, s runtime.Spec, proceed <-chan struct{}) (runtime.Container, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	g := f.machine
	g.mu.Lock()
	onStart, blocked := g.onStart, g.blocked
	g.mu.Unlock()
	if onStart != nil {
		onStart(s)
	}
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
		}
	}
	g.mu.Lock()
	err := g.startErr
	g.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	if proceed != nil {
		select {
		case <-proceed:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot start instance %s: %w", s.Instance, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.Image != "" {
		return nil, &runtime.StartError{Reason: "image " + s.Image + " does not exist"}
	}
	s.StartedAt = time.Now()
	c := newContainer(g, s)
	g.containers = append(g.containers, c)
	f.known[c] = true
	h := c.attach()
	for _, p := range c.procs {
		c.interpret(p)
	}
	return h, nil
}

// Adopt implements Engine.Adopt.
func (f *Fake) Adopt(ctx context.Context) ([]runtime.Container, error) {
	g := f.machine
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.adoptErr != nil {
		return nil, g.adoptErr
	}
	var out []runtime.Container
	var left []runtime.Unadopted
	for _, c := range g.containers {
		if c.spec.Kind == runtime.KindStaging && !f.known[c] {
			c.remove()
			continue
		}
		if c.deleted || f.known[c] {
			continue
		}
		if c.spec.Instance == g.unadoptable && g.unadoptableErr() != nil {
			left = append(left, f.unadopted(c))
			continue
		}
		out = append(out, f.adopt(c))
	}
	if len(left) > 0 {
		return out, &runtime.AdoptError{Left: left}
	}
	return out, ctx.Err()
}

// NoteStop implements runtime.StopEngine.
func (f *Fake) NoteStop(id runtime.InstanceID) error {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	for _, c := range f.machine.containers {
		if c.spec.Instance == id {
			c.spec.Stopping = true
		}
	}
	return nil
}

// adopt takes over an instance of an earlier daemon. The caller holds the lock.
func (f *Fake) adopt(c *Container) runtime.Container {
	f.known[c] = true
	c.endSessions("dewd has stopped")
	return c.attach()
}

func (f *Fake) unadopted(c *Container) runtime.Unadopted {
	g := f.machine
	return runtime.Unadopted{
		Instance: c.spec.Instance, App: c.spec.App, Slot: c.spec.Slot, Task: c.spec.Task, Address: c.spec.Address.Addr(), Err: g.unadoptableErr(),
		Retry: func(context.Context) (runtime.Container, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if err := g.unadoptableErr(); err != nil {
				return nil, err
			}
			return f.adopt(c), nil
		},
		Remove: func(context.Context) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			c.remove()
			return nil
		},
	}
}

// Sweep implements Engine.Sweep.
func (f *Fake) Sweep(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	g := f.machine
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.containers {
		if !c.deleted && !keep[c.spec.Instance] {
			c.remove()
		}
	}
	return ctx.Err()
}
