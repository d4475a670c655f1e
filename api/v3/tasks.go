package v3

// Task is one run of a command with an app's droplet.
type Task struct {
	GUID          string            `json:"guid"`
	CreatedAt     Time              `json:"created_at"`
	UpdatedAt     Time              `json:"updated_at"`
	SequenceID    int               `json:"sequence_id"`
	Name          string            `json:"name"`
	Command       string            `json:"command,omitempty"` // absent for callers who cannot read it
	User          *string           `json:"user"`
	State         string            `json:"state"`
	MemoryInMB    int               `json:"memory_in_mb"`
	DiskInMB      int               `json:"disk_in_mb"`
	LogRateLimit  int64             `json:"log_rate_limit_in_bytes_per_second"` // -1 for none
	Result        TaskResult        `json:"result"`
	DropletGUID   string            `json:"droplet_guid"`
	Relationships TaskRelationships `json:"relationships"`
	Metadata      Metadata          `json:"metadata"`
	Links         Links             `json:"links"`
}

// The states of a task.
const (
	TaskPending   = "PENDING"
	TaskRunning   = "RUNNING"
	TaskCanceling = "CANCELING"
	TaskSucceeded = "SUCCEEDED"
	TaskFailed    = "FAILED"
)

// TaskResult is the result of a task. The reason is null unless it failed.
type TaskResult struct {
	FailureReason *string `json:"failure_reason"`
}

// TaskRelationships of a task.
type TaskRelationships struct {
	App ToOne `json:"app"`
}

// CreateTask is the body of POST /v3/apps/:guid/tasks. It has a command, or a process
// as the template for missing values.
type CreateTask struct {
	Name         string        `json:"name,omitempty"`
	Command      string        `json:"command,omitempty"`
	MemoryInMB   *Int          `json:"memory_in_mb,omitempty"`
	DiskInMB     *Int          `json:"disk_in_mb,omitempty"`
	LogRateLimit *Int          `json:"log_rate_limit_in_bytes_per_second,omitempty"`
	DropletGUID  string        `json:"droplet_guid,omitempty"`
	User         string        `json:"user,omitempty"`
	Template     *TaskTemplate `json:"template,omitempty"`
	Metadata     *Metadata     `json:"metadata,omitempty"`

	// Attach makes the task wait for a session that runs its command. Without a command
	// the session is a shell. This is dew's own field.
	Attach bool `json:"attach,omitempty"`
}

// TaskTemplate names the process that is the template of a task.
type TaskTemplate struct {
	Process GUID `json:"process"`
}
