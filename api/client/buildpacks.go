package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// CreateBuildpack creates a buildpack that waits for its files.
func (c Bits) CreateBuildpack(ctx context.Context, body v3.CreateBuildpack) (v3.Buildpack, error) {
	var b v3.Buildpack
	_, err := c.call(ctx, http.MethodPost, "/v3/buildpacks", body, &b)
	return b, err
}

// UpdateBuildpack changes the fields of a buildpack that the body names.
func (c Bits) UpdateBuildpack(ctx context.Context, guid string, body v3.UpdateBuildpack) (v3.Buildpack, error) {
	var b v3.Buildpack
	_, err := c.call(ctx, http.MethodPatch, "/v3/buildpacks/"+escape(guid), body, &b)
	return b, err
}

// DeleteBuildpack deletes a buildpack and waits until it is gone.
func (c Bits) DeleteBuildpack(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/buildpacks/"+escape(guid))
}

// UploadBuildpack uploads a zip file to a buildpack.
func (c Bits) UploadBuildpack(ctx context.Context, guid, name string, bits func(io.Writer) error) error {
	return c.uploadFile(ctx, "/v3/buildpacks/"+escape(guid)+"/upload", name, bits)
}

// StackDetails lists all stacks, even those that are not ready, the default first.
func (c Bits) StackDetails(ctx context.Context) ([]v3.StackDetails, error) {
	var s v3.Stacks
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/stacks", nil, &s)
	return s.Stacks, err
}

// StackDetail reads one stack.
func (c Bits) StackDetail(ctx context.Context, guid string) (v3.StackDetails, error) {
	var s v3.StackDetails
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/stacks/"+escape(guid), nil, &s)
	return s, err
}

// MakeStack starts to create a stack. StackDetail returns its progress.
func (c Bits) MakeStack(ctx context.Context, body v3.MakeStack) (v3.StackDetails, error) {
	var s v3.StackDetails
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/stacks", body, &s)
	return s, err
}

// UploadStack creates a stack from a file.
func (c Bits) UploadStack(ctx context.Context, name string, file io.Reader) (v3.StackDetails, error) {
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
func (c Bits) RemoveStack(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodDelete, "/dew/v1/stacks/"+escape(guid), nil, nil)
	return err
}

// UpdateStack changes the state of a stack, which decides which apps can use it.
func (c Bits) UpdateStack(ctx context.Context, guid string, body v3.UpdateStack) (v3.Stack, error) {
	var out v3.Stack
	_, err := c.call(ctx, http.MethodPatch, "/v3/stacks/"+escape(guid), body, &out)
	return out, err
}

// Buildpacks lists the buildpacks in the order in which they are tried.
func (c Bits) Buildpacks(ctx context.Context) ([]v3.Buildpack, error) {
	return list[v3.Buildpack](ctx, c.transport, "/v3/buildpacks", nil)
}

// Stacks lists the root file systems that apps run on.
func (c Bits) Stacks(ctx context.Context) ([]v3.Stack, error) {
	return list[v3.Stack](ctx, c.transport, "/v3/stacks", nil)
}
