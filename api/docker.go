package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
)

// mayDocker refuses images where an administrator has not allowed them.
func (s *Server) mayDocker(ctx context.Context) error { return s.feature(ctx, app.FlagDocker) }

// setDocker makes a new app one that is an image; one that is there stays what it is.
func (s *Server) setDocker(ctx context.Context, a *app.App, kind string) error {
	if a.GUID != "" {
		if a.Docker() != (kind == v3.LifecycleDocker) {
			return rest.Unprocessable("Lifecycle type cannot be changed")
		}
		return nil
	}
	if kind != v3.LifecycleDocker {
		return nil
	}
	a.Lifecycle = app.LifecycleDocker
	return s.mayDocker(ctx)
}

// checkDocker refuses the images of a manifest that cannot be had.
func (s *Server) checkDocker(ctx context.Context, m app.Manifest) error {
	for _, a := range m.Applications {
		if a.Docker == nil {
			continue
		}
		if err := s.mayDocker(ctx); err != nil {
			return err
		}
		if err := stack.CheckImageRef(a.Docker.Image); err != nil {
			return rest.Unprocessable("For application '%s': docker.image: %v", a.Name, err)
		}
	}
	return nil
}

// createDockerPackage makes a package of an image. It is fetched when it is staged.
func (s *Server) createDockerPackage(r *http.Request, a app.App, body v3.CreatePackage) (droplet.Package, error) {
	var none droplet.Package
	if !a.Docker() {
		return none, rest.Unprocessable("Cannot create Docker package for a buildpack app.")
	}
	if err := s.mayDocker(r.Context()); err != nil {
		return none, err
	}
	data, err := rest.DecodeBytes[v3.DockerData](append([]byte{}, body.Data...))
	if err != nil {
		return none, rest.Unprocessable("data must be an object with image, and perhaps username and password")
	}
	if data.Image == "" {
		return none, rest.Unprocessable("data.image can't be blank")
	}
	if err := stack.CheckImageRef(data.Image); err != nil {
		return none, rest.Unprocessable("data.image: %v", err)
	}
	return s.c.Packages.CreateImage(a.GUID, stack.ImageSource{Ref: data.Image, Username: data.Username, Password: data.Password})
}

// appLifecycle shows how an app comes about.
func (s *Server) appLifecycle(a app.App) v3.Lifecycle {
	if a.Docker() {
		return v3.Lifecycle{Type: v3.LifecycleDocker}
	}
	return lifecycle(a.Buildpacks, cmp.Or(a.Stack, stack.Default))
}

// buildLifecycle shows how a build makes a droplet.
func (s *Server) buildLifecycle(b droplet.Build) v3.Lifecycle {
	if p, err := s.c.Packages.Get(b.Package); err == nil && p.Type == droplet.PackageDocker {
		return v3.Lifecycle{Type: v3.LifecycleDocker}
	}
	return lifecycle(b.Buildpacks, b.Stack)
}

// showDocker shows a droplet that is an image.
func showDocker(out *v3.Droplet, run stack.RunConfig) {
	out.Lifecycle, out.Stack, out.Buildpacks = v3.Lifecycle{Type: v3.LifecycleDocker}, "", nil
	out.Image = &run.Ref
	delete(out.Links, "download")
}

// describeDocker completes the manifest of an app that is an image with the image
// that it was pushed with last.
func (s *Server) describeDocker(guid string, m app.Manifest) error {
	a, err := s.c.Registry.App(guid)
	if err != nil || !a.Docker() {
		return err
	}
	all, err := s.c.Packages.OfApp(guid)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Image == nil {
			continue
		}
		for i := range m.Applications {
			m.Applications[i].Docker = &app.ManifestDocker{Image: p.Image.Ref, Username: p.Image.Username}
		}
		return nil
	}
	return nil
}
