package runtime

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
)

// taskType is the process type that a task's container has.
const taskType = "task"

// measureTasks is how often the writable layer of a task is measured.
const measureTasks = 5 * time.Second

// tasks runs the one-off tasks of apps, each once, in a container of its own:
//
//	PENDING ── container started ──▶ RUNNING ── main ended ──▶ last lines, result kept, container removed
//	   └──────────── CANCELING ◀────────┘  SIGTERM, SIGKILL ──▶ the same
//
// The record in the registry is the wish and the result; one goroutine owns a
// run. Like an instance, a task outlives its daemon: the next one takes it over.
type tasks struct {
	sup  *Supervisor
	wake chan struct{} // holds one

	mu    sync.Mutex // guards the fields below
	runs  map[string]*taskRun
	dirty map[string]bool // guids of tasks to be looked at
	over  bool            // no task begins any more
}

func newTasks(s *Supervisor) *tasks {
	return &tasks{sup: s, wake: make(chan struct{}, 1), runs: map[string]*taskRun{}, dirty: map[string]bool{}}
}

// SyncTask makes a task as it is wished, soon: it begins, or ends. It never
// waits, and may be called with any guid at any time.
func (s *Supervisor) SyncTask(guid string) {
	s.tasks.mu.Lock()
	s.tasks.dirty[guid] = true
	s.tasks.mu.Unlock()
	post(s.tasks.wake)
}

// resumeTasks begins with the tasks among what an earlier daemon left, and with
// those that are wished. It returns what is no task's.
func (s *Supervisor) resumeTasks(ctx context.Context, found []Task) ([]Task, error) {
	var others []Task
	for _, t := range found {
		spec := t.Spec()
		if spec.Task == "" {
			others = append(others, t)
			continue
		}
		s.c.Logger.Info("task adopted", "app", spec.App, "task", spec.Task, "instance", spec.Instance)
		s.tasks.begin(ctx, newTaskRun(s.tasks, spec.Task, t))
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

// run looks at what changed until ctx ends. What runs stays for the next daemon.
func (k *tasks) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
			for _, guid := range k.takeDirty() {
				k.sync(ctx, guid)
			}
		}
	}
}

func (k *tasks) takeDirty() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := slices.Sorted(maps.Keys(k.dirty))
	clear(k.dirty)
	return out
}

// sync begins a task that has no run yet, and ends the run of one that is
// canceled or gone.
func (k *tasks) sync(ctx context.Context, guid string) {
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
	if !gone && !t.State.Ended() && !k.sup.holdsTask(guid) {
		k.begin(ctx, newTaskRun(k, guid, nil))
	}
}

func (k *tasks) of(guid string) *taskRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[guid]
}

// begin runs r until it is over, or ctx ends.
func (k *tasks) begin(ctx context.Context, r *taskRun) {
	k.mu.Lock()
	if k.over && r.task == nil {
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
			k.sup.c.Gone(r.guid) // the last that was left of a deleted app may have gone
		}
		k.sup.SyncTask(r.guid)
	})
}

// apps adds the apps whose tasks run.
func (k *tasks) apps(to map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.runs {
		to[r.appGUID()] = true
	}
}

// end ends all runs and lets none begin any more.
func (k *tasks) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	for _, r := range k.runs {
		r.Stop()
	}
}

// left is how many runs are not over.
func (k *tasks) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.runs)
}
