package droplet

import (
	"errors"
	"fmt"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// Errors that callers can check for. Stacks return the same errors.
var (
	ErrNotFound = stack.ErrNotFound
	ErrNoImage  = stack.ErrNoImage
)

// Droplet is the result of a build: an image, and how to start it.
type Droplet struct {
	GUID       string            `json:"guid"`
	App        string            `json:"app"`               // guid
	Package    string            `json:"package,omitempty"` // guid
	Stack      string            `json:"stack"`
	State      string            `json:"state,omitempty"`    // empty: DropletStaged
	Image      string            `json:"image,omitempty"`    // name of the image; empty: only the stack
	Commands   map[string]string `json:"commands,omitempty"` // commands by process type
	Sidecars   []FoundSidecar    `json:"sidecars,omitempty"`
	Buildpacks []UsedBuildpack   `json:"buildpacks,omitempty"` // in the order of their runs
	Java       bool              `json:"java,omitempty"`       // one of the buildpacks was for Java
	Custom     bool              `json:"custom,omitempty"`     // one of the buildpacks was named by URL or folder
	Reuse      string            `json:"reuse,omitempty"`      // hash of everything that it depends on
	Bindings   Bindings          `json:"bindings,omitzero"`    // service bindings of its app when it was created
	Run        *stack.RunConfig  `json:"run,omitempty"`        // only of an image app: then Stack is its image
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at,omitzero"` // last change of its metadata
	Metadata   app.Metadata      `json:"metadata,omitzero"`
}

// FoundSidecar is a sidecar that a buildpack defined while staging.
type FoundSidecar struct {
	Name         string   `json:"name"`
	Command      string   `json:"command"`
	ProcessTypes []string `json:"process_types"`
	MemoryMB     int      `json:"memory_mb,omitempty"` // 0: not declared
}

// updateMetadata changes the metadata of the value under guid. fn applies the change
// and returns the new metadata, which is then validated.
func updateMetadata[T any](b store.Bucket[T], noun, guid string, fn func(v *T) *app.Metadata) (T, error) {
	v, err := b.Update(guid, func(v *T) error { return fn(v).Validate() })
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("%s: %w", noun, ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("cannot change %s: %w", noun, err)
	}
	return v, nil
}
