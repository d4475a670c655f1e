package bits

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/platform"
)

// buildpackChangesEndpoints are the endpoints of this file.
func (h *Handlers) buildpackChangesEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "POST /v3/apps/{guid}/actions/clear_buildpack_cache", Needs: access.Support, Resource: access.App, Handler: h.clearAppCache, Shape: rest.StartsJob()},
		{
			Pattern: "PATCH /v3/buildpacks/{guid}", Needs: access.Administer, Resource: h.buildpackResource(),
			Handler: h.updateBuildpack, Shape: rest.Returns[v3.Buildpack](200).Reads(rest.JSON[v3.UpdateBuildpack]()),
		},
		{
			Pattern: "POST /v3/buildpacks", Needs: access.Administer,
			Handler: h.createBuildpack, Shape: rest.Returns[v3.Buildpack](201).Reads(rest.JSON[v3.CreateBuildpack]()),
		},
		{Pattern: "DELETE /v3/buildpacks/{guid}", Needs: access.Administer, Resource: h.buildpackResource(), Handler: h.deleteBuildpack, Shape: rest.StartsJob()},
		{
			Pattern: "POST /v3/buildpacks/{guid}/upload", Needs: access.Administer, Resource: h.buildpackResource(),
			Handler: h.uploadBuildpack, Shape: rest.StartsJob().Reads(uploadForm),
		},
		{Pattern: "POST /v3/admin/actions/clear_buildpack_cache", Needs: access.Administer, Handler: h.clearCache, Shape: rest.StartsJob()},
		{
			Pattern: "POST /v3/droplets", Needs: access.Authenticated, // the body names the app
			Handler: h.createDroplet, Shape: rest.Returns[v3.Droplet](201).Reads(rest.JSON[v3.CreateDroplet](), rest.JSON[v3.CopyDroplet]()).Query("source_guid"),
		},
		{Pattern: "POST /v3/droplets/{guid}/upload", Needs: access.Develop, Resource: access.Droplet, Handler: h.uploadDroplet, Shape: rest.StartsJob().Reads(uploadForm)},
	}
}

func (h *Handlers) clearCache(r *http.Request) (any, error) {
	return h.Present.StartJob(r.Context(), platform.OpClearCache, platform.StagingThing{})
}

func (h *Handlers) clearAppCache(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpClearAppCache, platform.StagingThing{GUID: a.GUID})
}

func (h *Handlers) createBuildpack(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateBuildpack](r)
	if err != nil {
		return nil, err
	}
	if body.Lifecycle != "" && body.Lifecycle != v3.LifecycleBuildpack {
		return nil, rest.Unprocessable("lifecycle must be %s, not %q", v3.LifecycleBuildpack, body.Lifecycle)
	}
	b := droplet.Buildpack{Name: body.Name, Enabled: true}
	err = setBuildpack(&b, v3.UpdateBuildpack{Stack: body.Stack, Position: body.Position, Enabled: body.Enabled, Locked: body.Locked})
	if err != nil {
		return nil, err
	}
	if b.Position == 0 {
		b.Position = 1 // as on the platform: who brings one wants it to be tried
	}
	if b, err = h.Platform.Catalog.Create(b); err != nil {
		return nil, buildpackError(err)
	}
	notes, err := h.Platform.Registry.UpdateNotes(b.GUID, platform.MetadataChange(body.Metadata))
	if err != nil {
		return nil, errors.Join(err, h.Platform.Catalog.Delete(b.GUID))
	}
	err = h.recordBuildpack(r, "create", b, map[string]any{"request": body})
	return rest.Answer{Status: http.StatusCreated, Body: h.presentBuildpack(noted[droplet.Buildpack]{b, notes}, b.CreatedAt)}, err
}

// recordBuildpack keeps an event about a buildpack.
func (h *Handlers) recordBuildpack(r *http.Request, what string, b droplet.Buildpack, data map[string]any) error {
	return h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.RecordAt("audit.buildpack."+what, app.Target{GUID: b.GUID, Type: "buildpack", Name: b.Name}, access.Place{}, data)
	})
}

