package orgs

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
)

// orgHandlers answers requests about orgs.
type orgHandlers struct{ *Handlers }

func (h orgHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/organizations", Needs: access.Authenticated, Handler: h.listOrgs, Shape: rest.PageOf[v3.Organization]("names", "guids", rest.ParamSelector)},
		{
			Pattern: "POST /v3/organizations", Needs: access.Authenticated, // a feature flag allows it to users
			Handler: h.createOrg, Shape: rest.Returns[v3.Organization](201).Reads(rest.JSON[v3.CreateOrganization]()),
		},
		{Pattern: "GET /v3/organizations/{guid}", Needs: access.Read, Resource: access.Org, Handler: h.getOrg, Shape: rest.Returns[v3.Organization](200)},
		{
			Pattern: "PATCH /v3/organizations/{guid}", Needs: access.ManageOrg, Resource: access.Org,
			Handler: h.updateOrg, Shape: rest.Returns[v3.Organization](200).Reads(rest.JSON[v3.UpdateOrganization]()),
		},
		{Pattern: "DELETE /v3/organizations/{guid}", Needs: access.Administer, Resource: access.Org, Handler: h.deleteOrg, Shape: rest.StartsJob()},
		{
			Pattern: "GET /v3/organizations/{guid}/relationships/quota", Needs: access.Read, Resource: access.Org,
			Handler: h.getOrgQuota, Shape: rest.Returns[v3.Related](200),
		},
	}
}

func (h orgHandlers) listOrgs(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.Orgs()
	if err != nil {
		return nil, err
	}
	var found []app.Org
	for _, o := range all {
		if perms.SeesOrg(o.GUID) && q.Matches("names", o.Name) && q.Matches("guids", o.GUID) {
			found = append(found, o)
		}
	}
	return rest.List(h.Links, r, q, found, rest.View[app.Org, v3.Organization]{
		Key: func(o app.Org) rest.Key {
			return rest.Key{Name: o.Name, Created: o.CreatedAt, Updated: o.UpdatedAt, GUID: o.GUID}
		},
		Present: h.Present.ShowOrg,
		Labels:  func(o app.Org) map[string]string { return o.Metadata.Labels },
	}), nil
}

func (h orgHandlers) getOrg(r *http.Request) (any, error) {
	o, err := h.Present.Org(r)
	if err != nil {
		return nil, err
	}
	return h.Present.ShowOrg(o), nil
}

// createOrg creates an org. Callers who are not administrators need the feature flag.
// They become the org's manager, because otherwise no one could give them access.
func (h orgHandlers) createOrg(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateOrganization](r)
	if err != nil {
		return nil, err
	}
	who := access.Principal(r.Context())
	flag, err := h.Platform.Registry.Flag(app.FlagUserOrgCreation)
	if err != nil {
		return nil, err
	}
	if !who.Admin() && (!flag.Enabled || body.Suspended) {
		return nil, access.ErrNotAuthorized
	}
	o := app.Org{Name: body.Name, Suspended: body.Suspended, Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata))}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
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
	return rest.Answer{Status: http.StatusCreated, Body: h.Present.ShowOrg(o)}, nil
}

// orgNameIsFree returns Cloud Foundry's error if the name is taken. Clients read that
// message as "the org already exists".
func orgNameIsFree(reg *registry.Registry, o app.Org) error {
	if other, err := reg.OrgByName(o.Name); err == nil && other.GUID != o.GUID {
		return rest.Unprocessable("Organization '%s' already exists.", o.Name)
	}
	return nil // PutOrg checks it again
}

// updateOrg changes an org. Only administrators can suspend it.
func (h orgHandlers) updateOrg(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateOrganization](r)
	if err != nil {
		return nil, err
	}
	if body.Suspended != nil && *body.Suspended && !access.Principal(r.Context()).Admin() {
		return nil, access.ErrNotAuthorized
	}
	request := map[string]any{}
	var o app.Org
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
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
	return h.Present.ShowOrg(o), nil
}

func (h orgHandlers) deleteOrg(r *http.Request) (any, error) {
	o, err := h.Present.Org(r)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		return w.RecordOrg("audit.organization.delete-request", o, map[string]any{"request": map[string]any{"recursive": true}})
	})
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteOrg, platform.Removal{GUID: o.GUID})
}

func (h orgHandlers) getOrgQuota(r *http.Request) (any, error) {
	o, err := h.Present.Org(r)
	if err != nil {
		return nil, err
	}
	return v3.Related{Data: v3.To(present.QuotaOf(o)).Data, Links: v3.Links{
		"self":    {Href: h.Links.Href("v3", "organizations", o.GUID, "relationships", "quota")},
		"related": {Href: h.Links.Href("v3", "organization_quotas", present.QuotaOf(o))},
	}}, nil
}
