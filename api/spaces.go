package api

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
)

// spacesEndpoints are the endpoints of this file.
func (s *Server) spacesEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/spaces", Needs: access.Authenticated,
			Handler: s.listSpaces, Shape: rest.PageOf[v3.Space]("names", "guids", "organization_guids", rest.ParamSelector, "include"),
		},
		{
			Pattern: "POST /v3/spaces", Needs: access.Authenticated, // the body names the org
			Handler: s.createSpace, Shape: rest.Returns[v3.Space](201).Reads(rest.JSON[v3.CreateSpace]()),
		},
		{Pattern: "GET /v3/spaces/{guid}", Needs: access.Read, Resource: access.Space, Handler: s.getSpace, Shape: rest.Returns[v3.Space](200).Query("include")},
		{
			Pattern: "PATCH /v3/spaces/{guid}", Needs: access.Manage, Resource: access.Space,
			Handler: s.updateSpace, Shape: rest.Returns[v3.Space](200).Reads(rest.JSON[v3.UpdateSpace]()),
		},
		{Pattern: "DELETE /v3/spaces/{guid}", Needs: access.ManageOrg, Resource: access.Space, Handler: s.deleteSpace, Shape: rest.StartsJob()},
		{Pattern: "GET /v3/spaces/{guid}/features", Needs: access.Read, Resource: access.Space, Handler: s.listSpaceFeatures, Shape: rest.Returns[v3.SpaceFeatures](200)},
		{
			Pattern: "GET /v3/spaces/{guid}/features/{name}", Needs: access.Read, Resource: access.Space,
			Handler: s.getSpaceFeature, Shape: rest.Returns[v3.SpaceFeature](200),
		},
		{
			Pattern: "PATCH /v3/spaces/{guid}/features/{name}", Needs: access.Manage, Resource: access.Space,
			Handler: s.updateSpaceFeature, Shape: rest.Returns[v3.SpaceFeature](200).Reads(rest.JSON[v3.UpdateSpaceFeature]()),
		},
	}
}

func (s *Server) listSpaces(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	with, err := q.Includes("org", "organization")
	if err != nil {
		return nil, err
	}
	perms, err := s.access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Spaces()
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
	page := rest.List(s.links, r, q, found, rest.View[app.Space, v3.Space]{
		Key: func(sp app.Space) rest.Key {
			return rest.Key{Name: sp.Name, Created: sp.CreatedAt, Updated: sp.UpdatedAt, GUID: sp.GUID}
		},
		Present: s.presentSpace,
		Labels:  func(sp app.Space) map[string]string { return sp.Metadata.Labels },
	})
	if len(with) > 0 {
		page.Included, err = s.include(rest.Include{Orgs: rest.Each(page.Resources, func(sp v3.Space) string { return sp.Relationships.Organization.ID() })})
	}
	return page, err
}

func (s *Server) getSpace(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	with, err := q.Includes("org", "organization")
	if err != nil {
		return nil, err
	}
	sp, err := s.spaceOf(r)
	if err != nil {
		return nil, err
	}
	out := s.presentSpace(sp)
	if len(with) > 0 {
		out.Included, err = s.include(rest.Include{Orgs: []string{sp.Org}})
	}
	return out, err
}

// spaceOf is the space that the path names.
func (s *Server) spaceOf(r *http.Request) (app.Space, error) {
	sp, err := s.c.Registry.Space(r.PathValue("guid"))
	return sp, rest.Missing("Space", err)
}

func (s *Server) createSpace(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateSpace](r)
	if err != nil {
		return nil, err
	}
	sp := app.Space{
		Name: body.Name, Org: body.Relationships.Organization.ID(), Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)),
	}
	if err := s.access.RequireOrg(r.Context(), sp.Org); err != nil {
		return nil, platform.InvalidOrg(err)
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) (err error) {
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
	return rest.Answer{Status: http.StatusCreated, Body: s.presentSpace(sp)}, nil
}

