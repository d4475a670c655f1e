package registry

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/yamlfile"
)

// TaskStore stores tasks.
type TaskStore struct{ *tables }

// nextTaskStates are the allowed changes of state. A finished task does not change.
var nextTaskStates = map[app.TaskState][]app.TaskState{
	app.TaskPending:   {app.TaskRunning, app.TaskCanceling, app.TaskFailed},
	app.TaskRunning:   {app.TaskCanceling, app.TaskSucceeded, app.TaskFailed},
	app.TaskCanceling: {app.TaskSucceeded, app.TaskFailed},
}

// Limits of finished tasks, by age and by number: whichever is reached first.
const (
	taskAge     = 31 * 24 * time.Hour
	tasksPerApp = 1000
)

// ListenTasks calls fn with the guid of every task that was created, changed or deleted,
// after the commit. See store.Bucket.Listen for what fn can do.
func (r *TaskStore) ListenTasks(fn func(task string)) { r.tasks.Listen(fn) }

// CreateTask stores a new task, and fills in guid, number, state, times and a missing
// name. It deletes the oldest finished tasks of the app beyond the limits.
func (r *TaskStore) CreateTask(t app.Task) (app.Task, error) {
	err := r.update(func(r *Registry) error {
		if _, err := r.App(t.App); err != nil {
			return err
		}
		others, err := r.TasksOf(t.App)
		if err != nil {
			return err
		}
		t.GUID, t.Sequence, t.State, t.Failure = uuid.NewString(), 1, app.TaskPending, ""
		if len(others) > 0 {
			t.Sequence = others[len(others)-1].Sequence + 1
		}
		t.Name = cmp.Or(t.Name, randomTaskName())
		t.MemoryMB, t.DiskMB = cmp.Or(t.MemoryMB, app.DefaultMemoryMB), cmp.Or(t.DiskMB, app.DefaultDiskMB)
		t.CreatedAt, t.UpdatedAt = timestamps(false, time.Time{})
		if err := checkTask(t); err != nil {
			return err
		}
		if err := r.tasks.Put(t.GUID, t); err != nil {
			return fmt.Errorf("cannot store task %q: %w", t.Name, err)
		}
		return r.pruneTasks(others)
	})
	return t, err
}

// UpdateTask changes a task in one transaction. Only its state, the reason of its
// failure and its metadata can change. It refuses a change of state that is not
// allowed.
func (r *TaskStore) UpdateTask(guid string, fn func(t *app.Task) error) (t app.Task, err error) {
	err = r.update(func(r *Registry) error {
		old, err := r.Task(guid)
		if err != nil {
			return err
		}
		t = old
		t.Metadata = old.Metadata.Clone()
		if err := fn(&t); err != nil {
			return err
		}
		state, failure, notes := t.State, t.Failure, t.Metadata
		t = old
		t.State, t.Failure, t.Metadata, t.UpdatedAt = state, failure, notes, app.Now()
		if state != old.State && !slices.Contains(nextTaskStates[old.State], state) {
			return &app.Invalid{Key: "state", Message: fmt.Sprintf("a task in state %s cannot change to state %s", old.State, state)}
		}
		if err := t.Metadata.Validate(); err != nil {
			return err
		}
		if err := r.tasks.Put(guid, t); err != nil {
			return fmt.Errorf("cannot store task %s: %w", guid, err)
		}
		return r.noteTask(old, t)
	})
	return t, err
}

// Task returns the task with guid.
func (r *TaskStore) Task(guid string) (app.Task, error) { return get(r.tasks, "task", guid) }

// TasksOf returns the tasks of an app in the order of their numbers.
func (r *TaskStore) TasksOf(appGUID string) ([]app.Task, error) {
	ts, err := r.tasks.By("app", appGUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list tasks of app %s: %w", appGUID, err)
	}
	slices.SortFunc(ts, func(a, b app.Task) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return ts, nil
}

// Tasks returns the tasks of all apps, read in one transaction.
func (r *TaskStore) Tasks() ([]app.Task, error) {
	return sorted(r.tasks, "tasks", func(a, b app.Task) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Sequence, b.Sequence))
	})
}

// ActiveTasks returns the tasks that have not finished.
func (r *TaskStore) ActiveTasks() ([]app.Task, error) {
	ts, err := r.tasks.By("active", activeTask)
	if err != nil {
		return nil, fmt.Errorf("cannot list tasks: %w", err)
	}
	return ts, nil
}

const activeTask = "yes"

// taskBucket returns the bucket of tasks. An index finds the active ones without
// reading the finished ones.
func taskBucket(db *store.DB) store.Bucket[app.Task] {
	return store.In(db, "tasks",
		store.Index("app", func(t app.Task) string { return t.App }),
		store.Index("active", func(t app.Task) string {
			if t.State.Ended() {
				return ""
			}
			return activeTask
		}))
}

// deleteTasks deletes the tasks of an app. Listeners stop those that run.
func (r *TaskStore) deleteTasks(appGUID string) error {
	ts, err := r.TasksOf(appGUID)
	if err != nil {
		return err
	}
	for _, t := range ts {
		ended := t
		ended.State = app.TaskFailed
		if err := errors.Join(r.registry().noteTask(t, ended), r.tasks.Delete(t.GUID)); err != nil {
			return fmt.Errorf("cannot delete task %s: %w", t.GUID, err)
		}
	}
	return nil
}

// pruneTasks deletes finished tasks of an app beyond the limits. The earlier tasks are
// sorted, oldest first.
func (r *TaskStore) pruneTasks(earlier []app.Task) error {
	ended := slices.DeleteFunc(slices.Clone(earlier), func(t app.Task) bool { return !t.State.Ended() })
	oldest := time.Now().Add(-taskAge)
	for i, t := range ended {
		if len(ended)-i <= tasksPerApp && t.UpdatedAt.After(oldest) {
			continue
		}
		if err := r.tasks.Delete(t.GUID); err != nil {
			return fmt.Errorf("cannot delete task %s: %w", t.GUID, err)
		}
	}
	return nil
}

func checkTask(t app.Task) error {
	var ps app.Violations
	ps.Name("name", t.Name)
	if strings.TrimSpace(t.Command) == "" {
		ps.Add("command", "must not be empty")
	}
	ps.Command("command", t.Command)
	ps.Amount("memory_in_mb", t.MemoryMB)
	ps.Amount("disk_in_mb", t.DiskMB)
	if rate := t.LogRate; rate != nil && (*rate < 0 || *rate > app.MaxMB<<20) {
		ps.Add("log_rate_limit_in_bytes_per_second", "must be -1 to %d bytes, not %d", int64(app.MaxMB)<<20, *rate)
	}
	if t.User != "" && t.User != app.TaskUser {
		ps.Add("user", "must be '%s', not '%s': tasks always run as this user", app.TaskUser, yamlfile.Shorten(t.User))
	}
	if t.Droplet == "" {
		ps.Add("droplet_guid", "must be set: the app has no droplet")
	}
	return errors.Join(ps.Err(), t.Metadata.Validate())
}

// randomTaskName returns a name for a task without one, as Cloud Foundry does.
func randomTaskName() string {
	var b [4]byte
	rand.Read(b[:]) // never fails: it aborts the program if the kernel has no random numbers
	return hex.EncodeToString(b[:])
}
