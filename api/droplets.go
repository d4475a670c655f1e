package api

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

func (s *Server) getDroplet(r *http.Request) (any, error) {
	d, err := s.c.Shelf.Get(r.PathValue("guid"))
	if err != nil {
		return nil, missing("Droplet", err)
	}
	return s.presentDroplet(d), nil
}

func (s *Server) getCurrentDroplet(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	if a.Droplet == "" {
		return nil, notFound("Droplet")
	}
	d, err := s.c.Shelf.Get(a.Droplet)
	if err != nil {
		return nil, missing("Droplet", err)
	}
	return s.presentDroplet(d), nil
}

func (s *Server) getCurrentRelationship(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	if a.Droplet == "" {
		return nil, notFound("Droplet")
	}
	return s.presentCurrent(a), nil
}

// setCurrentDroplet makes a droplet the one that the app's next instances run.
// The app gets the process types that it finds in it and does not have yet.
func (s *Server) setCurrentDroplet(r *http.Request) (any, error) {
	body, err := decode[v3.CurrentDroplet](r)
	if err != nil {
		return nil, err
	}
	if body.Data == nil {
		return nil, unprocessable("data must name a droplet: a current droplet cannot be taken away")
	}
	d, err := s.c.Shelf.Get(body.Data.GUID)
	if err != nil && !errors.Is(err, droplet.ErrNotFound) {
		return nil, err
	}
	request := map[string]any{"droplet_guid": body.Data.GUID}
	a, err := s.changeApp(r, "audit.app.droplet.mapped", request, func(registry *app.Registry, a *app.App) error {
		if d.GUID == "" || d.App != a.GUID {
			return unprocessable("Unable to assign current droplet. Ensure the droplet exists and belongs to this app.")
		}
		a.Droplet = d.GUID
		return addProcesses(registry, a.GUID, d)
	})
	if err != nil {
		return nil, err
	}
	return s.presentCurrent(a), nil
}

// addProcesses gives an app the process types of a droplet, without instances:
// what a Procfile names waits until somebody scales it.
func addProcesses(registry *app.Registry, appGUID string, d droplet.Droplet) error {
	ps, err := registry.Processes(appGUID)
	if err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(d.Commands)) {
		if slices.ContainsFunc(ps, func(p app.Process) bool { return p.Type == kind }) {
			continue
		}
		if _, err := registry.PutProcess(app.Process{App: appGUID, Type: kind}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) presentCurrent(a app.App) v3.CurrentDroplet {
	return v3.CurrentDroplet{Data: &v3.GUID{GUID: a.Droplet}, Links: v3.Links{
		"self":    {Href: s.href("v3", "apps", a.GUID, "relationships", "current_droplet")},
		"related": {Href: s.href("v3", "apps", a.GUID, "droplets", "current")},
	}}
}

func (s *Server) presentDroplet(d droplet.Droplet) v3.Droplet {
	out := v3.Droplet{
		GUID: d.GUID, CreatedAt: v3.At(d.CreatedAt), UpdatedAt: v3.At(d.CreatedAt), State: v3.DropletStaged,
		Lifecycle: lifecycle(nil, ""), ProcessTypes: map[string]string{}, Buildpacks: []v3.DropletBuildpack{}, Stack: d.Stack,
		Relationships: v3.DropletRelationships{App: v3.To(d.App)},
		Metadata:      v3.NoMetadata(),
		Links: v3.Links{
			"self": {Href: s.href("v3", "droplets", d.GUID)},
			"app":  {Href: s.href("v3", "apps", d.App)},
		},
	}
	maps.Copy(out.ProcessTypes, d.Commands)
	if d.Image != "" {
		out.Checksum = &v3.Checksum{Type: "sha256", Value: d.Image}
	}
	return out
}
