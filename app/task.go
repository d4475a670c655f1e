package app

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

	"github.com/dewrun/dew/store"
)

// TaskState is how far a task is.
type TaskState string

// The states of a task. Who cancels one finds it CANCELING until it has ended.
const (
	TaskPending   TaskState = "PENDING"
	TaskRunning   TaskState = "RUNNING"
	TaskCanceling TaskState = "CANCELING"
	TaskSucceeded TaskState = "SUCCEEDED"
	TaskFailed    TaskState = "FAILED"
)

// nextTaskStates are the legal moves. A task that has ended stays as it is.
var nextTaskStates = map[TaskState][]TaskState{
	TaskPending:   {TaskRunning, TaskCanceling, TaskFailed},
	TaskRunning:   {TaskCanceling, TaskSucceeded, TaskFailed},
	TaskCanceling: {TaskSucceeded, TaskFailed},
}

// Ended tells whether nothing of the task runs any more, or ever will.
func (s TaskState) Ended() bool { return s == TaskSucceeded || s == TaskFailed }

// How long ended tasks are kept: whichever bound is met first.
const (
	taskAge     = 31 * 24 * time.Hour
	tasksPerApp = 1000
)

// TaskUser is who runs the tasks of apps that were staged with buildpacks.
const TaskUser = "vcap"

// ShellCommand is the command of an attached task that runs an interactive shell. As
// a command it is a comment, which is never run.
const ShellCommand = "# interactive shell"

// Task is the wish for one run of a command with an app's droplet, in a container
// of its own, and what came of it.
type Task struct {
	GUID      string    `json:"guid"`
	App       string    `json:"app"`      // guid
	Sequence  int       `json:"sequence"` // in its app, from 1; set by the Registry
	Name      string    `json:"name"`
	Command   string    `json:"command"`
	User      string    `json:"user,omitempty"` // empty: who runs the app
	MemoryMB  int       `json:"memory_mb"`
	DiskMB    int       `json:"disk_mb"`
	LogRate   *int64    `json:"log_rate,omitempty"` // bytes per second; nil: no limit
	Droplet   string    `json:"droplet"`            // guid
	Attached  bool      `json:"attached,omitempty"` // its command runs in a session of a client
	State     TaskState `json:"state"`
	Failure   string    `json:"failure,omitempty"` // why it failed, in a sentence
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Source is the source of its log lines.
func (t Task) Source() string { return "APP/TASK/" + t.Name }

// ListenTasks calls fn with the guid of every task that was made, changed or
// removed, after the commit. See store.Bucket.Listen for what fn may do.
func (r *Registry) ListenTasks(fn func(task string)) { r.tasks.Listen(fn) }

// CreateTask keeps a new task, with guid, number, state, times and a name where
// it has none. Of its app's ended tasks the oldest go, beyond what is kept.
func (r *Registry) CreateTask(t Task) (Task, error) {
	err := r.update(func(r *Registry) error {
		if _, err := r.App(t.App); err != nil {
			return err
		}
		others, err := r.TasksOf(t.App)
		if err != nil {
			return err
		}
		t.GUID, t.Sequence, t.State, t.Failure = uuid.NewString(), 1, TaskPending, ""
		if len(others) > 0 {
			t.Sequence = others[len(others)-1].Sequence + 1
		}
		t.Name = cmp.Or(t.Name, randomTaskName())
		t.MemoryMB, t.DiskMB = cmp.Or(t.MemoryMB, DefaultMemoryMB), cmp.Or(t.DiskMB, DefaultDiskMB)
		t.CreatedAt, t.UpdatedAt = stamps(false, time.Time{})
		if err := checkTask(t); err != nil {
			return err
		}
		if err := r.tasks.Put(t.GUID, t); err != nil {
			return fmt.Errorf("cannot keep task %q: %w", t.Name, err)
		}
		return r.pruneTasks(others)
	})
	return t, err
}

// UpdateTask changes a task in one transaction. Only its state, the reason of its
// failure and its metadata can change; a move that is none of the legal ones is
// refused.
func (r *Registry) UpdateTask(guid string, fn func(t *Task) error) (t Task, err error) {
	err = r.update(func(r *Registry) error {
		old, err := r.Task(guid)
		if err != nil {
			return err
		}
		t = old
		t.Metadata = old.Metadata.clone()
		if err := fn(&t); err != nil {
			return err
		}
		state, failure, notes := t.State, t.Failure, t.Metadata
		t = old
		t.State, t.Failure, t.Metadata, t.UpdatedAt = state, failure, notes, now()
		if state != old.State && !slices.Contains(nextTaskStates[old.State], state) {
			return &Invalid{Key: "state", Message: fmt.Sprintf("a task that is %s cannot become %s", old.State, state)}
		}
		if err := t.Metadata.Validate(); err != nil {
			return err
		}
		if err := r.tasks.Put(guid, t); err != nil {
			return fmt.Errorf("cannot keep task %s: %w", guid, err)
		}
		return r.noteTask(old, t)
	})
	return t, err
}

// Task returns the task with guid.
func (r *Registry) Task(guid string) (Task, error) { return get(r.tasks, "task", guid) }

// TasksOf returns the tasks of an app in the order of their numbers.
func (r *Registry) TasksOf(app string) ([]Task, error) {
	ts, err := r.tasks.By("app", app)
	if err != nil {
		return nil, fmt.Errorf("cannot list tasks of app %s: %w", app, err)
	}
	slices.SortFunc(ts, func(a, b Task) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return ts, nil
}

// Tasks returns the tasks of all apps, in one reading.
func (r *Registry) Tasks() ([]Task, error) {
	return sorted(r.tasks, "tasks", func(a, b Task) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Sequence, b.Sequence))
	})
}

