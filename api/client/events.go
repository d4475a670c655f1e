package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// Events lists the newest events of an app, newest first, at most n.
func (c *Client) Events(ctx context.Context, app string, n int) ([]v3.Event, error) {
	return list[v3.Event](ctx, c, "/v3/audit_events", url.Values{
		"target_guids": {filter(app)}, "order_by": {"-created_at"}, "page": {"1"}, "per_page": {strconv.Itoa(n)},
	})
}
