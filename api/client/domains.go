package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// DomainByName finds a domain, or fails with *Missing.
func (c Routes) DomainByName(ctx context.Context, name string) (v3.Domain, error) {
	all, err := list[v3.Domain](ctx, c.transport, "/v3/domains", url.Values{"names": {filter(name)}})
	return first(all, err, &Missing{Kind: "domain", Name: name})
}

// CreateDomain creates a domain. Without an organization, all organizations share it.
func (c Routes) CreateDomain(ctx context.Context, d v3.CreateDomain) (v3.Domain, error) {
	var out v3.Domain
	_, err := c.call(ctx, http.MethodPost, "/v3/domains", d, &out)
	return out, err
}

// DeleteDomain deletes a domain with its routes, and waits until it is gone.
func (c Routes) DeleteDomain(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/domains/"+escape(guid))
}

// ShareDomain allows another organization to have routes in a private domain.
func (c Routes) ShareDomain(ctx context.Context, guid, org string) error {
	return c.relate(ctx, "/v3/domains/"+escape(guid), Relation{"shared_organizations", []string{org}})
}

// UnshareDomain stops sharing a private domain with an organization.
func (c Routes) UnshareDomain(ctx context.Context, guid, org string) error {
	return c.unrelate(ctx, "/v3/domains/"+escape(guid), Relation{"shared_organizations", []string{org}})
}

// Domains lists the domains that routes can use.
func (c Routes) Domains(ctx context.Context) ([]v3.Domain, error) {
	return list[v3.Domain](ctx, c.transport, "/v3/domains", nil)
}
