package supervisor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// maxDeletes is how often a failed deletion is tried again before the container is left
// to the sweep of the next daemon.
const maxDeletes = 5

// crash records which process exited first, before any other action.
func (s *Slot) crash(ctx context.Context) step {
	in := s.inst
	switch {
	case ctx.Err() != nil:
		return nil
	case s.stopping():
		return s.end // an exit during a stop is not a crash
	case in.record != nil:
		s.move(runtime.Crashed, in.record.Description)
		return s.finishCrash
	case !in.adopted.IsZero() && !s.upToDate(in.spec.Version):
		return s.replace // an earlier daemon was already replacing it
	}
	s.move(runtime.Crashed, "") // routes are withdrawn now, the details follow
	s.collectExits(in)
	e, order := runtime.FirstExit(in.exits, s.sup.policy.Together)
	e = runtime.ClassifyExit(e, in.launchOf(e))
	s.move(runtime.Crashed, e.Description())
	s.writeCrash(ctx, in, e, order)
	return s.finishCrash
}

// collectExits waits until all exits that are simultaneous with the first one are
// reported, and not longer. For exits before the adoption, the same time starts now.
func (s *Slot) collectExits(in *Instance) {
	from := in.exits[0].At
	if from.Before(in.adopted) {
		from = time.Now()
	}
	t := time.NewTimer(time.Until(from.Add(s.sup.policy.Together)))
	defer t.Stop()
	over := false
	for len(in.alive()) > 0 {
		select {
		case e, ok := <-in.container.Exits():
			in.noteExit(e, ok)
			continue
		default: // read exits that are already known before the wait ends
		}
		if over {
			return
		}
		select {
		case e, ok := <-in.container.Exits():
			in.noteExit(e, ok)
		case <-t.C:
			over = true
		}
	}
}

// failHealth handles an unhealthy instance as a crash although its processes run.
func (s *Slot) failHealth(ctx context.Context, e runtime.Exit) step {
	s.move(runtime.Crashed, e.Description())
	s.writeCrash(ctx, s.inst, e, "")
	return s.finishCrash
}

// writeCrash appends the last lines of the process that exited first and the record in
// one batch. Then it stores the record. From here on the end of ctx has no effect: the
// engine forgets a process after it is reaped, so the record must be finished.
func (s *Slot) writeCrash(ctx context.Context, in *Instance, e runtime.Exit, order runtime.Order) {
	r := s.record(in, e, order)
	in.record = &r
	// Without a container, only the record tells the next daemon that the line is due.
	if in.container == nil && !s.storeRecord(ctx, in) {
		return
	}
	var lines []logstream.Envelope
	if in.container != nil && e.Ended() {
		lines = in.reap(ctx, e.Exec, s.sup.policy.ReapLimit, s.log)
	}
	batch := append(lines, r.Envelope())
	announced := s.exitLineWritten(ctx, in, e)
	if announced {
		batch = lines
	}
	if err := s.sup.c.Logs.Append(r.App, batch...); err != nil {
		s.log.Error("cannot write the last lines to the app's log", "app", r.App, "instance", r.Instance, "err", err)
		r.Unlogged = !announced
		s.announce(ctx, &r, s.sup.policy.CallLimit) // if the last lines cannot be written, write at least the record
	} else {
		r.Unlogged = false
		r.Mark(e.Exec, batch[:len(lines)])
	}
	if in.container != nil {
		r.State = in.container.CrashState(context.WithoutCancel(ctx))
	}
	r.SetOutput(e.Exec, s.newest(ctx, in, e.Exec, s.sup.policy.CallLimit))
	if !announced {
		s.logCell(in.spec, logstream.Err, r.LogSentence())
	}
	s.log.Info("instance crashed", "app", r.App, "instance", r.Instance, "cause", e.Cause,
		"description", r.Description, "count", r.CrashCount)
	s.sup.count(func(st *runtime.Stats) { st.Crashes[e.Cause]++; st.Verdicts[r.Verdict("").Class]++ })
	if err := in.save(s.sup.exits); err != nil {
		s.log.Error("cannot store exit record, trying again before the next start", "instance", r.Instance, "err", err)
	}
	s.publish(func(st *runtime.Status) {
		st.CrashCount, st.NextStart, st.GivenUp = r.CrashCount, r.NextStart, r.GivenUp
	})
}

