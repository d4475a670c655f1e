package api

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/droplet"
)

func (s *Server) createBuild(r *http.Request) (any, error) {
	body, err := decode[v3.CreateBuild](r)
	if err != nil {
		return nil, err
	}
	if err := noMetadata(body.Metadata); err != nil {
		return nil, err
	}
	p, err := s.c.Packages.Get(body.Package.GUID)
	if errors.Is(err, droplet.ErrNotFound) {
		return nil, unprocessable("Unable to use package. Ensure that the package exists and you have access to it.")
	}
	if err != nil {
		return nil, err
	}
	a, err := s.c.Registry.App(p.App)
	if err != nil {
		return nil, missing("App", err)
	}
	if err := setLifecycle(&a, body.Lifecycle); err != nil {
		return nil, err
	}
	fresh, err := s.staged(p)
	if err != nil {
		return nil, err
	}
	b, err := s.c.Builds.Create(r.Context(), droplet.BuildRequest{
		Package: p.GUID, Stack: a.Stack, Buildpacks: a.Buildpacks, Fresh: fresh,
	})
	if err != nil {
		return nil, err
	}
	err = s.change(r.Context(), func(w wish) error {
		data := map[string]any{"build_guid": b.GUID, "package_guid": p.GUID}
		if fresh {
			if err := w.record("audit.app.restage", a, data); err != nil {
				return err
			}
		}
		return w.record("audit.app.build.create", a, data)
	})
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusCreated, body: s.presentBuild(b)}, nil
}

// staged tells whether the package was staged before. Then another build of it
// is a restage and makes everything anew: clients have no other way to say so.
func (s *Server) staged(p droplet.Package) (bool, error) {
	builds, err := s.c.Builds.OfApp(p.App)
	if err != nil {
		return false, err
	}
	for _, b := range builds {
		if b.Package == p.GUID && b.State == droplet.BuildStaged {
			return true, nil
		}
	}
	return false, nil
}

func (s *Server) getBuild(r *http.Request) (any, error) {
	b, err := s.c.Builds.Get(r.PathValue("guid"))
	if err != nil {
		return nil, missing("Build", err)
	}
	return s.presentBuild(b), nil
}

func (s *Server) listAppBuilds(r *http.Request) (any, error) {
	q, err := readQuery(r, "states", "package_guids")
	if err != nil {
		return nil, err
	}
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Builds.OfApp(a.GUID)
	if err != nil {
		return nil, err
	}
	var found []droplet.Build
	for _, b := range all {
		if q.lets("states", string(b.State)) && q.lets("package_guids", b.Package) {
			found = append(found, b)
		}
	}
	return list(s, r, q, found, look[droplet.Build, v3.Build]{
		key:     func(b droplet.Build) key { return key{b.GUID, b.CreatedAt, b.UpdatedAt, b.GUID} },
		present: s.presentBuild,
	}), nil
}

// Staging has the memory and disk of the platform's default, whatever the app has.
const (
	stagingMemoryMB = 1024
	stagingDiskMB   = 4096
)

func (s *Server) presentBuild(b droplet.Build) v3.Build {
	out := v3.Build{
		GUID: b.GUID, CreatedAt: v3.At(b.CreatedAt), UpdatedAt: v3.At(b.UpdatedAt), State: string(b.State),
		StagingMemoryMB: stagingMemoryMB, StagingDiskMB: stagingDiskMB,
		Lifecycle:     lifecycle(b.Buildpacks, b.Stack),
		Package:       v3.GUID{GUID: b.Package},
		Relationships: v3.BuildRelationships{App: v3.To(b.App)},
		Metadata:      v3.NoMetadata(),
		Links: v3.Links{
			"self": {Href: s.href("v3", "builds", b.GUID)},
			"app":  {Href: s.href("v3", "apps", b.App)},
		},
	}
	if b.Error != "" {
		out.Error = &b.Error
	}
	if b.Droplet != "" {
		out.Droplet = &v3.GUID{GUID: b.Droplet}
		out.Links["droplet"] = v3.Link{Href: s.href("v3", "droplets", b.Droplet)}
	}
	return out
}
