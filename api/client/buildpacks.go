package client

import (
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"

	"github.com/dewrun/dew/api/v3"
)

// CreateBuildpack makes a buildpack that waits for its bits.
func (c *Client) CreateBuildpack(ctx context.Context, body v3.CreateBuildpack) (v3.Buildpack, error) {
	var b v3.Buildpack
	_, err := c.call(ctx, http.MethodPost, "/v3/buildpacks", body, &b)
	return b, err
}

// UpdateBuildpack changes what a body names of a buildpack.
func (c *Client) UpdateBuildpack(ctx context.Context, guid string, body v3.UpdateBuildpack) (v3.Buildpack, error) {
	var b v3.Buildpack
	_, err := c.call(ctx, http.MethodPatch, "/v3/buildpacks/"+escape(guid), body, &b)
	return b, err
}

// DeleteBuildpack deletes a buildpack and waits until it is gone.
func (c *Client) DeleteBuildpack(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/buildpacks/"+escape(guid))
}

// UploadBuildpack gives a buildpack the zip in a file.
func (c *Client) UploadBuildpack(ctx context.Context, guid, name string, bits func(io.Writer) error) error {
	return c.uploadFile(ctx, "/v3/buildpacks/"+escape(guid)+"/upload", name, bits)
}

// CreateDroplet makes a droplet of an app that waits for its files.
func (c *Client) CreateDroplet(ctx context.Context, app string) (v3.Droplet, error) {
	var d v3.Droplet
	_, err := c.call(ctx, http.MethodPost, "/v3/droplets", v3.CreateDroplet{Relationships: v3.DropletRelationships{App: v3.To(app)}}, &d)
	return d, err
}

// UploadDroplet gives a droplet the compressed tar in a file.
func (c *Client) UploadDroplet(ctx context.Context, guid, name string) error {
	return c.uploadFile(ctx, "/v3/droplets/"+escape(guid)+"/upload", filepath.Base(name), func(w io.Writer) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
}

// uploadFile sends one file as a form and waits for the job that takes it in.
func (c *Client) uploadFile(ctx context.Context, path, name string, bits func(io.Writer) error) error {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	written := make(chan error, 1)
	go func() {
		part, err := form.CreateFormFile(v3.UploadBits, name)
		if err == nil {
			err = bits(part)
		}
		if err == nil {
			err = form.Close()
		}
		w.CloseWithError(err)
		written <- err
	}()
	h, err := c.exchange(ctx, Request{
		Method: http.MethodPost, Path: path, Body: r,
		Header: http.Header{"Content-Type": {form.FormDataContentType()}, "Accept": {"application/json"}},
	}, nil)
	_ = r.Close() // an answer before the end of the body: nobody reads the rest
	if werr := <-written; err != nil && werr != nil && ctx.Err() == nil {
		return uploadError(err, werr)
	}
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}