// exitLineWritten reports whether the line of this crash is already in the log. A
// daemon can be killed after it wrote the line and before it stored the record. This is
// only possible for an adopted instance, in the lines from before the adoption.
func (s *Slot) exitLineWritten(ctx context.Context, in *Instance, e runtime.Exit) bool {
	f, ok := in.beforeAdoption(e)
	if !ok {
		return false
	}
	line := runtime.ExitRecord{Instance: in.spec.Instance}.LineFilter()
	f.Source, f.Contains = line.Source, line.Contains
	// dewd finishes a record that it has started, even if it stops during that time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.sup.policy.CallLimit)
	defer cancel()
	found, err := s.sup.c.Logs.Contains(ctx, in.spec.App, f)
	if err != nil {
		s.log.Error("cannot read the app's log; the exit line of an instance may appear twice", "instance", in.spec.Instance, "err", err)
	}
	return found
}

// record creates the record of the crash with first exit e.
func (s *Slot) record(in *Instance, e runtime.Exit, order runtime.Order) runtime.ExitRecord {
	last, _, err := s.sup.exits.Newest(s.id)
	if err != nil {
		s.log.Error("cannot read exit records; the crash count starts again at 1", "err", err)
	}
	e.Signal = cmp.Or(s.sup.signals.Of(in.spec.Instance, e.Exec), e.Signal)
	p := s.sup.policy
	r := runtime.ExitRecord{
		Slot: s.id, App: in.spec.App, Type: in.spec.Type, Instance: in.spec.Instance,
		Cell: in.spec.Cell, Version: in.spec.Version, Droplet: in.spec.Droplet,
		Reason: runtime.ReasonCrashed, Description: e.Description(), Phase: in.phaseOf(e),
		First: e, ProbableSignal: e.ProbableSignal(), Order: order,
		StartedAt: in.spec.StartedAt, Stack: in.spec.Stack.Name, Port: in.spec.Port(), Processes: len(in.spec.Processes),
		CrashCount: last.CrashesInARow(), CrashedAt: e.At, NextStart: e.At,
		Complete: in.container == nil, Unlogged: in.container == nil,
	}
	if e.Cause.Counts() {
		r.CrashCount++
		r.NextStart = e.At.Add(p.Backoff(r.CrashCount))
		if p.GivesUp(r.CrashCount) {
			r.GivenUp, r.NextStart = true, time.Time{}
		}
	}
	for _, other := range in.exits {
		if other.Exec != e.Exec {
			r.Follow(other, p.Together)
		}
	}
	return r
}

// storeRecord stores the record and tries again until that succeeds: no instance starts
// before it is on disk. It also tries again to write its line to the app's log; pause
// waits for that. It returns false if the slot was stopped, or the daemon exits.
func (s *Slot) storeRecord(ctx context.Context, in *Instance) bool {
	for n := 1; ; n++ {
		if in.container != nil {
			s.announce(ctx, in.record, s.sup.policy.CallLimit)
		}
		err := in.save(s.sup.exits)
		if err == nil {
			return true
		}
		s.log.Error("cannot store exit record", "instance", in.spec.Instance, "err", err)
		if !s.sleep(ctx, s.sup.policy.Retry(n)) {
			return false
		}
	}
}