// setBuildpack makes the changes that a body names.
func setBuildpack(b *droplet.Buildpack, body v3.UpdateBuildpack) error {
	if body.Position != nil {
		if *body.Position < 1 {
			return rest.Unprocessable("position must be at least 1, not %d", *body.Position)
		}
		b.Position = *body.Position
	}
	if body.Name != nil {
		b.Name = *body.Name
	}
	if body.Stack != nil {
		if b.Stack != "" && b.Stack != *body.Stack {
			return rest.Unprocessable("Buildpack stack cannot be changed")
		}
		b.Stack = *body.Stack
	}
	if body.Enabled != nil {
		b.Enabled = *body.Enabled
	}
	if body.Locked != nil {
		b.Locked = *body.Locked
	}
	return nil
}

// buildpackError is the answer to a change that is refused.
func buildpackError(err error) error {
	switch {
	case errors.Is(err, droplet.ErrNotFound):
		return rest.NotFound("Buildpack")
	case errors.Is(err, droplet.ErrBuildpackTaken):
		return rest.Unprocessable("Must have unique name and stack combination: %v", err)
	case errors.Is(err, droplet.ErrBuildpackLocked), errors.Is(err, droplet.ErrBuildpackOwn), errors.Is(err, droplet.ErrBuildpackName):
		return rest.Unprocessable("%v", err)
	}
	return err
}

func (h *Handlers) updateBuildpack(r *http.Request) (any, error) {
	b, err := h.buildpackOf(r)
	if err != nil {
		return nil, err
	}
	body, err := rest.Decode[v3.UpdateBuildpack](r)
	if err != nil {
		return nil, err
	}
	if _, err := h.Platform.Registry.UpdateNotes(b.GUID, platform.MetadataChange(body.Metadata)); err != nil {
		return nil, err
	}
	request := map[string]any{"request": body}
	body.Metadata = nil
	if body != (v3.UpdateBuildpack{}) {
		b, err = h.Platform.Catalog.Update(b.GUID, func(b *droplet.Buildpack) error { return setBuildpack(b, body) })
	}
	if err != nil {
		return nil, buildpackError(err)
	}
	if err := h.recordBuildpack(r, "update", b, request); err != nil {
		return nil, err
	}
	return h.getBuildpack(r)
}

func (h *Handlers) deleteBuildpack(r *http.Request) (any, error) {
	b, err := h.buildpackOf(r)
	if err != nil {
		return nil, err
	}
	if b.BuiltIn && b.SHA256 == "" {
		return nil, buildpackError(droplet.ErrBuildpackOwn)
	}
	if err := h.recordBuildpack(r, "delete", b, nil); err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteBuildpack, platform.StagingThing{GUID: b.GUID})
}

func (h *Handlers) uploadBuildpack(r *http.Request) (any, error) {
	b, err := h.buildpackOf(r)
	if err != nil {
		return nil, err
	}
	f, name, err := h.oneFile(r)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("cannot take in a buildpack: %w", err)
	}
	if _, err := h.Platform.Catalog.Upload(r.Context(), b.GUID, name, f, size); err != nil {
		return nil, buildpackError(err)
	}
	if err := h.recordBuildpack(r, "upload", b, map[string]any{"request": map[string]any{"bits_name": name}}); err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpUploadBuildpack, platform.StagingThing{GUID: b.GUID})
}

// oneFile takes the part of a form that has the bits, on disk and without a name.
func (h *Handlers) oneFile(r *http.Request) (f *os.File, name string, err error) {
	if err := h.Platform.Packages.Space(); err != nil {
		return nil, "", err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, "", rest.Unprocessable("the body must be multipart/form-data with the part %s", v3.UploadBits)
	}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, "", rest.Unprocessable("the upload has no part %s", v3.UploadBits)
		}
		if err != nil {
			return nil, "", rest.ReadError(err)
		}
		if part.FormName() != v3.UploadBits {
			continue
		}
		u := &upload{}
		if err := h.readBits(u, part); err != nil {
			u.close()
			return nil, "", err
		}
		return u.bits, part.FileName(), nil
	}
}

// createDroplet makes a droplet that waits for files which were staged elsewhere.
func (h *Handlers) createDroplet(r *http.Request) (any, error) {
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

func (h *Handlers) uploadDroplet(r *http.Request) (any, error) {
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
		return nil, fmt.Errorf("cannot take in a droplet: %w", err)
	}
	d, err := h.Platform.Builds.Fill(r.Context(), guid, f)
	if bad, ok := errors.AsType[*archive.Error](err); ok {
		return nil, rest.Unprocessable("the droplet is refused: %v", bad)
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
	return h.Present.StartJob(r.Context(), platform.OpUploadDroplet, platform.StagingThing{GUID: guid})
}
