package bits

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
func (h *Handlers) copiesEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/packages/{guid}/download", Needs: access.ReadSecrets, Resource: access.Package,
			Handler: h.downloadPackage, Shape: rest.ReturnsBytes("application/zip"),
		},
		{Pattern: "DELETE /v3/packages/{guid}", Needs: access.Develop, Resource: access.Package, Handler: h.deletePackage, Shape: rest.StartsJob()},
		{Pattern: "DELETE /v3/droplets/{guid}", Needs: access.Develop, Resource: access.Droplet, Handler: h.deleteDroplet, Shape: rest.StartsJob()},
	}
}

// sourceGUID is what a request wants copied; empty: nothing.
func sourceGUID(r *http.Request) string { return r.URL.Query().Get("source_guid") }

// copyPackage gives an app the package of another one. What it is made of is given
// only to those who develop where it comes from.
func (h *Handlers) copyPackage(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CopyPackage](r)
	if err != nil {
		return nil, err
	}
	a, err := h.targetApp(r.Context(), body.Relationships.App.ID())
	if err != nil {
		return nil, err
	}
	p, err := h.Platform.Packages.Get(sourceGUID(r))
	if err == nil {
		_, err = h.Present.AppInBody(r.Context(), access.Develop, p.App)
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
	if p, err = h.Platform.Packages.Copy(source, a.GUID); err != nil {
		return nil, notStaged(err, "The package has no bits to copy.")
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.Record("audit.app.package.create", a, map[string]any{"package_guid": p.GUID, "request": map[string]any{"source_package_guid": source}})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.presentPackage(p)}, nil
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
func (h *Handlers) copyDroplet(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CopyDroplet](r)
	if err != nil {
		return nil, err
	}
	a, err := h.targetApp(r.Context(), body.Relationships.App.ID())
	if err != nil {
		return nil, err
	}
	d, err := h.Platform.Droplets.Get(sourceGUID(r))
	if err == nil {
		_, err = h.Present.AppInBody(r.Context(), access.Read, d.App)
	}
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	if a.Docker() != (d.Run != nil) {
		return nil, rest.Unprocessable("The droplet cannot be copied: app '%s' is staged in another way", a.Name)
	}
	source := d.GUID
	if d, err = h.Platform.Builds.Copy(source, a.GUID); err != nil {
		return nil, rest.Missing("Droplet", notStaged(err, "source droplet is not staged"))
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.Record("audit.app.droplet.create", a, map[string]any{"droplet_guid": d.GUID, "request": map[string]any{"source_droplet_guid": source}})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.presentDroplet(d, true)}, nil
}

// targetApp is the app that a copy is for.
func (h *Handlers) targetApp(ctx context.Context, guid string) (app.App, error) {
	a, err := h.Present.AppInBody(ctx, access.Develop, guid)
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

func (h *Handlers) downloadPackage(r *http.Request) (any, error) {
	p, err := h.packageOf(r)
	if err != nil {
		return nil, err
	}
	content, err := h.Platform.Packages.Zip(r.Context(), p.GUID)
	if errors.Is(err, droplet.ErrNoFiles) {
		return nil, rest.Unprocessable("Package type must be bits.")
	}
	if err != nil {
		return nil, rest.Missing("Package", notStaged(err, "Package has no bits to download."))
	}
	if err := h.recordPackage(r.Context(), "audit.app.package.download", p); err != nil {
		return nil, errors.Join(err, content.Close())
	}
	return rest.Answer{Status: http.StatusOK, Content: content, ContentType: "application/zip"}, nil
}

func (h *Handlers) deletePackage(r *http.Request) (any, error) {
	p, err := h.packageOf(r)
	if err != nil {
		return nil, err
	}
	if err := h.recordPackage(r.Context(), "audit.app.package.delete", p); err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeletePackage, platform.Removal{GUID: p.GUID})
}

// deleteDroplet removes a droplet that nothing runs: what runs could not be started
// again without it.
func (h *Handlers) deleteDroplet(r *http.Request) (any, error) {
	d, err := h.Platform.Droplets.Get(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		if err := platform.NotRun(w.Registry, d.GUID); err != nil {
			return err
		}
		return w.RecordDroplet("audit.app.droplet.delete", d)
	})
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteDroplet, platform.Removal{GUID: d.GUID})
}
