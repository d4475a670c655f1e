package bits

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
)

// buildpackHandlers answers requests about buildpacks.
type buildpackHandlers struct{ *Handlers }

func (h buildpackHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/buildpacks", Needs: access.Authenticated,
			Handler: h.listBuildpacks, Shape: rest.PageOf[v3.Buildpack]("names", "guids", "stacks", "lifecycle", rest.ParamSelector).OrderedBy("created_at", "updated_at", "name", "position", "lifecycle"),
		},
		{Pattern: "GET /v3/buildpacks/{guid}", Needs: access.Authenticated, Handler: h.getBuildpack, Shape: rest.Returns[v3.Buildpack](200)},
		{
			Pattern: "POST /dew/v1/spaces/{guid}/buildpacks", Needs: access.Develop, Resource: access.Space,
			Handler: h.uploadFolder, Shape: rest.Returns[v3.UploadedFolder](201).Reads(uploadForm).Query("name"),
		},
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
	}
}

func buildpackGUID(b droplet.Buildpack) string { return b.GUID }

func (h buildpackHandlers) listBuildpacks(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	at, err := h.since()
	if err != nil {
		return nil, err
	}
	if q.OrderBy == "" {
		q.OrderBy = "position"
	}
	packs, err := h.Platform.Catalog.All()
	if err != nil {
		return nil, err
	}
	all, err := withNotes(h.Platform.Registry, packs, buildpackGUID)
	if err != nil {
		return nil, err
	}
	// A buildpack without a stack matches all stacks.
	all = slices.DeleteFunc(all, func(b annotated[droplet.Buildpack]) bool {
		return !q.Matches("names", b.resource.Name) || !q.Matches("guids", b.resource.GUID) || !q.Matches("lifecycle", v3.LifecycleBuildpack) ||
			b.resource.Stack == "" && !q.Matches("stacks", "", h.Platform.Stacks().DefaultName()) || b.resource.Stack != "" && !q.Matches("stacks", b.resource.Stack)
	})
	return rest.List(h.Links, r, q, all, rest.View[annotated[droplet.Buildpack], v3.Buildpack]{
		Key: func(b annotated[droplet.Buildpack]) rest.Key {
			name := b.resource.Name
			switch q.OrderBy {
			case "lifecycle":
				name = v3.LifecycleBuildpack
			case "position":
				name = fmt.Sprintf("%09d", b.resource.Position)
			}
			created, updated := buildpackTimes(b.resource, at)
			return rest.Key{Name: name, Created: created, Updated: updated, GUID: b.resource.GUID}
		},
		Present: func(b annotated[droplet.Buildpack]) v3.Buildpack { return h.presentBuildpack(b, at) },
		Labels:  func(b annotated[droplet.Buildpack]) map[string]string { return b.notes.Labels },
	}), nil
}

func (h buildpackHandlers) buildpackOf(r *http.Request) (droplet.Buildpack, error) {
	all, err := h.Platform.Catalog.All()
	if err != nil {
		return droplet.Buildpack{}, err
	}
	for _, b := range all {
		if b.GUID == r.PathValue("guid") {
			return b, nil
		}
	}
	return droplet.Buildpack{}, rest.NotFound("Buildpack")
}

func (h buildpackHandlers) getBuildpack(r *http.Request) (any, error) {
	b, err := h.buildpackOf(r)
	if err != nil {
		return nil, err
	}
	m, err := h.Platform.Registry.Notes(b.GUID)
	if err != nil {
		return nil, err
	}
	at, err := h.since()
	return h.presentBuildpack(annotated[droplet.Buildpack]{b, m}, at), err
}

// buildpackTimes returns when a buildpack was created and last changed; at is the
// creation time of built-in buildpacks.
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