// ActiveTasks returns the tasks that have not ended.
func (r *Registry) ActiveTasks() ([]Task, error) {
	ts, err := r.tasks.By("active", activeTask)
	if err != nil {
		return nil, fmt.Errorf("cannot list tasks: %w", err)
	}
	return ts, nil
}

const activeTask = "yes"

// taskBucket is where tasks live. Those that have not ended are found without a
// look at all that have.
func taskBucket(db *store.DB) *store.Bucket[Task] {
	return store.In(db, "tasks",
		store.Index("app", func(t Task) string { return t.App }),
		store.Index("active", func(t Task) string {
			if t.State.Ended() {
				return ""
			}
			return activeTask
		}))
}

// deleteTasks removes the tasks of an app. What runs of them is ended by who
// hears of it.
func (r *Registry) deleteTasks(app string) error {
	ts, err := r.TasksOf(app)
	if err != nil {
		return err
	}
	for _, t := range ts {
		ended := t
		ended.State = TaskFailed
		if err := errors.Join(r.noteTask(t, ended), r.tasks.Delete(t.GUID)); err != nil {
			return fmt.Errorf("cannot delete task %s: %w", t.GUID, err)
		}
	}
	return nil
}

// pruneTasks removes the ended ones among the earlier tasks of an app that are
// beyond the bounds. They come oldest first.
func (r *Registry) pruneTasks(earlier []Task) error {
	ended := slices.DeleteFunc(slices.Clone(earlier), func(t Task) bool { return !t.State.Ended() })
	oldest := time.Now().Add(-taskAge)
	for i, t := range ended {
		if len(ended)-i <= tasksPerApp && t.UpdatedAt.After(oldest) {
			continue
		}
		if err := r.tasks.Delete(t.GUID); err != nil {
			return fmt.Errorf("cannot drop task %s: %w", t.GUID, err)
		}
	}
	return nil
}

func checkTask(t Task) error {
	var ps problems
	ps.name("name", t.Name)
	if strings.TrimSpace(t.Command) == "" {
		ps.add("command", "must not be empty")
	}
	ps.command("command", t.Command)
	ps.amount("memory_in_mb", t.MemoryMB)
	ps.amount("disk_in_mb", t.DiskMB)
	if rate := t.LogRate; rate != nil && (*rate < 0 || *rate > maxMB<<20) {
		ps.add("log_rate_limit_in_bytes_per_second", "must be -1 to %d bytes, not %d", int64(maxMB)<<20, *rate)
	}
	if t.User != "" && t.User != TaskUser {
		ps.add("user", "must be '%s', not '%s': nobody else runs tasks", TaskUser, shorten(t.User))
	}
	if t.Droplet == "" {
		ps.add("droplet_guid", "must name a droplet: the app has none")
	}
	return errors.Join(ps.err(), t.Metadata.Validate())
}

// randomTaskName is what the platform calls a task without a name.
func randomTaskName() string {
	var b [4]byte
	rand.Read(b[:]) // never fails: it ends the program where the kernel has no random numbers
	return hex.EncodeToString(b[:])
}
