package bits

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/platform"
)

// dropletHandlers answers requests about droplets.
type dropletHandlers struct{ *Handlers }

func (h dropletHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/apps/{guid}/relationships/current_droplet", Needs: access.Read, Resource: access.App,
			Handler: h.getCurrentRelationship, Shape: rest.Returns[v3.CurrentDroplet](200),
		},
		{
			Pattern: "PATCH /v3/apps/{guid}/relationships/current_droplet", Needs: access.Support, Resource: access.App,
			Handler: h.setCurrentDroplet, Shape: rest.Returns[v3.CurrentDroplet](200).Reads(rest.JSON[v3.CurrentDroplet]()),
		},
		{Pattern: "GET /v3/apps/{guid}/droplets/current", Needs: access.Read, Resource: access.App, Handler: h.getCurrentDroplet, Shape: rest.Returns[v3.Droplet](200)},
		{
			Pattern: "GET /v3/apps/{guid}/droplets", Needs: access.Read, Resource: access.App,
			Handler: h.listAppDroplets, Shape: rest.PageOf[v3.Droplet]("guids", "states", "current", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/droplets", Needs: access.Authenticated,
			Handler: h.listDroplets, Shape: rest.PageOf[v3.Droplet]("guids", "states", "app_guids", "space_guids", "organization_guids", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{Pattern: "GET /v3/droplets/{guid}", Needs: access.Read, Resource: access.Droplet, Handler: h.getDroplet, Shape: rest.Returns[v3.Droplet](200)},
		{
			Pattern: "PATCH /v3/droplets/{guid}", Needs: access.Develop, Resource: access.Droplet,
			Handler: h.updateDroplet, Shape: rest.Returns[v3.Droplet](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{
			Pattern: "GET /v3/droplets/{guid}/download", Needs: access.Download, Resource: access.Droplet,
			Handler: h.downloadDroplet, Shape: rest.Empty(http.StatusFound),
		},
		{Pattern: "DELETE /v3/droplets/{guid}", Needs: access.Develop, Resource: access.Droplet, Handler: h.deleteDroplet, Shape: rest.StartsJob()},
		{
			Pattern: "GET /v3/packages/{guid}/droplets", Needs: access.Read, Resource: access.Package,
			Handler: h.listPackageDroplets, Shape: rest.PageOf[v3.Droplet]("guids", "states", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "POST /v3/droplets", Needs: access.Authenticated, // the body names the app
			Handler: h.createDroplet, Shape: rest.Returns[v3.Droplet](201).Reads(rest.JSON[v3.CreateDroplet](), rest.JSON[v3.CopyDroplet]()).Query("source_guid"),
		},
		{Pattern: "POST /v3/droplets/{guid}/upload", Needs: access.Develop, Resource: access.Droplet, Handler: h.uploadDroplet, Shape: rest.StartsJob().Reads(uploadForm)},
	}
}

func (h dropletHandlers) getDroplet(r *http.Request) (any, error) {
	d, err := h.Platform.Droplets.Get(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	return h.showDroplet(r, d)
}

func (h dropletHandlers) updateDroplet(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	d, err := h.Platform.Droplets.UpdateMetadata(r.PathValue("guid"), platform.MetadataChange(body.Metadata))
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	return h.showDroplet(r, d)
}

// createDroplet creates a droplet without files. The client uploads files that were
// staged elsewhere.
func (h dropletHandlers) createDroplet(r *http.Request) (any, error) {
	if sourceGUID(r) != "" {
		return h.copyDroplet(r)
	}
	body, err := rest.Decode[v3.CreateDroplet](r)
	if err != nil {
		return nil, err
	}
	a, err := h.Platform.Registry.App(body.Relationships.App.ID())
	if err == nil {
		err = h.Access.Require(r.Context(), access.Develop, a.Space)
	}
	if errors.Is(err, app.ErrNotFound) {
		return nil, rest.Unprocessable("App with guid \"%s\" does not exist, or you do not have access to it.", body.Relationships.App.ID())
	}
	if err != nil {
		return nil, err
	}
	d, err := h.Platform.Droplets.Await(a.GUID, body.ProcessTypes)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.Record("audit.app.droplet.create", a, map[string]any{"droplet_guid": d.GUID})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.presentDroplet(d, true)}, nil
}

// copyDroplet copies a droplet that the caller can see to another app. The copy uses
// the services of its new app.
func (h dropletHandlers) copyDroplet(r *http.Request) (any, error) {
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
		return nil, rest.Unprocessable("The droplet cannot be copied: app '%s' has another lifecycle type", a.Name)
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

func (h dropletHandlers) uploadDroplet(r *http.Request) (any, error) {
	guid := r.PathValue("guid")
	if _, err := h.Platform.Droplets.Get(guid); err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	f, _, err := h.oneFile(r)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("cannot read the uploaded droplet: %w", err)
	}
	d, err := h.Platform.Builds.Fill(r.Context(), guid, f)
	if bad, ok := errors.AsType[*archive.Error](err); ok {
		return nil, rest.Unprocessable("The droplet is not valid: %v", bad)
	}
	if errors.Is(err, droplet.ErrHasImage) {
		return nil, rest.Unprocessable("%v", err)
	}
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordDroplet("audit.app.droplet.upload", d) })
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpUploadDroplet, platform.StagingTarget{GUID: guid})
}

// deleteDroplet removes a droplet that is not in use. An instance that runs it could
// not be restarted without it.
func (h dropletHandlers) deleteDroplet(r *http.Request) (any, error) {
	d, err := h.Platform.Droplets.Get(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		if err := platform.CheckNotRunning(w.Registry, d.GUID); err != nil {
			return err
		}
		return w.RecordDroplet("audit.app.droplet.delete", d)
	})
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteDroplet, platform.Removal{GUID: d.GUID})
}