// finishCrash stops the other processes, completes the record and removes the
// container.
func (s *Slot) finishCrash(ctx context.Context) step {
	in := s.inst
	// The exit line comes before the lines of the next instance.
	announced := s.announce(ctx, in.record, s.sup.policy.CallLimit)
	switch {
	case !startsAtOnce(in.record):
		s.dropNext()
	case announced:
		s.prepareNext(ctx)
	}
	if !s.endProcesses(ctx, in) {
		return nil
	}
	in.record.Complete = len(in.alive()) == 0
	for _, p := range in.spec.Processes {
		in.record.SetOutput(p.Exec, s.newest(ctx, in, p.Exec, s.sup.policy.CallLimit))
	}
	if !s.storeRecord(ctx, in) && ctx.Err() != nil {
		return nil
	}
	keepFiles(in)
	// Without a spare, the files of the instance are kept before the next one runs.
	later := s.next != nil && s.next.Spare() && removeBehind(ctx, s, in)
	if !later && !s.remove(ctx, in) {
		return nil
	}
	if s.stopping() {
		return s.down
	}
	return s.pause
}

// end stops the slot on request. It never leaves a record.
func (s *Slot) end(ctx context.Context) step {
	s.dropNext()
	if !s.stopInstance(ctx, nil) {
		return nil
	}
	return s.down
}

// replace stops the instance and starts one in the current desired state.
func (s *Slot) replace(ctx context.Context) step {
	if !s.stopInstance(ctx, s.prepareNext) {
		return nil
	}
	s.resetCrashCount()
	s.move(runtime.Down, "")
	return s.start
}

// stopInstance stops the instance. It calls ending, if that is not nil, when the
// processes get SIGTERM. It returns false if the daemon exits before that.
func (s *Slot) stopInstance(ctx context.Context, ending func(context.Context)) bool {
	in := s.inst
	s.move(runtime.Stopping, "")
	noteStop(s, in)
	if s.mustDrain() && !s.drainRequests(ctx, in) {
		return false
	}
	if ending != nil {
		ending(ctx)
	}
	if !s.endProcesses(ctx, in) {
		return false
	}
	if in.record != nil { // an earlier daemon wrote the record and did not complete it
		in.record.Complete = len(in.alive()) == 0
		s.announce(ctx, in.record, s.sup.policy.CallLimit)
		if err := in.save(s.sup.exits); err != nil {
			s.log.Error("cannot complete exit record", "instance", in.spec.Instance, "err", err)
		}
	}
	return removeBehind(ctx, s, in) || s.remove(ctx, in)
}

// noteStop tells the next daemon that the exits of the instance are no crash.
func noteStop(s *Slot, in *Instance) {
	e, ok := s.sup.c.Engine.(runtime.StopEngine)
	if !ok {
		return
	}
	if err := e.NoteStop(in.spec.Instance); err != nil {
		s.log.Warn("cannot note the stop of an instance; the next dewd can take its end for a crash", "instance", in.spec.Instance, "err", err)
	}
}

// endProcesses sends SIGTERM to the running processes, then SIGKILL, then gives up. It
// returns false if the daemon exits before that.
func (s *Slot) endProcesses(ctx context.Context, in *Instance) bool {
	if len(in.alive()) > 0 {
		s.logCell(in.spec, logstream.Out, "Stopping instance "+string(in.spec.Instance))
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if ctx.Err() == nil {
			in.signal(ctx, sig, s.sup.policy.CallLimit, s.log)
		}
		if sig == syscall.SIGKILL {
			s.logKilled(in, s.killDelay())
			in.killed = in.alive()
		}
		if !s.awaitExits(ctx, in) {
			return false
		}
	}
	if alive := in.alive(); len(alive) > 0 {
		s.log.Error("processes do not exit; dewd deletes the instance anyway",
			"instance", in.spec.Instance, "execs", alive)
	}
	for _, e := range in.exits {
		s.flush(ctx, in, e.Exec)
	}
	return ctx.Err() == nil
}

// awaitExits receives exits of processes for the length of a kill delay. It returns
// false if the daemon exits.
func (s *Slot) awaitExits(ctx context.Context, in *Instance) bool {
	t := time.NewTimer(s.killDelay())
	defer t.Stop()
	stop := s.stop
	for len(in.alive()) > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-stop:
			stop = nil
			s.move(runtime.Stopping, "") // from now on it is a requested stop
		case e, ok := <-in.container.Exits():
			for _, e := range in.noteExit(e, ok) {
				s.addFollower(ctx, in, e)
			}
		case <-t.C:
			return true
		}
	}
	return ctx.Err() == nil
}

