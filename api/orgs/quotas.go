package orgs

import (
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// quotaHandlers answers requests about quotas of orgs and spaces.
type quotaHandlers struct{ *Handlers }

func (h quotaHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/organization_quotas", Needs: access.Authenticated,
			Handler: h.listOrgQuotas, Shape: rest.PageOf[v3.Quota]("names", "guids", "organization_guids"),
		},
		{
			Pattern: "POST /v3/organization_quotas", Needs: access.Administer,
			Handler: h.createOrgQuota, Shape: rest.Returns[v3.Quota](201).Reads(rest.JSON[v3.ChangeQuota]()),
		},
		{
			Pattern: "GET /v3/organization_quotas/{guid}", Needs: access.Authenticated, // all users see quotas, but not which orgs use them
			Handler: h.getQuota, Shape: rest.Returns[v3.Quota](200),
		},
		{
			Pattern: "PATCH /v3/organization_quotas/{guid}", Needs: access.Administer,
			Handler: h.updateOrgQuota, Shape: rest.Returns[v3.Quota](200).Reads(rest.JSON[v3.ChangeQuota]()),
		},
		{Pattern: "DELETE /v3/organization_quotas/{guid}", Needs: access.Administer, Handler: h.deleteOrgQuota, Shape: rest.StartsJob()},
		{
			Pattern: "GET /v3/space_quotas", Needs: access.Authenticated,
			Handler: h.listSpaceQuotas, Shape: rest.PageOf[v3.Quota]("names", "guids", "organization_guids", "space_guids"),
		},
		{
			Pattern: "POST /v3/space_quotas", Needs: access.Authenticated, // the body names the org
			Handler: h.createSpaceQuota, Shape: rest.Returns[v3.Quota](201).Reads(rest.JSON[v3.ChangeQuota]()),
		},
		{Pattern: "GET /v3/space_quotas/{guid}", Needs: access.ReadQuota, Resource: access.SpaceQuota, Handler: h.getSpaceQuota, Shape: rest.Returns[v3.Quota](200)},
		{
			Pattern: "PATCH /v3/space_quotas/{guid}", Needs: access.ManageOrg, Resource: access.SpaceQuota,
			Handler: h.updateSpaceQuota, Shape: rest.Returns[v3.Quota](200).Reads(rest.JSON[v3.ChangeQuota]()),
		},
		{Pattern: "DELETE /v3/space_quotas/{guid}", Needs: access.ManageOrg, Resource: access.SpaceQuota, Handler: h.deleteSpaceQuota, Shape: rest.StartsJob()},
		{
			Pattern: "POST /v3/organization_quotas/{guid}/relationships/organizations", Needs: access.Administer,
			Handler: h.applyOrgQuota, Shape: rest.Returns[v3.RelatedMany](200).Reads(rest.JSON[v3.ToMany]()),
		},
		{
			Pattern: "POST /v3/space_quotas/{guid}/relationships/spaces", Needs: access.ManageOrg, Resource: access.SpaceQuota,
			Handler: h.applySpaceQuota, Shape: rest.Returns[v3.RelatedMany](200).Reads(rest.JSON[v3.ToMany]()),
		},
		{
			Pattern: "DELETE /v3/space_quotas/{guid}/relationships/spaces/{space}", Needs: access.ManageOrg, Resource: access.SpaceQuota,
			Handler: h.removeSpaceQuota, Shape: rest.Empty(204),
		},
	}
}

const (
	nounOrgQuota = "Organization quota"
)

func (h quotaHandlers) orgQuota(guid string) (app.Quota, error) {
	q, err := h.Platform.Registry.Quota(guid)
	if err == nil && q.Org != "" {
		err = app.ErrNotFound // it is a space quota
	}
	return q, rest.Missing(nounOrgQuota, err)
}

func (h quotaHandlers) listOrgQuotas(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.OrgQuotas()
	if err != nil {
		return nil, err
	}
	return h.pageOfQuotas(r, q, all, "organization_guids")
}

func (h quotaHandlers) listSpaceQuotas(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.SpaceQuotas()
	if err != nil {
		return nil, err
	}
	has, err := h.quotaHolders(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(k app.Quota) bool {
		return !perms.CanInOrg(access.ReadQuota, k.Org) && len(has(k)) == 0 || !q.Matches("organization_guids", k.Org)
	})
	return h.pageOfQuotas(r, q, all, "space_guids")
}

