package supervisor

import (
	"context"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/plan"
	"github.com/dewrun/dew/runtime/supervisor/async"
)

// nextInstance is an instance that the engine creates on another goroutine.
type nextInstance struct {
	sup     *Supervisor
	id      runtime.InstanceID
	desired plan.Desired
	spec    runtime.Spec
	err     error // why there is nothing to create
	cancel  context.CancelFunc
	proceed chan struct{} // closed: its processes can run; nil: they run at once
	created <-chan async.Result[runtime.Container]
}

// createFunc is Engine.Start, or a function with the same contract.
type createFunc func(ctx context.Context, s runtime.Spec) (runtime.Container, error)

// newInstanceOf plans the next instance of a slot and creates it.
func newInstanceOf(ctx context.Context, sup *Supervisor, slot runtime.SlotID, create createFunc) *nextInstance {
	n := &nextInstance{sup: sup, id: runtime.NewInstanceID()}
	if n.err = n.plan(slot); n.err != nil {
		return n
	}
	ctx, n.cancel = context.WithTimeout(ctx, sup.policy.StartLimit)
	n.created = async.Call(func() (runtime.Container, error) { return create(ctx, n.spec) })
	return n
}

// plan creates a Spec with an address from the desired state.
func (n *nextInstance) plan(slot runtime.SlotID) error {
	d, err := n.sup.planner.Instance(slot)
	n.desired = d
	if err != nil {
		return err
	}
	addr, err := n.sup.addressFor(n.id, d)
	if err != nil {
		return err
	}
	n.spec, err = n.sup.planner.InstanceSpec(d, slot, n.id, addr)
	return err
}

// run lets the processes run and returns the container. If stop is closed before the
// container is complete, nothing is left of it, or it is stopped like any other.
func (n *nextInstance) run(stop <-chan struct{}) (runtime.Container, error) {
	if n.err != nil {
		return nil, n.err
	}
	defer n.cancel()
	if n.proceed != nil {
		close(n.proceed)
	}
	select {
	case r := <-n.created:
		return r.Get()
	case <-stop:
		n.cancel()
		return (<-n.created).Get()
	}
}

// drop removes a prepared instance whose processes never ran. It returns after nothing
// is left of it.
func (n *nextInstance) drop() error {
	if n == nil {
		return nil
	}
	if n.err == nil {
		n.cancel()
		r := <-n.created
		r.MustNotPanic()
	}
	return n.sup.addresses.Release(n.id)
}

// prepareNext creates the next instance while the slot removes the current one, if the
// engine can do that. Its processes wait.
func (s *Slot) prepareNext(ctx context.Context) {
	engine, ok := s.sup.c.Engine.(runtime.PreparingEngine)
	if !ok || s.next != nil || s.stray || s.stopping() || s.inst.spec.Kind != runtime.KindInstance {
		return
	}
	proceed := make(chan struct{})
	s.next = newInstanceOf(ctx, s.sup, s.id, func(ctx context.Context, spec runtime.Spec) (runtime.Container, error) {
		return engine.Prepare(ctx, spec, proceed)
	})
	s.next.proceed = proceed
	if s.next.err == nil {
		s.logCell(s.next.spec, logstream.Out, "Creating container")
	}
}

// dropNext removes the prepared instance, if there is one.
func (s *Slot) dropNext() {
	next := s.next
	s.next = nil
	if err := next.drop(); err != nil {
		s.log.Error("cannot release address", "instance", next.id, "err", err)
	}
}

// startsAtOnce reports whether the next instance starts right after the crash.
func startsAtOnce(r *runtime.ExitRecord) bool {
	return r != nil && !r.GivenUp && !r.NextStart.After(time.Now())
}
