package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
)

// domainsEndpoints are the endpoints of this file.
func (s *Server) domainsEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/organizations/{guid}/domains", Needs: toRead, Resource: anOrg,
			Handler: s.listOrgDomains, Shape: pageOf[v3.Domain]("names", "guids", "organization_guids", paramSelector),
		},
		{
			Pattern: "GET /v3/organizations/{guid}/domains/default", Needs: toRead, Resource: anOrg,
			Handler: s.getDefaultDomain, Shape: gives[v3.Domain](200),
		},
		{
			Pattern: "GET /v3/domains", Needs: authenticated,
			Handler: s.listDomains, Shape: pageOf[v3.Domain]("names", "guids", "organization_guids", paramSelector),
		},
		{
			Pattern: "POST /v3/domains", Needs: authenticated, // the body names the org
			Handler: s.createDomain, Shape: gives[v3.Domain](201).from(jsonOf[v3.CreateDomain]()),
		},
		{
			Pattern: "GET /v3/domains/{guid}", Needs: authenticated, // some have one org, some several, some none
			Handler: s.getDomain, Shape: gives[v3.Domain](200),
		},
		{Pattern: "PATCH /v3/domains/{guid}", Needs: authenticated, Handler: s.updateDomain, Shape: gives[v3.Domain](200).from(jsonOf[v3.UpdateDomain]())},
		{Pattern: "DELETE /v3/domains/{guid}", Needs: authenticated, Handler: s.deleteDomain, Shape: begins()},
		{
			Pattern: "POST /v3/domains/{guid}/relationships/shared_organizations", Needs: authenticated,
			Handler: s.shareDomain, Shape: gives[v3.ToMany](200).from(jsonOf[v3.ToMany]()),
		},
		{Pattern: "DELETE /v3/domains/{guid}/relationships/shared_organizations/{org}", Needs: authenticated, Handler: s.unshareDomain, Shape: ends(204)},
	}
}

// opDeleteDomain is the job that removes a domain.
const opDeleteDomain = "domain.delete"

// domain tells whether a domain is seen: one that all share by everybody, another
// by who works in one of its orgs.
func (perms permissions) domain(d app.Domain) bool {
	return perms.all || d.Org == "" || perms.memberOrgs[d.Org] || slices.ContainsFunc(d.SharedWith, func(org string) bool { return perms.memberOrgs[org] })
}

func (s *Server) listDomains(r *http.Request) (any, error) {
	return s.pageOfDomains(r, func(app.Domain) bool { return true })
}

func (s *Server) listOrgDomains(r *http.Request) (any, error) {
	o, err := s.orgOf(r)
	if err != nil {
		return nil, err
	}
	usable := func(d app.Domain) bool { return d.UsableIn(o.GUID) }
	return s.pageOfDomains(r, usable)
}

func (s *Server) pageOfDomains(r *http.Request, among func(d app.Domain) bool) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Domains()
	if err != nil {
		return nil, err
	}
	var found []app.Domain
	for _, d := range all {
		if among(d) && perms.domain(d) && q.letsFold("names", d.Name) && q.lets("guids", d.GUID) && q.lets("organization_guids", d.Org) {
			found = append(found, d)
		}
	}
	return list(s.links, r, q, found, look[app.Domain, v3.Domain]{
		key:     func(d app.Domain) key { return key{d.Name, d.CreatedAt, d.UpdatedAt, d.GUID} },
		present: func(d app.Domain) v3.Domain { return s.presentDomain(d, perms) },
		labels:  func(d app.Domain) map[string]string { return d.Metadata.Labels },
	}), nil
}

// getDefaultDomain is the domain of an org's routes that name none.
func (s *Server) getDefaultDomain(r *http.Request) (any, error) {
	if _, err := s.orgOf(r); err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	d, err := s.c.Registry.DefaultDomain()
	if err != nil {
		return nil, missing("Domain", err)
	}
	return s.presentDomain(d, perms), nil
}

func (s *Server) getDomain(r *http.Request) (any, error) {
	d, perms, err := s.domainOf(r)
	if err != nil {
		return nil, err
	}
	return s.presentDomain(d, perms), nil
}

// domainOf is the domain that the path names, if the principal sees it.
func (s *Server) domainOf(r *http.Request) (d app.Domain, perms permissions, err error) {
	if perms, err = s.access.permissions(r.Context()); err != nil {
		return d, perms, err
	}
	d, err = s.c.Registry.Domain(r.PathValue("guid"))
	if err == nil && !perms.domain(d) {
		err = notFound("Domain")
	}
	return d, perms, missing("Domain", err)
}

// ownDomain is the same for those who may change it: the managers of its org, and
// administrators.
func (s *Server) ownDomain(r *http.Request) (d app.Domain, perms permissions, err error) {
	d, perms, err = s.domainOf(r)
	switch {
	case err != nil:
	case !perms.mayInOrg(toManageOrg, d.Org):
		err = errNotAuthorized
	case perms.suspended(d.Org):
		err = errOrgSuspended
	}
	return d, perms, err
}

