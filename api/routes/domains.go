package routes

import (
	"context"
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

// domainHandlers answers requests about domains.
type domainHandlers struct{ *Handlers }

func (h domainHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/organizations/{guid}/domains", Needs: access.Read, Resource: access.Org,
			Handler: h.listOrgDomains, Shape: rest.PageOf[v3.Domain]("names", "guids", "organization_guids", rest.ParamSelector),
		},
		{
			Pattern: "GET /v3/organizations/{guid}/domains/default", Needs: access.Read, Resource: access.Org,
			Handler: h.getDefaultDomain, Shape: rest.Returns[v3.Domain](200),
		},
		{
			Pattern: "GET /v3/domains", Needs: access.Authenticated,
			Handler: h.listDomains, Shape: rest.PageOf[v3.Domain]("names", "guids", "organization_guids", rest.ParamSelector),
		},
		{
			Pattern: "POST /v3/domains", Needs: access.Authenticated, // the body names the org
			Handler: h.createDomain, Shape: rest.Returns[v3.Domain](201).Reads(rest.JSON[v3.CreateDomain]()),
		},
		{
			Pattern: "GET /v3/domains/{guid}", Needs: access.Authenticated, // a domain has one org, several, or none
			Handler: h.getDomain, Shape: rest.Returns[v3.Domain](200),
		},
		{Pattern: "PATCH /v3/domains/{guid}", Needs: access.Authenticated, Handler: h.updateDomain, Shape: rest.Returns[v3.Domain](200).Reads(rest.JSON[v3.UpdateDomain]())},
		{Pattern: "DELETE /v3/domains/{guid}", Needs: access.Authenticated, Handler: h.deleteDomain, Shape: rest.StartsJob()},
		{
			Pattern: "POST /v3/domains/{guid}/relationships/shared_organizations", Needs: access.Authenticated,
			Handler: h.shareDomain, Shape: rest.Returns[v3.ToMany](200).Reads(rest.JSON[v3.ToMany]()),
		},
		{Pattern: "DELETE /v3/domains/{guid}/relationships/shared_organizations/{org}", Needs: access.Authenticated, Handler: h.unshareDomain, Shape: rest.Empty(204)},
	}
}

func (h domainHandlers) listDomains(r *http.Request) (any, error) {
	return h.pageOfDomains(r, func(app.Domain) bool { return true })
}

func (h domainHandlers) listOrgDomains(r *http.Request) (any, error) {
	o, err := h.Present.Org(r)
	if err != nil {
		return nil, err
	}
	usable := func(d app.Domain) bool { return d.UsableIn(o.GUID) }
	return h.pageOfDomains(r, usable)
}

func (h domainHandlers) pageOfDomains(r *http.Request, among func(d app.Domain) bool) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.Domains()
	if err != nil {
		return nil, err
	}
	var found []app.Domain
	for _, d := range all {
		if among(d) && perms.SeesDomain(d) && q.MatchesFold("names", d.Name) && q.Matches("guids", d.GUID) && q.Matches("organization_guids", d.Org) {
			found = append(found, d)
		}
	}
	return rest.List(h.Links, r, q, found, rest.View[app.Domain, v3.Domain]{
		Key: func(d app.Domain) rest.Key {
			return rest.Key{Name: d.Name, Created: d.CreatedAt, Updated: d.UpdatedAt, GUID: d.GUID}
		},
		Present: func(d app.Domain) v3.Domain { return h.Present.ShowDomain(d, perms) },
		Labels:  func(d app.Domain) map[string]string { return d.Metadata.Labels },
	}), nil
}

// getDefaultDomain returns the domain of routes of an org that name no domain.
func (h domainHandlers) getDefaultDomain(r *http.Request) (any, error) {
	if _, err := h.Present.Org(r); err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	d, err := h.Platform.Registry.DefaultDomain()
	if err != nil {
		return nil, rest.Missing("Domain", err)
	}
	return h.Present.ShowDomain(d, perms), nil
}

func (h domainHandlers) getDomain(r *http.Request) (any, error) {
	d, perms, err := h.domainOf(r)
	if err != nil {
		return nil, err
	}
	return h.Present.ShowDomain(d, perms), nil
}

