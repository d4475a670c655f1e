package client

import (
	"context"
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// Routes lists the routes of the client's space.
func (c *Client) Routes(ctx context.Context) ([]v3.Route, error) {
	q, err := c.here(ctx)
	if err != nil {
		return nil, err
	}
	return list[v3.Route](ctx, c, "/v3/routes", q)
}

// RoutesOf lists the routes that lead to an app.
func (c *Client) RoutesOf(ctx context.Context, app string) ([]v3.Route, error) {
	return list[v3.Route](ctx, c, "/v3/apps/"+escape(app)+"/routes", nil)
}

// DeleteRoute deletes a route and waits until it is gone.
func (c *Client) DeleteRoute(ctx context.Context, guid string) error {
	h, err := c.call(ctx, http.MethodDelete, "/v3/routes/"+escape(guid), nil, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}
