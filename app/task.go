package app

import "time"

// TaskState is the state of a task.
type TaskState string

// The states of a task. A canceled task is CANCELING until it has stopped.
const (
	TaskPending   TaskState = "PENDING"
	TaskRunning   TaskState = "RUNNING"
	TaskCanceling TaskState = "CANCELING"
	TaskSucceeded TaskState = "SUCCEEDED"
	TaskFailed    TaskState = "FAILED"
)

// Ended reports whether the task has finished.
func (s TaskState) Ended() bool { return s == TaskSucceeded || s == TaskFailed }

// TaskUser is the user that runs tasks of apps that were staged with buildpacks.
const TaskUser = "vcap"

// ShellCommand is the command of an attached task that runs an interactive shell. As
// a command it is a comment, which is never run.
const ShellCommand = "# interactive shell"

// Task is one run of a command with an app's droplet, in its own container, and its
// result.
type Task struct {
	GUID      string    `json:"guid"`
	App       string    `json:"app"`      // guid
	Sequence  int       `json:"sequence"` // number in its app, from 1, set by the Registry
	Name      string    `json:"name"`
	Command   string    `json:"command"`
	User      string    `json:"user,omitempty"` // empty: the user that runs the app
	MemoryMB  int       `json:"memory_mb"`
	DiskMB    int       `json:"disk_mb"`
	LogRate   *int64    `json:"log_rate,omitempty"` // bytes per second (nil: no limit)
	Droplet   string    `json:"droplet"`            // guid
	Attached  bool      `json:"attached,omitempty"` // its command runs in a client's session
	State     TaskState `json:"state"`
	Failure   string    `json:"failure,omitempty"` // reason of the failure, as a sentence
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Source returns the source of its log lines.
func (t Task) Source() string { return "APP/TASK/" + t.Name }

// HasContainer reports whether a task can have a container. A task that is being
// canceled counts, because its state does not say whether it ran before.
func (s TaskState) HasContainer() bool { return s == TaskRunning || s == TaskCanceling }
