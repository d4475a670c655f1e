package api

import (
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// quotasEndpoints are the endpoints of this file.
func (s *Server) quotasEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/organization_quotas", Needs: authenticated,
			Handler: s.listOrgQuotas, Shape: pageOf[v3.Quota]("names", "guids", "organization_guids"),
		},
		{
			Pattern: "POST /v3/organization_quotas", Needs: toAdminister,
			Handler: s.createOrgQuota, Shape: gives[v3.Quota](201).from(jsonOf[v3.ChangeQuota]()),
		},
		{
			Pattern: "GET /v3/organization_quotas/{guid}", Needs: authenticated, // what there is to have is no secret; who has it is
			Handler: s.getQuota, Shape: gives[v3.Quota](200),
		},
		{
			Pattern: "PATCH /v3/organization_quotas/{guid}", Needs: toAdminister,
			Handler: s.updateOrgQuota, Shape: gives[v3.Quota](200).from(jsonOf[v3.ChangeQuota]()),
		},
		{Pattern: "DELETE /v3/organization_quotas/{guid}", Needs: toAdminister, Handler: s.deleteOrgQuota, Shape: begins()},
		{
			Pattern: "GET /v3/space_quotas", Needs: authenticated,
			Handler: s.listSpaceQuotas, Shape: pageOf[v3.Quota]("names", "guids", "organization_guids", "space_guids"),
		},
		{
			Pattern: "POST /v3/space_quotas", Needs: authenticated, // the body names the org
			Handler: s.createSpaceQuota, Shape: gives[v3.Quota](201).from(jsonOf[v3.ChangeQuota]()),
		},
		{Pattern: "GET /v3/space_quotas/{guid}", Needs: toReadQuota, Resource: aSpaceQuota, Handler: s.getSpaceQuota, Shape: gives[v3.Quota](200)},
		{
			Pattern: "PATCH /v3/space_quotas/{guid}", Needs: toManageOrg, Resource: aSpaceQuota,
			Handler: s.updateSpaceQuota, Shape: gives[v3.Quota](200).from(jsonOf[v3.ChangeQuota]()),
		},
		{Pattern: "DELETE /v3/space_quotas/{guid}", Needs: toManageOrg, Resource: aSpaceQuota, Handler: s.deleteSpaceQuota, Shape: begins()},
		{
			Pattern: "POST /v3/organization_quotas/{guid}/relationships/organizations", Needs: toAdminister,
			Handler: s.applyOrgQuota, Shape: gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
		},
		{
			Pattern: "POST /v3/space_quotas/{guid}/relationships/spaces", Needs: toManageOrg, Resource: aSpaceQuota,
			Handler: s.applySpaceQuota, Shape: gives[v3.RelatedMany](200).from(jsonOf[v3.ToMany]()),
		},
		{
			Pattern: "DELETE /v3/space_quotas/{guid}/relationships/spaces/{space}", Needs: toManageOrg, Resource: aSpaceQuota,
			Handler: s.removeSpaceQuota, Shape: ends(204),
		},
	}
}

// aSpaceQuota is what the path of a space quota names: it lives in an org, and its
// managers see it, and who works in a space that has it.
var aSpaceQuota = resource{
	name: nounSpaceQuota,
	find: func(c *Control, guid string) (place, error) {
		q, err := c.spaceQuota(guid)
		return place{org: q.Org}, err
	},
	readers: func(c *Control, guid string) (spaces []string, err error) {
		all, err := c.Registry.Spaces()
		for _, sp := range all {
			if sp.Quota == guid {
				spaces = append(spaces, sp.GUID)
			}
		}
		return spaces, err
	},
	shown: toReadQuota,
}

// The jobs that remove quotas.
const (
	opDeleteOrgQuota   = "organization_quota.delete"
	opDeleteSpaceQuota = "space_quota.delete"
)

const (
	nounOrgQuota   = "Organization quota"
	nounSpaceQuota = "Space quota"
)

func (c *Control) spaceQuota(guid string) (app.Quota, error) {
	q, err := c.Registry.Quota(guid)
	if err == nil && q.Org == "" {
		err = app.ErrNotFound // it is for orgs
	}
	return q, err
}

