package app

import "time"

// The states of usage events.
const (
	UsageStarted        = "STARTED"
	UsageStopped        = "STOPPED"
	UsageBuildpackSet   = "BUILDPACK_SET"
	UsageStagingStarted = "STAGING_STARTED"
	UsageStagingStopped = "STAGING_STOPPED"
	UsageTaskStarted    = "TASK_STARTED"
	UsageTaskStopped    = "TASK_STOPPED"
	UsageCreated        = "CREATED" // of services, as the next two
	UsageUpdated        = "UPDATED"
	UsageDeleted        = "DELETED"
)

// Usage is one change in what an app, or a service instance, takes, for those who
// count it.
type Usage struct {
	Number   int64  `json:"number"` // from 1 on; in the order of time
	GUID     string `json:"guid"`
	State    string `json:"state"`
	Previous string `json:"previous,omitempty"`

	Space Named  `json:"space"`
	Org   string `json:"org"` // guid

	App       Named  `json:"app,omitzero"`
	Process   string `json:"process,omitempty"` // guid
	Type      string `json:"type,omitempty"`    // of the process
	Task      Named  `json:"task,omitzero"`
	Buildpack string `json:"buildpack,omitempty"`
	Memory    Change `json:"memory,omitzero"` // MB of one instance
	Instances Change `json:"instances,omitzero"`

	Service *ServiceUsage `json:"service,omitempty"` // nil: it is about an app

	CreatedAt time.Time `json:"created_at"`
}

// Named is something that may be gone when somebody reads of it.
type Named struct {
	GUID string `json:"guid,omitempty"`
	Name string `json:"name,omitempty"`
}

// Change is a number before and after.
type Change struct {
	Now    int `json:"now"`
	Before int `json:"before"`
}

// ServiceUsage is the service instance that a usage event is about.
type ServiceUsage struct {
	Instance Named  `json:"instance"`
	Type     string `json:"type"` // "managed_service_instance"
	Plan     Named  `json:"plan,omitzero"`
	Offering Named  `json:"offering,omitzero"`
	Broker   Named  `json:"broker,omitzero"`
}

func (a App) AsStopped() App {
	a.State = Stopped
	return a
}

// HasContainer tells whether a task may have a container. One that is canceled before it
// ran counts as one that did not fail in running: nobody knows better.
func (s TaskState) HasContainer() bool { return s == TaskRunning || s == TaskCanceling }
