package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// NoApp is an app that is not there.
type NoApp struct{ Name string }

func (n *NoApp) Error() string { return fmt.Sprintf("there is no app %q", n.Name) }

// Root reads the document that names the daemon's doors.
func (c *Client) Root(ctx context.Context) (v3.Root, error) {
	var r v3.Root
	_, err := c.call(ctx, http.MethodGet, "/", nil, &r)
	return r, err
}

// Spaces lists the spaces.
func (c *Client) Spaces(ctx context.Context) ([]v3.Space, error) {
	return list[v3.Space](ctx, c, "/v3/spaces", nil)
}

// Apps lists the apps by name.
func (c *Client) Apps(ctx context.Context) ([]v3.App, error) {
	return list[v3.App](ctx, c, "/v3/apps", url.Values{"order_by": {"name"}})
}

// AppByName finds an app, or fails with *NoApp.
func (c *Client) AppByName(ctx context.Context, name string) (v3.App, error) {
	as, err := list[v3.App](ctx, c, "/v3/apps", url.Values{"names": {filter(name)}})
	if err != nil {
		return v3.App{}, err
	}
	if len(as) == 0 {
		return v3.App{}, &NoApp{Name: name}
	}
	return as[0], nil
}

// CreateApp makes an app without bits.
func (c *Client) CreateApp(ctx context.Context, body v3.CreateApp) (v3.App, error) {
	var a v3.App
	_, err := c.call(ctx, http.MethodPost, "/v3/apps", body, &a)
	return a, err
}

// UpdateApp changes an app.
func (c *Client) UpdateApp(ctx context.Context, guid string, body v3.UpdateApp) (v3.App, error) {
	var a v3.App
	_, err := c.call(ctx, http.MethodPatch, "/v3/apps/"+escape(guid), body, &a)
	return a, err
}

// DeleteApp deletes an app and waits until it is gone.
func (c *Client) DeleteApp(ctx context.Context, guid string) error {
	h, err := c.call(ctx, http.MethodDelete, "/v3/apps/"+escape(guid), nil, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// Act starts, stops or restarts an app: it changes the wish and does not wait.
func (c *Client) Act(ctx context.Context, guid string, action Action) (v3.App, error) {
	var a v3.App
	_, err := c.call(ctx, http.MethodPost, "/v3/apps/"+escape(guid)+"/actions/"+string(action), nil, &a)
	return a, err
}

// Action is something that an app can be told.
type Action string

// The actions of an app.
const (
	Start   Action = "start"
	Stop    Action = "stop"
	Restart Action = "restart"
)