// addFollower records the exit of a process that was not the first.
func (s *Slot) addFollower(ctx context.Context, in *Instance, e runtime.Exit) {
	if in.record != nil && !in.record.Has(e.Exec) {
		if e.Cause == runtime.CauseExited && slices.Contains(in.killed, e.Exec) {
			e.Cause = runtime.CauseStopTimeout
		}
		in.record.Follow(e, s.sup.policy.Together)
	}
	s.flush(ctx, in, e.Exec)
}

// flush appends the last lines of an exited process, once.
func (s *Slot) flush(ctx context.Context, in *Instance, exec string) {
	if in.reaped[exec] || ctx.Err() != nil {
		return
	}
	lines := in.reap(ctx, exec, s.sup.policy.ReapLimit, s.log)
	s.append(in.spec.App, lines...)
	if in.record != nil {
		in.record.Mark(exec, lines)
	}
}

// remove deletes the container and releases its address. It returns false if the daemon
// exits before that.
func (s *Slot) remove(ctx context.Context, in *Instance) bool {
	s.setContainer(nil) // nothing must connect to a container that is being deleted
	if !destroy(ctx, s, in) {
		return false
	}
	s.inst = nil
	return true
}

// removeBehind removes an instance after the next one has started. It returns false if that is
// not prepared, or if something of the instance can still run.
func removeBehind(ctx context.Context, s *Slot, in *Instance) bool {
	n := s.next
	if n == nil || n.Err != nil || !in.allReaped() {
		return false
	}
	s.setContainer(nil)
	s.removing.Wait() // a slot removes one instance at a time
	s.inst = nil
	behind(s, in.spec.Instance, func() { n.Wait(ctx); destroy(ctx, s, in) })
	return true
}

// destroy is remove for any goroutine.
func destroy(ctx context.Context, s *Slot, in *Instance) bool {
	in.probes.Wait() // an open connection would keep the network namespace
	s.logCell(in.spec, logstream.Out, "Destroying container")
	for n := 1; ; n++ {
		err := in.delete(ctx, s.sup.policy.CallLimit)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return false
		}
		s.log.Error("cannot delete instance", "instance", in.spec.Instance, "try", n, "err", err)
		if n >= maxDeletes && !errors.Is(err, runtime.ErrUnavailable) {
			return true // its address stays in use until the sweep of the next daemon
		}
		if !wait(ctx, s.sup.policy.Retry(n)) {
			return false
		}
	}
	if err := s.sup.addresses.Release(in.spec.Instance); err != nil {
		s.log.Error("cannot release address", "instance", in.spec.Instance, "err", err)
	}
	s.sup.signals.Forget(in.spec.Instance)
	s.logCell(in.spec, logstream.Out, "Successfully destroyed container")
	return true
}

// wait waits for d and returns false if ctx is done before that.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// drainPollInterval is how often a slot checks for active requests.
const drainPollInterval = 20 * time.Millisecond

// drainRequests waits until an instance has no active requests. Other instances replace
// it, and no route leads to it any more. It returns false if the daemon exits.
func (s *Slot) drainRequests(ctx context.Context, in *Instance) bool {
	if s.sup.c.Busy == nil {
		return true
	}
	limit := time.Now().Add(s.sup.policy.DrainLimit)
	t := time.NewTicker(drainPollInterval)
	defer t.Stop()
	// A request that was routed just before the route was withdrawn can appear only at
	// the second check.
	for idle := 0; s.mustDrain() && len(in.alive()) > 0 && idle < 2 && time.Now().Before(limit); {
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-in.container.Exits():
			for _, e := range in.noteExit(e, ok) {
				s.addFollower(ctx, in, e)
			}
		case <-t.C:
			idle++
			if s.sup.c.Busy(in.spec.Instance) {
				idle = 0
			}
		}
	}
	return true
}
