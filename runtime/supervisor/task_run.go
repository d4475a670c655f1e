package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor/async"
)

// Failure reasons of a task that did not exit by itself.
const (
	taskCancelled = "task was cancelled"
	taskShutDown  = "dewd was shut down together with the apps"
	taskLost      = "the container was lost and the exit status is unknown: the machine or containerd was restarted"
	taskPanicked  = "internal error, see the log of dewd"
)

// taskRun is the only run of a task. Its goroutine owns it.
type taskRun struct {
	guid      string
	runner    *taskRunner
	log       *slog.Logger
	container runtime.Container // from an earlier daemon, or nil
	in        *Instance
	app       atomic.Value // guid, as a string

	attached       attachment
	attachDeadline <-chan time.Time // fires when no client can attach any more (nil: the task is not attached)
	code           *int             // exit status of the command of an attached task (nil: unknown)

	stop    chan struct{} // closed by Stop
	stopped sync.Once
}

func newTaskRun(k *taskRunner, guid string, adopted runtime.Container) *taskRun {
	r := &taskRun{
		guid: guid, runner: k, container: adopted, stop: make(chan struct{}), log: k.sup.c.Logger.With("task", guid),
		attached: attachment{ended: make(chan attachEnd, 1)},
	}
	if adopted != nil {
		r.app.Store(adopted.Spec().App)
	}
	return r
}

// Stop ends the run. It does not wait for it.
func (r *taskRun) Stop() { r.stopped.Do(func() { close(r.stop) }) }

func (r *taskRun) stopping() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

func (r *taskRun) appGUID() string {
	guid, _ := r.app.Load().(string)
	return guid
}

// run continues the task from its current state until it is finished. The end of ctx
// leaves it for the next daemon.
func (r *taskRun) run(ctx context.Context) {
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("task panicked", "panic", v, "stack", string(async.StackOf(v)))
			r.runner.sup.count(func(st *runtime.Stats) { st.Panics++ })
			r.storeState(ctx, app.TaskFailed, taskPanicked)
			r.remove(ctx)
		}
	}()
	t, err := r.runner.sup.c.Registry.Task(r.guid)
	switch {
	case errors.Is(err, app.ErrNotFound) || err == nil && t.State.Ended():
		r.discard(ctx)
		return
	case err != nil:
		r.log.Error("cannot read task", "err", err)
		wait(ctx, r.runner.sup.policy.FirstRetry)
		return // it is started again
	}
	r.app.Store(t.App)
	if r.container == nil && !r.start(ctx, t) {
		return
	}
	if r.in == nil {
		r.in = adoptInstance(r.container, r.runner.sup.c.Logs, r.runner.sup.c.Logger)
		r.endLostAttachment(t)
	} else if t.Attached {
		r.attached.offer(r.container)
		limit := time.NewTimer(attachLimit)
		defer limit.Stop()
		r.attachDeadline = limit.C
	}
	if t.State == app.TaskPending && !r.storeState(ctx, app.TaskRunning, "") {
		return
	}
	if why, ended := r.watch(ctx); ended {
		r.finish(ctx, t, why)
	}
}

// endLostAttachment ends an attached task from an earlier daemon: its client is
// disconnected.
func (r *taskRun) endLostAttachment(t app.Task) {
	if t.Attached {
		r.attached.ended <- attachEnd{why: attachLost}
	}
}

// discard removes the container of a task that is finished or deleted.
func (r *taskRun) discard(ctx context.Context) {
	if r.container == nil {
		return
	}
	r.in = adoptInstance(r.container, r.runner.sup.c.Logs, r.runner.sup.c.Logger)
	r.catchUp()
	if r.endProcesses(ctx) {
		r.flush(ctx)
		r.remove(ctx)
	}
}

