package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"github.com/dewrun/dew/api/v3"
)

const uploadTimeout = time.Hour

// MatchResources tells which files the daemon has already.
func (c *Client) MatchResources(ctx context.Context, rs []v3.Resource) ([]v3.Resource, error) {
	var all []v3.Resource
	for part := range slices.Chunk(rs, v3.MaxResources) {
		var m v3.ResourceMatches
		if _, err := c.call(ctx, http.MethodPost, "/v3/resource_matches", v3.ResourceMatches{Resources: part}, &m); err != nil {
			return nil, err
		}
		all = append(all, m.Resources...)
	}
	return all, nil
}

// CreatePackage makes a package of an app that waits for its upload.
func (c *Client) CreatePackage(ctx context.Context, app string) (v3.Package, error) {
	var p v3.Package
	body := v3.CreatePackage{Type: v3.PackageBits, Relationships: v3.PackageRelationships{App: v3.To(app)}}
	_, err := c.call(ctx, http.MethodPost, "/v3/packages", body, &p)
	return p, err
}

// Package reads a package.
func (c *Client) Package(ctx context.Context, guid string) (v3.Package, error) {
	var p v3.Package
	_, err := c.call(ctx, http.MethodGet, "/v3/packages/"+escape(guid), nil, &p)
	return p, err
}

// NewestPackage reads the package that was uploaded last; ok is false when the
// app has none.
func (c *Client) NewestPackage(ctx context.Context, app string) (p v3.Package, ok bool, err error) {
	q := newest()
	q.Set("states", v3.PackageReady)
	ps, err := list[v3.Package](ctx, c, "/v3/apps/"+escape(app)+"/packages", q)
	if err != nil || len(ps) == 0 {
		return v3.Package{}, false, err
	}
	return ps[0], true, nil
}

// Upload gives a package its files: the resources that the daemon has, and a zip
// of the others that bits writes while it is sent. No bits: all are known.
func (c *Client) Upload(ctx context.Context, guid string, known []v3.Resource, bits func(io.Writer) error) (v3.Package, error) {
	var p v3.Package
	err := c.upload(ctx, "/v3/packages/"+escape(guid)+"/upload", files{known, bits}, &p)
	return p, err
}

// UploadFolder sends a folder as a buildpack for the apps of the space, like the files
// of a package, and gives the name by which apps use it.
func (c *Client) UploadFolder(ctx context.Context, space, name string, known []v3.Resource, bits func(io.Writer) error) (string, error) {
	var f v3.UploadedFolder
	err := c.upload(ctx, "/dew/v1/spaces/"+escape(space)+"/buildpacks?"+url.Values{"name": {name}}.Encode(), files{known, bits}, &f)
	return f.Name, err
}

// files are what an upload carries.
type files struct {
	known []v3.Resource
	bits  func(io.Writer) error
}

// upload sends files as a form and reads the answer into out.
func (c *Client) upload(ctx context.Context, path string, f files, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, uploadTimeout, fmt.Errorf("the upload took longer than %s", uploadTimeout))
	defer cancel()
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	written := make(chan error, 1)
	go func() {
		err := writeForm(form, f.known, f.bits)
		w.CloseWithError(err) // nil is the end of the body
		written <- err
	}()
	_, err := c.exchange(ctx, Request{
		Method: http.MethodPost, Path: path, Body: r,
		Header: http.Header{"Content-Type": {form.FormDataContentType()}, "Accept": {"application/json"}},
	}, out)
	_ = r.Close() // an answer before the end of the body: nobody reads the rest
	if werr := <-written; err != nil && werr != nil && ctx.Err() == nil {
		return uploadError(err, werr)
	}
	return err
}

// uploadError chooses whose fault is told: the daemon's sentence if there is one,
// else what kept us from writing, which is what broke the request.
func uploadError(asked, written error) error {
	if e := (*Error)(nil); errors.As(asked, &e) || errors.Is(written, io.ErrClosedPipe) {
		return asked
	}
	return written
}

func writeForm(form *multipart.Writer, known []v3.Resource, bits func(io.Writer) error) error {
	if known == nil {
		known = []v3.Resource{}
	}
	b, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("cannot encode the known files: %w", err)
	}
	if err := form.WriteField(v3.UploadResources, string(b)); err != nil {
		return err
	}
	if bits != nil {
		part, err := form.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {`form-data; name="` + v3.UploadBits + `"; filename="package.zip"`},
			"Content-Type":        {"application/octet-stream"},
		})
		if err != nil {
			return err
		}
		if err := bits(part); err != nil {
			return err
		}
	}
	return form.Close()
}
