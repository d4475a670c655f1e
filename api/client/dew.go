package client

import (
	"context"
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// Status reads what the daemon is and does.
func (c *Client) Status(ctx context.Context) (v3.Status, error) {
	var s v3.Status
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/status", nil, &s)
	return s, err
}

// Crashes lists the exit records of an app, newest first.
func (c *Client) Crashes(ctx context.Context, app string) ([]v3.Crash, error) {
	var cs v3.Crashes
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/apps/"+escape(app)+"/crashes", nil, &cs)
	return cs.Crashes, err
}

// Kill sends a signal to one process of an instance.
func (c *Client) Kill(ctx context.Context, process string, k v3.Kill) error {
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/processes/"+escape(process)+"/kill", k, nil)
	return err
}

// Shutdown lets the daemon leave.
func (c *Client) Shutdown(ctx context.Context, s v3.Shutdown) error {
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/shutdown", s, nil)
	return err
}

// Credentials reads how other programs reach the daemon as its administrator.
func (c *Client) Credentials(ctx context.Context) (v3.Credentials, error) {
	var cr v3.Credentials
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/credentials", nil, &cr)
	return cr, err
}