// start starts the container of a task that has none. It returns false if the task is
// finished, or the daemon exits.
func (r *taskRun) start(ctx context.Context, t app.Task) bool {
	switch t.State {
	case app.TaskRunning:
		r.storeState(ctx, app.TaskFailed, taskLost)
		return false
	case app.TaskCanceling:
		r.storeState(ctx, app.TaskFailed, taskCancelled)
		return false
	}
	lastText := ""
	for n := 1; ; n++ {
		err := r.launch(ctx, t)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if r.stopping() {
			r.storeState(ctx, app.TaskFailed, r.whyStopped())
			return false
		}
		if refused, ok := errors.AsType[*runtime.StartError](err); ok {
			r.logCell(t.App, logstream.Err, "cannot start task "+t.Name+": "+refused.Reason)
			r.storeState(ctx, app.TaskFailed, t.Source()+": cannot start: "+refused.Reason)
			return false
		}
		if text := fmt.Sprintf("cannot start task %s yet: %v", t.Name, err); text != lastText {
			lastText = text
			r.log.Warn("cannot start task, trying again", "err", err)
			r.logCell(t.App, logstream.Err, text)
		}
		r.pause(ctx, r.runner.sup.policy.Retry(n))
	}
}

// launch creates the container, and cancels that if the task is canceled. Then nothing
// is left behind, or the started container is stopped at once.
func (r *taskRun) launch(ctx context.Context, t app.Task) error {
	s, id := r.runner.sup, runtime.NewInstanceID()
	addr, err := s.addresses.Allocate(id)
	if err != nil {
		return err
	}
	spec, err := s.planner.Task(t, id, addr)
	if err == nil {
		r.logCell(t.App, logstream.Out, "Creating container for task "+t.Name)
		r.container, err = r.startContainer(ctx, spec)
	}
	if err != nil {
		return errors.Join(err, s.addresses.Release(id))
	}
	r.in = newInstance(r.container)
	s.count(func(st *runtime.Stats) { st.Starts++ })
	r.log.Info("task started", "app", t.App, "instance", id)
	r.logCell(t.App, logstream.Out, "Successfully created container for task "+t.Name)
	return nil
}

func (r *taskRun) startContainer(ctx context.Context, spec runtime.Spec) (runtime.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, r.runner.sup.policy.StartLimit)
	defer cancel()
	started := async.Call(func() (runtime.Container, error) { return r.runner.sup.c.Engine.Start(ctx, spec) })
	select {
	case done := <-started:
		return done.Get()
	case <-r.stop:
		cancel()
		return (<-started).Get()
	}
}

// watch waits until the task exits, or stops it. It returns the reason for the stop,
// empty if it exited by itself. It returns false if the daemon exits.
func (r *taskRun) watch(ctx context.Context) (why string, ended bool) {
	tick := time.NewTicker(measureTasks)
	defer tick.Stop()
	for len(r.in.alive()) > 0 {
		select {
		case <-ctx.Done():
			return "", false
		case e, ok := <-r.in.container.Exits():
			r.in.noteExit(e, ok)
		case <-r.stop:
			if r.catchUp(); len(r.in.alive()) == 0 {
				return "", true // it exited before the stop
			}
			why = r.whyStopped()
			r.attached.terminate(ctx, r.runner.sup.policy.KillDelay)
			return why, r.endProcesses(ctx)
		case end := <-r.attached.ended:
			r.code = &end.code
			return end.why, r.endProcesses(ctx)
		case <-r.attachDeadline:
			if r.attached.withdraw() {
				return attachLate, r.endProcesses(ctx)
			}
		case <-tick.C:
			if why = r.diskExceeded(ctx); why != "" {
				return why, r.endProcesses(ctx)
			}
		}
	}
	return "", ctx.Err() == nil
}

// catchUp receives the exits that are already known.
func (r *taskRun) catchUp() {
	for len(r.in.alive()) > 0 {
		select {
		case e, ok := <-r.in.container.Exits():
			r.in.noteExit(e, ok)
		default:
			return
		}
	}
}

