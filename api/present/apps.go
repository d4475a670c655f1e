package present

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/platform"
)

// App returns the app that the path names.
func (p *Presenter) App(r *http.Request) (app.App, error) {
	a, err := p.Platform.Registry.App(r.PathValue("guid"))
	return a, rest.Missing("App", err)
}

// SetLifecycle sets the lifecycle of an app to the one in a request.
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
	// A stack alone does not change the buildpacks.
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

// ShowApp returns an app as responses show it.
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

// Lifecycle returns how an app is staged, without the secrets in the URLs of
// buildpacks.
func Lifecycle(buildpacks []string, stack string) v3.Lifecycle {
	shown := []string{}
	for _, b := range buildpacks {
		shown = append(shown, droplet.WithoutSecret(b))
	}
	return v3.Lifecycle{Type: v3.LifecycleBuildpack, Data: v3.LifecycleData{Buildpacks: shown, Stack: stack}}
}

// AllowDocker refuses images if their feature flag is disabled.
func (p *Presenter) AllowDocker(ctx context.Context) error { return p.Feature(ctx, app.FlagDocker) }

// setDocker sets the docker lifecycle of a new app. An existing app cannot change its
// lifecycle.
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
	return p.AllowDocker(ctx)
}

// AppLifecycle returns the lifecycle of an app.
func (p *Presenter) AppLifecycle(a app.App) v3.Lifecycle {
	if a.Docker() {
		return v3.Lifecycle{Type: v3.LifecycleDocker}
	}
	return Lifecycle(a.Buildpacks, cmp.Or(a.Stack, p.Platform.Stacks().DefaultName()))
}

// BuildLifecycle returns the lifecycle of a build.
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

// VisibleApps returns the apps that the caller can see and that match the query's
// filters for apps, spaces and orgs, by guid.
func (p *Presenter) VisibleApps(r *http.Request, q rest.Query) (map[string]app.App, error) {
	perms, err := p.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	orgs, err := p.Platform.OrgsOfSpaces()
	if err != nil {
		return nil, err
	}
	apps, err := p.Platform.Registry.AppsWhere(func(a app.App) bool {
		return perms.SeesSpace(a.Space) && q.Matches("app_guids", a.GUID) && q.Matches("space_guids", a.Space) && q.Matches("organization_guids", orgs[a.Space])
	})
	out := make(map[string]app.App, len(apps))
	for _, a := range apps {
		out[a.GUID] = a
	}
	return out, err
}

// Secrets returns a function that reports whether the caller can read the secrets of an
// app. Commands are secrets, because they can contain passwords.
func (p *Presenter) Secrets(r *http.Request) (func(app string) bool, error) {
	perms, err := p.Access.Permissions(r.Context())
	return func(guid string) bool {
		if perms.Secrets {
			return true
		}
		a, err := p.Platform.Registry.App(guid)
		return err == nil && perms.Can(access.ReadSecrets, a.Space)
	}, err
}

// HideSecret returns a secret if open is set, otherwise a placeholder.
func HideSecret(text string, open bool) string {
	if open {
		return text
	}
	return platform.Hidden
}

// OfApps reads resources that belong to apps.
type OfApps[T any] struct {
	One func(app string) ([]T, error) // the resources of one app
	All func() ([]T, error)           // the resources of all apps, nil if the path always names an app
	App func(T) string                // the app of a resource, nil if All is nil
}

// List reads the query and the resources of the app that the path names. If the path
// names none, these are the resources of all apps that the caller can see and that match
// the query's filters for apps, spaces and orgs.
func (o OfApps[T]) List(p *Presenter, r *http.Request) (rest.Query, []T, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return q, nil, err
	}
	if o.All == nil || r.PathValue("guid") != "" {
		a, err := p.App(r)
		if err != nil {
			return q, nil, err
		}
		all, err := o.One(a.GUID)
		return q, all, err
	}
	apps, err := p.VisibleApps(r, q)
	if err != nil {
		return q, nil, err
	}
	all, err := o.among(apps, q)
	return q, slices.DeleteFunc(all, func(v T) bool { _, seen := apps[o.App(v)]; return !seen }), err
}

// among reads app by app if the query names apps, otherwise all at once.
func (o OfApps[T]) among(apps map[string]app.App, q rest.Query) ([]T, error) {
	if _, some := q.Filters["app_guids"]; !some {
		return o.All()
	}
	var out []T
	for guid := range apps {
		found, err := o.One(guid)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// AppInBody returns an app that the path does not name, such as one in a body, if the
// caller has the need there.
func (p *Presenter) AppInBody(ctx context.Context, n access.Need, guid string) (app.App, error) {
	a, err := p.Platform.Registry.App(guid)
	if err != nil {
		return a, err
	}
	return a, p.Access.Require(ctx, n, a.Space)
}

// Stack returns the stack that the path names.
func (p *Presenter) Stack(r *http.Request) (stack.Record, error) {
	k, err := p.Platform.Stacks().ByGUID(r.PathValue("guid"))
	return k, rest.Missing("Stack", err)
}