// pageOfQuotas returns the page of quotas; members is the filter for the orgs or spaces
// that use them.
func (h quotaHandlers) pageOfQuotas(r *http.Request, q rest.Query, all []app.Quota, members string) (any, error) {
	has, err := h.quotaHolders(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(k app.Quota) bool {
		return !q.Matches("names", k.Name) || !q.Matches("guids", k.GUID) || !q.Matches(members, has(k)...)
	})
	return rest.List(h.Links, r, q, all, rest.View[app.Quota, v3.Quota]{
		Key: func(k app.Quota) rest.Key {
			return rest.Key{Name: k.Name, Created: k.CreatedAt, Updated: k.UpdatedAt, GUID: k.GUID}
		},
		Present: func(k app.Quota) v3.Quota { return h.presentQuota(k, has(k)) },
	}), nil
}

// quotaHolders returns a function for the guids of the orgs or spaces that use a quota
// and that the caller can see.
func (h quotaHandlers) quotaHolders(r *http.Request) (func(k app.Quota) []string, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	orgs, err := h.Platform.Registry.Orgs()
	if err != nil {
		return nil, err
	}
	spaces, err := h.Platform.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	by := map[string][]string{}
	for _, o := range orgs {
		if perms.SeesOrg(o.GUID) {
			by[present.QuotaOf(o)] = append(by[present.QuotaOf(o)], o.GUID)
		}
	}
	for _, sp := range spaces {
		if perms.SeesSpace(sp.GUID) {
			by[sp.Quota] = append(by[sp.Quota], sp.GUID)
		}
	}
	return func(k app.Quota) []string { return by[k.GUID] }, nil
}

func (h quotaHandlers) getQuota(r *http.Request) (any, error) {
	k, err := h.orgQuota(r.PathValue("guid"))
	if err != nil {
		return nil, err
	}
	return h.showQuota(r, k)
}

func (h quotaHandlers) getSpaceQuota(r *http.Request) (any, error) {
	k, err := h.Access.SpaceQuota(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing(access.SpaceQuotaName, err)
	}
	return h.showQuota(r, k)
}

func (h quotaHandlers) showQuota(r *http.Request, k app.Quota) (v3.Quota, error) {
	has, err := h.quotaHolders(r)
	if err != nil {
		return v3.Quota{}, err
	}
	return h.presentQuota(k, has(k)), nil
}

func (h quotaHandlers) createOrgQuota(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ChangeQuota](r)
	if err != nil {
		return nil, err
	}
	var orgs []string
	if rel := body.Relationships; rel != nil {
		if rel.Organization != nil || rel.Spaces != nil {
			return nil, rest.Unprocessable("relationships: an organization quota can have only organizations")
		}
		orgs = rest.GUIDs(rel.Organizations)
	}
	k := app.Quota{Name: body.Name}
	changeLimits(&k.Limits, body)
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if k, err = w.Registry.PutQuota(k); err != nil {
			return err
		}
		if err := w.RecordQuota("create", k, access.Place{}, map[string]any{"request": body}); err != nil {
			return err
		}
		return w.ApplyToOrgs(k, orgs)
	})
	if err != nil {
		return nil, err
	}
	shown, err := h.showQuota(r, k)
	return rest.Answer{Status: http.StatusCreated, Body: shown}, err
}

