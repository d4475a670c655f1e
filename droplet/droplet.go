package droplet

import (
	"errors"
	"fmt"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// What a caller may decide on.
var (
	ErrNotFound = errors.New("not found")
	ErrNoImage  = errors.New("image is not on the shelf")
)

// Droplet is the resource that a build gives: an image, and how to start it.
type Droplet struct {
	GUID       string            `json:"guid"`
	App        string            `json:"app"`               // guid
	Package    string            `json:"package,omitempty"` // guid
	Stack      string            `json:"stack"`
	State      string            `json:"state,omitempty"`    // empty: DropletStaged
	Image      string            `json:"image,omitempty"`    // sha256 of the tree; empty: the bare stack
	Commands   map[string]string `json:"commands,omitempty"` // by process type
	Sidecars   []FoundSidecar    `json:"sidecars,omitempty"`
	Buildpacks []UsedBuildpack   `json:"buildpacks,omitempty"` // in the order in which they ran
	Java       bool              `json:"java,omitempty"`       // one of them was for Java
	Custom     bool              `json:"custom,omitempty"`     // one of them was named by address or folder
	Reuse      string            `json:"reuse,omitempty"`      // hash of all that made it what it is
	Bindings   Bindings          `json:"bindings,omitzero"`    // of its app when it was made
	Run        *RunConfig        `json:"run,omitempty"`        // of an image app: then Stack is its image
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at,omitzero"` // of its metadata
	Metadata   app.Metadata      `json:"metadata,omitzero"`
}

// FoundSidecar is a sidecar that a buildpack asked for while staging.
type FoundSidecar struct {
	Name         string   `json:"name"`
	Command      string   `json:"command"`
	ProcessTypes []string `json:"process_types"`
	MemoryMB     int      `json:"memory_mb,omitempty"` // 0: not declared
}

// updateMetadata changes the metadata of what is kept under guid. fn makes the change and
// returns what came of it, which is refused if it is not valid.
func updateMetadata[T any](b *store.Bucket[T], noun, guid string, fn func(v *T) *app.Metadata) (T, error) {
	v, err := b.Update(guid, func(v *T) error { return fn(v).Validate() })
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("%s: %w", noun, ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("cannot change %s: %w", noun, err)
	}
	return v, nil
}
