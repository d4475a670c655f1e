package supervisor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/supervisor/async"
)

// measureTasks is how often the writable layer of a task is measured.
const measureTasks = 5 * time.Second

// taskRunner runs the one-off tasks of apps, each once, in its own container:
//
//	PENDING ── container started ──▶ RUNNING ── main exited ──▶ last lines, result stored, container removed
//	   └──────────── CANCELING ◀────────┘  SIGTERM, SIGKILL ──▶ the same
//
// The record in the registry is the desired state and the result; one goroutine owns a
// run. Like an instance, a task outlives its daemon: the next one takes it over.
type taskRunner struct {
	sup     *Supervisor
	changed async.GUIDs // tasks to check

	mu           sync.Mutex // guards the fields below
	runs         map[string]*taskRun
	shuttingDown bool // no task can start any more
}

func newTaskRunner(s *Supervisor) *taskRunner {
	return &taskRunner{sup: s, changed: async.NewGUIDs(), runs: map[string]*taskRun{}}
}

// SyncTask brings a task to its desired state in the background: it starts or stops it.
// It never blocks, and can be called with any guid at any time.
func (s *Supervisor) SyncTask(guid string) {
	s.tasks.changed.Add(guid)
}

// resumeTasks takes over the tasks that an earlier daemon left, and starts those that
// are desired. It returns the containers that are not tasks.
func (s *Supervisor) resumeTasks(ctx context.Context, found []runtime.Container) ([]runtime.Container, error) {
	var others []runtime.Container
	for _, c := range found {
		spec := c.Spec()
		if spec.Kind != runtime.KindTask {
			others = append(others, c)
			continue
		}
		s.c.Logger.Info("task adopted", "app", spec.App, "task", spec.Task, "instance", spec.Instance)
		s.tasks.begin(ctx, newTaskRun(s.tasks, spec.Task, c))
	}
	active, err := s.c.Registry.ActiveTasks()
	if err != nil {
		return nil, err
	}
	for _, t := range active {
		s.SyncTask(t.GUID)
	}
	s.running.Go(func() { s.tasks.run(ctx) })
	return others, nil
}

// run handles changed tasks until ctx is done. Running tasks stay for the next daemon.
func (k *taskRunner) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed.Wake:
			for _, guid := range k.changed.Take() {
				k.sync(ctx, guid)
			}
		}
	}
}

// sync starts a task that has no run yet, and stops the run of a task that is canceled
// or deleted.
func (k *taskRunner) sync(ctx context.Context, guid string) {
	t, err := k.sup.c.Registry.Task(guid)
	gone := errors.Is(err, app.ErrNotFound)
	if err != nil && !gone {
		k.sup.c.Logger.Error("cannot read task, trying again", "task", guid, "err", err)
		time.AfterFunc(k.sup.policy.FirstRetry, func() { k.sup.SyncTask(guid) })
		return
	}
	if r := k.of(guid); r != nil {
		if gone || t.State == app.TaskCanceling {
			r.Stop()
		}
		return
	}
	if !gone && !t.State.Ended() && !k.sup.unadopted.holdsTask(guid) {
		k.begin(ctx, newTaskRun(k, guid, nil))
	}
}

func (k *taskRunner) of(guid string) *taskRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[guid]
}

// begin runs r until it is finished, or ctx is done.
func (k *taskRunner) begin(ctx context.Context, r *taskRun) {
	k.mu.Lock()
	if k.shuttingDown && r.container == nil {
		k.mu.Unlock()
		return
	}
	k.runs[r.guid] = r
	k.mu.Unlock()
	k.sup.running.Go(func() {
		r.run(ctx)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		delete(k.runs, r.guid)
		k.mu.Unlock()
		if k.sup.c.Gone != nil {
			k.sup.c.Gone(r.guid) // it can have been the last resource of a deleted app
		}
		k.sup.SyncTask(r.guid)
	})
}

// apps adds the apps that have running tasks.
func (k *taskRunner) apps(to map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.runs {
		to[r.appGUID()] = true
	}
}

// end stops all runs and allows no new ones.
func (k *taskRunner) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shuttingDown = true
	for _, r := range k.runs {
		r.Stop()
	}
}

// left returns the number of runs that are not finished.
func (k *taskRunner) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.runs)
}