// createSpaceQuota creates a quota for spaces of the org that the body names.
func (h quotaHandlers) createSpaceQuota(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ChangeQuota](r)
	if err != nil {
		return nil, err
	}
	if body.Relationships == nil || body.Relationships.Organization == nil || body.Relationships.Organizations != nil {
		return nil, rest.Unprocessable("Relationships 'relationships' must include one organization")
	}
	if body.Domains.TotalDomains.Given {
		return nil, rest.Unprocessable("Unknown field(s): 'domains'")
	}
	k := app.Quota{Name: body.Name, Org: body.Relationships.Organization.ID()}
	if err := h.Access.RequireOrg(r.Context(), k.Org); err != nil {
		if errors.Is(err, app.ErrNotFound) {
			return nil, rest.Unprocessable("Organization with guid '%s' does not exist, or you do not have access to it.", k.Org)
		}
		return nil, err
	}
	changeLimits(&k.Limits, body)
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if k, err = w.Registry.PutQuota(k); err != nil {
			return err
		}
		if err := w.RecordQuota("create", k, access.Place{}, map[string]any{"request": body}); err != nil {
			return err
		}
		return w.ApplyToSpaces(k, rest.GUIDs(body.Relationships.Spaces))
	})
	if err != nil {
		return nil, err
	}
	shown, err := h.showQuota(r, k)
	return rest.Answer{Status: http.StatusCreated, Body: shown}, err
}

func (h quotaHandlers) updateOrgQuota(r *http.Request) (any, error) {
	if _, err := h.orgQuota(r.PathValue("guid")); err != nil {
		return nil, err
	}
	return h.changeQuota(r, nounOrgQuota)
}

func (h quotaHandlers) updateSpaceQuota(r *http.Request) (any, error) {
	if _, err := h.Access.SpaceQuota(r.PathValue("guid")); err != nil {
		return nil, rest.Missing(access.SpaceQuotaName, err)
	}
	return h.changeQuota(r, access.SpaceQuotaName)
}

func (h quotaHandlers) changeQuota(r *http.Request, noun string) (any, error) {
	body, err := rest.Decode[v3.ChangeQuota](r)
	if err != nil {
		return nil, err
	}
	if body.Relationships != nil {
		return nil, rest.Unprocessable("Unknown field(s): 'relationships'")
	}
	var k app.Quota
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		k, err = w.Registry.UpdateQuota(r.PathValue("guid"), func(k *app.Quota) error {
			if body.Name != "" { // clients send an empty name to leave it unchanged
				k.Name = body.Name
			}
			changeLimits(&k.Limits, body)
			return nil
		})
		if err != nil {
			return err
		}
		return w.RecordQuota("update", k, access.Place{}, map[string]any{"request": body})
	})
	if err != nil {
		return nil, builtIn(rest.Missing(noun, err))
	}
	return h.showQuota(r, k)
}

// builtIn returns the response for a change of a built-in quota.
func builtIn(err error) error {
	if errors.Is(err, app.ErrBuiltIn) {
		return rest.Unprocessable("%v", err)
	}
	return err
}

// changeLimits applies the changes that a body names.
func changeLimits(l *app.Limits, b v3.ChangeQuota) {
	for _, c := range []struct {
		from v3.Nullable[int]
		to   **int
	}{
		{b.Apps.TotalMemory, &l.TotalMemory},
		{b.Apps.PerProcessMemory, &l.ProcessMemory},
		{b.Apps.LogRateLimit, &l.LogRate},
		{b.Apps.TotalInstances, &l.Instances},
		{b.Apps.PerAppTasks, &l.Tasks},
		{b.Services.TotalServiceInstances, &l.Services},
		{b.Services.TotalServiceKeys, &l.Keys},
		{b.Routes.TotalRoutes, &l.Routes},
		{b.Routes.TotalReservedPorts, &l.Ports},
		{b.Domains.TotalDomains, &l.Domains},
	} {
		switch {
		case !c.from.Given:
		case c.from.Null:
			*c.to = nil
		default:
			*c.to = &c.from.Value
		}
	}
	if paid := b.Services.PaidServicesAllowed; paid != nil {
		l.NoPaid = !*paid
	}
}

func (h quotaHandlers) deleteOrgQuota(r *http.Request) (any, error) {
	k, err := h.orgQuota(r.PathValue("guid"))
	if err != nil {
		return nil, err
	}
	if k.GUID == app.Unlimited().GUID {
		return nil, rest.Unprocessable("quota %s %v", k.Name, app.ErrBuiltIn)
	}
	return h.beginQuotaRemoval(r, k, platform.OpDeleteOrgQuota)
}

func (h quotaHandlers) deleteSpaceQuota(r *http.Request) (any, error) {
	k, err := h.Access.SpaceQuota(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing(access.SpaceQuotaName, err)
	}
	return h.beginQuotaRemoval(r, k, platform.OpDeleteSpaceQuota)
}

