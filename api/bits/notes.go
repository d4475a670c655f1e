package bits

import (
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
)

// noted is something built in, with what was written on it.
type noted[T any] struct {
	thing T
	notes app.Metadata
}

// withNotes reads what was written on things that are built in.
func withNotes[T any](reg *registry.Registry, things []T, guid func(T) string) ([]noted[T], error) {
	out := make([]noted[T], 0, len(things))
	for _, t := range things {
		m, err := reg.Notes(guid(t))
		if err != nil {
			return nil, err
		}
		out = append(out, noted[T]{t, m})
	}
	return out, nil
}

// since is when what is built in came here: at the first start, which made the
// oldest org.
func (h *Handlers) since() (at time.Time, err error) {
	orgs, err := h.Platform.Registry.Orgs()
	for _, o := range orgs {
		if at.IsZero() || o.CreatedAt.Before(at) {
			at = o.CreatedAt
		}
	}
	return at, err
}
