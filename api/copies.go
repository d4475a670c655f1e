package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
)

// copiesEndpoints are the endpoints of this file.
func (s *Server) copiesEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/packages/{guid}/download", Needs: access.ReadSecrets, Resource: access.Package,
			Handler: s.downloadPackage, Shape: rest.ReturnsBytes("application/zip"),
		},
		{Pattern: "DELETE /v3/packages/{guid}", Needs: access.Develop, Resource: access.Package, Handler: s.deletePackage, Shape: rest.StartsJob()},
		{Pattern: "DELETE /v3/droplets/{guid}", Needs: access.Develop, Resource: access.Droplet, Handler: s.deleteDroplet, Shape: rest.StartsJob()},
	}
}

// sourceGUID is what a request wants copied; empty: nothing.
func sourceGUID(r *http.Request) string { return r.URL.Query().Get("source_guid") }

// copyPackage gives an app the package of another one. What it is made of is given
// only to those who develop where it comes from.
func (s *Server) copyPackage(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CopyPackage](r)
	if err != nil {
		return nil, err
	}
	a, err := s.targetApp(r.Context(), body.Relationships.App.ID())
	if err != nil {
		return nil, err
	}
	p, err := s.c.Packages.Get(sourceGUID(r))
	if err == nil {
		_, err = s.appInBody(r.Context(), access.Develop, p.App)
	}
	if platform.IsNotFound(err) {
		return nil, rest.Unprocessable("Unable to use package. Ensure that the package exists and you have access to it.")
	}
	if err != nil {
		return nil, err
	}
	if err := copiesInto(p, a); err != nil {
		return nil, err
	}
	source := p.GUID
	if p, err = s.c.Packages.Copy(source, a.GUID); err != nil {
		return nil, notStaged(err, "The package has no bits to copy.")
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
		return w.Record("audit.app.package.create", a, map[string]any{"package_guid": p.GUID, "request": map[string]any{"source_package_guid": source}})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: s.presentPackage(p)}, nil
}

// copiesInto refuses what an app could not stage.
func copiesInto(p droplet.Package, a app.App) error {
	switch {
	case p.App == a.GUID:
		return rest.Unprocessable("Source and destination app cannot be the same")
	case a.Docker() != (p.Type == droplet.PackageDocker):
		return rest.Unprocessable("The package cannot be copied: its type is %s, and app '%s' is staged in another way", p.Type, a.Name)
	}
	return nil
}

// copyDroplet gives an app the droplet of another one that who asks sees. The services
// that it finds are those of its new app.
func (s *Server) copyDroplet(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CopyDroplet](r)
	if err != nil {
		return nil, err
	}
	a, err := s.targetApp(r.Context(), body.Relationships.App.ID())
	if err != nil {
		return nil, err
	}
	d, err := s.c.Shelf.Get(sourceGUID(r))
	if err == nil {
		_, err = s.appInBody(r.Context(), access.Read, d.App)
	}
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	if a.Docker() != (d.Run != nil) {
		return nil, rest.Unprocessable("The droplet cannot be copied: app '%s' is staged in another way", a.Name)
	}
	source := d.GUID
	if d, err = s.c.Builds.Copy(source, a.GUID); err != nil {
		return nil, rest.Missing("Droplet", notStaged(err, "source droplet is not staged"))
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
		return w.Record("audit.app.droplet.create", a, map[string]any{"droplet_guid": d.GUID, "request": map[string]any{"source_droplet_guid": source}})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: s.presentDroplet(d, true)}, nil
}

// targetApp is the app that a copy is for.
func (s *Server) targetApp(ctx context.Context, guid string) (app.App, error) {
	a, err := s.appInBody(ctx, access.Develop, guid)
	if platform.IsNotFound(err) {
		return a, rest.Unprocessable("App with guid \"%s\" does not exist, or you do not have access to it.", guid)
	}
	return a, err
}

// notStaged says of what has no files yet that there is nothing to be had.
func notStaged(err error, text string) error {
	if errors.Is(err, droplet.ErrNotReady) {
		return rest.Unprocessable("%s", text)
	}
	return err
}

func (s *Server) downloadPackage(r *http.Request) (any, error) {
	p, err := s.packageOf(r)
	if err != nil {
		return nil, err
	}
	content, err := s.c.Packages.Zip(r.Context(), p.GUID)
	if errors.Is(err, droplet.ErrNoFiles) {
		return nil, rest.Unprocessable("Package type must be bits.")
	}
	if err != nil {
		return nil, rest.Missing("Package", notStaged(err, "Package has no bits to download."))
	}
	if err := s.recordPackage(r.Context(), "audit.app.package.download", p); err != nil {
		return nil, errors.Join(err, content.Close())
	}
	return rest.Answer{Status: http.StatusOK, Content: content, ContentType: "application/zip"}, nil
}

func (s *Server) deletePackage(r *http.Request) (any, error) {
	p, err := s.packageOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.recordPackage(r.Context(), "audit.app.package.delete", p); err != nil {
		return nil, err
	}
	return s.begin(r.Context(), platform.OpDeletePackage, platform.Removal{GUID: p.GUID})
}

// deleteDroplet removes a droplet that nothing runs: what runs could not be started
// again without it.
func (s *Server) deleteDroplet(r *http.Request) (any, error) {
	d, err := s.c.Shelf.Get(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
		if err := platform.NotRun(w.Registry, d.GUID); err != nil {
			return err
		}
		return w.RecordDroplet("audit.app.droplet.delete", d)
	})
	if err != nil {
		return nil, err
	}
	return s.begin(r.Context(), platform.OpDeleteDroplet, platform.Removal{GUID: d.GUID})
}
