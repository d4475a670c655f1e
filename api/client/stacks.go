package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// StackDetails lists the stacks, also those that are not ready, the default first.
func (c *Client) StackDetails(ctx context.Context) ([]v3.StackDetails, error) {
	var s v3.Stacks
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/stacks", nil, &s)
	return s.Stacks, err
}

// StackDetail reads one stack.
func (c *Client) StackDetail(ctx context.Context, guid string) (v3.StackDetails, error) {
	var s v3.StackDetails
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/stacks/"+escape(guid), nil, &s)
	return s, err
}

// MakeStack begins to make a stack; StackDetail tells how far it is.
func (c *Client) MakeStack(ctx context.Context, body v3.MakeStack) (v3.StackDetails, error) {
	var s v3.StackDetails
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/stacks", body, &s)
	return s, err
}

// UploadStack makes a stack of a file.
func (c *Client) UploadStack(ctx context.Context, name string, file io.Reader) (v3.StackDetails, error) {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	var s v3.StackDetails
	_, err := c.exchange(ctx, Request{
		Method: http.MethodPost, Path: "/dew/v1/stacks/upload?" + url.Values{"name": {name}}.Encode(), Body: file,
		Header: http.Header{"Content-Type": {"application/octet-stream"}, "Accept": {"application/json"}},
	}, &s)
	return s, err
}

// RemoveStack removes a stack.
func (c *Client) RemoveStack(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodDelete, "/dew/v1/stacks/"+escape(guid), nil, nil)
	return err
}

// CreateImagePackage makes a package of an app that is an image.
func (c *Client) CreateImagePackage(ctx context.Context, app string, image v3.DockerData) (v3.Package, error) {
	var p v3.Package
	body := struct {
		Type          string                  `json:"type"`
		Relationships v3.PackageRelationships `json:"relationships"`
		Data          v3.DockerData           `json:"data"`
	}{v3.PackageDocker, v3.PackageRelationships{App: v3.To(app)}, image}
	_, err := c.call(ctx, http.MethodPost, "/v3/packages", body, &p)
	return p, err
}
