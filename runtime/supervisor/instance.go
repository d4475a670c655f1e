package supervisor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// Instance is one run of a slot: its container and the known facts about its end. The
// slot's goroutine owns it.
type Instance struct {
	spec      runtime.Spec
	container runtime.Container
	check     app.HealthCheck
	ready     app.HealthCheck // the readiness check
	phase     runtime.Phase
	adopted   time.Time // when this daemon adopted it; zero: this daemon started it
	earlier   uint64    // number of the newest line in the app's log at the adoption

	exits  []runtime.Exit // in the order in which they became known
	closed bool           // no more exits will come
	reaped map[string]bool
	killed []string            // execs that did not exit after SIGTERM
	record *runtime.ExitRecord // set after a crash
	stored bool                // the record is on disk
	probes sync.WaitGroup

	leaving bool // the cluster is removing it
}

func newInstance(c runtime.Container) *Instance {
	return &Instance{spec: c.Spec(), container: c, phase: runtime.PhaseStarting, reaped: map[string]bool{}}
}

// leavingSoon returns a channel that is closed when the cluster starts to remove the
// container. It is nil if no cluster can.
func (in *Instance) leavingSoon() <-chan struct{} {
	if c, ok := in.container.(runtime.LeavingContainer); ok {
		return c.Leaving()
	}
	return nil
}

// process returns the spec of exec. It returns false for the container's own first
// process, which stands for the whole container.
func (in *Instance) process(exec string) (runtime.ProcessSpec, bool) {
	for _, p := range in.spec.Processes {
		if p.Exec == exec {
			return p, true
		}
	}
	source := runtime.ProcessSource(in.spec.Type, "")
	if len(in.spec.Processes) > 0 {
		source = in.spec.Processes[0].Source
	}
	return runtime.ProcessSpec{Exec: exec, Source: source}, false
}

// alive returns the execs that have not exited as far as is known.
func (in *Instance) alive() []string {
	var out []string
	for _, p := range in.spec.Processes {
		if !in.ended(p.Exec) {
			out = append(out, p.Exec)
		}
	}
	return out
}

// allReaped reports whether every process has exited and left nothing running.
func (in *Instance) allReaped() bool {
	return !slices.ContainsFunc(in.spec.Processes, func(p runtime.ProcessSpec) bool { return !in.reaped[p.Exec] })
}

func (in *Instance) ended(exec string) bool {
	return slices.ContainsFunc(in.exits, func(e runtime.Exit) bool { return e.Exec == exec })
}

// addExit records an exit and adds the data that the engine does not know. It returns
// false if the exit was already known.
func (in *Instance) addExit(e runtime.Exit) (runtime.Exit, bool) {
	if in.ended(e.Exec) {
		return e, false
	}
	p, _ := in.process(e.Exec)
	e.Name, e.Source = p.Name, p.Source
	e.Cause = cmp.Or(e.Cause, runtime.CauseExited)
	if e.OOM && e.Cause == runtime.CauseExited {
		e.Cause = runtime.CauseOutOfMemory
	}
	if now := time.Now(); e.At.IsZero() || e.At.After(now) {
		e.At = now // a clock that was set back must not delay the next start
	}
	in.exits = append(in.exits, e)
	return e, true
}

// phaseOf returns the phase in which e happened.
func (in *Instance) phaseOf(e runtime.Exit) runtime.Phase {
	if !in.adopted.IsZero() && e.At.Before(in.adopted) {
		return runtime.PhaseUnwatched
	}
	return in.phase
}

// beforeAdoption selects the lines that an earlier daemon can have written about e. It
// returns false for an instance that this daemon started.
func (in *Instance) beforeAdoption(e runtime.Exit) (logstream.Filter, bool) {
	if in.adopted.IsZero() || in.earlier == 0 {
		return logstream.Filter{}, false
	}
	f := logstream.Filter{NoGaps: true, Since: in.spec.StartedAt, Last: in.earlier}
	// An earlier daemon can have found the running processes unhealthy at an earlier
	// time.
	if from := e.At.Add(-runtime.ClockSlack); e.Ended() && from.After(f.Since) {
		f.Since = from
	}
	return f, true
}

// launchOf is like phaseOf, but the first second always counts as starting, even
// without a check. A missing command is a failed start for every type of health check.
func (in *Instance) launchOf(e runtime.Exit) runtime.Phase {
	if e.At.Sub(in.spec.StartedAt) < startGrace {
		return runtime.PhaseStarting
	}
	return in.phaseOf(e)
}

// startGrace is long enough for a shell that does not find its command, on a busy
// machine.
const startGrace = time.Second

// noteExit records a value from Exits. If the channel is closed while processes should
// be running, they count as lost.
func (in *Instance) noteExit(e runtime.Exit, open bool) []runtime.Exit {
	if open {
		if e, fresh := in.addExit(e); fresh {
			return []runtime.Exit{e}
		}
		return nil
	}
	in.closed = true
	var lost []runtime.Exit
	for _, exec := range in.alive() {
		e, _ := in.addExit(runtime.Exit{Exec: exec, Code: -1, Cause: runtime.CauseRuntimeLost, At: time.Now()})
		lost = append(lost, e)
	}
	return lost
}

// save stores the current record.
func (in *Instance) save(exits *runtime.ExitLog) error {
	if in.stored {
		return exits.Replace(*in.record)
	}
	r, err := exits.Add(*in.record)
	if err != nil {
		return err
	}
	*in.record, in.stored = r, true
	return nil
}

// delete removes the container, within a time limit.
func (in *Instance) delete(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return in.container.Delete(ctx)
}

// adoptInstance takes over a container from an earlier daemon.
func adoptInstance(c runtime.Container, logs AppLogs, log *slog.Logger) *Instance {
	in := newInstance(c)
	in.adopted = time.Now()
	last, err := logs.Last(in.spec.App)
	if err != nil {
		log.Error("cannot read the app's log; the exit line of an instance may appear twice", "instance", in.spec.Instance, "err", err)
	}
	in.earlier = last
	return in
}

// reap reads the last lines of an exited process. If that takes too long, it is tried
// again before the instance is deleted.
func (in *Instance) reap(ctx context.Context, exec string, limit time.Duration, log *slog.Logger) []logstream.Envelope {
	if _, ok := in.process(exec); !ok {
		in.reaped[exec] = true
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	lines, err := in.container.Reap(ctx, exec)
	if err != nil {
		log.Warn("cannot read the last log lines yet", "instance", in.spec.Instance, "exec", exec, "err", err)
		return lines
	}
	in.reaped[exec] = true
	return lines
}

// signal sends sig to the running processes. It only logs a failure, because a stronger
// step follows.
func (in *Instance) signal(ctx context.Context, sig syscall.Signal, limit time.Duration, log *slog.Logger) {
	alive := in.alive()
	if len(alive) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := in.container.Signal(ctx, sig, alive...); err != nil && !errors.Is(err, context.Canceled) {
		log.Warn("cannot signal processes", "instance", in.spec.Instance, "signal", sig, "execs", alive, "err", err)
	}
}
