package apps

import (
	"context"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
)

// checkDocker refuses the images of a manifest that cannot be had.
func (h *Handlers) checkDocker(ctx context.Context, m app.Manifest) error {
	for _, a := range m.Applications {
		if a.Docker == nil {
			continue
		}
		if err := h.Present.MayDocker(ctx); err != nil {
			return err
		}
		if err := stack.CheckImageRef(a.Docker.Image); err != nil {
			return rest.Unprocessable("For application '%s': docker.image: %v", a.Name, err)
		}
	}
	return nil
}

// describeDocker completes the manifest of an app that is an image with the image
// that it was pushed with last.
func (h *Handlers) describeDocker(guid string, m app.Manifest) error {
	a, err := h.Platform.Registry.App(guid)
	if err != nil || !a.Docker() {
		return err
	}
	all, err := h.Platform.Packages.OfApp(guid)
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