func (h dropletHandlers) listDroplets(r *http.Request) (any, error) {
	q, all, err := present.OfApps[droplet.Droplet]{
		One: h.Platform.Droplets.OfApp, All: h.Platform.Droplets.All, App: func(d droplet.Droplet) string { return d.App },
	}.List(h.Present, r)
	if err != nil {
		return nil, err
	}
	return h.pageOfDroplets(r, q, all)
}

// listAppDroplets lists all droplets of an app, or with current only the one that its
// next instances run.
func (h dropletHandlers) listAppDroplets(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Droplets.OfApp(a.GUID)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d droplet.Droplet) bool {
		return q.Filters["current"] != nil && q.Matches("current", "true") && d.GUID != a.Droplet
	})
	return h.pageOfDroplets(r, q, all)
}

// listPackageDroplets lists the droplets that were staged from a package. Clients use
// it to find out whether the package is staged.
func (h dropletHandlers) listPackageDroplets(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	p, err := h.packageOf(r)
	if err != nil {
		return nil, err
	}
	builds, err := h.Platform.Builds.OfApp(p.App)
	if err != nil {
		return nil, err
	}
	var found []droplet.Droplet
	for _, b := range builds {
		if b.Package != p.GUID || b.Droplet == "" {
			continue
		}
		d, err := h.Platform.Droplets.Get(b.Droplet)
		if errors.Is(err, droplet.ErrNotFound) {
			continue // the cleanup removed it
		}
		if err != nil {
			return nil, err
		}
		found = append(found, d)
	}
	return h.pageOfDroplets(r, q, found)
}

func (h dropletHandlers) pageOfDroplets(r *http.Request, q rest.Query, all []droplet.Droplet) (any, error) {
	open, err := h.Present.Secrets(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d droplet.Droplet) bool {
		return !q.Matches("guids", d.GUID) || !q.Matches("states", cmp.Or(d.State, v3.DropletStaged))
	})
	return rest.List(h.Links, r, q, all, rest.View[droplet.Droplet, v3.Droplet]{
		Key: func(d droplet.Droplet) rest.Key {
			return rest.Key{Name: d.GUID, Created: d.CreatedAt, Updated: updatedAt(d), GUID: d.GUID}
		},
		Present: func(d droplet.Droplet) v3.Droplet { return h.presentDroplet(d, open(d.App)) },
		Labels:  func(d droplet.Droplet) map[string]string { return d.Metadata.Labels },
	}), nil
}

// showDroplet shows a droplet to the caller.
func (h dropletHandlers) showDroplet(r *http.Request, d droplet.Droplet) (any, error) {
	open, err := h.Present.Secrets(r)
	if err != nil {
		return nil, err
	}
	return h.presentDroplet(d, open(d.App)), nil
}

// updatedAt returns when a droplet was last changed; most droplets never change.
func updatedAt(d droplet.Droplet) time.Time {
	if d.UpdatedAt.IsZero() {
		return d.CreatedAt
	}
	return d.UpdatedAt
}

// downloadDroplet sends the caller to the files of a droplet as a tar file, as Cloud
// Foundry does. dewd compresses them while sending.
func (h dropletHandlers) downloadDroplet(r *http.Request) (any, error) {
	d, err := h.Platform.Droplets.Get(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	if d.Image == "" {
		return nil, rest.Unprocessable("The droplet has no files to download")
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordDroplet("audit.app.droplet.download", d) })
	if err != nil {
		return nil, err
	}
	return h.redirect(r, download{needs: access.Download, resource: access.Droplet, contentType: "application/gzip", open: func(*http.Request) (io.ReadCloser, error) {
		image, err := h.Platform.Droplets.OpenImage(d.Image)
		if err != nil {
			return nil, err
		}
		return compressed(image), nil
	}})
}