func (h quotaHandlers) applyOrgQuota(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ToMany](r)
	if err != nil {
		return nil, err
	}
	k, err := h.orgQuota(r.PathValue("guid"))
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.ApplyToOrgs(k, rest.GUIDs(&body)) })
	if err != nil {
		return nil, err
	}
	return h.holdersOf(r, k, "organization_quotas", "organizations")
}

func (h quotaHandlers) applySpaceQuota(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ToMany](r)
	if err != nil {
		return nil, err
	}
	k, err := h.Access.SpaceQuota(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing(access.SpaceQuotaName, err)
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.ApplyToSpaces(k, rest.GUIDs(&body)) })
	if err != nil {
		return nil, err
	}
	return h.holdersOf(r, k, "space_quotas", "spaces")
}

// holdersOf responds with the orgs or spaces that use a quota.
func (h quotaHandlers) holdersOf(r *http.Request, k app.Quota, kind, who string) (any, error) {
	has, err := h.quotaHolders(r)
	if err != nil {
		return nil, err
	}
	return v3.RelatedMany{
		Data:  rest.ToMany(has(k)).Data,
		Links: v3.Links{"self": {Href: h.Links.Href("v3", kind, k.GUID, "relationships", who)}},
	}, nil
}

func (h quotaHandlers) removeSpaceQuota(r *http.Request) (any, error) {
	k, err := h.Access.SpaceQuota(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing(access.SpaceQuotaName, err)
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		sp, err := w.Registry.UpdateSpace(r.PathValue("space"), func(sp *app.Space) error {
			if sp.Quota != k.GUID {
				return rest.Unprocessable("Unable to remove quota from space with guid '%s'. Ensure the space quota is applied to this space.", sp.GUID)
			}
			sp.Quota = ""
			return nil
		})
		if err != nil {
			return err
		}
		return w.RecordQuota("remove", k, access.Place{Space: sp.GUID}, map[string]any{"space_guid": sp.GUID, "space_name": sp.Name})
	})
	if errors.Is(err, app.ErrNotFound) {
		err = rest.Unprocessable("Unable to remove quota from space with guid '%s'. Ensure the space quota is applied to this space.", r.PathValue("space"))
	}
	return rest.Answer{Status: http.StatusNoContent}, err
}

// presentQuota shows a quota with the orgs or spaces that use it.
func (h quotaHandlers) presentQuota(k app.Quota, has []string) v3.Quota {
	out := v3.Quota{
		GUID: k.GUID, CreatedAt: v3.At(k.CreatedAt), UpdatedAt: v3.At(k.UpdatedAt), Name: k.Name,
		Apps: v3.AppLimits{
			TotalMemory: k.TotalMemory, PerProcessMemory: k.ProcessMemory, LogRateLimit: k.LogRate, TotalInstances: k.Instances, PerAppTasks: k.Tasks,
		},
		Services: v3.ServiceLimits{PaidServicesAllowed: !k.NoPaid, TotalServiceInstances: k.Services, TotalServiceKeys: k.Keys},
		Routes:   v3.RouteLimits{TotalRoutes: k.Routes, TotalReservedPorts: k.Ports},
	}
	who := rest.ToMany(has)
	if k.Org == "" {
		out.Domains = &v3.DomainLimits{TotalDomains: k.Domains}
		out.Relationships.Organizations = &who
		out.Links = v3.Links{"self": {Href: h.Links.Href("v3", "organization_quotas", k.GUID)}}
		return out
	}
	org := v3.To(k.Org)
	out.Relationships.Organization, out.Relationships.Spaces = &org, &who
	out.Links = v3.Links{
		"self":         {Href: h.Links.Href("v3", "space_quotas", k.GUID)},
		"organization": {Href: h.Links.Href("v3", "organizations", k.Org)},
	}
	return out
}

// beginQuotaRemoval records that the caller deletes a quota, and starts the job.
func (h quotaHandlers) beginQuotaRemoval(r *http.Request, k app.Quota, operation string) (any, error) {
	if err := h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordQuota("delete", k, access.Place{}, nil) }); err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), operation, platform.Removal{GUID: k.GUID})
}
