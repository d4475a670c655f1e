package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/plan"
)

// start starts the next instance.
func (s *Slot) start(ctx context.Context) step {
	if ctx.Err() != nil {
		return nil
	}
	if s.stopping() {
		return s.down
	}
	select {
	case <-s.restart: // this start already fulfills the request
		s.resetCrashCount()
	default:
	}
	s.drainOnRestart.Store(false)
	s.move(runtime.Starting, "")
	id := runtime.NewInstanceID()
	d, spec, err := s.plan(id)
	if err != nil {
		return s.startFailed(ctx, id, d, err)
	}
	s.publish(func(st *runtime.Status) { describe(st, spec) })
	if s.tries == 0 {
		s.logCell(spec, logstream.Out, "Creating container")
	}
	container, err := s.launch(ctx, spec)
	if err != nil {
		return s.startFailed(ctx, id, d, err)
	}
	s.tries = 0
	clear(s.loggedErrors)
	in := newInstance(container)
	in.check, in.ready = d.Process.HealthCheck, d.Process.Readiness
	s.inst = in
	s.setContainer(container)
	s.sup.count(func(st *runtime.Stats) { st.Starts++ })
	s.log.Info("instance started", "app", spec.App, "instance", id)
	s.logCell(spec, logstream.Out, "Successfully created container")
	return s.watch
}

// plan creates a Spec with an address from the desired state.
func (s *Slot) plan(id runtime.InstanceID) (plan.Desired, runtime.Spec, error) {
	d, err := s.sup.planner.Instance(s.id)
	if err != nil {
		return d, runtime.Spec{}, err
	}
	addr, err := s.sup.addressFor(id, d)
	if err != nil {
		return d, runtime.Spec{}, err
	}
	spec, err := s.sup.planner.InstanceSpec(d, s.id, id, addr)
	return d, spec, err
}

// launch calls the engine and cancels the call if the slot is stopped. Then Start
// leaves nothing behind, or the container that it returns is stopped like any other.
func (s *Slot) launch(ctx context.Context, spec runtime.Spec) (runtime.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, s.sup.policy.StartLimit)
	defer cancel()
	started := async(func() (runtime.Container, error) { return s.sup.c.Engine.Start(ctx, spec) })
	select {
	case r := <-started:
		return r.get()
	case <-s.stop:
		cancel()
		return (<-started).get()
	}
}

// startFailed handles a start that produced no instance.
func (s *Slot) startFailed(ctx context.Context, id runtime.InstanceID, d plan.Desired, err error) step {
	if e := s.sup.addresses.Release(id); e != nil {
		s.log.Error("cannot release address", "instance", id, "err", e)
	}
	if ctx.Err() != nil {
		return nil
	}
	if s.stopping() {
		return s.down
	}
	if refused, ok := errors.AsType[*runtime.StartError](err); ok {
		return s.startRefused(ctx, id, d, refused)
	}
	s.tries++
	text := fmt.Sprintf("cannot start instance: %v", err)
	if errors.As(err, new(*runtime.PlacementError)) {
		text = err.Error()
		s.move(runtime.Down, text)
		s.publish(func(st *runtime.Status) { st.Version = d.Process.Version }) // it is the desired one that is down
	}
	s.publish(func(st *runtime.Status) { st.Details = text })
	s.sup.count(func(st *runtime.Stats) { st.Unavailable++ })
	s.logStartError(d.App.GUID, text)
	if !s.sleep(ctx, s.sup.policy.Retry(s.tries)) {
		return s.interrupted(ctx)
	}
	return s.start
}

// startRefused writes the record of an instance that cannot have run.
func (s *Slot) startRefused(ctx context.Context, id runtime.InstanceID, d plan.Desired, err *runtime.StartError) step {
	s.tries = 0
	e := runtime.Exit{
		Exec: err.Exec, Source: err.Source, Code: -1,
		Cause: runtime.CauseStartFailed, Detail: err.Reason, At: time.Now(),
	}
	if e.Exec == "" {
		e.Exec = runtime.MainExec
	}
	if e.Source == "" {
		e.Source = d.Source()
	}
	in := &Instance{
		spec: runtime.Spec{
			Kind: d.Kind(), Instance: id, Slot: s.id, App: d.App.GUID, Type: d.Process.Type,
			Version: d.Process.Version, Cell: s.sup.c.Cell, Droplet: d.Droplet.GUID,
		},
		phase:  runtime.PhaseStarting,
		reaped: map[string]bool{},
	}
	s.move(runtime.Crashed, e.Description())
	s.writeCrash(ctx, in, e, "")
	in.record.Complete = true
	if !s.storeRecord(ctx, in) {
		return s.interrupted(ctx)
	}
	return s.pause
}
