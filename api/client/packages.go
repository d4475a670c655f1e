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
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dewrun/dew/api/v3"
)

const uploadTimeout = time.Hour

// MatchResources returns the files that the daemon already has.
func (c Bits) MatchResources(ctx context.Context, rs []v3.Resource) ([]v3.Resource, error) {
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

// CreatePackage creates a package of an app that waits for its upload.
func (c Bits) CreatePackage(ctx context.Context, app string) (v3.Package, error) {
	var p v3.Package
	body := v3.CreatePackage{Type: v3.PackageBits, Relationships: v3.PackageRelationships{App: v3.To(app)}}
	_, err := c.call(ctx, http.MethodPost, "/v3/packages", body, &p)
	return p, err
}

// Package reads a package.
func (c Bits) Package(ctx context.Context, guid string) (v3.Package, error) {
	var p v3.Package
	_, err := c.call(ctx, http.MethodGet, "/v3/packages/"+escape(guid), nil, &p)
	return p, err
}

// NewestPackage reads the newest package of an app. ok is false if the app has none.
func (c Bits) NewestPackage(ctx context.Context, app string) (p v3.Package, ok bool, err error) {
	q := newest()
	q.Set("states", v3.PackageReady)
	ps, err := list[v3.Package](ctx, c.transport, "/v3/apps/"+escape(app)+"/packages", q)
	if err != nil || len(ps) == 0 {
		return v3.Package{}, false, err
	}
	return ps[0], true, nil
}

// UploadPackage uploads the files of a package: the resources that the daemon has, and
// a zip of the others. bits writes the zip while it is sent; nil means that the daemon
// has all files.
func (c Bits) UploadPackage(ctx context.Context, guid string, known []v3.Resource, bits func(io.Writer) error) (v3.Package, error) {
	var p v3.Package
	err := c.upload(ctx, "/v3/packages/"+escape(guid)+"/upload", files{known, bits}, &p)
	return p, err
}

// UploadFolder uploads a folder as a buildpack for the apps of the space, like the
// files of a package. It returns the name by which apps use it.
func (c Bits) UploadFolder(ctx context.Context, space, name string, known []v3.Resource, bits func(io.Writer) error) (string, error) {
	var f v3.UploadedFolder
	err := c.upload(ctx, "/dew/v1/spaces/"+escape(space)+"/buildpacks?"+url.Values{"name": {name}}.Encode(), files{known, bits}, &f)
	return f.Name, err
}

// files are the contents of an upload.
type files struct {
	known []v3.Resource
	bits  func(io.Writer) error
}

// upload sends files as a form and reads the response into out.
func (t *transport) upload(ctx context.Context, path string, f files, out any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, uploadTimeout, fmt.Errorf("the upload took longer than %s", uploadTimeout))
	defer cancel()
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	written := make(chan error, 1)
	go func() {
		err := writeForm(form, f.known, f.bits)
		w.CloseWithError(err) // nil closes the body normally
		written <- err
	}()
	_, err := t.exchange(ctx, Request{
		Method: http.MethodPost, Path: path, Body: r,
		Header: http.Header{"Content-Type": {form.FormDataContentType()}, "Accept": {"application/json"}},
	}, out)
	_ = r.Close() // the response can come before the end of the body; the rest is discarded
	if werr := <-written; err != nil && werr != nil && ctx.Err() == nil {
		return uploadError(err, werr)
	}
	return err
}

// uploadError chooses the error to report: the daemon's message if there is one,
// otherwise the write error, which broke the request.
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

// CreateBuild stages a package.
func (c Bits) CreateBuild(ctx context.Context, pkg string) (v3.Build, error) {
	var b v3.Build
	_, err := c.call(ctx, http.MethodPost, "/v3/builds", v3.CreateBuild{Package: v3.GUID{GUID: pkg}}, &b)
	return b, err
}

// Build reads a build.
func (c Bits) Build(ctx context.Context, guid string) (v3.Build, error) {
	var b v3.Build
	_, err := c.call(ctx, http.MethodGet, "/v3/builds/"+escape(guid), nil, &b)
	return b, err
}

// StagedBuilds lists the builds of an app that produced a droplet, newest first.
func (c Bits) StagedBuilds(ctx context.Context, app string) ([]v3.Build, error) {
	return list[v3.Build](ctx, c.transport, "/v3/apps/"+escape(app)+"/builds", url.Values{"order_by": {"-created_at"}, "states": {v3.BuildStaged}})
}

