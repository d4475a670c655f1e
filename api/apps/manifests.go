package apps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/platform"
)

// manifestHandlers answers requests about manifests.
type manifestHandlers struct{ *Handlers }

func (h manifestHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "POST /v3/spaces/{guid}/manifest_diff", Needs: access.Develop, Resource: access.Space,
			Handler: h.diffManifest, Shape: rest.Returns[v3.ManifestDiff](202).Reads(manifestBody),
		},
		{
			Pattern: "POST /v3/spaces/{guid}/actions/apply_manifest", Needs: access.Develop, Resource: access.Space,
			Handler: h.applyManifest, Shape: rest.StartsJob().Reads(manifestBody),
		},
		{Pattern: "GET /v3/apps/{guid}/manifest", Needs: access.ReadSecrets, Resource: access.App, Handler: h.getManifest, Shape: rest.ReturnsBytes(manifestBody.Kind)},
	}
}

// readManifest returns the manifest in the body, parsed and as raw bytes. It checks
// first that the space in the path exists.
func (h manifestHandlers) readManifest(r *http.Request) (m app.Manifest, raw []byte, err error) {
	if _, err := h.Platform.Registry.Space(r.PathValue("guid")); err != nil {
		return m, nil, rest.Missing("Space", err)
	}
	if raw, err = io.ReadAll(r.Body); err != nil {
		return m, nil, rest.ReadError(err)
	}
	if m, _, err = app.ParseManifest(raw, nil); err != nil {
		return m, raw, err
	}
	return m, raw, h.checkRouteOptions(m)
}

// checkRouteOptions refuses options of routes whose feature flag is disabled.
func (h manifestHandlers) checkRouteOptions(m app.Manifest) error {
	var errs []error
	for _, a := range m.Applications {
		for i, rt := range a.Routes {
			if err := h.Present.CheckRouteOptions(fmt.Sprintf("routes[%d].options", i), rt.Options); err != nil {
				errs = append(errs, a.Explain(err))
			}
		}
	}
	return errors.Join(errs...)
}

func (h manifestHandlers) diffManifest(r *http.Request) (any, error) {
	m, _, err := h.readManifest(r)
	if err != nil {
		return nil, err
	}
	ds, err := h.Platform.Registry.DiffManifest(r.PathValue("guid"), m)
	if err != nil {
		return nil, err
	}
	out := v3.ManifestDiff{Diff: []v3.Difference{}}
	for _, d := range ds {
		out.Diff = append(out.Diff, v3.Difference{Op: d.Op, Path: d.Path, Was: d.Was, Value: d.Value})
	}
	more, err := h.Platform.ServiceBindings().Diff(r.PathValue("guid"), m)
	out.Diff = append(out.Diff, more...)
	return rest.Answer{Status: http.StatusAccepted, Body: out}, err
}

// applyManifest refuses a manifest that cannot be parsed at once, and leaves the rest
// to a job.
func (h manifestHandlers) applyManifest(r *http.Request) (any, error) {
	m, raw, err := h.readManifest(r)
	if err != nil {
		return nil, err
	}
	if err := h.checkDocker(r.Context(), m); err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpApplyManifest, platform.Application{
		Space: r.PathValue("guid"), Manifest: string(raw), Actor: platform.ActorOf(r.Context()),
		NoRoutes: h.Present.Feature(r.Context(), app.FlagRouteCreation) != nil, Folders: access.Principal(r.Context()).Admin(),
	})
}

// getManifest returns a manifest that can create the app again.
func (h manifestHandlers) getManifest(r *http.Request) (any, error) {
	m, err := h.Platform.Registry.ManifestOf(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("App", err)
	}
	if m.Applications[0].Services, err = h.Platform.ServiceBindings().InManifest(r.PathValue("guid")); err != nil {
		return nil, err
	}
	if err := h.describeDocker(r.PathValue("guid"), m); err != nil {
		return nil, err
	}
	hide, err := h.envIsHidden(r)
	if err != nil {
		return nil, err
	}
	if hide {
		m.Applications[0].Env = nil
	}
	text, err := m.Text()
	return rest.Answer{Status: http.StatusOK, Raw: text, ContentType: v3.ManifestType}, err
}

// manifestBody is the body type of a manifest.
var manifestBody = rest.Bytes(v3.ManifestType)

// checkDocker refuses a manifest with images that are not available.
func (h manifestHandlers) checkDocker(ctx context.Context, m app.Manifest) error {
	for _, a := range m.Applications {
		if a.Docker == nil {
			continue
		}
		if err := h.Present.AllowDocker(ctx); err != nil {
			return err
		}
		if err := stack.CheckImageRef(a.Docker.Image); err != nil {
			return rest.Unprocessable("For application '%s': docker.image: %v", a.Name, err)
		}
	}
	return nil
}

// describeDocker adds the most recently pushed image to the manifest of an app that
// runs an image.
func (h manifestHandlers) describeDocker(guid string, m app.Manifest) error {
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