func (s *Server) orgQuota(guid string) (app.Quota, error) {
	q, err := s.c.Registry.Quota(guid)
	if err == nil && q.Org != "" {
		err = app.ErrNotFound // it is for spaces
	}
	return q, missing(nounOrgQuota, err)
}

func (s *Server) listOrgQuotas(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.OrgQuotas()
	if err != nil {
		return nil, err
	}
	return s.pageOfQuotas(r, q, all, "organization_guids")
}

func (s *Server) listSpaceQuotas(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.SpaceQuotas()
	if err != nil {
		return nil, err
	}
	has, err := s.quotaHolders(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(k app.Quota) bool {
		return !perms.mayInOrg(toReadQuota, k.Org) && len(has(k)) == 0 || !q.lets("organization_guids", k.Org)
	})
	return s.pageOfQuotas(r, q, all, "space_guids")
}

// pageOfQuotas is the list of quotas; members is the filter for those who have them.
func (s *Server) pageOfQuotas(r *http.Request, q query, all []app.Quota, members string) (any, error) {
	has, err := s.quotaHolders(r)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(k app.Quota) bool {
		return !q.lets("names", k.Name) || !q.lets("guids", k.GUID) || !q.lets(members, has(k)...)
	})
	return list(s.links, r, q, all, look[app.Quota, v3.Quota]{
		key:     func(k app.Quota) key { return key{k.Name, k.CreatedAt, k.UpdatedAt, k.GUID} },
		present: func(k app.Quota) v3.Quota { return s.presentQuota(k, has(k)) },
	}), nil
}

// quotaHolders finds the guids of the orgs, or spaces, that have a quota, as far as who
// asks sees them.
func (s *Server) quotaHolders(r *http.Request) (func(k app.Quota) []string, error) {
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	orgs, err := s.c.Registry.Orgs()
	if err != nil {
		return nil, err
	}
	spaces, err := s.c.Registry.Spaces()
	if err != nil {
		return nil, err
	}
	by := map[string][]string{}
	for _, o := range orgs {
		if perms.org(o.GUID) {
			by[quotaOf(o)] = append(by[quotaOf(o)], o.GUID)
		}
	}
	for _, sp := range spaces {
		if perms.space(sp.GUID) {
			by[sp.Quota] = append(by[sp.Quota], sp.GUID)
		}
	}
	return func(k app.Quota) []string { return by[k.GUID] }, nil
}

// quotaOf is the guid of an org's quota.
func quotaOf(o app.Org) string {
	if o.Quota == "" {
		return app.Unlimited().GUID
	}
	return o.Quota
}

func (s *Server) getQuota(r *http.Request) (any, error) {
	k, err := s.orgQuota(r.PathValue("guid"))
	if err != nil {
		return nil, err
	}
	return s.showQuota(r, k)
}

func (s *Server) getSpaceQuota(r *http.Request) (any, error) {
	k, err := s.access.spaceQuota(r.PathValue("guid"))
	if err != nil {
		return nil, missing(nounSpaceQuota, err)
	}
	return s.showQuota(r, k)
}

func (s *Server) showQuota(r *http.Request, k app.Quota) (v3.Quota, error) {
	has, err := s.quotaHolders(r)
	if err != nil {
		return v3.Quota{}, err
	}
	return s.presentQuota(k, has(k)), nil
}

func (s *Server) createOrgQuota(r *http.Request) (any, error) {
	body, err := decode[v3.ChangeQuota](r)
	if err != nil {
		return nil, err
	}
	var orgs []string
	if rel := body.Relationships; rel != nil {
		if rel.Organization != nil || rel.Spaces != nil {
			return nil, unprocessable("relationships: an organization quota has organizations alone")
		}
		orgs = guids(rel.Organizations)
	}
	k := app.Quota{Name: body.Name}
	changeLimits(&k.Limits, body)
	err = s.change(r.Context(), func(w transaction) (err error) {
		if k, err = w.registry.PutQuota(k); err != nil {
			return err
		}
		if err := w.recordQuota("create", k, place{}, map[string]any{"request": body}); err != nil {
			return err
		}
		return w.applyToOrgs(k, orgs)
	})
	if err != nil {
		return nil, err
	}
	shown, err := s.showQuota(r, k)
	return answer{status: http.StatusCreated, body: shown}, err
}

