package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
)

// appDeletionEndpoints are the endpoints of this file.
func (s *Server) appDeletionEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "DELETE /v3/apps/{guid}", Needs: access.Develop, Resource: access.App, Handler: s.deleteApp, Shape: rest.StartsJob()},
	}
}

// opDeleteApp is the job that removes an app.
const opDeleteApp = "app.delete"

func (s *Server) deleteApp(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	err = s.change(r.Context(), func(w transaction) error { return w.recordDeletion(a) })
	if err != nil {
		return nil, err
	}
	return s.begin(r.Context(), opDeleteApp, removal{GUID: a.GUID})
}

// doDeleteApp removes an app and what was made for it. An app that is gone
// already is fine: the job may be done twice.
func (s *Server) doDeleteApp(ctx context.Context, guid string) error {
	return s.removeApp(ctx, guid, func(transaction, app.App) error { return nil })
}

// deleteApps removes the apps of a space. What was made of their bits goes first: a
// daemon that is killed in between finds the app again, and so the rest.
func (s *Server) deleteApps(ctx context.Context, space string) error {
	apps, err := s.c.Registry.AppsIn(space)
	if err != nil {
		return err
	}
	for _, a := range apps {
		made, err := s.bitsOf(a.GUID)
		if err != nil {
			return err
		}
		if err := s.change(ctx, func(w transaction) error { return w.recordBits(a, made) }); err != nil {
			return err
		}
		if err := s.c.Builds.Forget(a.GUID); err != nil {
			return err
		}
		if err := s.removeApp(ctx, a.GUID, transaction.recordDeletion); err != nil {
			return err
		}
	}
	return nil
}

// removeApp removes an app with all that is its own, and records that it went, with
// last to say more.
func (s *Server) removeApp(ctx context.Context, guid string, last func(w transaction, a app.App) error) error {
	if err := s.unbind(ctx, guid); err != nil {
		return err
	}
	made, err := s.bitsOf(guid)
	if err != nil {
		return err
	}
	err = s.change(ctx, func(w transaction) error {
		a, err := w.registry.App(guid)
		if err != nil {
			return gone(err)
		}
		if err := errors.Join(w.recordEnd(a), w.recordBits(a, made), last(w, a)); err != nil {
			return err
		}
		return w.registry.DeleteApp(guid)
	})
	if err != nil {
		return err
	}
	return s.c.Builds.Forget(guid)
}

// bits are the packages and droplets of an app.
type bits struct {
	packages []droplet.Package
	droplets []droplet.Droplet
}

func (s *Server) bitsOf(guid string) (b bits, err error) {
	if b.packages, err = s.c.Packages.OfApp(guid); err != nil {
		return b, err
	}
	b.droplets, err = s.c.Shelf.OfApp(guid)
	return b, err
}

func (w transaction) recordDeletion(a app.App) error {
	return w.record("audit.app.delete-request", a, map[string]any{"request": map[string]any{"recursive": true}})
}

func (w transaction) recordBits(a app.App, made bits) error {
	for _, p := range made.packages {
		if err := w.record("audit.app.package.delete", a, map[string]any{"package_guid": p.GUID}); err != nil {
			return err
		}
	}
	for _, d := range made.droplets {
		if err := w.record("audit.app.droplet.delete", a, map[string]any{"droplet_guid": d.GUID}); err != nil {
			return err
		}
	}
	return nil
}

// recordEnd records what ends with an app: that it runs, its routes, its processes.
func (w transaction) recordEnd(a app.App) error {
	if a.State == app.Started {
		if err := w.record("audit.app.stop", a, map[string]any{"delete_triggered": true, "reason": "stopped as part of app deletion"}); err != nil {
			return err
		}
	}
	routes, err := w.registry.RoutesOf(a.GUID)
	if err != nil {
		return err
	}
	for _, rt := range routes {
		left := rt
		left.Destinations = slices.DeleteFunc(slices.Clone(rt.Destinations), func(d app.Destination) bool { return d.App == a.GUID })
		if err := w.recordMapping(rt, left, nil); err != nil {
			return err
		}
	}
	ps, err := w.registry.Processes(a.GUID)
	if err != nil {
		return err
	}
	for _, p := range ps {
		if err := w.recordProcess("delete", a, p, nil); err != nil {
			return err
		}
	}
	return nil
}
