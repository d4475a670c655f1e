package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Missing is something that was looked for by name and is not there, or that
// one may not see.
type Missing struct{ Kind, Name string }

func (m *Missing) Error() string { return fmt.Sprintf("there is no %s %q", m.Kind, m.Name) }

// Organizations lists the organizations by name.
func (c *Client) Organizations(ctx context.Context) ([]v3.Organization, error) {
	return list[v3.Organization](ctx, c, "/v3/organizations", url.Values{"order_by": {"name"}})
}

// OrganizationByName finds an organization, or fails with *Missing.
func (c *Client) OrganizationByName(ctx context.Context, name string) (v3.Organization, error) {
	all, err := list[v3.Organization](ctx, c, "/v3/organizations", url.Values{"names": {filter(name)}})
	return first(all, err, &Missing{Kind: "org", Name: name})
}

// CreateOrganization makes an organization.
func (c *Client) CreateOrganization(ctx context.Context, name string) (v3.Organization, error) {
	var o v3.Organization
	_, err := c.call(ctx, http.MethodPost, "/v3/organizations", v3.CreateOrganization{Name: name}, &o)
	return o, err
}

// RenameOrganization gives an organization another name.
func (c *Client) RenameOrganization(ctx context.Context, guid, name string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/organizations/"+escape(guid), v3.UpdateOrganization{Name: &name}, nil)
	return err
}

// DeleteOrganization deletes an organization with all that is in it, and waits
// until it is gone.
func (c *Client) DeleteOrganization(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/organizations/"+escape(guid))
}

// Spaces lists all spaces.
func (c *Client) Spaces(ctx context.Context) ([]v3.Space, error) {
	return list[v3.Space](ctx, c, "/v3/spaces", nil)
}

// SpacesOf lists the spaces of an organization by name.
func (c *Client) SpacesOf(ctx context.Context, org string) ([]v3.Space, error) {
	return list[v3.Space](ctx, c, "/v3/spaces", url.Values{"organization_guids": {filter(org)}, "order_by": {"name"}})
}

// Space reads a space.
func (c *Client) Space(ctx context.Context, guid string) (v3.Space, error) {
	all, err := list[v3.Space](ctx, c, "/v3/spaces", url.Values{"guids": {filter(guid)}})
	return first(all, err, &Missing{Kind: "space", Name: guid})
}

// SpaceByName finds a space of an organization, or fails with *Missing.
func (c *Client) SpaceByName(ctx context.Context, org, name string) (v3.Space, error) {
	all, err := list[v3.Space](ctx, c, "/v3/spaces", url.Values{"organization_guids": {filter(org)}, "names": {filter(name)}})
	return first(all, err, &Missing{Kind: "space", Name: name})
}

// CreateSpace makes a space in an organization.
func (c *Client) CreateSpace(ctx context.Context, org, name string) (v3.Space, error) {
	body := v3.CreateSpace{Name: name, Relationships: v3.CreateSpaceRelationships{Organization: v3.To(org)}}
	var s v3.Space
	_, err := c.call(ctx, http.MethodPost, "/v3/spaces", body, &s)
	return s, err
}

// RenameSpace gives a space another name.
func (c *Client) RenameSpace(ctx context.Context, guid, name string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/spaces/"+escape(guid), v3.UpdateSpace{Name: &name}, nil)
	return err
}

// DeleteSpace deletes a space with all its apps and routes, and waits until it
// is gone.
func (c *Client) DeleteSpace(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/spaces/"+escape(guid))
}

// remove deletes what a path names and waits until it is gone.
func (c *Client) remove(ctx context.Context, path string) error {
	h, err := c.call(ctx, http.MethodDelete, path, nil, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// first is the first of a list; an empty list is the error missing.
func first[T any](all []T, err error, missing error) (T, error) {
	if err == nil && len(all) == 0 {
		err = missing
	}
	if err != nil {
		return *new(T), err
	}
	return all[0], nil
}

// Here is the guid of the client's own space; empty when it has none.
func (c *Client) Here(ctx context.Context) (string, error) {
	if c.space == nil {
		return "", nil
	}
	return c.space(ctx)
}