// createSpaceQuota makes a quota for spaces of the org that the body names.
func (s *Server) createSpaceQuota(r *http.Request) (any, error) {
	body, err := decode[v3.ChangeQuota](r)
	if err != nil {
		return nil, err
	}
	if body.Relationships == nil || body.Relationships.Organization == nil || body.Relationships.Organizations != nil {
		return nil, unprocessable("Relationships 'relationships' must include one organization")
	}
	if body.Domains.TotalDomains.Given {
		return nil, unprocessable("Unknown field(s): 'domains'")
	}
	k := app.Quota{Name: body.Name, Org: body.Relationships.Organization.ID()}
	if err := s.access.requireOrg(r.Context(), k.Org); err != nil {
		if errors.Is(err, app.ErrNotFound) {
			return nil, unprocessable("Organization with guid '%s' does not exist, or you do not have access to it.", k.Org)
		}
		return nil, err
	}
	changeLimits(&k.Limits, body)
	err = s.change(r.Context(), func(w transaction) (err error) {
		if k, err = w.registry.PutQuota(k); err != nil {
			return err
		}
		if err := w.recordQuota("create", k, place{}, map[string]any{"request": body}); err != nil {
			return err
		}
		return w.applyToSpaces(k, guids(body.Relationships.Spaces))
	})
	if err != nil {
		return nil, err
	}
	shown, err := s.showQuota(r, k)
	return answer{status: http.StatusCreated, body: shown}, err
}

func (s *Server) updateOrgQuota(r *http.Request) (any, error) {
	if _, err := s.orgQuota(r.PathValue("guid")); err != nil {
		return nil, err
	}
	return s.changeQuota(r, nounOrgQuota)
}

func (s *Server) updateSpaceQuota(r *http.Request) (any, error) {
	if _, err := s.access.spaceQuota(r.PathValue("guid")); err != nil {
		return nil, missing(nounSpaceQuota, err)
	}
	return s.changeQuota(r, nounSpaceQuota)
}

func (s *Server) changeQuota(r *http.Request, noun string) (any, error) {
	body, err := decode[v3.ChangeQuota](r)
	if err != nil {
		return nil, err
	}
	if body.Relationships != nil {
		return nil, unprocessable("Unknown field(s): 'relationships'")
	}
	var k app.Quota
	err = s.change(r.Context(), func(w transaction) (err error) {
		k, err = w.registry.UpdateQuota(r.PathValue("guid"), func(k *app.Quota) error {
			if body.Name != "" { // clients send an empty one when it stays
				k.Name = body.Name
			}
			changeLimits(&k.Limits, body)
			return nil
		})
		if err != nil {
			return err
		}
		return w.recordQuota("update", k, place{}, map[string]any{"request": body})
	})
	if err != nil {
		return nil, builtIn(missing(noun, err))
	}
	return s.showQuota(r, k)
}

// builtIn is the answer to a change of what cannot be changed.
func builtIn(err error) error {
	if errors.Is(err, app.ErrBuiltIn) {
		return unprocessable("%v", err)
	}
	return err
}

// changeLimits makes the changes that a body names.
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

func (s *Server) deleteOrgQuota(r *http.Request) (any, error) {
	k, err := s.orgQuota(r.PathValue("guid"))
	if err != nil {
		return nil, err
	}
	if k.GUID == app.Unlimited().GUID {
		return nil, unprocessable("quota %s %v", k.Name, app.ErrBuiltIn)
	}
	return s.beginQuotaRemoval(r, k, opDeleteOrgQuota)
}

func (s *Server) deleteSpaceQuota(r *http.Request) (any, error) {
	k, err := s.access.spaceQuota(r.PathValue("guid"))
	if err != nil {
		return nil, missing(nounSpaceQuota, err)
	}
	return s.beginQuotaRemoval(r, k, opDeleteSpaceQuota)
}

func (s *Server) applyOrgQuota(r *http.Request) (any, error) {
	body, err := decode[v3.ToMany](r)
	if err != nil {
		return nil, err
	}
	k, err := s.orgQuota(r.PathValue("guid"))
	if err != nil {
		return nil, err
	}
	err = s.change(r.Context(), func(w transaction) error { return w.applyToOrgs(k, guids(&body)) })
	if err != nil {
		return nil, err
	}
	return s.holdersOf(r, k, "organization_quotas", "organizations")
}

