package supervisor

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/health"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/plan"
	"github.com/dewrun/dew/runtime/supervisor/async"
	"github.com/dewrun/dew/runtime/supervisor/next"
)

// readiness is a changed result of the readiness check.
type readiness struct {
	ready bool
	err   error
}

// watch waits for the next event of the instance.
func (s *Slot) watch(ctx context.Context) step {
	in := s.inst
	probing, cancel := context.WithCancel(ctx)
	defer cancel()
	healthy := make(chan struct{}, 1)
	sick := s.checks(in).monitor(probing, healthy)
	routable := make(chan readiness)
	var asking <-chan async.Result[struct{}]
	var steady <-chan time.Time
	var spare spareEvents
	leaving := in.leavingSoon()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.stop:
			return s.end
		case <-s.restart:
			return s.replace
		case <-s.recheck:
			if !s.upToDate(in.spec.Version) {
				return s.replace
			}
			if s.next != nil && !s.next.Current() {
				spare = replaceSpare(s, next.FirstSpare)
			}
		case e, ok := <-in.container.Exits():
			in.noteExit(e, ok)
			return s.crash
		case <-healthy:
			s.healthy(in)
			if in.ready.Type == app.CheckNone {
				s.routable(in, readiness{ready: true})
			} else {
				asking = s.watchReadiness(probing, in, routable)
			}
			t := time.NewTimer(s.sup.policy.HealthyReset)
			defer t.Stop() // only one timer per instance: healthy is sent once
			steady, spare.due = t.C, s.sup.next.SpareDue(next.FirstSpare)
		case <-spare.due:
			spare = prepareSpare(ctx, s)
		case <-spare.failed:
			s.log.Warn("the spare instance failed; dewd creates another one", "instance", s.next.ID)
			spare = replaceSpare(s, next.NextSpare)
		case r := <-routable:
			s.routable(in, r)
		case <-leaving:
			leaving, in.leaving = nil, true
			s.publish(func(st *runtime.Status) { st.Ready = false })
			s.logCell(in.spec, logstream.Out, "The cluster is removing the container. Container removed from route pool.")
		case r := <-asking: // only after a panic, or when ctx is done
			r.MustNotPanic()
			asking = nil
		case <-steady:
			s.panics = 0
			s.resetCrashCount()
		case r := <-sick:
			return s.unhealthy(ctx, r)
		}
	}
}

// watchReadiness checks whether routes can lead to the instance. It never stops it.
func (s *Slot) watchReadiness(ctx context.Context, in *Instance, to chan<- readiness) <-chan async.Result[struct{}] {
	c := s.checks(in).readiness()
	if c.Ready {
		s.publish(func(st *runtime.Status) { st.Ready = true })
	}
	in.probes.Add(1)
	return async.Call(func() (struct{}, error) {
		defer in.probes.Done()
		health.Watch(ctx, probeOf(in, in.ready), c, func(ready bool, err error) {
			select {
			case to <- readiness{ready, err}:
			case <-ctx.Done():
			}
		})
		return struct{}{}, nil
	})
}

// probeOf returns the probe of the check, nil if it has none.
func probeOf(in *Instance, check app.HealthCheck) health.Probe {
	port := check.Port
	if port == 0 && len(in.spec.Ports) > 0 {
		port = in.spec.Ports[0]
	}
	addr := netip.AddrPortFrom(in.spec.Address.Addr(), uint16(cmp.Or(port, plan.DefaultPort)))
	probe := health.ProbeOf(check, in.container.Dial, addr)
	if probe == nil {
		return nil
	}
	return unlessPaused(in, check.Type, probe)
}

// unlessPaused treats a failed probe of a paused instance as a check that could not be
// run. dew itself paused the processes, so that no line is lost.
func unlessPaused(in *Instance, check string, probe health.Probe) health.Probe {
	return func(ctx context.Context, timeout time.Duration) error {
		paused := in.container.Paused()
		err := probe(ctx, timeout)
		if err != nil && (paused || in.container.Paused()) {
			return &health.Unchecked{Check: check, Reason: "the instance is paused until its output is stored", Err: err}
		}
		return err
	}
}

// healthy records that the instance is healthy.
func (s *Slot) healthy(in *Instance) {
	in.phase = runtime.PhaseRunning
	s.move(runtime.Running, "")
	if health.HasProbe(in.check.Type) {
		s.logCell(in.spec, logstream.Out, "Container became healthy")
	}
}