func (s *Server) createDomain(r *http.Request) (any, error) {
	body, err := decode[v3.CreateDomain](r)
	if err != nil {
		return nil, err
	}
	d := app.Domain{Name: body.Name, Internal: body.Internal != nil && *body.Internal, Metadata: app.Metadata{}.Merge(metadataChange(body.Metadata))}
	if body.RouterGroup != nil {
		if d.RouterGroup, err = s.groupFor(body); err != nil {
			return nil, err
		}
	}
	if rel := body.Relationships; rel != nil {
		if d.Org, d.SharedWith, err = owners(*rel); err != nil {
			return nil, err
		}
	}
	if err := s.mayOwn(r.Context(), d); err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	err = s.change(r.Context(), func(w transaction) (err error) {
		if _, err := w.registry.DomainByName(d.Name); err == nil {
			return unprocessable("The domain name \"%s\" is already in use", d.Name)
		}
		d, err = w.registry.PutDomain(d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusCreated, body: s.presentDomain(d, perms)}, nil
}

// groupFor is the router group that a new domain names.
func (s *Server) groupFor(body v3.CreateDomain) (string, error) {
	switch {
	case body.Internal != nil && *body.Internal:
		return "", unprocessable("router_group: Internal domains cannot be associated to a router group.")
	case body.Relationships != nil:
		return "", unprocessable("router_group: Domains scoped to an organization cannot be associated to a router group.")
	}
	g, err := s.c.Registry.RouterGroup(body.RouterGroup.GUID)
	if errors.Is(err, app.ErrNotFound) {
		return "", unprocessable("Router group with guid '%s' not found.", body.RouterGroup.GUID)
	}
	return g.GUID, err
}

// owners are the orgs that a body names. Only what has an owner can be shared.
func owners(rel v3.CreateDomainRelationships) (org string, shared []string, err error) {
	if rel.Organization != nil {
		org = rel.Organization.ID()
	}
	if org == "" {
		return "", nil, unprocessable("Relationships 'organization' must name an organization: leave relationships out for a domain that all share")
	}
	if rel.SharedOrganizations != nil {
		shared = each(rel.SharedOrganizations.Data, func(g v3.GUID) string { return g.GUID })
	}
	slices.Sort(shared)
	return org, slices.Compact(shared), nil
}

// mayOwn tells whether the principal may make the domain. Those that all share are
// the administrators' alone.
func (s *Server) mayOwn(ctx context.Context, d app.Domain) error {
	if d.Org == "" {
		if !principal(ctx).Admin() {
			return errNotAuthorized
		}
		return nil
	}
	err := s.access.requireOrg(ctx, d.Org)
	if errors.Is(err, app.ErrNotFound) {
		return unprocessable("Organization with guid '%s' does not exist or you do not have access to it.", d.Org)
	}
	if err != nil {
		return err
	}
	if err := s.feature(ctx, app.FlagPrivateDomains); err != nil {
		return err
	}
	return s.mayShare(ctx, d.Org, d.SharedWith)
}

// mayShare tells whether the principal may share a domain of an org with others:
// it must manage them too.
func (s *Server) mayShare(ctx context.Context, owner string, orgs []string) error {
	for _, org := range orgs {
		err := s.access.requireOrg(ctx, org)
		switch {
		case org == owner:
			return unprocessable("Domain cannot be shared with owning organization.")
		case errors.Is(err, app.ErrNotFound):
			return unprocessable("Organization with guid '%s' does not exist, or you do not have access to it.", org)
		case errors.Is(err, errNotAuthorized):
			return unprocessable("You do not have sufficient permissions for organization '%s' to share domain.", s.orgName(org))
		case errors.Is(err, errOrgSuspended):
			return unprocessable("Organization '%s' is suspended.", s.orgName(org))
		case err != nil:
			return err
		}
	}
	return nil
}

// orgName is for sentences about an org that is seen.
func (s *Server) orgName(guid string) string {
	o, err := s.c.Registry.Org(guid)
	if err != nil {
		return guid
	}
	return o.Name
}

func (s *Server) updateDomain(r *http.Request) (any, error) {
	body, err := decode[v3.UpdateDomain](r)
	if err != nil {
		return nil, err
	}
	d, perms, err := s.ownDomain(r)
	if err != nil {
		return nil, err
	}
	d, err = s.c.Registry.UpdateDomain(d.GUID, func(d *app.Domain) error {
		d.Metadata = d.Metadata.Merge(metadataChange(body.Metadata))
		return nil
	})
	if err != nil {
		return nil, missing("Domain", err)
	}
	return s.presentDomain(d, perms), nil
}

func (s *Server) deleteDomain(r *http.Request) (any, error) {
	d, _, err := s.ownDomain(r)
	if err != nil {
		return nil, err
	}
	if len(d.SharedWith) > 0 {
		return nil, unprocessable("This domain is shared with other organizations. Unshare before deleting.")
	}
	if d.Default {
		return nil, unprocessable("The domain '%s' is this daemon's own and cannot be deleted: start it with another --domain first.", d.Name)
	}
	return s.begin(r.Context(), opDeleteDomain, removal{GUID: d.GUID})
}

func (s *Server) doDeleteDomain(_ context.Context, guid string) error {
	if err := s.c.Registry.DeleteDomain(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// shareDomain lets further orgs use a domain.
func (s *Server) shareDomain(r *http.Request) (any, error) {
	body, err := decode[v3.ToMany](r)
	if err != nil {
		return nil, err
	}
	d, perms, err := s.ownDomain(r)
	if err != nil {
		return nil, err
	}
	if d.Org == "" {
		return nil, unprocessable("Domains cannot be shared with other organizations unless they are scoped to an organization.")
	}
	orgs := each(body.Data, func(g v3.GUID) string { return g.GUID })
	if err := s.mayShare(r.Context(), d.Org, orgs); err != nil {
		return nil, err
	}
	d, err = s.c.Registry.UpdateDomain(d.GUID, func(d *app.Domain) error {
		d.SharedWith = append(d.SharedWith, orgs...)
		slices.Sort(d.SharedWith)
		d.SharedWith = slices.Compact(d.SharedWith)
		return nil
	})
	if err != nil {
		return nil, missing("Domain", err)
	}
	return sharedWith(d, perms), nil
}

// unshareDomain takes a domain from an org; its owner may do so, and that org.
func (s *Server) unshareDomain(r *http.Request) (any, error) {
	d, perms, err := s.domainOf(r)
	if err != nil {
		return nil, err
	}
	org := r.PathValue("org")
	switch {
	case !perms.org(org):
		return nil, unprocessable("Organization with guid '%s' does not exist or you do not have access to it.", org)
	case !perms.mayInOrg(toManageOrg, d.Org) && !perms.mayInOrg(toManageOrg, org):
		return nil, errNotAuthorized
	case perms.suspended(d.Org) && perms.suspended(org):
		return nil, errOrgSuspended
	}
	err = s.change(r.Context(), func(w transaction) error {
		if err := unused(w.registry, d.GUID, org); err != nil {
			return err
		}
		_, err := w.registry.UpdateDomain(d.GUID, func(d *app.Domain) error {
			i := slices.Index(d.SharedWith, org)
			if i < 0 {
				return unprocessable("Unable to unshare domain from organization with name '%s'. Ensure the domain is shared to this organization.", s.orgName(org))
			}
			d.SharedWith = slices.Delete(d.SharedWith, i, i+1)
			return nil
		})
		return missing("Domain", err)
	})
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusNoContent}, nil
}

// unused wants no routes of an org in a domain.
func unused(reg *registry.Registry, domain, org string) error {
	spaces, err := reg.SpacesOf(org)
	if err != nil {
		return err
	}
	routes, err := reg.Routes()
	if err != nil {
		return err
	}
	for _, rt := range routes {
		if rt.Domain == domain && slices.ContainsFunc(spaces, func(sp app.Space) bool { return sp.GUID == rt.Space }) {
			return unprocessable("This domain has associated routes in this organization. Delete the routes before unsharing.")
		}
	}
	return nil
}

// sharedWith are the orgs that a domain is shared with, as far as they are seen.
func sharedWith(d app.Domain, perms permissions) v3.ToMany {
	out := v3.ToMany{Data: []v3.GUID{}}
	for _, org := range d.SharedWith {
		if perms.org(org) {
			out.Data = append(out.Data, v3.GUID{GUID: org})
		}
	}
	return out
}

func (s *Server) presentDomain(d app.Domain, perms permissions) v3.Domain {
	self := s.links.Href("v3", "domains", d.GUID)
	links := v3.Links{"self": {Href: self}}
	if d.Org != "" {
		links["organization"] = v3.Link{Href: s.links.Href("v3", "organizations", d.Org)}
		links["shared_organizations"] = v3.Link{Href: self + "/relationships/shared_organizations"}
	}
	protocols, group := []string{"http"}, (*v3.GUID)(nil)
	if d.TCP() {
		protocols, group = []string{"tcp"}, &v3.GUID{GUID: d.RouterGroup}
		links["router_group"] = v3.Link{Href: s.links.Href("routing", "v1", "router_groups", d.RouterGroup)}
	}
	return v3.Domain{
		GUID: d.GUID, CreatedAt: v3.At(d.CreatedAt), UpdatedAt: v3.At(d.UpdatedAt), Name: d.Name, Internal: d.Internal,
		SupportedProtocols: protocols, RouterGroup: group, Metadata: presentMetadata(d.Metadata),
		Relationships: v3.DomainRelationships{Organization: v3.To(d.Org), SharedOrganizations: sharedWith(d, perms)},
		Links:         links,
	}
}

// domainNames gives the name by the guid.
func (s *Server) domainNames() (map[string]string, error) {
	all, err := s.c.Registry.Domains()
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(all))
	for _, d := range all {
		names[d.GUID] = d.Name
	}
	return names, nil
}