// presentBuildpack shows a buildpack; at is the creation time of built-in buildpacks.
func (h buildpackHandlers) presentBuildpack(b annotated[droplet.Buildpack], at time.Time) v3.Buildpack {
	created, updated := buildpackTimes(b.resource, at)
	out := v3.Buildpack{
		GUID: b.resource.GUID, CreatedAt: v3.At(created), UpdatedAt: v3.At(updated), Name: b.resource.Name, State: b.resource.State,
		Position: b.resource.Position, Enabled: b.resource.Enabled, Locked: b.resource.Locked, Lifecycle: v3.LifecycleBuildpack,
		Metadata: rest.PresentMetadata(b.notes),
		Links: v3.Links{
			"self":   {Href: h.Links.Href("v3", "buildpacks", b.resource.GUID)},
			"upload": {Href: h.Links.Href("v3", "buildpacks", b.resource.GUID, "upload"), Method: http.MethodPost},
		},
	}
	if b.resource.Stack != "" {
		out.Stack = &b.resource.Stack
	}
	if b.resource.Filename != "" {
		out.Filename = &b.resource.Filename
	}
	return out
}

// buildpackResource is the access resource for a buildpack in the path.
func (h buildpackHandlers) buildpackResource() access.Resource {
	return access.Resource{Name: "Buildpack", Look: func(r *http.Request) error {
		_, err := h.buildpackOf(r)
		return err
	}}
}

// uploadFolder stores a folder of the caller as a buildpack for the apps of a space.
// Its scripts run in the same containers as pushed code, so the caller needs the
// permissions of a push.
func (h buildpackHandlers) uploadFolder(r *http.Request) (any, error) {
	if err := h.Present.Feature(r.Context(), app.FlagBitsUpload); err != nil {
		return nil, err
	}
	if r.ContentLength > h.MaxUpload {
		return nil, rest.ErrTooLarge
	}
	form, err := h.readUpload(r)
	defer form.close()
	if err != nil {
		return nil, err
	}
	u := droplet.FolderUpload{Space: r.PathValue("guid"), Name: r.URL.Query().Get("name"), Matched: form.matched, Size: form.size}
	if form.bits != nil {
		u.Zip = form.bits
	}
	name, err := h.Platform.Builds.AddFolder(r.Context(), u)
	return rest.Answer{Status: http.StatusCreated, Body: v3.UploadedFolder{Name: name}}, err
}

func (h buildpackHandlers) clearCache(r *http.Request) (any, error) {
	return h.Present.StartJob(r.Context(), platform.OpClearCache, platform.StagingTarget{})
}

func (h buildpackHandlers) clearAppCache(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpClearAppCache, platform.StagingTarget{GUID: a.GUID})
}

func (h buildpackHandlers) createBuildpack(r *http.Request) (any, error) {
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
		b.Position = 1 // as on Cloud Foundry: a new buildpack is tried first
	}
	if b, err = h.Platform.Catalog.Create(b); err != nil {
		return nil, buildpackError(err)
	}
	notes, err := h.Platform.Registry.UpdateNotes(b.GUID, platform.MetadataChange(body.Metadata))
	if err != nil {
		return nil, errors.Join(err, h.Platform.Catalog.Delete(b.GUID))
	}
	err = h.recordBuildpack(r, "create", b, map[string]any{"request": body})
	return rest.Answer{Status: http.StatusCreated, Body: h.presentBuildpack(annotated[droplet.Buildpack]{b, notes}, b.CreatedAt)}, err
}

// recordBuildpack records an event about a buildpack.
func (h buildpackHandlers) recordBuildpack(r *http.Request, what string, b droplet.Buildpack, data map[string]any) error {
	return h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.RecordAt("audit.buildpack."+what, app.Target{GUID: b.GUID, Type: "buildpack", Name: b.Name}, access.Place{}, data)
	})
}

// setBuildpack applies the changes that a body names.
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

// buildpackError returns the response for a refused change.
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

func (h buildpackHandlers) updateBuildpack(r *http.Request) (any, error) {
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

func (h buildpackHandlers) deleteBuildpack(r *http.Request) (any, error) {
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
	return h.Present.StartJob(r.Context(), platform.OpDeleteBuildpack, platform.StagingTarget{GUID: b.GUID})
}

func (h buildpackHandlers) uploadBuildpack(r *http.Request) (any, error) {
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
		return nil, fmt.Errorf("cannot read the uploaded buildpack: %w", err)
	}
	if _, err := h.Platform.Catalog.Upload(r.Context(), b.GUID, name, f, size); err != nil {
		return nil, buildpackError(err)
	}
	if err := h.recordBuildpack(r, "upload", b, map[string]any{"request": map[string]any{"bits_name": name}}); err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpUploadBuildpack, platform.StagingTarget{GUID: b.GUID})
}
