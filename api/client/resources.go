package client

import (
	"context"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Domains lists the domains that routes may have.
func (c *Client) Domains(ctx context.Context) ([]v3.Domain, error) {
	return list[v3.Domain](ctx, c, "/v3/domains", nil)
}

// Buildpacks lists the buildpacks in the order in which they are tried.
func (c *Client) Buildpacks(ctx context.Context) ([]v3.Buildpack, error) {
	return list[v3.Buildpack](ctx, c, "/v3/buildpacks", nil)
}

// Stacks lists the root file systems that apps run on.
func (c *Client) Stacks(ctx context.Context) ([]v3.Stack, error) {
	return list[v3.Stack](ctx, c, "/v3/stacks", nil)
}

// Droplets lists the droplets of an app, newest first.
func (c *Client) Droplets(ctx context.Context, app string) ([]v3.Droplet, error) {
	return list[v3.Droplet](ctx, c, "/v3/droplets", url.Values{"app_guids": {filter(app)}, "order_by": {"-created_at"}})
}
