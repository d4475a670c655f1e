package present

import (
	"context"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
)

// App is the app that the path names.
func (p *Presenter) App(r *http.Request) (app.App, error) {
	a, err := p.Platform.Registry.App(r.PathValue("guid"))
	return a, rest.Missing("App", err)
}

func (p *Presenter) SetLifecycle(ctx context.Context, a *app.App, l *v3.Lifecycle) error {
	if l == nil {
		return nil
	}
	if l.Type != v3.LifecycleBuildpack && l.Type != v3.LifecycleDocker {
		return rest.Unprocessable("lifecycle.type must be %s or %s, not %q", v3.LifecycleBuildpack, v3.LifecycleDocker, l.Type)
	}
	if err := p.setDocker(ctx, a, l.Type); err != nil || a.Docker() {
		return err
	}
	// A stack alone leaves the buildpacks as they are.
	if l.Data.Buildpacks != nil || l.Data.Stack == "" {
		a.Buildpacks = l.Data.Buildpacks
		if err := platform.CheckFolders(a.Buildpacks, access.Principal(ctx).Admin()); err != nil {
			return err
		}
	}
	if l.Data.Stack != "" {
		a.Stack = l.Data.Stack
	}
	return p.Platform.CheckStaging(a.Space, a.Stack, a.Buildpacks)
}

// ChangeApp changes the app that the path names and records it.
func (p *Presenter) ChangeApp(r *http.Request, event string, request map[string]any, fn func(w platform.Tx, a *app.App) error) (a app.App, err error) {
	err = p.Platform.Change(r.Context(), func(w platform.Tx) error {
		a, err = w.Registry.UpdateApp(r.PathValue("guid"), func(a *app.App) error { return fn(w, a) })
		if err != nil {
			return rest.Missing("App", err)
		}
		return w.Record(event, a, map[string]any{"request": request})
	})
	return a, err
}

func (p *Presenter) ShowApp(a app.App) v3.App {
	self := p.Links.Href("v3", "apps", a.GUID)
	at := func(elem ...string) v3.Link {
		return v3.Link{Href: p.Links.Href(append([]string{"v3", "apps", a.GUID}, elem...)...)}
	}
	return v3.App{
		GUID: a.GUID, CreatedAt: v3.At(a.CreatedAt), UpdatedAt: v3.At(a.UpdatedAt), Name: a.Name, State: string(a.State),
		Lifecycle:     p.AppLifecycle(a),
		Relationships: v3.AppRelationships{Space: v3.To(a.Space), CurrentDroplet: v3.To(a.Droplet)},
		Metadata:      rest.PresentMetadata(a.Metadata),
		Links: v3.Links{
			"self":                  {Href: self},
			"space":                 {Href: p.Links.Href("v3", "spaces", a.Space)},
			"environment_variables": at("environment_variables"),
			"processes":             at("processes"),
			"packages":              at("packages"),
			"droplets":              at("droplets"),
			"current_droplet":       at("droplets", "current"),
			"sidecars":              at("sidecars"),
			"tasks":                 at("tasks"),
			"start":                 {Href: self + "/actions/start", Method: http.MethodPost},
			"stop":                  {Href: self + "/actions/stop", Method: http.MethodPost},
		},
	}
}

// Lifecycle shows how an app is staged; what lets somebody fetch a buildpack is
// nobody else's business.
func Lifecycle(buildpacks []string, stack string) v3.Lifecycle {
	shown := []string{}
	for _, b := range buildpacks {
		shown = append(shown, droplet.WithoutSecret(b))
	}
	return v3.Lifecycle{Type: v3.LifecycleBuildpack, Data: v3.LifecycleData{Buildpacks: shown, Stack: stack}}
}
