package client

import (
	"context"
	"fmt"
	"io"
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

// Apps lists the apps of the client's space by name.
func (c *Client) Apps(ctx context.Context) ([]v3.App, error) {
	q, err := c.here(ctx)
	if err != nil {
		return nil, err
	}
	q.Set("order_by", "name")
	return list[v3.App](ctx, c, "/v3/apps", q)
}

// AppsIn lists the apps of any space by name.
func (c *Client) AppsIn(ctx context.Context, space string) ([]v3.App, error) {
	return list[v3.App](ctx, c, "/v3/apps", url.Values{"space_guids": {filter(space)}, "order_by": {"name"}})
}

// AppByName finds an app of the client's space, or fails with *NoApp.
func (c *Client) AppByName(ctx context.Context, name string) (v3.App, error) {
	q, err := c.here(ctx)
	if err != nil {
		return v3.App{}, err
	}
	q.Set("names", filter(name))
	as, err := list[v3.App](ctx, c, "/v3/apps", q)
	if err != nil {
		return v3.App{}, err
	}
	if len(as) == 0 {
		return v3.App{}, &NoApp{Name: name}
	}
	return as[0], nil
}

// here is the query for what is in the client's space.
func (c *Client) here(ctx context.Context) (url.Values, error) {
	if c.space == nil {
		return url.Values{}, nil
	}
	guid, err := c.space(ctx)
	return url.Values{"space_guids": {filter(guid)}}, err
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

// AppManifest reads the manifest that makes the app as it is now, in YAML.
func (c *Client) AppManifest(ctx context.Context, guid string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.Send(ctx, Request{Method: http.MethodGet, Path: "/v3/apps/" + escape(guid) + "/manifest", Header: http.Header{"Accept": {v3.ManifestType}}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, errorOf(resp.StatusCode, b)
	}
	return b, nil
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
