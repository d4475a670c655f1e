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
	s.soft.Store(false)
	s.move(Starting, "")
	id := NewInstanceID()
	w, spec, err := s.plan(id)
	if err != nil {
		return s.failed(ctx, id, w, err)
	}
	s.show(func(st *Status) { describe(st, spec) })
	if s.tries == 0 {
		s.cell(spec, logstream.Out, "Creating container")
	}
	task, err := s.launch(ctx, spec)
	if err != nil {
		return s.failed(ctx, id, w, err)
	}
	s.tries = 0
	clear(s.said)
	in := newInstance(task)
	in.check, in.ready = w.process.HealthCheck, w.process.Readiness
	s.inst = in
	s.hold(task)
	s.sup.count(func(st *Stats) { st.Starts++ })
	s.log.Info("instance started", "app", spec.App, "instance", id)
	s.cell(spec, logstream.Out, "Successfully created container")
	return s.watch
}

// plan turns the present wish into a Spec with an address.
func (s *Slot) plan(id InstanceID) (wish, Spec, error) {
	w, err := s.sup.wish(s.id)
	if err != nil {
		return w, Spec{}, err
	}
	addr, err := s.sup.addressFor(id, w)
	if err != nil {
		return w, Spec{}, err
	}
	spec, err := w.spec(s.id, s.sup.c.Cell, identity{
		id: id, index: s.id.Index, address: addr.Addr(), publicURL: s.sup.c.PublicURL, start: time.Now(),
	})
	spec.Address = addr
	return w, spec, err
}

// launch calls the engine and gives the call up when the slot is stopped
// meanwhile: Start then leaves nothing behind, or the task it returns is ended
// like any other.
func (s *Slot) launch(ctx context.Context, spec Spec) (Task, error) {
	ctx, cancel := context.WithTimeout(ctx, s.sup.policy.StartLimit)
	defer cancel()
	started := async(func() (Task, error) { return s.sup.c.Engine.Start(ctx, spec) })
	select {
	case r := <-started:
		return r.get()
	case <-s.stop:
		cancel()
		return (<-started).get()
	}
}

// failed decides what a start that gave no instance means.
func (s *Slot) failed(ctx context.Context, id InstanceID, w wish, err error) step {
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
		return s.refused(ctx, id, w, refused)
	}
	s.tries++
	text := fmt.Sprintf("cannot start instance: %v", err)
	s.show(func(st *Status) { st.Details = text })
	s.sup.count(func(st *Stats) { st.Unavailable++ })
	s.say(w.app.GUID, text)
	if !s.sleep(ctx, s.sup.policy.retry(s.tries)) {
		return s.leave(ctx)
	}
	return s.start
}

// refused writes the record of an instance that can never have run.
func (s *Slot) refused(ctx context.Context, id InstanceID, w wish, err *StartError) step {
	s.tries = 0
	e := Exit{
		Exec: err.Exec, Source: err.Source, Code: -1,
		Cause: CauseStartFailed, Detail: err.Reason, At: time.Now(),
	}
	if e.Exec == "" {
		e.Exec = MainExec
	}
	if e.Source == "" {
		e.Source = w.source()
	}
	in := &Instance{
		spec: Spec{
			Instance: id, Slot: s.id, App: w.app.GUID, Type: w.process.Type,
			Version: w.process.Version, Cell: s.sup.c.Cell, Droplet: w.droplet.GUID,
		},
		phase:  PhaseStarting,
		reaped: map[string]bool{},
	}
	s.move(Crashed, e.Description())
	s.tell(ctx, in, e, "")
	in.record.Complete = true
	if !s.keep(ctx, in) {
		return s.leave(ctx)
	}
	return s.pause
}
