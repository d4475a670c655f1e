package bits

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/platform"
)

// packageHandlers answers requests about packages.
type packageHandlers struct{ *Handlers }

func (h packageHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/apps/{guid}/packages", Needs: access.Read, Resource: access.App,
			Handler: h.listPackages, Shape: rest.PageOf[v3.Package]("guids", "states", "types", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "POST /v3/resource_matches", Needs: access.Authenticated,
			Handler: h.matchResources, Shape: rest.Returns[v3.ResourceMatches](201).Reads(rest.JSON[v3.ResourceMatches]()),
		},
		{
			Pattern: "GET /v3/packages", Needs: access.Authenticated,
			Handler: h.listPackages, Shape: rest.PageOf[v3.Package]("guids", "states", "types", "app_guids", "space_guids", "organization_guids", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "POST /v3/packages", Needs: access.Authenticated, // the body names the app
			Handler: h.createPackage, Shape: rest.Returns[v3.Package](201).Reads(rest.JSON[v3.CreatePackage](), rest.JSON[v3.CopyPackage]()).Query("source_guid"),
		},
		{Pattern: "GET /v3/packages/{guid}", Needs: access.Read, Resource: access.Package, Handler: h.getPackage, Shape: rest.Returns[v3.Package](200)},
		{
			Pattern: "PATCH /v3/packages/{guid}", Needs: access.Develop, Resource: access.Package,
			Handler: h.updatePackage, Shape: rest.Returns[v3.Package](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{
			Pattern: "POST /v3/packages/{guid}/upload", Needs: access.Develop, Resource: access.Package,
			Handler: h.uploadPackage, Shape: rest.Returns[v3.Package](200).Reads(uploadForm),
		},
		{
			Pattern: "GET /v3/packages/{guid}/download", Needs: access.ReadSecrets, Resource: access.Package,
			Handler: h.downloadPackage, Shape: rest.Empty(http.StatusFound),
		},
		{Pattern: "DELETE /v3/packages/{guid}", Needs: access.Develop, Resource: access.Package, Handler: h.deletePackage, Shape: rest.StartsJob()},
	}
}

func (h *Handlers) packageOf(r *http.Request) (droplet.Package, error) {
	p, err := h.Platform.Packages.Get(r.PathValue("guid"))
	return p, rest.Missing("Package", err)
}

// listPackages lists the packages of an app, or of all apps that the caller can see.
func (h packageHandlers) listPackages(r *http.Request) (any, error) {
	q, all, err := present.OfApps[droplet.Package]{
		One: h.Platform.Packages.OfApp, All: h.Platform.Packages.All, App: func(p droplet.Package) string { return p.App },
	}.List(h.Present, r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p droplet.Package) bool {
		return !q.Matches("guids", p.GUID) || !q.Matches("states", string(p.State)) || !q.Matches("types", p.Type)
	})
	return rest.List(h.Links, r, q, all, rest.View[droplet.Package, v3.Package]{
		Key: func(p droplet.Package) rest.Key {
			return rest.Key{Name: p.GUID, Created: p.CreatedAt, Updated: p.UpdatedAt, GUID: p.GUID}
		},
		Present: h.presentPackage,
		Labels:  func(p droplet.Package) map[string]string { return p.Metadata.Labels },
	}), nil
}

func (h packageHandlers) createPackage(r *http.Request) (any, error) {
	if sourceGUID(r) != "" {
		return h.copyPackage(r)
	}
	body, err := rest.Decode[v3.CreatePackage](r)
	if err != nil {
		return nil, err
	}
	if body.Type != v3.PackageBits && body.Type != v3.PackageDocker {
		return nil, rest.Unprocessable("type must be %s or %s, not %q", v3.PackageBits, v3.PackageDocker, body.Type)
	}
	a, err := h.Present.AppInBody(r.Context(), access.Develop, body.Relationships.App.ID())
	if platform.IsNotFound(err) {
		return nil, rest.Unprocessable("App is invalid. Ensure it exists and you have access to it.")
	}
	if err != nil {
		return nil, err
	}
	notes := app.Metadata{}.Merge(platform.MetadataChange(body.Metadata))
	if err := notes.Validate(); err != nil {
		return nil, err
	}
	p, err := h.newPackage(r, a, body)
	if err != nil {
		return nil, err
	}
	if !notes.IsZero() {
		if p, err = h.Platform.Packages.UpdateMetadata(p.GUID, platform.MetadataChange(body.Metadata)); err != nil {
			return nil, err
		}
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.Record("audit.app.package.create", a, map[string]any{"package_guid": p.GUID, "request": map[string]any{"type": body.Type}})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.presentPackage(p)}, nil
}

// copyPackage copies the package of an app to another app. The caller must be a
// developer in the space of the source.
func (h packageHandlers) copyPackage(r *http.Request) (any, error) {
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

// copiesInto refuses a package that the app could not stage.
func copiesInto(p droplet.Package, a app.App) error {
	switch {
	case p.App == a.GUID:
		return rest.Unprocessable("Source and destination app cannot be the same")
	case a.Docker() != (p.Type == droplet.PackageDocker):
		return rest.Unprocessable("The package cannot be copied: its type is %s, but app '%s' has another lifecycle type", p.Type, a.Name)
	}
	return nil
}

func (h packageHandlers) newPackage(r *http.Request, a app.App, body v3.CreatePackage) (droplet.Package, error) {
	if body.Type == v3.PackageDocker {
		return h.createDockerPackage(r, a, body)
	}
	if a.Docker() {
		return droplet.Package{}, rest.Unprocessable("Cannot create bits package for a Docker app.")
	}
	return h.Platform.Packages.Create(a.GUID)
}

// createDockerPackage creates a package from an image. dewd downloads the image when it
// stages the package.
func (h packageHandlers) createDockerPackage(r *http.Request, a app.App, body v3.CreatePackage) (droplet.Package, error) {
	var none droplet.Package
	if !a.Docker() {
		return none, rest.Unprocessable("Cannot create Docker package for a buildpack app.")
	}
	if err := h.Present.AllowDocker(r.Context()); err != nil {
		return none, err
	}
	data, err := rest.DecodeBytes[v3.DockerData](append([]byte{}, body.Data...))
	if err != nil {
		return none, rest.Unprocessable("data must be an object with image, and optionally username and password")
	}
	if data.Image == "" {
		return none, rest.Unprocessable("data.image can't be blank")
	}
	if err := stack.CheckImageRef(data.Image); err != nil {
		return none, rest.Unprocessable("data.image: %v", err)
	}
	return h.Platform.Packages.CreateImage(a.GUID, stack.ImageSource{Ref: data.Image, Username: data.Username, Password: data.Password})
}

func (h packageHandlers) updatePackage(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	p, err := h.Platform.Packages.UpdateMetadata(r.PathValue("guid"), platform.MetadataChange(body.Metadata))
	if err != nil {
		return nil, rest.Missing("Package", err)
	}
	return h.presentPackage(p), nil
}

func (h packageHandlers) recordPackage(ctx context.Context, event string, p droplet.Package) error {
	return h.Platform.Change(ctx, func(w platform.Tx) error {
		a, err := w.Registry.App(p.App)
		if err != nil {
			return rest.Missing("App", err)
		}
		return w.Record(event, a, map[string]any{"package_guid": p.GUID})
	})
}

func (h packageHandlers) getPackage(r *http.Request) (any, error) {
	p, err := h.packageOf(r)
	if err != nil {
		return nil, err
	}
	return h.presentPackage(p), nil
}

func (h packageHandlers) matchResources(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ResourceMatches](r)
	if err != nil {
		return nil, err
	}
	if h.Present.Feature(r.Context(), app.FlagResourceMatch) != nil {
		body.Resources = nil // the client then sends all files
	}
	if len(body.Resources) > v3.MaxResources {
		return nil, rest.Unprocessable("resources must have at most %d entries, not %d. Send several requests.", v3.MaxResources, len(body.Resources))
	}
	by, err := h.reader(r)
	if err != nil {
		return nil, err
	}
	found, err := h.Platform.Packages.Match(pool.Claim{Resources: resources(body.Resources), By: by})
	if err != nil {
		return nil, err
	}
	out := v3.ResourceMatches{Resources: []v3.Resource{}}
	for _, f := range found {
		out.Resources = append(out.Resources, v3.Resource{
			Path: f.Path, Mode: f.Mode, Checksum: v3.Checksum{Value: f.SHA1}, Size: f.Size,
		})
	}
	return rest.Answer{Status: http.StatusCreated, Body: out}, nil
}

func resources(in []v3.Resource) []pool.Resource {
	out := make([]pool.Resource, 0, len(in))
	for _, f := range in {
		out = append(out, pool.Resource{Path: f.Path, Mode: f.Mode, SHA1: f.Checksum.Value, Size: f.Size})
	}
	return out
}

func (h packageHandlers) uploadPackage(r *http.Request) (any, error) {
	if err := h.Present.Feature(r.Context(), app.FlagBitsUpload); err != nil {
		return nil, err
	}
	p, err := h.packageOf(r)
	if err != nil {
		return nil, err
	}
	if p.State == droplet.PackageReady {
		return nil, droplet.ErrUploaded // checked before the client sends the whole body
	}
	if r.ContentLength > h.MaxUpload {
		return nil, rest.ErrTooLarge
	}
	form, err := h.readUpload(r)
	defer form.close()
	if err != nil {
		return nil, err
	}
	if p, err = form.give(r.Context(), h.Platform.Packages, p.GUID); err != nil {
		return nil, err
	}
	if err := h.recordPackage(r.Context(), "audit.app.package.upload", p); err != nil {
		return nil, err
	}
	return h.presentPackage(p), nil
}

func (h packageHandlers) downloadPackage(r *http.Request) (any, error) {
	p, err := h.packageOf(r)
	if err != nil {
		return nil, err
	}
	content, err := h.Platform.Packages.Zip(r.Context(), p.GUID) // fails now, not only at the URL
	if errors.Is(err, droplet.ErrNoFiles) {
		return nil, rest.Unprocessable("Package type must be bits.")
	}
	if err != nil {
		return nil, rest.Missing("Package", notStaged(err, "Package has no bits to download."))
	}
	if err := errors.Join(content.Close(), h.recordPackage(r.Context(), "audit.app.package.download", p)); err != nil {
		return nil, err
	}
	return h.redirect(r, download{needs: access.ReadSecrets, resource: access.Package, contentType: "application/zip", open: func(r *http.Request) (io.ReadCloser, error) {
		return h.Platform.Packages.Zip(r.Context(), p.GUID)
	}})
}

func (h packageHandlers) deletePackage(r *http.Request) (any, error) {
	p, err := h.packageOf(r)
	if err != nil {
		return nil, err
	}
	if err := h.recordPackage(r.Context(), "audit.app.package.delete", p); err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeletePackage, platform.Removal{GUID: p.GUID})
}

func (h packageHandlers) presentPackage(p droplet.Package) v3.Package {
	self := h.Links.Href("v3", "packages", p.GUID)
	out := v3.Package{
		GUID: p.GUID, CreatedAt: v3.At(p.CreatedAt), UpdatedAt: v3.At(p.UpdatedAt), Type: p.Type, State: string(p.State),
		Relationships: v3.PackageRelationships{App: v3.To(p.App)},
		Metadata:      rest.PresentMetadata(p.Metadata),
		Links: v3.Links{
			"self":   {Href: self},
			"upload": {Href: self + "/upload", Method: http.MethodPost},
			"app":    {Href: h.Links.Href("v3", "apps", p.App)},

			"download": {Href: self + "/download"},
		},
	}
	if p.Error != "" {
		out.Data.Error = &p.Error
	}
	if p.SHA256 != "" {
		out.Data.Checksum = &v3.Checksum{Type: "sha256", Value: p.SHA256}
	}
	if p.Image != nil {
		delete(out.Links, "upload")
		delete(out.Links, "download")
		out.Data.Image, out.Data.Username = p.Image.Ref, p.Image.Username
		if p.Image.Password != "" {
			out.Data.Password = "***"
		}
	}
	return out
}
