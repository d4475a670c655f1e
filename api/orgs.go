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

// orgsEndpoints are the endpoints of this file.
func (s *Server) orgsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/organizations", Needs: access.Authenticated, Handler: s.listOrgs, Shape: rest.PageOf[v3.Organization]("names", "guids", rest.ParamSelector)},
		{
			Pattern: "POST /v3/organizations", Needs: access.Authenticated, // a feature flag lets users, too
			Handler: s.createOrg, Shape: rest.Returns[v3.Organization](201).Reads(rest.JSON[v3.CreateOrganization]()),
		},
		{Pattern: "GET /v3/organizations/{guid}", Needs: access.Read, Resource: access.Org, Handler: s.getOrg, Shape: rest.Returns[v3.Organization](200)},
		{
			Pattern: "PATCH /v3/organizations/{guid}", Needs: access.ManageOrg, Resource: access.Org,
			Handler: s.updateOrg, Shape: rest.Returns[v3.Organization](200).Reads(rest.JSON[v3.UpdateOrganization]()),
		},
		{Pattern: "DELETE /v3/organizations/{guid}", Needs: access.Administer, Resource: access.Org, Handler: s.deleteOrg, Shape: rest.StartsJob()},
		{
			Pattern: "GET /v3/organizations/{guid}/relationships/quota", Needs: access.Read, Resource: access.Org,
			Handler: s.getOrgQuota, Shape: rest.Returns[v3.Related](200),
		},
	}
}

func (s *Server) listOrgs(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Orgs()
	if err != nil {
		return nil, err
	}
	var found []app.Org
	for _, o := range all {
		if perms.SeesOrg(o.GUID) && q.Matches("names", o.Name) && q.Matches("guids", o.GUID) {
			found = append(found, o)
		}
	}
	return rest.List(s.links, r, q, found, rest.View[app.Org, v3.Organization]{
		Key: func(o app.Org) rest.Key {
			return rest.Key{Name: o.Name, Created: o.CreatedAt, Updated: o.UpdatedAt, GUID: o.GUID}
		},
		Present: s.presentOrg,
		Labels:  func(o app.Org) map[string]string { return o.Metadata.Labels },
	}), nil
}

func (s *Server) getOrg(r *http.Request) (any, error) {
	o, err := s.orgOf(r)
	if err != nil {
		return nil, err
	}
	return s.presentOrg(o), nil
}

// orgOf is the org that the path names.
func (s *Server) orgOf(r *http.Request) (app.Org, error) {
	o, err := s.c.Registry.Org(r.PathValue("guid"))
	return o, rest.Missing("Organization", err)
}

// createOrg makes an org. Who is no administrator needs the feature flag for it,
// and becomes the org's manager: nobody else could let them in.
func (s *Server) createOrg(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateOrganization](r)
	if err != nil {
		return nil, err
	}
	who := access.Principal(r.Context())
	flag, err := s.c.Registry.Flag(app.FlagUserOrgCreation)
	if err != nil {
		return nil, err
	}
	if !who.Admin() && (!flag.Enabled || body.Suspended) {
		return nil, access.ErrNotAuthorized
	}
	o := app.Org{Name: body.Name, Suspended: body.Suspended, Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata))}
	err = s.platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if err := orgNameIsFree(w.Registry, o); err != nil {
			return err
		}
		if o, err = w.Registry.PutOrg(o); err != nil {
			return err
		}
		if !who.Admin() {
			for _, t := range []auth.RoleType{auth.OrgUser, auth.OrgManager} {
				if _, err := w.Roles.Put(auth.Role{Type: t, User: who.ID, Org: o.GUID}); err != nil {
					return err
				}
			}
		}
		return w.RecordOrg("audit.organization.create", o, map[string]any{"request": map[string]any{"name": o.Name}})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: s.presentOrg(o)}, nil
}

// orgNameIsFree says in the platform's words that a name is taken: clients take
// that for "there it is".
func orgNameIsFree(reg *registry.Registry, o app.Org) error {
	if other, err := reg.OrgByName(o.Name); err == nil && other.GUID != o.GUID {
		return rest.Unprocessable("Organization '%s' already exists.", o.Name)
	}
	return nil // PutOrg has the last word
}

// updateOrg changes an org. To suspend it is the administrators' alone.
func (s *Server) updateOrg(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateOrganization](r)
	if err != nil {
		return nil, err
	}
	if body.Suspended != nil && *body.Suspended && !access.Principal(r.Context()).Admin() {
		return nil, access.ErrNotAuthorized
	}
	request := map[string]any{}
	var o app.Org
	err = s.platform.Change(r.Context(), func(w platform.Tx) (err error) {
		o, err = w.Registry.UpdateOrg(r.PathValue("guid"), func(o *app.Org) error {
			if body.Name != nil {
				o.Name = *body.Name
				request["name"] = o.Name
			}
			if body.Suspended != nil {
				o.Suspended = *body.Suspended
				request["suspended"] = o.Suspended
			}
			o.Metadata = o.Metadata.Merge(platform.MetadataChange(body.Metadata))
			return orgNameIsFree(w.Registry, *o)
		})
		if err != nil {
			return rest.Missing("Organization", err)
		}
		return w.RecordOrg("audit.organization.update", o, map[string]any{"request": request})
	})
	if err != nil {
		return nil, err
	}
	return s.presentOrg(o), nil
}

func (s *Server) deleteOrg(r *http.Request) (any, error) {
	o, err := s.orgOf(r)
	if err != nil {
		return nil, err
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
		return w.RecordOrg("audit.organization.delete-request", o, map[string]any{"request": map[string]any{"recursive": true}})
	})
	if err != nil {
		return nil, err
	}
	return s.begin(r.Context(), platform.OpDeleteOrg, platform.Removal{GUID: o.GUID})
}

func (s *Server) getOrgQuota(r *http.Request) (any, error) {
	o, err := s.orgOf(r)
	if err != nil {
		return nil, err
	}
	return v3.Related{Data: v3.To(quotaOf(o)).Data, Links: v3.Links{
		"self":    {Href: s.links.Href("v3", "organizations", o.GUID, "relationships", "quota")},
		"related": {Href: s.links.Href("v3", "organization_quotas", quotaOf(o))},
	}}, nil
}

func (s *Server) presentOrg(o app.Org) v3.Organization {
	at := func(elem ...string) v3.Link {
		return v3.Link{Href: s.links.Href(append([]string{"v3", "organizations", o.GUID}, elem...)...)}
	}
	return v3.Organization{
		GUID: o.GUID, CreatedAt: v3.At(o.CreatedAt), UpdatedAt: v3.At(o.UpdatedAt), Name: o.Name, Suspended: o.Suspended,
		Relationships: v3.OrganizationRelationships{Quota: v3.To(quotaOf(o))},
		Metadata:      rest.PresentMetadata(o.Metadata),
		Links:         v3.Links{"self": at(), "domains": at("domains"), "default_domain": at("domains", "default")},
	}
}
