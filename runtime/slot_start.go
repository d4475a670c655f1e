package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dewrun/dew/logstream"
)

// start makes the next instance.
func (s *Slot) start(ctx context.Context) step {
	if ctx.Err() != nil {
		return nil
	}
	if s.stopping() {
		return s.down
	}
	select {
	case <-s.restart: // this start is what it asked for
		s.forgive()
	default:
	}
	s.drainOnRestart.Store(false)
	s.move(Starting, "")
	id := NewInstanceID()
	d, spec, err := s.plan(id)
	if err != nil {
		return s.startFailed(ctx, id, d, err)
	}
	s.publish(func(st *Status) { describe(st, spec) })
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
	in.check, in.ready = d.process.HealthCheck, d.process.Readiness
	s.inst = in
	s.setContainer(container)
	s.sup.count(func(st *Stats) { st.Starts++ })
	s.log.Info("instance started", "app", spec.App, "instance", id)
	s.logCell(spec, logstream.Out, "Successfully created container")
	return s.watch
}

// plan turns the desired state into a Spec with an address.
func (s *Slot) plan(id InstanceID) (desired, Spec, error) {
	d, err := s.sup.planner.Instance(s.id)
	if err != nil {
		return d, Spec{}, err
	}
	addr, err := s.sup.addressFor(id, d)
	if err != nil {
		return d, Spec{}, err
	}
	spec, err := s.sup.planner.InstanceSpec(d, s.id, id, addr)
	return d, spec, err
}

// launch calls the engine and gives the call up when the slot is stopped
// meanwhile: Start then leaves nothing behind, or the container it returns is ended
// like any other.
func (s *Slot) launch(ctx context.Context, spec Spec) (Container, error) {
	ctx, cancel := context.WithTimeout(ctx, s.sup.policy.StartLimit)
	defer cancel()
	started := async(func() (Container, error) { return s.sup.c.Engine.Start(ctx, spec) })
	select {
	case r := <-started:
		return r.get()
	case <-s.stop:
		cancel()
		return (<-started).get()
	}
}

// startFailed decides what a start that gave no instance means.
func (s *Slot) startFailed(ctx context.Context, id InstanceID, d desired, err error) step {
	if e := s.sup.addresses.release(id); e != nil {
		s.log.Error("cannot release address", "instance", id, "err", e)
	}
	if ctx.Err() != nil {
		return nil
	}
	if s.stopping() {
		return s.down
	}
	if refused, ok := errors.AsType[*StartError](err); ok {
		return s.startRefused(ctx, id, d, refused)
	}
	s.tries++
	text := fmt.Sprintf("cannot start instance: %v", err)
	s.publish(func(st *Status) { st.Details = text })
	s.sup.count(func(st *Stats) { st.Unavailable++ })
	s.logStartError(d.app.GUID, text)
	if !s.sleep(ctx, s.sup.policy.retry(s.tries)) {
		return s.leave(ctx)
	}
	return s.start
}

// startRefused writes the record of an instance that can never have run.
func (s *Slot) startRefused(ctx context.Context, id InstanceID, d desired, err *StartError) step {
	s.tries = 0
	e := Exit{
		Exec: err.Exec, Source: err.Source, Code: -1,
		Cause: CauseStartFailed, Detail: err.Reason, At: time.Now(),
	}
	if e.Exec == "" {
		e.Exec = MainExec
	}
	if e.Source == "" {
		e.Source = d.source()
	}
	in := &Instance{
		spec: Spec{
			Kind: d.kind(), Instance: id, Slot: s.id, App: d.app.GUID, Type: d.process.Type,
			Version: d.process.Version, Cell: s.sup.c.Cell, Droplet: d.droplet.GUID,
		},
		phase:  PhaseStarting,
		reaped: map[string]bool{},
	}
	s.move(Crashed, e.Description())
	s.writeCrash(ctx, in, e, "")
	in.record.Complete = true
	if !s.storeRecord(ctx, in) {
		return s.leave(ctx)
	}
	return s.pause
}
