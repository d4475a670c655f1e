package supervisor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor/async"
	"github.com/dewrun/dew/runtime/supervisor/next"
)

// sourceCell is the log source of the platform's lines about containers.
const sourceCell = "CELL"

// Slot keeps one instance of a process running.
type Slot struct {
	id       runtime.SlotID
	sup      *Supervisor
	inst     *Instance      // owned by Run
	next     *next.Instance // prepared, owned by Run
	removing sync.WaitGroup // removals on other goroutines
	tries    int            // failures in a row of the container service, the store or the log, owned by Run
	panics   int            // in a row, owned by Run
	stray    bool           // another slot has a newer instance: stop this one and report nothing

	serverKillDelay time.Duration // time of a server between SIGTERM and SIGKILL (0: the policy's), owned by Run

	orders
	view
	appLog
}

// step is one part of a slot's loop. It returns the next step, or nil at the end.
type step func(ctx context.Context) step

func newSlot(s *Supervisor, id runtime.SlotID, adopted runtime.Container) *Slot {
	sl := &Slot{
		id:     id,
		sup:    s,
		orders: orders{stop: make(chan struct{}), restart: make(chan struct{}, 1), recheck: make(chan struct{}, 1)},
		view:   view{status: runtime.Status{Slot: id, State: runtime.Down, Since: time.Now()}},
	}
	sl.appLog = appLog{logs: s.c.Logs, log: s.c.Logger.With("process", id.Process, "index", id.Index), index: id.Index, loggedErrors: map[string]bool{}}
	if adopted != nil {
		sl.inst = adoptInstance(adopted, s.c.Logs, s.c.Logger)
		sl.setContainer(adopted)
	}
	return sl
}

// Status returns a copy of the slot's status.
func (s *Slot) Status() runtime.Status {
	st := s.snapshot()
	if st.State == runtime.Running || st.State == runtime.Starting {
		if err := s.sup.c.Engine.Outage(); err != nil {
			st.Details = "unknown: " + err.Error()
		}
	}
	return st
}

// Run keeps the slot running until Stop, or until ctx is done. The two differ: Stop
// ends the processes, but the end of ctx leaves the container for the next daemon to
// adopt. A panic delays this slot and affects no other.
func (s *Slot) Run(ctx context.Context) {
	defer func() {
		s.dropNext()
		s.removing.Wait()
	}()
	for !s.run(ctx) {
		s.panics++
		s.sup.count(func(st *runtime.Stats) { st.Panics++ })
		// Not even Stop shortens this delay: the slot stops after it.
		if !wait(ctx, s.sup.policy.Retry(s.panics)) {
			return
		}
	}
}

// run executes step after step. It returns false after a panic.
func (s *Slot) run(ctx context.Context) (done bool) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("slot panicked, restarting it", "panic", v, "stack", string(async.StackOf(v)))
			// Without move: after a panic the previous state is not reliable.
			s.change(func(st *runtime.Status) {
				st.State, st.Since, st.Ready, st.Details = runtime.Down, time.Now(), false, "internal error, see the log of dewd"
			})
		}
	}()
	for do := step(s.begin); do != nil; {
		do = do(ctx)
	}
	return true
}

// begin handles the initial situation: an instance from an earlier daemon or from
// before a panic, or none.
func (s *Slot) begin(ctx context.Context) step {
	if s.inst == nil {
		return s.pause
	}
	in := s.inst
	s.publish(func(st *runtime.Status) { describe(st, in.spec) })
	if in.record == nil {
		s.loadRecord(in)
	}
	switch {
	case s.stopping():
		return s.end
	case in.spec.Stopping:
		return s.replace // an earlier daemon was stopping it, and it is wanted again
	case in.record != nil || len(in.exits) > 0:
		return s.crash
	}
	s.move(runtime.Starting, "")
	in.phase = runtime.PhaseStarting
	s.check(in)
	return s.watch
}

// loadRecord finds the record of a crash that was stored but not completely handled, so
// that the same crash is not reported twice.
func (s *Slot) loadRecord(in *Instance) {
	r, ok, err := s.sup.exits.Newest(s.id)
	if err != nil {
		s.log.Error("cannot read exit records", "err", err)
		return
	}
	if ok && r.Instance == in.spec.Instance {
		in.record, in.stored = &r, true
	}
}

// check reads the health check of an adopted instance.
func (s *Slot) check(in *Instance) {
	p, err := s.sup.planner.Process(s.id)
	if err != nil {
		s.log.Error("cannot read the health check; dewd checks only whether the processes are running", "err", err)
		return
	}
	in.check, in.ready = p.HealthCheck, p.Readiness
}

