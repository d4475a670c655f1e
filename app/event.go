package app

import (
	"fmt"
	"slices"
	"time"
)

// Actor is the user or component that caused an event.
type Actor struct {
	GUID string `json:"guid"`
	Type string `json:"type"` // "user", "process", "system"
	Name string `json:"name"`
}

// Target is the resource that an event is about.
type Target struct {
	GUID string `json:"guid"`
	Type string `json:"type"` // "app", "route"
	Name string `json:"name"`
}

// Event is an audit event: it records a change of the desired state.
type Event struct {
	GUID      string         `json:"guid"`
	Type      string         `json:"type"` // "audit.app.create"
	Actor     Actor          `json:"actor"`
	Target    Target         `json:"target"`
	Space     string         `json:"space,omitempty"` // guid
	Org       string         `json:"org,omitempty"`   // guid
	Data      map[string]any `json:"data,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
}

// Key returns the key in the store, which sorts by target, then by time.
func (e Event) Key() string {
	return fmt.Sprintf("%s/%020d/%s", e.Target.GUID, e.CreatedAt.UnixNano(), e.GUID)
}

// EventFilter selects events. An empty list selects all.
type EventFilter struct {
	Types, Targets, Spaces, Orgs []string
	Newest                       bool // newest first, otherwise oldest first
}

// Matches reports whether the filter selects e.
func (f EventFilter) Matches(e Event) bool {
	among := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	return among(f.Types, e.Type) && among(f.Targets, e.Target.GUID) && among(f.Spaces, e.Space) && among(f.Orgs, e.Org)
}

// The states of usage events.
const (
	UsageStarted        = "STARTED"
	UsageStopped        = "STOPPED"
	UsageBuildpackSet   = "BUILDPACK_SET"
	UsageStagingStarted = "STAGING_STARTED"
	UsageStagingStopped = "STAGING_STOPPED"
	UsageTaskStarted    = "TASK_STARTED"
	UsageTaskStopped    = "TASK_STOPPED"
	UsageCreated        = "CREATED" // this and the next two are for services
	UsageUpdated        = "UPDATED"
	UsageDeleted        = "DELETED"
)

// Usage is a usage event: one change in the resources of an app or a service instance,
// for billing.
type Usage struct {
	Number   int64  `json:"number"` // from 1, in order of time
	GUID     string `json:"guid"`
	State    string `json:"state"`
	Previous string `json:"previous,omitempty"`

	Space Named  `json:"space"`
	Org   string `json:"org"` // guid

	App       Named  `json:"app,omitzero"`
	Process   string `json:"process,omitempty"` // guid
	Type      string `json:"type,omitempty"`    // type of the process
	Task      Named  `json:"task,omitzero"`
	Buildpack string `json:"buildpack,omitempty"`

	BuildpackGUID string `json:"buildpack_guid,omitempty"` // in the catalog

	Memory    Change `json:"memory,omitzero"` // MB of one instance
	Instances Change `json:"instances,omitzero"`

	Service *ServiceUsage `json:"service,omitempty"` // nil: the event is about an app

	CreatedAt time.Time `json:"created_at"`
}

// Named is a resource that can be deleted before the event is read.
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
