package bits

import (
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
)

// annotated is a resource that is not stored in the registry, such as a buildpack or a
// stack, with its metadata.
type annotated[T any] struct {
	resource T
	notes    app.Metadata
}

// withNotes reads the metadata of resources that are not stored in the registry.
func withNotes[T any](reg *registry.Registry, things []T, guid func(T) string) ([]annotated[T], error) {
	out := make([]annotated[T], 0, len(things))
	for _, t := range things {
		m, err := reg.Notes(guid(t))
		if err != nil {
			return nil, err
		}
		out = append(out, annotated[T]{t, m})
	}
	return out, nil
}

// since returns the creation time of built-in resources. It is the time of the first
// start, when dewd created the oldest org.
func (h *Handlers) since() (at time.Time, err error) {
	orgs, err := h.Platform.Registry.Orgs()
	for _, o := range orgs {
		if at.IsZero() || o.CreatedAt.Before(at) {
			at = o.CreatedAt
		}
	}
	return at, err
}
