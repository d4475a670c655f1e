package supervisor

import (
	"cmp"
	"errors"
	"hash/fnv"
	"time"

	"github.com/dewrun/dew/health"
	"github.com/dewrun/dew/runtime"
)

// unknownAfter is how long a check cannot be run before that is shown.
const unknownAfter = time.Minute

func outcomeOf(err error) runtime.Outcome {
	if err == nil {
		return runtime.CheckPassed
	}
	if _, ok := errors.AsType[*health.Unchecked](err); ok {
		return runtime.CheckUnchecked
	}
	return runtime.CheckFailed
}

// liveness is how the health of the instance is checked.
func (s *Slot) liveness(in *Instance) health.Config {
	return health.Config{
		StartTimeout: in.check.Timeout,
		Interval:     in.check.Interval,
		Timeout:      in.check.InvocationTimeout,
		Failures:     s.sup.policy.HealthFailures,
		First:        spread(in.spec.Instance, cmp.Or(in.check.Interval, health.DefaultInterval)),
		// An instance that was adopted long after its start has been healthy before.
		// One that was healthy under this daemon has been as well.
		Startup: in.phase == runtime.PhaseStarting && (in.adopted.IsZero() || in.adopted.Sub(in.spec.StartedAt) < cmp.Or(in.check.Timeout, health.DefaultStartTimeout)),
		Checked: s.checked(in, "health", func(st *runtime.Status) *runtime.Unknown { return &st.HealthUnknown }),
	}
}

// readinessOf is how the readiness of the instance is checked.
func (s *Slot) readinessOf(in *Instance) health.Config {
	return health.Config{
		Interval: in.ready.Interval,
		Timeout:  in.ready.InvocationTimeout,
		Ready:    s.wasReady(in),
		Checked:  s.checked(in, "readiness", func(st *runtime.Status) *runtime.Unknown { return &st.ReadinessUnknown }),
	}
}

// spread is a time between 0 and interval that is always the same for an instance
// and another one for most others: instances that were started or adopted together
// are not checked together.
func spread(id runtime.InstanceID, interval time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // it never fails
	return time.Duration(h.Sum64() % uint64(max(interval, 1)))
}

// checked returns the function that notes every outcome of one check of the
// instance, for the counts and in the status.
func (s *Slot) checked(in *Instance, check string, of func(*runtime.Status) *runtime.Unknown) func(error) {
	var now runtime.Unknown // with the time of the first check in a row that could not be run
	shown := false
	show := func(u runtime.Unknown) {
		shown = u != runtime.Unknown{}
		// Not by Slot.show: routes do not depend on it, and this is not the slot's
		// goroutine.
		s.change(func(st *runtime.Status) {
			if st.Instance == in.spec.Instance {
				*of(st) = u
			}
		})
	}
	return func(err error) {
		s.sup.count(func(st *runtime.Stats) { st.Checks[outcomeOf(err)]++ })
		u, ok := errors.AsType[*health.Unchecked](err)
		if !ok {
			now = runtime.Unknown{}
			if shown {
				show(now)
				s.log.Info(check+" can be checked again", "instance", in.spec.Instance)
			}
			return
		}
		if now.Since.IsZero() {
			now.Since = time.Now()
		}
		if now.Reason = u.Error(); time.Since(now.Since) < unknownAfter {
			return
		}
		if !shown {
			s.log.Warn("cannot check "+check, "instance", in.spec.Instance, "err", err)
		}
		show(now)
	}
}
