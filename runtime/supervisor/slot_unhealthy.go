package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dewrun/dew/health"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor/async"
)

// unhealthy decides how to handle a failed health check. If a process has exited, that
// is the reason, even if the exit is reported after the check. Otherwise the instance
// is unhealthy and is stopped. While the container service does not answer, it is
// unknown which case applies. Then the instance leaves its routes and is not changed.
func (s *Slot) unhealthy(ctx context.Context, r async.Result[struct{}]) step {
	_, failure := r.Get()
	if ctx.Err() != nil {
		return nil
	}
	in := s.inst
	recheck := false
	for n := 1; ; n++ {
		next, interrupted, err := s.interruptible(ctx, in, in.container.Settle)
		switch {
		case interrupted:
			return next
		case err == nil && !recheck:
			return s.failHealth(ctx, unhealthyExit(in, failure))
		case err == nil: // much time can have passed: it can be healthy again
			next, interrupted, err = s.interruptible(ctx, in, in.probe)
			if interrupted {
				return next
			}
			switch outcomeOf(err) {
			case runtime.CheckPassed:
				return s.watch
			case runtime.CheckFailed:
				recheck = false
				continue
			}
		}
		if n == 1 {
			s.log.Warn("health check failed; dewd cannot find out which processes are running", "instance", in.spec.Instance, "check", failure, "err", err)
			s.publish(func(st *runtime.Status) { st.Ready = false })
		}
		recheck = true
		next, interrupted, _ = s.interruptible(ctx, in, func(ctx context.Context) error {
			wait(ctx, s.sup.policy.Retry(n))
			return nil
		})
		if interrupted {
			return next
		}
	}
}

// probe runs the health check once.
func (in *Instance) probe(ctx context.Context) error {
	return probeOf(in, in.check)(ctx, cmp.Or(max(in.check.InvocationTimeout, 0), health.DefaultTimeout))
}

// interruptible calls fn and returns its error. If a more important event of the slot
// comes first, it returns the step that handles the event.
func (s *Slot) interruptible(ctx context.Context, in *Instance, fn func(context.Context) error) (next step, interrupted bool, err error) {
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	in.probes.Add(1)
	answer := async.Call(func() (struct{}, error) {
		defer in.probes.Done()
		return struct{}{}, fn(call)
	})
	for {
		select {
		case <-ctx.Done():
			return nil, true, nil
		case <-s.stop:
			return s.end, true, nil
		case <-s.restart:
			return s.replace, true, nil
		case <-s.recheck:
			if !s.upToDate(in.spec.Version) {
				return s.replace, true, nil
			}
		case e, ok := <-in.container.Exits():
			in.noteExit(e, ok)
			return s.crash, true, nil
		case r := <-answer:
			select {
			case e, ok := <-in.container.Exits(): // it can have arrived before the answer
				in.noteExit(e, ok)
				return s.crash, true, nil
			default:
			}
			_, err := r.Get()
			return nil, false, err
		}
	}
}

// unhealthyExit returns the exit for a failed check, which names the crash.
func unhealthyExit(in *Instance, err error) runtime.Exit {
	main, _ := in.process(runtime.MainExec)
	e := runtime.Exit{
		Exec: runtime.MainExec, Source: main.Source, Code: -1, Cause: runtime.CauseUnhealthy, At: time.Now(),
		Detail: err.Error(),
		Memory: runtime.Memory{Limit: main.Memory},
		Check:  &runtime.FailedCheck{Type: in.check.Type, Endpoint: in.check.Endpoint},
	}
	if f, ok := errors.AsType[*health.Failure](err); ok {
		e.Check.Endpoint, e.Check.Status = cmp.Or(f.Path, e.Check.Endpoint), f.Status
	}
	if s, ok := errors.AsType[*health.Unhealthy](err); ok && s.Phase == health.Starting {
		e.Cause, e.Check.Timeout = runtime.CauseStartTimeout, s.After
		e.Detail = fmt.Sprintf("never healthy after %s: %v", s.After, s.Err)
	}
	return e
}