// diskExceeded returns an error text if the task has written more than its disk limit.
func (r *taskRun) diskExceeded(ctx context.Context) string {
	m, ok := r.in.container.(interface {
		Written(ctx context.Context) (bytes, files int64, err error)
	})
	limit := r.in.spec.Disk
	if !ok || limit <= 0 {
		return ""
	}
	if bytes, _, err := m.Written(ctx); err != nil || bytes <= limit {
		return "" // if it cannot be read now, it is read again soon
	}
	return r.in.spec.Processes[0].Source + ": disk quota exceeded: the limit is " + strconv.FormatInt(limit/(1<<20), 10) + "M"
}

// whyStopped returns why Stop was called.
func (r *taskRun) whyStopped() string {
	t, err := r.runner.sup.c.Registry.Task(r.guid)
	if err == nil && t.State != app.TaskCanceling {
		return taskShutDown
	}
	return taskCancelled
}

// endProcesses sends SIGTERM to the running processes, then SIGKILL, then gives up. It
// returns false if the daemon exits before that.
func (r *taskRun) endProcesses(ctx context.Context) bool {
	s := r.runner.sup
	if len(r.in.alive()) > 0 {
		r.logCell(r.in.spec.App, logstream.Out, "Stopping instance "+string(r.in.spec.Instance))
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		alive := r.in.alive()
		if len(alive) == 0 {
			break
		}
		call, cancel := context.WithTimeout(ctx, s.policy.CallLimit)
		err := r.in.container.Signal(call, sig, alive...)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.log.Warn("cannot signal task", "signal", sig, "err", err)
		}
		if !r.awaitExits(ctx) {
			return false
		}
	}
	return ctx.Err() == nil
}

// awaitExits receives exits of processes for the length of a kill delay.
func (r *taskRun) awaitExits(ctx context.Context) bool {
	t := time.NewTimer(r.runner.sup.policy.KillDelay)
	defer t.Stop()
	for len(r.in.alive()) > 0 {
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-r.in.container.Exits():
			r.in.noteExit(e, ok)
		case <-t.C:
			return true
		}
	}
	return ctx.Err() == nil
}

// finish stores the last lines, then the result, and removes the container. If a daemon
// is killed in between, the next one finds the container and repeats it.
func (r *taskRun) finish(ctx context.Context, t app.Task, why string) {
	state, failure := app.TaskFailed, why
	if t.Attached {
		r.setAttachedExit(why)
	}
	if why == "" {
		e, _ := runtime.FirstExit(r.in.exits, r.runner.sup.policy.Together)
		if failure = e.Description(); e.Code == 0 && e.Cause == runtime.CauseExited {
			state, failure = app.TaskSucceeded, ""
		} else if e.Cause == runtime.CauseExited && r.in.container.CrashState(context.WithoutCancel(ctx)).Disk.Full() {
			failure += " (disk quota exceeded)"
		}
	}
	r.flush(ctx)
	if !r.storeState(ctx, state, failure) {
		return
	}
	r.log.Info("task finished", "app", t.App, "state", state, "failure", failure)
	r.remove(ctx)
}

// setAttachedExit gives the main process of an attached task, which only waited, the
// exit status of the command. It sets none if the command did not exit by itself.
func (r *taskRun) setAttachedExit(why string) {
	for i := range r.in.exits {
		e := &r.in.exits[i]
		switch {
		case e.Exec != runtime.MainExec:
		case why != "":
			e.Code = -1
		case r.code != nil:
			e.Code, e.Cause, e.OOM = *r.code, runtime.CauseExited, false
		}
	}
}

