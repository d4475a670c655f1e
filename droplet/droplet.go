package droplet

import (
	"errors"
	"time"
)

// What a caller may decide on.
var (
	ErrNotFound = errors.New("not found")
	ErrNoImage  = errors.New("image is not on the shelf")
)

// Droplet is the resource that a build gives: an image, and how to start it.
type Droplet struct {
	GUID      string            `json:"guid"`
	App       string            `json:"app"`               // guid
	Package   string            `json:"package,omitempty"` // guid
	Stack     string            `json:"stack"`
	Image     string            `json:"image,omitempty"`    // sha256 of the tree; empty: the bare stack
	Commands  map[string]string `json:"commands,omitempty"` // by process type
	Sidecars  []FoundSidecar    `json:"sidecars,omitempty"`
	Reuse     string            `json:"reuse,omitempty"` // hash of all that made it what it is
	CreatedAt time.Time         `json:"created_at"`
}

// FoundSidecar is a sidecar that a buildpack asked for while staging.
type FoundSidecar struct {
	Name         string   `json:"name"`
	Command      string   `json:"command"`
	ProcessTypes []string `json:"process_types"`
	MemoryMB     int      `json:"memory_mb,omitempty"` // 0: not declared
}
