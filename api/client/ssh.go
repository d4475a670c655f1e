package client

import (
	"context"
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// SSHCode gets a one-time password for the ssh door, and how to find that door.
func (c *Client) SSHCode(ctx context.Context) (v3.SSHCode, error) {
	var code v3.SSHCode
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/ssh-code", nil, &code)
	return code, err
}

// SSHEnabled tells whether the instances of an app may be entered, and why not.
func (c *Client) SSHEnabled(ctx context.Context, app string) (v3.SSHEnabled, error) {
	var e v3.SSHEnabled
	_, err := c.call(ctx, http.MethodGet, "/v3/apps/"+escape(app)+"/ssh_enabled", nil, &e)
	return e, err
}

// SetFeature switches a feature of an app.
func (c *Client) SetFeature(ctx context.Context, app, feature string, enabled bool) (v3.AppFeature, error) {
	var f v3.AppFeature
	_, err := c.call(ctx, http.MethodPatch, "/v3/apps/"+escape(app)+"/features/"+escape(feature), v3.UpdateAppFeature{Enabled: &enabled}, &f)
	return f, err
}
