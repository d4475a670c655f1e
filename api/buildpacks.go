package api

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// builtIn are the answers about what came with the daemon: buildpacks, stacks and
// feature flags, and that there are neither deployments nor services.
func (s *Server) builtIn() map[string]handler {
	return map[string]handler{
		"GET /v3/buildpacks":          s.listBuildpacks,
		"GET /v3/buildpacks/{guid}":   s.getBuildpack,
		"PATCH /v3/buildpacks/{guid}": s.updateBuildpack,

		"GET /v3/stacks":             s.listStacks,
		"GET /v3/stacks/{guid}":      s.getStack,
		"PATCH /v3/stacks/{guid}":    s.updateStack,
		"GET /v3/stacks/{guid}/apps": s.listStackApps,

		"GET /v3/feature_flags":          s.listFlags,
		"GET /v3/feature_flags/{name}":   s.getFlag,
		"PATCH /v3/feature_flags/{name}": s.updateFlag,

		"GET /v3/deployments":                          s.listDeployments,
		"POST /v3/deployments":                         s.createDeployment,
		"GET /v3/deployments/{guid}":                   s.getDeployment,
		"POST /v3/deployments/{guid}/actions/cancel":   s.getDeployment,
		"POST /v3/deployments/{guid}/actions/continue": s.getDeployment,
		"GET /v3/service_route_bindings":               s.listRouteBindings,
	}
}

// noted is something built in, with what was written on it.
type noted[T any] struct {
	thing T
	notes app.Metadata
}

// withNotes reads what was written on things that are built in.
func withNotes[T any](registry *app.Registry, things []T, guid func(T) string) ([]noted[T], error) {
	out := make([]noted[T], 0, len(things))
	for _, t := range things {
		m, err := registry.Notes(guid(t))
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
	q, err := readQueryBy(r, append(slices.Clone(orders), "position"), "names", "guids", "stacks", "lifecycle", paramSelector)
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
	all, err := withNotes(s.c.Registry, droplet.Buildpacks(), buildpackGUID)
	if err != nil {
		return nil, err
	}
	// A buildpack without a stack is for all of them.
	all = slices.DeleteFunc(all, func(b noted[droplet.Buildpack]) bool {
		return !q.lets("names", b.thing.Name) || !q.lets("guids", b.thing.GUID) || !q.lets("lifecycle", v3.LifecycleBuildpack) ||
			!q.lets("stacks", "", droplet.DefaultStack)
	})
	return list(s, r, q, all, look[noted[droplet.Buildpack], v3.Buildpack]{
		key: func(b noted[droplet.Buildpack]) key {
			name := b.thing.Name
			if q.orderBy == "position" {
				name = fmt.Sprintf("%09d", b.thing.Position)
			}
			return key{name, at, at, b.thing.GUID}
		},
		present: func(b noted[droplet.Buildpack]) v3.Buildpack { return s.presentBuildpack(b, at) },
		labels:  func(b noted[droplet.Buildpack]) map[string]string { return b.notes.Labels },
	}), nil
}

func buildpackOf(r *http.Request) (droplet.Buildpack, error) {
	for _, b := range droplet.Buildpacks() {
		if b.GUID == r.PathValue("guid") {
			return b, nil
		}
	}
	return droplet.Buildpack{}, notFound("Buildpack")
}

func (s *Server) getBuildpack(r *http.Request) (any, error) {
	b, err := buildpackOf(r)
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

// updateBuildpack changes what is written on a buildpack; it is itself as it came.
func (s *Server) updateBuildpack(r *http.Request) (any, error) {
	b, err := buildpackOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.updateNotes(r, b.GUID); err != nil {
		return nil, err
	}
	return s.getBuildpack(r)
}

func (s *Server) updateNotes(r *http.Request, guid string) error {
	body, err := decode[v3.UpdateMetadata](r)
	if err != nil {
		return err
	}
	_, err = s.c.Registry.UpdateNotes(guid, metadataChange(body.Metadata))
	return err
}

func (s *Server) presentBuildpack(b noted[droplet.Buildpack], at time.Time) v3.Buildpack {
	return v3.Buildpack{
		GUID: b.thing.GUID, CreatedAt: v3.At(at), UpdatedAt: v3.At(at), Name: b.thing.Name, State: v3.BuildpackReady,
		Position: b.thing.Position, Enabled: b.thing.Enabled, Locked: b.thing.Locked, Lifecycle: v3.LifecycleBuildpack,
		Metadata: presentMetadata(b.notes),
		Links:    v3.Links{"self": {Href: s.href("v3", "buildpacks", b.thing.GUID)}},
	}
}
