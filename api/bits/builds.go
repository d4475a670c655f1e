package bits

import (
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
)

// buildHandlers answers requests about builds.
type buildHandlers struct{ *Handlers }

func (h buildHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/apps/{guid}/builds", Needs: access.Read, Resource: access.App,
			Handler: h.listBuilds, Shape: rest.PageOf[v3.Build]("guids", "states", "package_guids", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/builds", Needs: access.Authenticated,
			Handler: h.listBuilds, Shape: rest.PageOf[v3.Build]("guids", "states", "package_guids", "app_guids", "space_guids", "organization_guids", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "PATCH /v3/builds/{guid}", Needs: access.Develop, Resource: access.Build,
			Handler: h.updateBuild, Shape: rest.Returns[v3.Build](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
		{
			Pattern: "POST /v3/builds", Needs: access.Authenticated, // the body names the package
			Handler: h.createBuild, Shape: rest.Returns[v3.Build](201).Reads(rest.JSON[v3.CreateBuild]()),
		},
		{Pattern: "GET /v3/builds/{guid}", Needs: access.Read, Resource: access.Build, Handler: h.getBuild, Shape: rest.Returns[v3.Build](200)},
	}
}

func (h buildHandlers) createBuild(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateBuild](r)
	if err != nil {
		return nil, err
	}
	notes := app.Metadata{}.Merge(platform.MetadataChange(body.Metadata))
	if err := notes.Validate(); err != nil {
		return nil, err
	}
	p, err := h.Platform.Packages.Get(body.Package.GUID)
	if err != nil {
		return nil, packageError(err)
	}
	a, err := h.Present.AppInBody(r.Context(), access.Support, p.App)
	if err != nil {
		return nil, packageError(err)
	}
	if err := h.Present.SetLifecycle(r.Context(), &a, body.Lifecycle); err != nil {
		return nil, err
	}
	warning, err := h.Platform.CheckStack(a)
	if err != nil {
		return nil, err
	}
	fresh, err := h.staged(p)
	if err != nil {
		return nil, err
	}
	b, err := h.Platform.Builds.Create(r.Context(), droplet.BuildRequest{
		Package: p.GUID, Stack: a.Stack, Buildpacks: a.Buildpacks, Fresh: fresh, By: platform.ActorOf(r.Context()), Metadata: notes,
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Warnings: warning, Body: h.presentBuild(b)}, nil
}

// packageError returns Cloud Foundry's error for a package that does not exist or cannot
// be used.
func packageError(err error) error {
	if platform.IsNotFound(err) || errors.Is(err, access.ErrNotAuthorized) {
		return rest.Unprocessable("Unable to use package. Ensure that the package exists and you have access to it.")
	}
	return err
}

// staged reports whether the package was staged before. If so, another build of it is a
// restage and repeats all steps: the API has no other way to request that.
func (h buildHandlers) staged(p droplet.Package) (bool, error) {
	builds, err := h.Platform.Builds.OfApp(p.App)
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

func (h buildHandlers) getBuild(r *http.Request) (any, error) {
	b, err := h.Platform.Builds.Get(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Build", err)
	}
	return h.presentBuild(b), nil
}

func (h buildHandlers) updateBuild(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateMetadata](r)
	if err != nil {
		return nil, err
	}
	b, err := h.Platform.Builds.UpdateMetadata(r.PathValue("guid"), platform.MetadataChange(body.Metadata))
	if err != nil {
		return nil, rest.Missing("Build", err)
	}
	return h.presentBuild(b), nil
}

// listBuilds lists the builds of an app, or of all apps that the caller can see.
func (h buildHandlers) listBuilds(r *http.Request) (any, error) {
	q, all, err := present.OfApps[droplet.Build]{
		One: h.Platform.Builds.OfApp, All: h.Platform.Builds.All, App: func(b droplet.Build) string { return b.App },
	}.List(h.Present, r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(b droplet.Build) bool {
		return !q.Matches("guids", b.GUID) || !q.Matches("states", string(b.State)) || !q.Matches("package_guids", b.Package)
	})
	return rest.List(h.Links, r, q, all, rest.View[droplet.Build, v3.Build]{
		Key: func(b droplet.Build) rest.Key {
			return rest.Key{Name: b.GUID, Created: b.CreatedAt, Updated: b.UpdatedAt, GUID: b.GUID}
		},
		Present: h.presentBuild,
		Labels:  func(b droplet.Build) map[string]string { return b.Metadata.Labels },
	}), nil
}

func (h buildHandlers) presentBuild(b droplet.Build) v3.Build {
	memory, disk := h.Platform.Builds.Limits()
	out := v3.Build{
		GUID: b.GUID, CreatedAt: v3.At(b.CreatedAt), UpdatedAt: v3.At(b.UpdatedAt), State: string(b.State),
		StagingMemoryMB: memory, StagingDiskMB: disk,
		Lifecycle:     h.Present.BuildLifecycle(b),
		Package:       v3.GUID{GUID: b.Package},
		Relationships: v3.BuildRelationships{App: v3.To(b.App)},
		Metadata:      rest.PresentMetadata(b.Metadata),
		CreatedBy:     v3.CreatedBy{GUID: b.By.GUID, Name: b.By.Name},
		Links: v3.Links{
			"self": {Href: h.Links.Href("v3", "builds", b.GUID)},
			"app":  {Href: h.Links.Href("v3", "apps", b.App)},
		},
	}
	if b.Error != "" {
		out.Error = &b.Error
	}
	if b.Droplet != "" {
		out.Droplet = &v3.GUID{GUID: b.Droplet}
		out.Links["droplet"] = v3.Link{Href: h.Links.Href("v3", "droplets", b.Droplet)}
	}
	return out
}
