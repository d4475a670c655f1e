package supervisor

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/health"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor/async"
)

// unknownAfter is how long a check can be impossible to run before the status shows it.
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

// checks are the health and readiness checks of one instance.
type checks struct {
	in       *Instance
	failures int // failed liveness checks in a row that end the instance
	events   *registry.Events
	view     *view
	appLog   *appLog
	count    func(add func(st *runtime.Stats))
}

func (s *Slot) checks(in *Instance) checks {
	return checks{
		in: in, failures: s.sup.policy.HealthFailures, events: s.sup.c.Events,
		view: &s.view, appLog: &s.appLog, count: s.sup.count,
	}
}

// monitor runs the health check until ctx is done or the instance is unhealthy.
func (c checks) monitor(ctx context.Context, healthy chan<- struct{}) <-chan async.Result[struct{}] {
	in := c.in
	probe := probeOf(in, in.check)
	if probe == nil { // healthy at once: there is no check
		healthy <- struct{}{}
		return nil
	}
	c.appLog.logCell(in.spec, logstream.Out, "Starting health monitoring of container")
	liveness := c.liveness()
	in.probes.Add(1)
	return async.Call(func() (struct{}, error) {
		defer in.probes.Done()
		return struct{}{}, health.Monitor(ctx, probe, liveness, func() { healthy <- struct{}{} })
	})
}

// liveness returns the configuration of the health check.
func (c checks) liveness() health.Config {
	in := c.in
	return health.Config{
		StartTimeout: in.check.Timeout,
		Interval:     in.check.Interval,
		Timeout:      in.check.InvocationTimeout,
		Failures:     c.failures,
		First:        spread(in.spec.Instance, cmp.Or(in.check.Interval, health.DefaultInterval)),
		// An instance that was adopted long after its start was healthy before. So was
		// one that became healthy under this daemon.
		Startup: in.phase == runtime.PhaseStarting && (in.adopted.IsZero() || in.adopted.Sub(in.spec.StartedAt) < cmp.Or(in.check.Timeout, health.DefaultStartTimeout)),
		Checked: c.checked("health", func(st *runtime.Status) *runtime.Unknown { return &st.HealthUnknown }),
	}
}

// readiness returns the configuration of the readiness check.
func (c checks) readiness() health.Config {
	in := c.in
	return health.Config{
		Interval: in.ready.Interval,
		Timeout:  in.ready.InvocationTimeout,
		Ready:    c.wasReady(),
		Checked:  c.checked("readiness", func(st *runtime.Status) *runtime.Unknown { return &st.ReadinessUnknown }),
	}
}

// spread returns a time between 0 and interval that is constant per instance and
// different for most others. Instances that were started or adopted together are
// therefore not checked together.
func spread(id runtime.InstanceID, interval time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return time.Duration(h.Sum64() % uint64(max(interval, 1)))
}

// checked returns the function that records every outcome of one check of the instance,
// in the counters and in the status.
func (c checks) checked(check string, of func(*runtime.Status) *runtime.Unknown) func(error) {
	var now runtime.Unknown // Since is the time of the first check in a row that could not be run
	shown := false
	show := func(u runtime.Unknown) {
		shown = u != runtime.Unknown{}
		// Without Slot.publish, because routes do not depend on it, and this is not the
		// slot's goroutine.
		c.view.change(func(st *runtime.Status) {
			if st.Instance == c.in.spec.Instance {
				*of(st) = u
			}
		})
	}
	return func(err error) {
		c.count(func(st *runtime.Stats) { st.Checks[outcomeOf(err)]++ })
		u, ok := errors.AsType[*health.Unchecked](err)
		if !ok {
			now = runtime.Unknown{}
			if shown {
				show(now)
				c.appLog.log.Info(check+" can be checked again", "instance", c.in.spec.Instance)
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
			c.appLog.log.Warn("cannot check "+check, "instance", c.in.spec.Instance, "err", err)
		}
		show(now)
	}
}

// wasReady reports whether an adopted instance was ready according to the last event.
// If so, routes lead to it at once, and no new event is needed.
func (c checks) wasReady() bool {
	in := c.in
	if in.adopted.IsZero() || c.events == nil {
		return false
	}
	events, err := c.events.List(app.EventFilter{Types: []string{runtime.EventReady, runtime.EventNotReady}, Targets: []string{in.spec.App}, Newest: true})
	if err != nil {
		c.appLog.log.Error("cannot read events; a change of readiness may be recorded twice", "err", err)
		return false
	}
	i := slices.IndexFunc(events, func(e app.Event) bool { return e.Data["instance"] == string(in.spec.Instance) })
	return i >= 0 && events[i].Type == runtime.EventReady
}
