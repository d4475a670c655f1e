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
	"github.com/dewrun/dew/runtime/supervisor/next"
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
	if s.next != nil && !s.next.Current() {
		s.dropNext()
	}
	s.move(runtime.Starting, "")
	n := s.next
	if s.next = nil; n == nil {
		n = s.sup.next.Start(ctx, s.id)
	}
	if n.Err == nil {
		s.publish(func(st *runtime.Status) { describe(st, n.Spec) })
	}
	if s.tries == 0 && !n.Prepared() && n.Err == nil {
		s.logCell(n.Spec, logstream.Out, "Creating container")
	}
	container, err := n.Run(s.stop)
	if err != nil {
		return s.startFailed(ctx, n, err)
	}
	s.tries = 0
	clear(s.loggedErrors)
	in := newInstance(container)
	in.check, in.ready = n.Desired.Process.HealthCheck, n.Desired.Process.Readiness
	s.inst = in
	s.setContainer(container)
	s.sup.count(func(st *runtime.Stats) { st.Starts++ })
	s.log.Info("instance started", "app", in.spec.App, "instance", n.ID)
	s.logCell(in.spec, logstream.Out, "Successfully created container")
	return s.watch
}

// startFailed handles a start that produced no instance.
func (s *Slot) startFailed(ctx context.Context, n *next.Instance, err error) step {
	id, d := n.ID, n.Desired
	if e := s.sup.addresses.Release(id); e != nil {
		s.log.Error("cannot release address", "instance", id, "err", e)
	}
	if ctx.Err() != nil {
		return nil
	}
	if s.stopping() {
		return s.down
	}
	if n.Prepared() {
		s.log.Warn("cannot use the prepared instance; dewd creates another one", "instance", id, "err", err)
		s.removing.Wait() // there can be too little memory or disk space for two
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