// pause waits until the next start according to the newest exit record. The exit line
// comes before the lines of the next instance, so it also waits until that is written.
func (s *Slot) pause(ctx context.Context) step {
	r, ok, err := s.sup.exits.Newest(s.id)
	if err != nil {
		// Without the record it is unknown whether a start is due. Prevent a restart loop.
		s.log.Error("cannot read exit records, trying again before the next start", "err", err)
	}
	unlogged := r.Unlogged
	if err != nil || !s.announce(ctx, &r, s.sup.policy.CallLimit) {
		if s.tries++; !s.sleep(ctx, s.sup.policy.Retry(s.tries)) {
			return s.interrupted(ctx)
		}
		return s.pause
	}
	s.tries = 0
	if unlogged { // the exit line is in the log now
		if err := s.sup.exits.Replace(r); err != nil {
			s.log.Error("cannot complete exit record", "instance", r.Instance, "err", err)
		}
	}
	if !ok || r.CountReset {
		return s.start
	}
	s.move(runtime.Crashed, r.Description)
	s.publish(func(st *runtime.Status) {
		st.CrashCount, st.NextStart, st.GivenUp = r.CrashCount, r.NextStart, r.GivenUp
		st.App, st.Type, st.Version = r.App, r.Type, r.Version
	})
	var due <-chan time.Time // nil if given up
	if !r.GivenUp {
		// Never wait longer than the longest delay, because the clock can have been set
		// back.
		t := time.NewTimer(min(time.Until(r.NextStart), s.sup.policy.MaxBackoff))
		defer t.Stop()
		due = t.C
	}
	for s.upToDate(r.Version) {
		select {
		case <-ctx.Done():
			return nil
		case <-s.stop:
			return s.down
		case <-s.restart:
			s.resetCrashCount()
			s.dropNext()
			return s.start
		case <-s.recheck:
		case <-due:
			s.sup.count(func(st *runtime.Stats) { st.Restarts[r.First.Cause]++ })
			return s.start
		}
	}
	s.resetCrashCount()
	return s.start
}

// upToDate reports whether version is the desired one. It returns true if the desired
// state or the version is unknown, so that nothing is replaced.
func (s *Slot) upToDate(version string) bool {
	if version == "" {
		return true
	}
	p, err := s.sup.planner.Process(s.id)
	return err != nil || p.Keeps(version)
}

// interrupted ends the loop after an interrupted wait. A stopped slot goes down; a daemon
// that exits leaves no trace.
func (s *Slot) interrupted(ctx context.Context) step {
	if ctx.Err() != nil {
		return nil
	}
	return s.down
}

// down is the last step of a slot that has no instance any more.
func (s *Slot) down(context.Context) step {
	s.resetCrashCount()
	s.move(runtime.Down, "")
	return nil
}

// resetCrashCount resets the crash count.
func (s *Slot) resetCrashCount() {
	if s.stray {
		return // the count belongs to the other slot with the same id
	}
	if err := s.sup.exits.ResetCount(s.id); err != nil {
		s.log.Error("cannot reset crash count", "err", err)
		return
	}
	s.publish(func(st *runtime.Status) { st.CrashCount, st.NextStart, st.GivenUp = 0, time.Time{}, false })
}

// sleep waits for d. It returns false if the slot is stopped or ctx is done before
// that. A requested restart also ends the wait, because it starts now.
func (s *Slot) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.restart:
		s.resetCrashCount()
		return true
	case <-s.stop:
		return false
	case <-ctx.Done():
		return false
	}
}

// move changes the state and informs the listener. details says why, if that is not
// obvious.
func (s *Slot) move(to runtime.State, details string) {
	s.publish(func(st *runtime.Status) {
		mustMove(st.State, to)
		if st.State != to {
			s.log.Info("instance changed its state", "from", st.State, "to", to, "instance", st.Instance)
			st.Since = time.Now()
		}
		st.State, st.Details = to, details
		st.Ready = st.Ready && to == runtime.Running
		if to == runtime.Starting || to == runtime.Down {
			st.NextStart, st.GivenUp = time.Time{}, false
		}
		if to == runtime.Down {
			st.Instance, st.Address = "", netip.Addr{}
		}
	})
}

// publish changes the public status.
func (s *Slot) publish(change func(st *runtime.Status)) {
	s.change(change)
	if s.stray {
		return
	}
	st := s.Status()
	if s.sup.c.OnChange != nil {
		s.sup.c.OnChange(st)
	}
	s.setRouted(st.Ready)
	s.sup.deployments.slotChanged(s.id.Process)
}

func describe(st *runtime.Status, spec runtime.Spec) {
	st.Instance, st.App, st.Type, st.Version = spec.Instance, spec.App, spec.Type, spec.Version
	st.Address, st.Ports = spec.Address.Addr(), spec.Ports
	st.HealthUnknown, st.ReadinessUnknown = runtime.Unknown{}, runtime.Unknown{}
}

// nextStates are the legal moves; any other move is a bug. Down leads to Crashed and
// Stopping because a restarted daemon finds slots during a back-off. It also finds
// exited instances, and instances that are no longer desired.
var nextStates = map[runtime.State][]runtime.State{
	runtime.Down:     {runtime.Starting, runtime.Crashed, runtime.Stopping},
	runtime.Starting: {runtime.Running, runtime.Crashed, runtime.Stopping, runtime.Down},
	runtime.Running:  {runtime.Crashed, runtime.Stopping},
	runtime.Crashed:  {runtime.Starting, runtime.Stopping, runtime.Down},
	runtime.Stopping: {runtime.Down},
}

// mayMove reports whether a slot can move between the two states. Staying in a state is
// always allowed.
func mayMove(from, to runtime.State) bool {
	return from == to || slices.Contains(nextStates[from], to)
}

// mustMove panics on an illegal move. The slot recovers, so that one bug affects one
// slot.
func mustMove(from, to runtime.State) {
	if !mayMove(from, to) {
		panic(fmt.Sprintf("illegal state change from %s to %s", from, to))
	}
}