// spaceNameIsFree says in the platform's words that a name is taken: clients take
// that for "there it is".
func spaceNameIsFree(reg *registry.Registry, sp app.Space) error {
	if other, err := reg.SpaceIn(sp.Org, sp.Name); err == nil && other.GUID != sp.GUID {
		return rest.Unprocessable("Name must be unique per organization")
	}
	return nil // PutSpace has the last word
}

func (s *Server) updateSpace(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateSpace](r)
	if err != nil {
		return nil, err
	}
	request := map[string]any{}
	sp, err := s.changeSpace(r, request, func(reg *registry.Registry, sp *app.Space) error {
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
	return s.presentSpace(sp), nil
}

// changeSpace changes the space that the path names and records it.
func (s *Server) changeSpace(r *http.Request, request map[string]any, fn func(reg *registry.Registry, sp *app.Space) error) (sp app.Space, err error) {
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
		sp, err = w.Registry.UpdateSpace(r.PathValue("guid"), func(sp *app.Space) error { return fn(w.Registry, sp) })
		if err != nil {
			return rest.Missing("Space", err)
		}
		return w.RecordSpace("audit.space.update", sp, map[string]any{"request": request})
	})
	return sp, err
}

func (s *Server) deleteSpace(r *http.Request) (any, error) {
	sp, err := s.spaceOf(r)
	if err != nil {
		return nil, err
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
		return w.RecordSpaceDeletion(sp)
	})
	if err != nil {
		return nil, err
	}
	return s.begin(r.Context(), platform.OpDeleteSpace, platform.Removal{GUID: sp.GUID})
}

func (s *Server) listSpaceFeatures(r *http.Request) (any, error) {
	sp, err := s.spaceOf(r)
	if err != nil {
		return nil, err
	}
	return v3.SpaceFeatures{Resources: []v3.SpaceFeature{presentSpaceSSH(sp)}}, nil
}

func (s *Server) getSpaceFeature(r *http.Request) (any, error) {
	sp, err := s.spaceOf(r)
	if err != nil {
		return nil, err
	}
	if r.PathValue("name") != v3.FeatureSSH {
		return nil, rest.NotFound("Feature")
	}
	return presentSpaceSSH(sp), nil
}

func (s *Server) updateSpaceFeature(r *http.Request) (any, error) {
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
	sp, err := s.changeSpace(r, map[string]any{"allow_ssh": *body.Enabled}, func(_ *registry.Registry, sp *app.Space) error {
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

func (s *Server) presentSpace(sp app.Space) v3.Space {
	self := s.links.Href("v3", "spaces", sp.GUID)
	return v3.Space{
		GUID: sp.GUID, CreatedAt: v3.At(sp.CreatedAt), UpdatedAt: v3.At(sp.UpdatedAt), Name: sp.Name,
		Relationships: v3.SpaceRelationships{Organization: v3.To(sp.Org), Quota: v3.To(sp.Quota)},
		Metadata:      rest.PresentMetadata(sp.Metadata),
		Links: v3.Links{
			"self":           {Href: self},
			"organization":   {Href: s.links.Href("v3", "organizations", sp.Org)},
			"features":       {Href: self + "/features"},
			"apply_manifest": {Href: self + "/actions/apply_manifest", Method: http.MethodPost},
		},
	}
}

// include reads what is to be shown beside, each once. What is gone since is left
// out.
func (s *Server) include(in rest.Include) (map[string]any, error) {
	out := map[string]any{}
	if in.Orgs != nil {
		all, err := rest.PresentEach(in.Orgs, s.c.Registry.Org, s.presentOrg)
		if err != nil {
			return nil, err
		}
		out["organizations"] = all
	}
	if in.Spaces != nil {
		all, err := rest.PresentEach(in.Spaces, s.c.Registry.Space, s.presentSpace)
		if err != nil {
			return nil, err
		}
		out["spaces"] = all
	}
	if in.Users != nil {
		people, err := s.people()
		if err != nil {
			return nil, err
		}
		out["users"], err = rest.PresentEach(in.Users, func(guid string) (platform.Person, error) {
			p, ok := people[guid]
			if !ok {
				return p, auth.ErrNotFound
			}
			return p, nil
		}, s.presentUser)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
