package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// CreateBuild stages a package.
func (c *Client) CreateBuild(ctx context.Context, pkg string) (v3.Build, error) {
	var b v3.Build
	_, err := c.call(ctx, http.MethodPost, "/v3/builds", v3.CreateBuild{Package: v3.GUID{GUID: pkg}}, &b)
	return b, err
}

// Build reads a build.
func (c *Client) Build(ctx context.Context, guid string) (v3.Build, error) {
	var b v3.Build
	_, err := c.call(ctx, http.MethodGet, "/v3/builds/"+escape(guid), nil, &b)
	return b, err
}

// StagedBuilds lists the builds of an app that gave a droplet, newest first.
func (c *Client) StagedBuilds(ctx context.Context, app string) ([]v3.Build, error) {
	return list[v3.Build](ctx, c, "/v3/apps/"+escape(app)+"/builds", url.Values{"order_by": {"-created_at"}, "states": {v3.BuildStaged}})
}

// StagingBuilds lists the builds that are not finished, oldest first: those of one
// app, or of all.
func (c *Client) StagingBuilds(ctx context.Context, app string) ([]v3.Build, error) {
	q := url.Values{"order_by": {"created_at"}, "states": {v3.BuildStaging}}
	if app != "" {
		q.Set("app_guids", filter(app))
	}
	return list[v3.Build](ctx, c, "/v3/builds", q)
}

// Droplet reads the droplet that an app runs; NotFound when it has none.
func (c *Client) Droplet(ctx context.Context, app string) (v3.Droplet, error) {
	var d v3.Droplet
	_, err := c.call(ctx, http.MethodGet, "/v3/apps/"+escape(app)+"/droplets/current", nil, &d)
	return d, err
}

// SetDroplet says which droplet an app runs from its next start on.
func (c *Client) SetDroplet(ctx context.Context, app, droplet string) error {
	body := v3.CurrentDroplet{Data: &v3.GUID{GUID: droplet}}
	_, err := c.call(ctx, http.MethodPatch, "/v3/apps/"+escape(app)+"/relationships/current_droplet", body, nil)
	return err
}