// domainOf returns the domain that the path names, if the caller can see it.
func (h domainHandlers) domainOf(r *http.Request) (d app.Domain, perms access.Permissions, err error) {
	if perms, err = h.Access.Permissions(r.Context()); err != nil {
		return d, perms, err
	}
	d, err = h.Platform.Registry.Domain(r.PathValue("guid"))
	if err == nil && !perms.SeesDomain(d) {
		err = rest.NotFound("Domain")
	}
	return d, perms, rest.Missing("Domain", err)
}

// ownDomain returns the same for callers who can change it: managers of its org, and
// administrators.
func (h domainHandlers) ownDomain(r *http.Request) (d app.Domain, perms access.Permissions, err error) {
	d, perms, err = h.domainOf(r)
	switch {
	case err != nil:
	case !perms.CanInOrg(access.ManageOrg, d.Org):
		err = access.ErrNotAuthorized
	case perms.Suspended(d.Org):
		err = access.ErrOrgSuspended
	}
	return d, perms, err
}

func (h domainHandlers) createDomain(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateDomain](r)
	if err != nil {
		return nil, err
	}
	d := app.Domain{Name: body.Name, Internal: body.Internal != nil && *body.Internal, Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata))}
	if body.RouterGroup != nil {
		if d.RouterGroup, err = h.groupFor(body); err != nil {
			return nil, err
		}
	}
	if rel := body.Relationships; rel != nil {
		if d.Org, d.SharedWith, err = ownerAndShared(*rel); err != nil {
			return nil, err
		}
	}
	if err := h.mayOwn(r.Context(), d); err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if _, err := w.Registry.DomainByName(d.Name); err == nil {
			return rest.Unprocessable("The domain name \"%s\" is already in use", d.Name)
		}
		d, err = w.Registry.PutDomain(d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.Present.ShowDomain(d, perms)}, nil
}

// groupFor returns the router group that a new domain names.
func (h domainHandlers) groupFor(body v3.CreateDomain) (string, error) {
	switch {
	case body.Internal != nil && *body.Internal:
		return "", rest.Unprocessable("router_group: Internal domains cannot be associated to a router group.")
	case body.Relationships != nil:
		return "", rest.Unprocessable("router_group: Domains scoped to an organization cannot be associated to a router group.")
	}
	g, err := h.Platform.Registry.RouterGroup(body.RouterGroup.GUID)
	if errors.Is(err, app.ErrNotFound) {
		return "", rest.Unprocessable("Router group with guid '%s' not found.", body.RouterGroup.GUID)
	}
	return g.GUID, err
}

// ownerAndShared returns the orgs that a body names. Only a domain with an owner can be shared.
func ownerAndShared(rel v3.CreateDomainRelationships) (org string, shared []string, err error) {
	if rel.Organization != nil {
		org = rel.Organization.ID()
	}
	if org == "" {
		return "", nil, rest.Unprocessable("Relationships 'organization' must name an organization. For a domain that all organizations share, leave relationships out.")
	}
	if rel.SharedOrganizations != nil {
		shared = rest.Values(rel.SharedOrganizations.Data, func(g v3.GUID) string { return g.GUID })
	}
	slices.Sort(shared)
	return org, slices.Compact(shared), nil
}

// mayOwn checks whether the caller can create the domain. Only administrators can
// create a domain that all orgs share.
func (h domainHandlers) mayOwn(ctx context.Context, d app.Domain) error {
	if d.Org == "" {
		if !access.Principal(ctx).Admin() {
			return access.ErrNotAuthorized
		}
		return nil
	}
	err := h.Access.RequireOrg(ctx, d.Org)
	if errors.Is(err, app.ErrNotFound) {
		return rest.Unprocessable("Organization with guid '%s' does not exist or you do not have access to it.", d.Org)
	}
	if err != nil {
		return err
	}
	if err := h.Present.Feature(ctx, app.FlagPrivateDomains); err != nil {
		return err
	}
	return h.mayShare(ctx, d.Org, d.SharedWith)
}

