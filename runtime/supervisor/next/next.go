package next

import (
	"context"
	"net/netip"
	"reflect"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/address"
	"github.com/dewrun/dew/runtime/plan"
	"github.com/dewrun/dew/runtime/supervisor/async"
)

// Config has the dependencies of a Maker.
type Config struct {
	Engine     runtime.Engine
	Planner    *plan.Planner
	Addresses  *address.Pool
	StartLimit time.Duration // for one Engine.Start
	Spares     int           // how many instances can be prepared while the ones before them run
}

// Maker creates instances.
type Maker struct {
	c      Config
	spares spares
}

// New returns a Maker.
func New(c Config) *Maker {
	return &Maker{c: c, spares: spares{limit: c.Spares, apps: map[string]bool{}}}
}

// Instance is an instance that the engine creates on another goroutine.
type Instance struct {
	ID      runtime.InstanceID
	Slot    runtime.SlotID
	Desired plan.Desired
	Spec    runtime.Spec
	Err     error // why there is nothing to create

	m       *Maker
	cancel  context.CancelFunc
	proceed chan struct{} // closed: its processes can run; nil: they run at once
	done    chan struct{} // closed when created is set
	created async.Result[runtime.Container]
	release func() // lets another slot have a spare; nil: this is none
}

// Start plans the next instance of a slot and starts it.
func (m *Maker) Start(ctx context.Context, slot runtime.SlotID) *Instance {
	n := &Instance{ID: runtime.NewInstanceID(), Slot: slot, m: m}
	if n.Err = n.plan(); n.Err != nil {
		return n
	}
	ctx, n.cancel = context.WithTimeout(ctx, m.c.StartLimit)
	n.create(func() (runtime.Container, error) { return m.c.Engine.Start(ctx, n.Spec) })
	return n
}

// Prepare plans the next instance of a slot and creates it, but its processes wait for
// Run. The time limit of a start begins then. It returns nil if the engine cannot do that.
func (m *Maker) Prepare(ctx context.Context, slot runtime.SlotID) *Instance {
	engine, ok := m.c.Engine.(runtime.PreparingEngine)
	if !ok {
		return nil
	}
	n := &Instance{ID: runtime.NewInstanceID(), Slot: slot, m: m, proceed: make(chan struct{})}
	if n.Err = n.plan(); n.Err != nil {
		return n
	}
	ctx, n.cancel = context.WithCancel(ctx)
	n.create(func() (runtime.Container, error) { return engine.Prepare(ctx, n.Spec, n.proceed) })
	return n
}

func (n *Instance) create(fn func() (runtime.Container, error)) {
	n.done = make(chan struct{})
	result := async.Call(fn)
	go func() {
		n.created = <-result
		close(n.done)
	}()
}

// Failed returns a channel that is closed when a prepared instance that was not told to
// run does not exist any more. It is nil if nothing was created.
func (n *Instance) Failed() <-chan struct{} { return n.done }

// Wait waits until the processes of the instance run, or until there is nothing left of it.
func (n *Instance) Wait(ctx context.Context) {
	select {
	case <-n.done:
	case <-ctx.Done():
	}
}

// plan creates a Spec with an address from the desired state. A server has its own
// address.
func (n *Instance) plan() (err error) {
	if n.Desired, err = n.m.c.Planner.Instance(n.Slot); err != nil {
		return err
	}
	var addr netip.Prefix
	if v := n.Desired.Server; v != nil {
		addr = netip.PrefixFrom(v.Address, n.m.c.Addresses.Subnet().Bits())
	} else if addr, err = n.m.c.Addresses.Allocate(n.ID); err != nil {
		return err
	}
	n.Spec, err = n.m.c.Planner.InstanceSpec(n.Desired, n.Slot, n.ID, addr)
	return err
}

// Prepared reports whether the processes of the instance wait for Run.
func (n *Instance) Prepared() bool { return n.proceed != nil }

// Spare reports whether the instance was prepared while the one before it ran.
func (n *Instance) Spare() bool { return n.release != nil }

// Current reports whether a start now would create the same instance. It reads the
// health checks again, which are no part of the container.
func (n *Instance) Current() bool {
	if n.Err != nil {
		return false
	}
	d, err := n.m.c.Planner.Instance(n.Slot)
	if err != nil {
		return false
	}
	d.At = n.Desired.At // dew-init gets the time of the start, so this one does not matter
	spec, err := n.m.c.Planner.InstanceSpec(d, n.Slot, n.ID, n.Spec.Address)
	if err != nil || !reflect.DeepEqual(spec, n.Spec) {
		return false
	}
	n.Desired = d
	return true
}

// Run lets the processes run and returns the container. If stop is closed before the
// container is complete, nothing is left of it, or it is stopped like any other.
func (n *Instance) Run(stop <-chan struct{}) (runtime.Container, error) {
	if n.Err != nil {
		return nil, n.Err
	}
	defer n.cancel()
	if n.proceed != nil {
		n.unlist()
		close(n.proceed)
		t := time.AfterFunc(n.m.c.StartLimit, n.cancel)
		defer t.Stop()
	}
	select {
	case <-n.done:
	case <-stop:
		n.cancel()
		<-n.done
	}
	return n.created.Get()
}

// Drop removes a prepared instance whose processes never ran. It returns after nothing
// is left of it.
func (n *Instance) Drop() error {
	n.unlist()
	if n.Err == nil {
		n.cancel()
		<-n.done
		n.created.MustNotPanic()
	}
	return n.m.c.Addresses.Release(n.ID)
}