// compressed reads an image and compresses it as a droplet. Closing the result stops the compression at
// any point.
func compressed(from io.ReadCloser) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		z := gzip.NewWriter(in)
		err := archive.WriteDroplet(z, from)
		in.CloseWithError(errors.Join(err, z.Close(), from.Close()))
	}()
	return out
}

func (h dropletHandlers) getCurrentDroplet(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	if a.Droplet == "" {
		return nil, rest.NotFound("Droplet")
	}
	d, err := h.Platform.Droplets.Get(a.Droplet)
	if err != nil {
		return nil, rest.Missing("Droplet", err)
	}
	return h.showDroplet(r, d)
}

func (h dropletHandlers) getCurrentRelationship(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	if a.Droplet == "" {
		return nil, rest.NotFound("Droplet")
	}
	return h.presentCurrent(a), nil
}

// setCurrentDroplet sets the droplet that the app's next instances run. The app gets
// the process types of the droplet that it does not have yet.
func (h dropletHandlers) setCurrentDroplet(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CurrentDroplet](r)
	if err != nil {
		return nil, err
	}
	if body.Data == nil {
		return nil, rest.Unprocessable("data must have the guid of a droplet: the current droplet can be replaced, but not removed")
	}
	request := map[string]any{"droplet_guid": body.Data.GUID}
	a, err := h.Present.ChangeApp(r, "audit.app.droplet.mapped", request, func(w platform.Tx, a *app.App) error {
		d, err := w.Droplet(body.Data.GUID)
		if err != nil && !errors.Is(err, droplet.ErrNotFound) {
			return err
		}
		if err != nil || d.App != a.GUID {
			return rest.Unprocessable("Unable to assign current droplet. Ensure the droplet exists and belongs to this app.")
		}
		if d.State == droplet.DropletAwaiting {
			return rest.Unprocessable("Unable to assign current droplet. Its files were not uploaded yet.")
		}
		if err := platform.CheckNotDeploying(w.Registry, a.GUID); err != nil {
			return err
		}
		a.Droplet = d.GUID
		if err := w.AddProcesses(*a, d); err != nil {
			return err
		}
		return platform.AddSidecars(w.Registry, a.GUID, d)
	})
	if err != nil {
		return nil, err
	}
	return h.presentCurrent(a), nil
}

func (h dropletHandlers) presentCurrent(a app.App) v3.CurrentDroplet {
	return v3.CurrentDroplet{Data: &v3.GUID{GUID: a.Droplet}, Links: v3.Links{
		"self":    {Href: h.Links.Href("v3", "apps", a.GUID, "relationships", "current_droplet")},
		"related": {Href: h.Links.Href("v3", "apps", a.GUID, "droplets", "current")},
	}}
}

// presentDroplet shows a droplet. It hides the start commands unless open is true.
func (h dropletHandlers) presentDroplet(d droplet.Droplet, open bool) v3.Droplet {
	out := v3.Droplet{
		GUID: d.GUID, CreatedAt: v3.At(d.CreatedAt), UpdatedAt: v3.At(updatedAt(d)), State: v3.DropletStaged,
		Lifecycle: present.Lifecycle(nil, ""), ProcessTypes: map[string]string{}, Stack: d.Stack,
		Buildpacks:    platform.PresentUsed(d.Buildpacks),
		Relationships: v3.DropletRelationships{App: v3.To(d.App)},
		Metadata:      rest.PresentMetadata(d.Metadata),
		Links: v3.Links{
			"self": {Href: h.Links.Href("v3", "droplets", d.GUID)},
			"app":  {Href: h.Links.Href("v3", "apps", d.App)},

			"download": {Href: h.Links.Href("v3", "droplets", d.GUID, "download")},
			"assign_current_droplet": {
				Href: h.Links.Href("v3", "apps", d.App, "relationships", "current_droplet"), Method: http.MethodPatch,
			},
		},
	}
	if d.State != "" {
		out.State = d.State
		out.Links["upload"] = v3.Link{Href: h.Links.Href("v3", "droplets", d.GUID, "upload"), Method: http.MethodPost}
	}
	if d.Package != "" {
		out.Links["package"] = v3.Link{Href: h.Links.Href("v3", "packages", d.Package)}
	}
	for kind, command := range d.Commands {
		out.ProcessTypes[kind] = present.HideSecret(command, open)
	}
	if d.Run != nil {
		present.ShowDocker(&out, *d.Run)
	}
	if d.Image != "" {
		out.Checksum = &v3.Checksum{Type: "sha256", Value: d.Image}
	}
	return out
}
