package app

import "time"

// Revision is what an app was when it was started or deployed: what can be gone
// back to.
type Revision struct {
	GUID        string            `json:"guid"`
	App         string            `json:"app"` // guid
	Version     int               `json:"version"`
	Droplet     string            `json:"droplet"` // guid
	Env         map[string]string `json:"env,omitempty"`
	Commands    map[string]string `json:"commands"` // by process type; empty: the droplet's
	Sidecars    []Sidecar         `json:"sidecars,omitempty"`
	Description string            `json:"description"`
	Metadata    Metadata          `json:"metadata,omitzero"`
	CreatedAt   time.Time         `json:"created_at"`
	UpdatedAt   time.Time         `json:"updated_at"`
}