// mayShare checks whether the caller can share a domain of an org with other orgs. The
// caller must be a manager of those orgs.
func (h domainHandlers) mayShare(ctx context.Context, owner string, orgs []string) error {
	for _, org := range orgs {
		err := h.Access.RequireOrg(ctx, org)
		switch {
		case org == owner:
			return rest.Unprocessable("Domain cannot be shared with owning organization.")
		case errors.Is(err, app.ErrNotFound):
			return rest.Unprocessable("Organization with guid '%s' does not exist, or you do not have access to it.", org)
		case errors.Is(err, access.ErrNotAuthorized):
			return rest.Unprocessable("You do not have sufficient permissions for organization '%s' to share domain.", h.orgName(org))
		case errors.Is(err, access.ErrOrgSuspended):
			return rest.Unprocessable("Organization '%s' is suspended.", h.orgName(org))
		case err != nil:
			return err
		}
	}
	return nil
}

// orgName returns the name of an org for messages to a caller who can see it.
func (h domainHandlers) orgName(guid string) string {
	o, err := h.Platform.Registry.Org(guid)
	if err != nil {
		return guid
	}
	return o.Name
}

func (h domainHandlers) updateDomain(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateDomain](r)
	if err != nil {
		return nil, err
	}
	d, perms, err := h.ownDomain(r)
	if err != nil {
		return nil, err
	}
	d, err = h.Platform.Registry.UpdateDomain(d.GUID, func(d *app.Domain) error {
		d.Metadata = d.Metadata.Merge(platform.MetadataChange(body.Metadata))
		return nil
	})
	if err != nil {
		return nil, rest.Missing("Domain", err)
	}
	return h.Present.ShowDomain(d, perms), nil
}

func (h domainHandlers) deleteDomain(r *http.Request) (any, error) {
	d, _, err := h.ownDomain(r)
	if err != nil {
		return nil, err
	}
	if len(d.SharedWith) > 0 {
		return nil, rest.Unprocessable("This domain is shared with other organizations. Unshare before deleting.")
	}
	if d.Default {
		return nil, rest.Unprocessable("The domain '%s' is the default domain of dewd and cannot be deleted. First start dewd with another --domain.", d.Name)
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteDomain, platform.Removal{GUID: d.GUID})
}

// shareDomain shares a domain with more orgs.
func (h domainHandlers) shareDomain(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ToMany](r)
	if err != nil {
		return nil, err
	}
	d, perms, err := h.ownDomain(r)
	if err != nil {
		return nil, err
	}
	if d.Org == "" {
		return nil, rest.Unprocessable("Domains cannot be shared with other organizations unless they are scoped to an organization.")
	}
	orgs := rest.Values(body.Data, func(g v3.GUID) string { return g.GUID })
	if err := h.mayShare(r.Context(), d.Org, orgs); err != nil {
		return nil, err
	}
	d, err = h.Platform.Registry.UpdateDomain(d.GUID, func(d *app.Domain) error {
		d.SharedWith = append(d.SharedWith, orgs...)
		slices.Sort(d.SharedWith)
		d.SharedWith = slices.Compact(d.SharedWith)
		return nil
	})
	if err != nil {
		return nil, rest.Missing("Domain", err)
	}
	return present.SharedWith(d, perms), nil
}

// unshareDomain stops sharing a domain with an org. Managers of the owner and of that
// org can do so.
func (h domainHandlers) unshareDomain(r *http.Request) (any, error) {
	d, perms, err := h.domainOf(r)
	if err != nil {
		return nil, err
	}
	org := r.PathValue("org")
	switch {
	case !perms.SeesOrg(org):
		return nil, rest.Unprocessable("Organization with guid '%s' does not exist or you do not have access to it.", org)
	case !perms.CanInOrg(access.ManageOrg, d.Org) && !perms.CanInOrg(access.ManageOrg, org):
		return nil, access.ErrNotAuthorized
	case perms.Suspended(d.Org) && perms.Suspended(org):
		return nil, access.ErrOrgSuspended
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		if err := platform.CheckUnused(w.Registry, d.GUID, org); err != nil {
			return err
		}
		_, err := w.Registry.UpdateDomain(d.GUID, func(d *app.Domain) error {
			i := slices.Index(d.SharedWith, org)
			if i < 0 {
				return rest.Unprocessable("Unable to unshare domain from organization with name '%s'. Ensure the domain is shared to this organization.", h.orgName(org))
			}
			d.SharedWith = slices.Delete(d.SharedWith, i, i+1)
			return nil
		})
		return rest.Missing("Domain", err)
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}