// flush appends the last lines of the task and its exit status to the log.
func (r *taskRun) flush(ctx context.Context) {
	s := r.runner.sup
	// Finish this even if the daemon exits during that time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.policy.ReapLimit)
	defer cancel()
	i := slices.IndexFunc(r.in.exits, func(e runtime.Exit) bool { return e.Exec == runtime.MainExec })
	if i < 0 {
		return
	}
	lines, err := r.in.container.Reap(ctx, runtime.MainExec)
	if err != nil {
		r.log.Warn("cannot read the last lines of a task", "err", err)
	}
	e := r.in.exits[i]
	if e.Code >= 0 && !r.exitLineWritten(ctx, e) {
		lines = append(lines, logstream.Envelope{
			Source: logstream.Source{Type: e.Source, InstanceID: string(r.in.spec.Instance)}, Stream: logstream.Out,
			Text: []byte(exitStatus + strconv.Itoa(e.Code)),
		})
	}
	if len(lines) == 0 {
		return
	}
	if err := s.c.Logs.Append(r.in.spec.App, lines...); err != nil {
		r.log.Error("cannot write the last lines to the app's log", "app", r.in.spec.App, "err", err)
	}
}

// exitStatus is the start of the last line of a task.
const exitStatus = "Exit status "

// exitLineWritten reports whether an earlier daemon already wrote the task's exit
// status to the log.
func (r *taskRun) exitLineWritten(ctx context.Context, e runtime.Exit) bool {
	f, ok := r.in.beforeAdoption(e)
	if !ok {
		return false
	}
	f.Source, f.InstanceID, f.Contains = e.Source, string(r.in.spec.Instance), exitStatus
	found, err := r.runner.sup.c.Logs.Contains(ctx, r.in.spec.App, f)
	if err != nil {
		r.log.Error("cannot read the app's log; the exit line of a task may appear twice", "err", err)
	}
	return found
}

// storeState stores the state of the task, and tries again until that succeeds. It
// returns false if the daemon exits before that. A deleted task needs no record. A task
// that is canceled while it starts stays canceled.
func (r *taskRun) storeState(ctx context.Context, state app.TaskState, failure string) bool {
	for n := 1; ; n++ {
		_, err := r.runner.sup.c.Registry.UpdateTask(r.guid, func(t *app.Task) error {
			if t.State.Ended() || state == app.TaskRunning && t.State != app.TaskPending {
				return nil
			}
			t.State, t.Failure = state, failure
			return nil
		})
		if err == nil || errors.Is(err, app.ErrNotFound) {
			return true
		}
		r.log.Error("cannot store the state of a task, trying again", "state", state, "err", err)
		if !wait(ctx, r.runner.sup.policy.Retry(n)) {
			return false
		}
	}
}

// remove deletes the container and releases its address.
func (r *taskRun) remove(ctx context.Context) {
	if r.in == nil {
		return
	}
	s, id := r.runner.sup, r.in.spec.Instance
	for n := 1; ; n++ {
		call, cancel := context.WithTimeout(ctx, s.policy.CallLimit)
		err := r.in.container.Delete(call)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		r.log.Error("cannot delete the container of a task", "instance", id, "try", n, "err", err)
		if n >= maxDeletes && !errors.Is(err, runtime.ErrUnavailable) {
			return // its address stays in use until the sweep of the next daemon
		}
		if !wait(ctx, s.policy.Retry(n)) {
			return
		}
	}
	if err := s.addresses.Release(id); err != nil {
		r.log.Error("cannot release address", "instance", id, "err", err)
	}
	r.logCell(r.in.spec.App, logstream.Out, "Successfully destroyed container")
}

// pause waits, unless the task is canceled or the daemon exits.
func (r *taskRun) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.stop:
	case <-ctx.Done():
	}
}

// logCell writes a platform line into the app's log.
func (r *taskRun) logCell(guid string, stream logstream.Stream, text string) {
	err := r.runner.sup.c.Logs.Append(guid, logstream.Envelope{
		Source: logstream.Source{Type: sourceCell}, Stream: stream, Text: []byte(text),
	})
	if err != nil {
		r.log.Error("cannot write to the app's log", "app", guid, "err", err)
	}
}
