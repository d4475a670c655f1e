package present

import (
	"cmp"
	"context"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
)

// MayDocker refuses images where an administrator has not allowed them.
func (p *Presenter) MayDocker(ctx context.Context) error { return p.Feature(ctx, app.FlagDocker) }

// setDocker makes a new app one that is an image; one that is there stays what it is.
func (p *Presenter) setDocker(ctx context.Context, a *app.App, kind string) error {
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
	return p.MayDocker(ctx)
}

// AppLifecycle shows how an app comes about.
func (p *Presenter) AppLifecycle(a app.App) v3.Lifecycle {
	if a.Docker() {
		return v3.Lifecycle{Type: v3.LifecycleDocker}
	}
	return Lifecycle(a.Buildpacks, cmp.Or(a.Stack, stack.Default))
}

// BuildLifecycle shows how a build makes a droplet.
func (p *Presenter) BuildLifecycle(b droplet.Build) v3.Lifecycle {
	if p, err := p.Platform.Packages.Get(b.Package); err == nil && p.Type == droplet.PackageDocker {
		return v3.Lifecycle{Type: v3.LifecycleDocker}
	}
	return Lifecycle(b.Buildpacks, b.Stack)
}

// ShowDocker shows a droplet that is an image.
func ShowDocker(out *v3.Droplet, run stack.RunConfig) {
	out.Lifecycle, out.Stack, out.Buildpacks = v3.Lifecycle{Type: v3.LifecycleDocker}, "", nil
	out.Image = &run.Ref
	delete(out.Links, "download")
}
