package supervisor

import (
	"cmp"
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
		s.dropNext()
	default:
	}
	s.drainOnRestart.Store(false)
	if s.next != nil && !s.upToDate(s.next.spec.Version) {
		s.dropNext()
	}
	s.move(runtime.Starting, "")
	next, prepared := s.next, s.next != nil
	if s.next = nil; !prepared {
		next = newInstanceOf(ctx, s.sup, s.id, s.sup.c.Engine.Start)
	}
	if next.err == nil {
		s.publish(func(st *runtime.Status) { describe(st, next.spec) })
	}
	if s.tries == 0 && !prepared && next.err == nil {
		s.logCell(next.spec, logstream.Out, "Creating container")
	}
	container, err := next.run(s.stop)
	if err != nil {
		return s.startFailed(ctx, next, err)
	}
	s.tries = 0
	clear(s.loggedErrors)
	in := newInstance(container)
	in.check, in.ready = next.desired.Process.HealthCheck, next.desired.Process.Readiness
	s.inst = in
	s.setContainer(container)
	s.sup.count(func(st *runtime.Stats) { st.Starts++ })
	s.log.Info("instance started", "app", in.spec.App, "instance", next.id)
	s.logCell(in.spec, logstream.Out, "Successfully created container")
	return s.watch
}

// startFailed handles a start that produced no instance.
func (s *Slot) startFailed(ctx context.Context, next *nextInstance, err error) step {
	id, d := next.id, next.desired
	if e := s.sup.addresses.Release(id); e != nil {
		s.log.Error("cannot release address", "instance", id, "err", e)
	}
	if ctx.Err() != nil {
		return nil
	}
	if s.stopping() {
		return s.down
	}
	if next.proceed != nil {
		s.log.Warn("cannot use the prepared instance; dewd creates another one", "instance", id, "err", err)
		return s.start
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
		Exec: cmp.Or(err.Exec, runtime.MainExec), Source: cmp.Or(err.Source, d.Source()), Code: -1,
		Cause: runtime.CauseStartFailed, Detail: err.Reason, At: time.Now(),
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
	if !in.stored {
		return s.interrupted(ctx)
	}
	return s.pause
}