// StagingBuilds lists the unfinished builds, oldest first, of one app or of all.
func (c Bits) StagingBuilds(ctx context.Context, app string) ([]v3.Build, error) {
	q := url.Values{"order_by": {"created_at"}, "states": {v3.BuildStaging}}
	if app != "" {
		q.Set("app_guids", filter(app))
	}
	return list[v3.Build](ctx, c.transport, "/v3/builds", q)
}

// Droplet reads the current droplet of an app. The error is NotFound if it has none.
func (c Bits) Droplet(ctx context.Context, app string) (v3.Droplet, error) {
	var d v3.Droplet
	_, err := c.call(ctx, http.MethodGet, "/v3/apps/"+escape(app)+"/droplets/current", nil, &d)
	return d, err
}

// SetDroplet sets the droplet that an app runs from its next start on.
func (c Bits) SetDroplet(ctx context.Context, app, droplet string) error {
	body := v3.CurrentDroplet{Data: &v3.GUID{GUID: droplet}}
	_, err := c.call(ctx, http.MethodPatch, "/v3/apps/"+escape(app)+"/relationships/current_droplet", body, nil)
	return err
}

// Packages lists the packages of an app, newest first.
func (c Bits) Packages(ctx context.Context, app string) ([]v3.Package, error) {
	return list[v3.Package](ctx, c.transport, "/v3/apps/"+escape(app)+"/packages", url.Values{"order_by": {"-created_at"}})
}

// CopyPackage copies a package of another app to an app.
func (c Bits) CopyPackage(ctx context.Context, source, app string) (v3.Package, error) {
	var p v3.Package
	body := v3.CopyPackage{Relationships: v3.PackageRelationships{App: v3.To(app)}}
	_, err := c.call(ctx, http.MethodPost, "/v3/packages?source_guid="+url.QueryEscape(source), body, &p)
	return p, err
}

// DownloadDroplet writes the files of a droplet to to as a compressed tar.
func (c Bits) DownloadDroplet(ctx context.Context, guid string, to io.Writer) error {
	resp, err := c.send(ctx, Request{Method: http.MethodGet, Path: "/v3/droplets/" + escape(guid) + "/download"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			return fmt.Errorf("cannot read the response: %w", err)
		}
		return errorOf(resp.StatusCode, b)
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return fmt.Errorf("cannot download the droplet: %w", err)
	}
	return nil
}

// CreateDroplet creates a droplet of an app that waits for its files.
func (c Bits) CreateDroplet(ctx context.Context, app string) (v3.Droplet, error) {
	var d v3.Droplet
	_, err := c.call(ctx, http.MethodPost, "/v3/droplets", v3.CreateDroplet{Relationships: v3.DropletRelationships{App: v3.To(app)}}, &d)
	return d, err
}

// UploadDroplet uploads a compressed tar file to a droplet.
func (c Bits) UploadDroplet(ctx context.Context, guid, name string) error {
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

// uploadFile sends one file as a form and waits for the job that processes it.
func (t *transport) uploadFile(ctx context.Context, path, name string, bits func(io.Writer) error) error {
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
	h, err := t.exchange(ctx, Request{
		Method: http.MethodPost, Path: path, Body: r,
		Header: http.Header{"Content-Type": {form.FormDataContentType()}, "Accept": {"application/json"}},
	}, nil)
	_ = r.Close() // the response can come before the end of the body; the rest is discarded
	if werr := <-written; err != nil && werr != nil && ctx.Err() == nil {
		return uploadError(err, werr)
	}
	if err != nil {
		return err
	}
	return t.follow(ctx, h)
}

// CreateImagePackage creates a package of an app from an image.
func (c Bits) CreateImagePackage(ctx context.Context, app string, image v3.DockerData) (v3.Package, error) {
	var p v3.Package
	body := struct {
		Type          string                  `json:"type"`
		Relationships v3.PackageRelationships `json:"relationships"`
		Data          v3.DockerData           `json:"data"`
	}{v3.PackageDocker, v3.PackageRelationships{App: v3.To(app)}, image}
	_, err := c.call(ctx, http.MethodPost, "/v3/packages", body, &p)
	return p, err
}

// Droplets lists the droplets of an app, newest first.
func (c Bits) Droplets(ctx context.Context, app string) ([]v3.Droplet, error) {
	return list[v3.Droplet](ctx, c.transport, "/v3/droplets", url.Values{"app_guids": {filter(app)}, "order_by": {"-created_at"}})
}
