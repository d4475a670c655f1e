package orgs

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
)

// spaceHandlers answers requests about spaces.
type spaceHandlers struct{ *Handlers }

func (h spaceHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/spaces", Needs: access.Authenticated,
			Handler: h.listSpaces, Shape: rest.PageOf[v3.Space]("names", "guids", "organization_guids", rest.ParamSelector, "include"),
		},
		{
			Pattern: "POST /v3/spaces", Needs: access.Authenticated, // the body names the org
			Handler: h.createSpace, Shape: rest.Returns[v3.Space](201).Reads(rest.JSON[v3.CreateSpace]()),
		},
		{Pattern: "GET /v3/spaces/{guid}", Needs: access.Read, Resource: access.Space, Handler: h.getSpace, Shape: rest.Returns[v3.Space](200).Query("include")},
		{
			Pattern: "PATCH /v3/spaces/{guid}", Needs: access.Manage, Resource: access.Space,
			Handler: h.updateSpace, Shape: rest.Returns[v3.Space](200).Reads(rest.JSON[v3.UpdateSpace]()),
		},
		{Pattern: "DELETE /v3/spaces/{guid}", Needs: access.ManageOrg, Resource: access.Space, Handler: h.deleteSpace, Shape: rest.StartsJob()},
		{Pattern: "GET /v3/spaces/{guid}/features", Needs: access.Read, Resource: access.Space, Handler: h.listSpaceFeatures, Shape: rest.Returns[v3.SpaceFeatures](200)},
		{
			Pattern: "GET /v3/spaces/{guid}/features/{name}", Needs: access.Read, Resource: access.Space,
			Handler: h.getSpaceFeature, Shape: rest.Returns[v3.SpaceFeature](200),
		},
		{
			Pattern: "PATCH /v3/spaces/{guid}/features/{name}", Needs: access.Manage, Resource: access.Space,
			Handler: h.updateSpaceFeature, Shape: rest.Returns[v3.SpaceFeature](200).Reads(rest.JSON[v3.UpdateSpaceFeature]()),
		},
	}
}

func (h spaceHandlers) listSpaces(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	with, err := q.Includes("org", "organization")
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	var found []app.Space
	for _, sp := range all {
		if perms.SeesSpace(sp.GUID) && q.Matches("names", sp.Name) && q.Matches("guids", sp.GUID) &&
			q.Matches("organization_guids", sp.Org) {
			found = append(found, sp)
		}
	}
	page := rest.List(h.Links, r, q, found, rest.View[app.Space, v3.Space]{
		Key: func(sp app.Space) rest.Key {
			return rest.Key{Name: sp.Name, Created: sp.CreatedAt, Updated: sp.UpdatedAt, GUID: sp.GUID}
		},
		Present: h.Present.ShowSpace,
		Labels:  func(sp app.Space) map[string]string { return sp.Metadata.Labels },
	})
	if len(with) > 0 {
		page.Included, err = h.Present.Include(rest.Include{Orgs: rest.Values(page.Resources, func(sp v3.Space) string { return sp.Relationships.Organization.ID() })})
	}
	return page, err
}

func (h spaceHandlers) getSpace(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	with, err := q.Includes("org", "organization")
	if err != nil {
		return nil, err
	}
	sp, err := h.Present.Space(r)
	if err != nil {
		return nil, err
	}
	out := h.Present.ShowSpace(sp)
	if len(with) > 0 {
		out.Included, err = h.Present.Include(rest.Include{Orgs: []string{sp.Org}})
	}
	return out, err
}

func (h spaceHandlers) createSpace(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateSpace](r)
	if err != nil {
		return nil, err
	}
	sp := app.Space{
		Name: body.Name, Org: body.Relationships.Organization.ID(), Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)),
	}
	if err := h.Access.RequireOrg(r.Context(), sp.Org); err != nil {
		return nil, platform.InvalidOrg(err)
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if err := spaceNameIsFree(w.Registry, sp); err != nil {
			return err
		}
		if sp, err = w.Registry.PutSpace(sp); err != nil {
			return err
		}
		return w.RecordSpace("audit.space.create", sp, map[string]any{"request": map[string]any{"name": sp.Name}})
	})
	if err != nil {
		return nil, platform.InvalidOrg(err)
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.Present.ShowSpace(sp)}, nil
}

// spaceNameIsFree returns Cloud Foundry's error if the name is taken. Clients read that
// message as "the space already exists".
func spaceNameIsFree(reg *registry.Registry, sp app.Space) error {
	if other, err := reg.SpaceIn(sp.Org, sp.Name); err == nil && other.GUID != sp.GUID {
		return rest.Unprocessable("Name must be unique per organization")
	}
	return nil // PutSpace checks it again
}

func (h spaceHandlers) updateSpace(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateSpace](r)
	if err != nil {
		return nil, err
	}
	request := map[string]any{}
	sp, err := h.changeSpace(r, request, func(reg *registry.Registry, sp *app.Space) error {
		if body.Name != nil {
			sp.Name = *body.Name
			request["name"] = sp.Name
		}
		sp.Metadata = sp.Metadata.Merge(platform.MetadataChange(body.Metadata))
		return spaceNameIsFree(reg, *sp)
	})
	if err != nil {
		return nil, err
	}
	return h.Present.ShowSpace(sp), nil
}

// changeSpace changes the space that the path names and records the change.
func (h spaceHandlers) changeSpace(r *http.Request, request map[string]any, fn func(reg *registry.Registry, sp *app.Space) error) (sp app.Space, err error) {
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		sp, err = w.Registry.UpdateSpace(r.PathValue("guid"), func(sp *app.Space) error { return fn(w.Registry, sp) })
		if err != nil {
			return rest.Missing("Space", err)
		}
		return w.RecordSpace("audit.space.update", sp, map[string]any{"request": request})
	})
	return sp, err
}

func (h spaceHandlers) deleteSpace(r *http.Request) (any, error) {
	sp, err := h.Present.Space(r)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.RecordSpaceDeletion(sp)
	})
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteSpace, platform.Removal{GUID: sp.GUID})
}

func (h spaceHandlers) listSpaceFeatures(r *http.Request) (any, error) {
	sp, err := h.Present.Space(r)
	if err != nil {
		return nil, err
	}
	return v3.SpaceFeatures{Resources: []v3.SpaceFeature{presentSpaceSSH(sp)}}, nil
}

func (h spaceHandlers) getSpaceFeature(r *http.Request) (any, error) {
	sp, err := h.Present.Space(r)
	if err != nil {
		return nil, err
	}
	if r.PathValue("name") != v3.FeatureSSH {
		return nil, rest.NotFound("Feature")
	}
	return presentSpaceSSH(sp), nil
}

func (h spaceHandlers) updateSpaceFeature(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateSpaceFeature](r)
	if err != nil {
		return nil, err
	}
	if r.PathValue("name") != v3.FeatureSSH {
		return nil, rest.NotFound("Feature")
	}
	if body.Enabled == nil {
		return nil, rest.Unprocessable("Enabled must be a boolean")
	}
	sp, err := h.changeSpace(r, map[string]any{"allow_ssh": *body.Enabled}, func(_ *registry.Registry, sp *app.Space) error {
		sp.NoSSH = !*body.Enabled
		return nil
	})
	if err != nil {
		return nil, err
	}
	return presentSpaceSSH(sp), nil
}

func presentSpaceSSH(sp app.Space) v3.SpaceFeature {
	return v3.SpaceFeature{Name: v3.FeatureSSH, Description: "Enable SSHing into apps in the space.", Enabled: !sp.NoSSH}
}
