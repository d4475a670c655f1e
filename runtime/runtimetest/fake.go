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

// Fake is an Engine in memory. Its instances live on a ground that outlives it, as
// containers outlive a daemon. Next returns the engine of the next daemon.
type Fake struct {
	ground *ground
	known  map[*Container]bool // containers that this engine returned, guarded by ground.mu
}

// ground has the instances, independently of an engine.
type ground struct {
	mu         sync.Mutex
	containers []*Container // all that were ever started, in order
	startErr   error
	adoptErr   error
	onStart    func(runtime.Spec)
	refuse     bool // whether new instances refuse connections
	blocked    chan struct{}
	logged     map[string][]logstream.Envelope
	calls      []string
	silent     bool          // the container service does not answer
	held       []func()      // its reports for the time when it answers again
	kept       []*crashFiles // newest first

	spoilt    runtime.InstanceID // cannot be adopted while spoiltWhy returns an error
	spoiltWhy func() error
}

// NewFake returns an engine on a new ground.
func NewFake() *Fake {
	return &Fake{
		ground: &ground{logged: map[string][]logstream.Envelope{}},
		known:  map[*Container]bool{},
	}
}

// Next returns the engine of the next daemon on the same ground.
func (f *Fake) Next() *Fake { return &Fake{ground: f.ground, known: map[*Container]bool{}} }

// FailStart makes every Start fail with err, until err is nil.
func (f *Fake) FailStart(err error) {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	f.ground.startErr = err
}

// FailAdopt makes every Adopt fail with err, until err is nil.
func (f *Fake) FailAdopt(err error) {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	f.ground.adoptErr = err
}

// SpoilAdoption makes every attempt to adopt an instance fail while why returns an
// error.
func (f *Fake) SpoilAdoption(id runtime.InstanceID, why func() error) {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	f.ground.spoilt, f.ground.spoiltWhy = id, why
}

// Refuse makes new instances refuse or accept connections from their start on.
func (f *Fake) Refuse(refuse bool) {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	f.ground.refuse = refuse
}

// OnStart sets a function that every Start calls first.
func (f *Fake) OnStart(fn func(runtime.Spec)) {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	f.ground.onStart = fn
}

// BlockStart makes every Start wait until release is called or its context is done.
func (f *Fake) BlockStart() (release func()) {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	c := make(chan struct{})
	f.ground.blocked = c
	return sync.OnceFunc(func() {
		f.ground.mu.Lock()
		defer f.ground.mu.Unlock()
		f.ground.blocked = nil
		close(c)
	})
}

// errSilent is the outage of a silenced engine.
var errSilent = errors.New("the container service does not answer")

// Silence stops all answers of the container service, as if it hangs. Exits are
// reported, and states are known, only after release is called.
func (f *Fake) Silence() (release func()) {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	f.ground.silent = true
	return sync.OnceFunc(func() {
		f.ground.mu.Lock()
		defer f.ground.mu.Unlock()
		f.ground.silent = false
		for _, report := range f.ground.held {
			report()
		}
		f.ground.held = nil
	})
}

// deliver sends a report now, or when the container service answers again.
func (g *ground) deliver(report func()) {
	if g.silent {
		g.held = append(g.held, report)
		return
	}
	report()
}

// Outage implements Engine.Outage.
func (f *Fake) Outage() error {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	if f.ground.silent {
		return errSilent
	}
	return nil
}

// Containers returns all instances that were ever started, in order.
func (f *Fake) Containers() []*Container {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	return slices.Clone(f.ground.containers)
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
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	return slices.Clone(f.ground.logged[app])
}

// Calls returns the calls that stopped or changed something, in order: "signal
// terminated sidecar-0", "reap main", "delete".
func (f *Fake) Calls() []string {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	return slices.Clone(f.ground.calls)
}

// Start implements Engine.Start.
func (f *Fake) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	g := f.ground
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
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cannot start instance %s: %w", s.Instance, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.startErr != nil {
		return nil, g.startErr
	}
	if s.Image != "" {
		return nil, &runtime.StartError{Reason: "image " + s.Image + " is not on the shelf"}
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
	g := f.ground
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
		if c.spec.Instance == g.spoilt && g.spoiltWhy() != nil {
			left = append(left, f.unadopted(c))
			continue
		}
		out = append(out, f.take(c))
	}
	if len(left) > 0 {
		return out, &runtime.AdoptError{Left: left}
	}
	return out, ctx.Err()
}

// take takes over an instance of an earlier daemon. The caller holds the lock.
func (f *Fake) take(c *Container) runtime.Container {
	f.known[c] = true
	c.endSessions("its daemon is gone")
	return c.attach()
}

func (f *Fake) unadopted(c *Container) runtime.Unadopted {
	g := f.ground
	return runtime.Unadopted{
		Instance: c.spec.Instance, App: c.spec.App, Slot: c.spec.Slot, Task: c.spec.Task, Address: c.spec.Address.Addr(), Err: g.spoiltWhy(),
		Retry: func(context.Context) (runtime.Container, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if err := g.spoiltWhy(); err != nil {
				return nil, err
			}
			return f.take(c), nil
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
	g := f.ground
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.containers {
		if !c.deleted && !keep[c.spec.Instance] {
			c.remove()
		}
	}
	return ctx.Err()
}
