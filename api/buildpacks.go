package api

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/registry"
)

// buildpacksEndpoints are the endpoints of this file.
func (s *Server) buildpacksEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/buildpacks", Needs: authenticated,
			Handler: s.listBuildpacks, Shape: pageOf[v3.Buildpack]("names", "guids", "stacks", "lifecycle", paramSelector).by("created_at", "updated_at", "name", "position", "lifecycle"),
		},
		{Pattern: "GET /v3/buildpacks/{guid}", Needs: authenticated, Handler: s.getBuildpack, Shape: gives[v3.Buildpack](200)},
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
func (s *Server) since() (at time.Time, err error) {
	orgs, err := s.c.Registry.Orgs()
	for _, o := range orgs {
		if at.IsZero() || o.CreatedAt.Before(at) {
			at = o.CreatedAt
		}
	}
	return at, err
}

func buildpackGUID(b droplet.Buildpack) string { return b.GUID }

func (s *Server) listBuildpacks(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	at, err := s.since()
	if err != nil {
		return nil, err
	}
	if q.orderBy == "" {
		q.orderBy = "position"
	}
	packs, err := s.c.Catalog.All()
	if err != nil {
		return nil, err
	}
	all, err := withNotes(s.c.Registry, packs, buildpackGUID)
	if err != nil {
		return nil, err
	}
	// A buildpack without a stack is for all of them.
	all = slices.DeleteFunc(all, func(b noted[droplet.Buildpack]) bool {
		return !q.lets("names", b.thing.Name) || !q.lets("guids", b.thing.GUID) || !q.lets("lifecycle", v3.LifecycleBuildpack) ||
			b.thing.Stack == "" && !q.lets("stacks", "", stack.Default) || b.thing.Stack != "" && !q.lets("stacks", b.thing.Stack)
	})
	return list(s.links, r, q, all, look[noted[droplet.Buildpack], v3.Buildpack]{
		key: func(b noted[droplet.Buildpack]) key {
			name := b.thing.Name
			switch q.orderBy {
			case "lifecycle":
				name = v3.LifecycleBuildpack
			case "position":
				name = fmt.Sprintf("%09d", b.thing.Position)
			}
			created, updated := buildpackTimes(b.thing, at)
			return key{name, created, updated, b.thing.GUID}
		},
		present: func(b noted[droplet.Buildpack]) v3.Buildpack { return s.presentBuildpack(b, at) },
		labels:  func(b noted[droplet.Buildpack]) map[string]string { return b.notes.Labels },
	}), nil
}

func (s *Server) buildpackOf(r *http.Request) (droplet.Buildpack, error) {
	all, err := s.c.Catalog.All()
	if err != nil {
		return droplet.Buildpack{}, err
	}
	for _, b := range all {
		if b.GUID == r.PathValue("guid") {
			return b, nil
		}
	}
	return droplet.Buildpack{}, notFound("Buildpack")
}

func (s *Server) getBuildpack(r *http.Request) (any, error) {
	b, err := s.buildpackOf(r)
	if err != nil {
		return nil, err
	}
	m, err := s.c.Registry.Notes(b.GUID)
	if err != nil {
		return nil, err
	}
	at, err := s.since()
	return s.presentBuildpack(noted[droplet.Buildpack]{b, m}, at), err
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
func (s *Server) presentBuildpack(b noted[droplet.Buildpack], at time.Time) v3.Buildpack {
	created, updated := buildpackTimes(b.thing, at)
	out := v3.Buildpack{
		GUID: b.thing.GUID, CreatedAt: v3.At(created), UpdatedAt: v3.At(updated), Name: b.thing.Name, State: b.thing.State,
		Position: b.thing.Position, Enabled: b.thing.Enabled, Locked: b.thing.Locked, Lifecycle: v3.LifecycleBuildpack,
		Metadata: presentMetadata(b.notes),
		Links: v3.Links{
			"self":   {Href: s.links.Href("v3", "buildpacks", b.thing.GUID)},
			"upload": {Href: s.links.Href("v3", "buildpacks", b.thing.GUID, "upload"), Method: http.MethodPost},
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
func (s *Server) buildpackResource() resource {
	return resource{name: "Buildpack", look: func(r *http.Request) error {
		_, err := s.buildpackOf(r)
		return err
	}}
}
