package v3

import "time"

// UpdateStack is the body of PATCH /v3/stacks/:guid. Missing keys do not change.
type UpdateStack struct {
	State       *string   `json:"state,omitempty"` // ACTIVE, DEPRECATED, RESTRICTED or DISABLED
	StateReason *string   `json:"state_reason,omitempty"`
	Metadata    *Metadata `json:"metadata,omitempty"`
}

// Stack is a root file system that droplets run on.
type Stack struct {
	GUID        string   `json:"guid"`
	CreatedAt   Time     `json:"created_at"`
	UpdatedAt   Time     `json:"updated_at"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	State       string   `json:"state"`
	StateReason *string  `json:"state_reason"`
	RunRootFS   string   `json:"run_rootfs_image"`
	BuildRootFS string   `json:"build_rootfs_image"`
	Default     bool     `json:"default"`
	Metadata    Metadata `json:"metadata"`
	Links       Links    `json:"links"`
}

// The kinds of stacks, and the states of their creation.
const (
	StackProcessing = "PROCESSING"
	StackReady      = "READY"
	StackFailed     = "FAILED"
)

// CreateStack is the body of POST /v3/stacks.
type CreateStack struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Metadata    *Metadata `json:"metadata,omitempty"`
}

// StackDetails is a stack in the responses of /dew/v1/stacks.
type StackDetails struct {
	GUID        string    `json:"guid"`
	Name        string    `json:"name"`
	Kind        string    `json:"kind"`  // host, debian, tarball or image
	State       string    `json:"state"` // StackProcessing, StackReady or StackFailed
	ID          string    `json:"id"`    // changes with its content
	Size        int64     `json:"size_in_bytes"`
	Source      string    `json:"source"`
	Description string    `json:"description"`
	Default     bool      `json:"default"`
	Progress    string    `json:"progress,omitempty"` // the newest line of output, during the creation
	Error       string    `json:"error,omitempty"`
	CreatedAt   time.Time `json:"created_at,omitzero"`
}

// Stacks is the response of GET /dew/v1/stacks.
type Stacks struct {
	Stacks []StackDetails `json:"stacks"`
}

// MakeStack is the body of POST /dew/v1/stacks: the source of a stack, one of the two.
type MakeStack struct {
	Name   string      `json:"name"`
	Debian *MakeDebian `json:"debian,omitempty"`
	Image  *DockerData `json:"image,omitempty"`
}

// MakeDebian creates a stack with the machine's own Debian release.
type MakeDebian struct {
	Include []string `json:"include,omitempty"` // additional packages
}
