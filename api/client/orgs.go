package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// List lists the organizations by name.
func (c Orgs) List(ctx context.Context) ([]v3.Organization, error) {
	return list[v3.Organization](ctx, c.transport, "/v3/organizations", url.Values{"order_by": {"name"}})
}

// ByName finds an organization, or fails with *Missing.
func (c Orgs) ByName(ctx context.Context, name string) (v3.Organization, error) {
	all, err := list[v3.Organization](ctx, c.transport, "/v3/organizations", url.Values{"names": {filter(name)}})
	return first(all, err, &Missing{Kind: "org", Name: name})
}

// Create creates an organization.
func (c Orgs) Create(ctx context.Context, name string) (v3.Organization, error) {
	var o v3.Organization
	_, err := c.call(ctx, http.MethodPost, "/v3/organizations", v3.CreateOrganization{Name: name}, &o)
	return o, err
}

// Rename changes the name of an organization.
func (c Orgs) Rename(ctx context.Context, guid, name string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/organizations/"+escape(guid), v3.UpdateOrganization{Name: &name}, nil)
	return err
}

// Delete deletes an organization with all its contents, and waits until it is gone.
func (c Orgs) Delete(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/organizations/"+escape(guid))
}

// Spaces lists all spaces.
func (c Orgs) Spaces(ctx context.Context) ([]v3.Space, error) {
	return list[v3.Space](ctx, c.transport, "/v3/spaces", nil)
}

// SpacesOf lists the spaces of an organization by name.
func (c Orgs) SpacesOf(ctx context.Context, org string) ([]v3.Space, error) {
	return list[v3.Space](ctx, c.transport, "/v3/spaces", url.Values{"organization_guids": {filter(org)}, "order_by": {"name"}})
}

// Space reads a space.
func (c Orgs) Space(ctx context.Context, guid string) (v3.Space, error) {
	all, err := list[v3.Space](ctx, c.transport, "/v3/spaces", url.Values{"guids": {filter(guid)}})
	return first(all, err, &Missing{Kind: "space", Name: guid})
}

// SpaceByName finds a space of an organization, or fails with *Missing.
func (c Orgs) SpaceByName(ctx context.Context, org, name string) (v3.Space, error) {
	all, err := list[v3.Space](ctx, c.transport, "/v3/spaces", url.Values{"organization_guids": {filter(org)}, "names": {filter(name)}})
	return first(all, err, &Missing{Kind: "space", Name: name})
}

// CreateSpace creates a space in an organization.
func (c Orgs) CreateSpace(ctx context.Context, org, name string) (v3.Space, error) {
	body := v3.CreateSpace{Name: name, Relationships: v3.CreateSpaceRelationships{Organization: v3.To(org)}}
	var s v3.Space
	_, err := c.call(ctx, http.MethodPost, "/v3/spaces", body, &s)
	return s, err
}

// RenameSpace changes the name of a space.
func (c Orgs) RenameSpace(ctx context.Context, guid, name string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/spaces/"+escape(guid), v3.UpdateSpace{Name: &name}, nil)
	return err
}

// DeleteSpace deletes a space with all its apps and routes, and waits until it
// is gone.
func (c Orgs) DeleteSpace(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/spaces/"+escape(guid))
}

// Segment reads the isolation segment that is set at a path, or an empty string.
func (c Orgs) Segment(ctx context.Context, path string) (string, error) {
	var out v3.Related
	_, err := c.call(ctx, http.MethodGet, path, nil, &out)
	return v3.ToOne{Data: out.Data}.ID(), err
}

// SetSegment sets the isolation segment at a path. An empty string unsets it.
func (c Orgs) SetSegment(ctx context.Context, path, segment string) error {
	_, err := c.call(ctx, http.MethodPatch, path, v3.To(segment), nil)
	return err
}

// OrgSegment is the path of the default isolation segment of an organization.
func OrgSegment(guid string) string {
	return "/v3/organizations/" + escape(guid) + "/relationships/default_isolation_segment"
}

// SpaceSegment is the path of the isolation segment of a space.
func SpaceSegment(guid string) string {
	return "/v3/spaces/" + escape(guid) + "/relationships/isolation_segment"
}

// SpaceSSH reports whether a space allows SSH to the instances of its apps.
func (c Orgs) SpaceSSH(ctx context.Context, space string) (bool, error) {
	var out v3.SpaceFeature
	_, err := c.call(ctx, http.MethodGet, "/v3/spaces/"+escape(space)+"/features/"+v3.FeatureSSH, nil, &out)
	return out.Enabled, err
}

// SetSpaceSSH allows or forbids SSH in a space.
func (c Orgs) SetSpaceSSH(ctx context.Context, space string, enabled bool) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/spaces/"+escape(space)+"/features/"+v3.FeatureSSH, v3.UpdateSpaceFeature{Enabled: &enabled}, nil)
	return err
}

// SegmentOrgs lists the organizations that are entitled to an isolation segment.
func (c Orgs) SegmentOrgs(ctx context.Context, guid string) ([]v3.Organization, error) {
	return list[v3.Organization](ctx, c.transport, IsolationSegments.Path+"/"+escape(guid)+"/organizations", url.Values{"order_by": {"name"}})
}

// SpaceGroups lists the security groups of a space for one phase, running or staging,
// including those for all spaces.
func (c Orgs) SpaceGroups(ctx context.Context, space, phase string) ([]v3.SecurityGroup, error) {
	return list[v3.SecurityGroup](ctx, c.transport, "/v3/spaces/"+escape(space)+"/"+phase+"_security_groups", url.Values{"order_by": {"name"}})
}