func (s *Server) applySpaceQuota(r *http.Request) (any, error) {
	body, err := decode[v3.ToMany](r)
	if err != nil {
		return nil, err
	}
	k, err := s.access.spaceQuota(r.PathValue("guid"))
	if err != nil {
		return nil, missing(nounSpaceQuota, err)
	}
	err = s.change(r.Context(), func(w transaction) error { return w.applyToSpaces(k, guids(&body)) })
	if err != nil {
		return nil, err
	}
	return s.holdersOf(r, k, "space_quotas", "spaces")
}

// holdersOf answers with those who have a quota.
func (s *Server) holdersOf(r *http.Request, k app.Quota, kind, who string) (any, error) {
	has, err := s.quotaHolders(r)
	if err != nil {
		return nil, err
	}
	return v3.RelatedMany{
		Data:  toMany(has(k)).Data,
		Links: v3.Links{"self": {Href: s.links.Href("v3", kind, k.GUID, "relationships", who)}},
	}, nil
}

func (s *Server) removeSpaceQuota(r *http.Request) (any, error) {
	k, err := s.access.spaceQuota(r.PathValue("guid"))
	if err != nil {
		return nil, missing(nounSpaceQuota, err)
	}
	err = s.change(r.Context(), func(w transaction) error {
		sp, err := w.registry.UpdateSpace(r.PathValue("space"), func(sp *app.Space) error {
			if sp.Quota != k.GUID {
				return unprocessable("Unable to remove quota from space with guid '%s'. Ensure the space quota is applied to this space.", sp.GUID)
			}
			sp.Quota = ""
			return nil
		})
		if err != nil {
			return err
		}
		return w.recordQuota("remove", k, place{space: sp.GUID}, map[string]any{"space_guid": sp.GUID, "space_name": sp.Name})
	})
	if errors.Is(err, app.ErrNotFound) {
		err = unprocessable("Unable to remove quota from space with guid '%s'. Ensure the space quota is applied to this space.", r.PathValue("space"))
	}
	return answer{status: http.StatusNoContent}, err
}

func guids(m *v3.ToMany) []string {
	var out []string
	if m != nil {
		for _, d := range m.Data {
			out = append(out, d.GUID)
		}
	}
	return out
}

func toMany(guids []string) v3.ToMany {
	out := v3.ToMany{Data: []v3.GUID{}}
	for _, guid := range guids {
		out.Data = append(out.Data, v3.GUID{GUID: guid})
	}
	return out
}

// presentQuota shows a quota with those who have it.
func (s *Server) presentQuota(k app.Quota, has []string) v3.Quota {
	out := v3.Quota{
		GUID: k.GUID, CreatedAt: v3.At(k.CreatedAt), UpdatedAt: v3.At(k.UpdatedAt), Name: k.Name,
		Apps: v3.AppLimits{
			TotalMemory: k.TotalMemory, PerProcessMemory: k.ProcessMemory, LogRateLimit: k.LogRate, TotalInstances: k.Instances, PerAppTasks: k.Tasks,
		},
		Services: v3.ServiceLimits{PaidServicesAllowed: !k.NoPaid, TotalServiceInstances: k.Services, TotalServiceKeys: k.Keys},
		Routes:   v3.RouteLimits{TotalRoutes: k.Routes, TotalReservedPorts: k.Ports},
	}
	who := toMany(has)
	if k.Org == "" {
		out.Domains = &v3.DomainLimits{TotalDomains: k.Domains}
		out.Relationships.Organizations = &who
		out.Links = v3.Links{"self": {Href: s.links.Href("v3", "organization_quotas", k.GUID)}}
		return out
	}
	org := v3.To(k.Org)
	out.Relationships.Organization, out.Relationships.Spaces = &org, &who
	out.Links = v3.Links{
		"self":         {Href: s.links.Href("v3", "space_quotas", k.GUID)},
		"organization": {Href: s.links.Href("v3", "organizations", k.Org)},
	}
	return out
}
