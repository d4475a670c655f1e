package app

import "time"

// The groups of environment variables that there are.
const (
	RunningGroup = "running" // all instances and tasks have them
	StagingGroup = "staging" // all builds have them
)

// EnvGroup is a group of environment variables that all apps have in common. An
// app's own of the same name wins. Instances find a change at their next start.
type EnvGroup struct {
	Name      string            `json:"name"`
	Var       map[string]string `json:"var,omitempty"`
	UpdatedAt time.Time         `json:"updated_at,omitzero"` // zero: nobody has changed it
}
