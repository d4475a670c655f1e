package bits

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/registry"
)

// buildpacksEndpoints are the endpoints of this file.
func (h *Handlers) buildpacksEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/buildpacks", Needs: access.Authenticated,
			Handler: h.listBuildpacks, Shape: rest.PageOf[v3.Buildpack]("names", "guids", "stacks", "lifecycle", rest.ParamSelector).OrderedBy("created_at", "updated_at", "name", "position", "lifecycle"),
		},
		{Pattern: "GET /v3/buildpacks/{guid}", Needs: access.Authenticated, Handler: h.getBuildpack, Shape: rest.Returns[v3.Buildpack](200)},
	}
}

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

func buildpackGUID(b droplet.Buildpack) string { return b.GUID }

func (h *Handlers) listBuildpacks(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	at, err := h.since()
	if err != nil {
		return nil, err
	}
	if q.OrderBy == "" {
		q.OrderBy = "position"
	}
	packs, err := h.Platform.Catalog.All()
	if err != nil {
		return nil, err
	}
	all, err := withNotes(h.Platform.Registry, packs, buildpackGUID)
	if err != nil {
		return nil, err
	}
	// A buildpack without a stack is for all of them.
	all = slices.DeleteFunc(all, func(b noted[droplet.Buildpack]) bool {
		return !q.Matches("names", b.thing.Name) || !q.Matches("guids", b.thing.GUID) || !q.Matches("lifecycle", v3.LifecycleBuildpack) ||
			b.thing.Stack == "" && !q.Matches("stacks", "", stack.Default) || b.thing.Stack != "" && !q.Matches("stacks", b.thing.Stack)
	})
	return rest.List(h.Links, r, q, all, rest.View[noted[droplet.Buildpack], v3.Buildpack]{
		Key: func(b noted[droplet.Buildpack]) rest.Key {
			name := b.thing.Name
			switch q.OrderBy {
			case "lifecycle":
				name = v3.LifecycleBuildpack
			case "position":
				name = fmt.Sprintf("%09d", b.thing.Position)
			}
			created, updated := buildpackTimes(b.thing, at)
			return rest.Key{Name: name, Created: created, Updated: updated, GUID: b.thing.GUID}
		},
		Present: func(b noted[droplet.Buildpack]) v3.Buildpack { return h.presentBuildpack(b, at) },
		Labels:  func(b noted[droplet.Buildpack]) map[string]string { return b.notes.Labels },
	}), nil
}

func (h *Handlers) buildpackOf(r *http.Request) (droplet.Buildpack, error) {
	all, err := h.Platform.Catalog.All()
	if err != nil {
		return droplet.Buildpack{}, err
	}
	for _, b := range all {
		if b.GUID == r.PathValue("guid") {
			return b, nil
		}
	}
	return droplet.Buildpack{}, rest.NotFound("Buildpack")
}

func (h *Handlers) getBuildpack(r *http.Request) (any, error) {
	b, err := h.buildpackOf(r)
	if err != nil {
		return nil, err
	}
	m, err := h.Platform.Registry.Notes(b.GUID)
	if err != nil {
		return nil, err
	}
	at, err := h.since()
	return h.presentBuildpack(noted[droplet.Buildpack]{b, m}, at), err
}

// buildpackTimes are when a buildpack was made and changed; at is when those that
// are built in came.
func buildpackTimes(b droplet.Buildpack, at time.Time) (created, updated time.Time) {
	created, updated = b.CreatedAt, b.UpdatedAt
	if created.IsZero() {
		created = at
	}
	if updated.IsZero() {
		updated = created
	}
	return created, updated
}

// presentBuildpack shows a buildpack; at is when those that are built in came.
func (h *Handlers) presentBuildpack(b noted[droplet.Buildpack], at time.Time) v3.Buildpack {
	created, updated := buildpackTimes(b.thing, at)
	out := v3.Buildpack{
		GUID: b.thing.GUID, CreatedAt: v3.At(created), UpdatedAt: v3.At(updated), Name: b.thing.Name, State: b.thing.State,
		Position: b.thing.Position, Enabled: b.thing.Enabled, Locked: b.thing.Locked, Lifecycle: v3.LifecycleBuildpack,
		Metadata: rest.PresentMetadata(b.notes),
		Links: v3.Links{
			"self":   {Href: h.Links.Href("v3", "buildpacks", b.thing.GUID)},
			"upload": {Href: h.Links.Href("v3", "buildpacks", b.thing.GUID, "upload"), Method: http.MethodPost},
		},
	}
	if b.thing.Stack != "" {
		out.Stack = &b.thing.Stack
	}
	if b.thing.Filename != "" {
		out.Filename = &b.thing.Filename
	}
	return out
}

// buildpackResource is what the path of a buildpack names.
func (h *Handlers) buildpackResource() access.Resource {
	return access.Resource{Name: "Buildpack", Look: func(r *http.Request) error {
		_, err := h.buildpackOf(r)
		return err
	}}
}
