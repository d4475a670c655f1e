package app

import (
	"fmt"
	"slices"
	"time"
)

// Actor is who did something.
type Actor struct {
	GUID string `json:"guid"`
	Type string `json:"type"` // "user", "process", "system"
	Name string `json:"name"`
}

// Target is what something was done to.
type Target struct {
	GUID string `json:"guid"`
	Type string `json:"type"` // "app", "route"
	Name string `json:"name"`
}

// Event is something that happened to a wish, for the audit.
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

// Key sorts by target first, and by time second.
func (e Event) Key() string {
	return fmt.Sprintf("%s/%020d/%s", e.Target.GUID, e.CreatedAt.UnixNano(), e.GUID)
}

// EventFilter chooses events. An empty list chooses all.
type EventFilter struct {
	Types, Targets, Spaces, Orgs []string
	Newest                       bool // newest first, else oldest first
}

func (f EventFilter) Matches(e Event) bool {
	among := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	return among(f.Types, e.Type) && among(f.Targets, e.Target.GUID) && among(f.Spaces, e.Space) && among(f.Orgs, e.Org)
}
