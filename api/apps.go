package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
)

// appsEndpoints are the endpoints of this file.
func (s *Server) appsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/stacks/{guid}/apps", Needs: access.Authenticated,
			Handler: s.listStackApps, Shape: rest.PageOf[v3.App]("names", "guids", "space_guids", "organization_guids", "stacks", "lifecycle_type", "include", rest.ParamSelector).OrderedBy("created_at", "updated_at", "name", "state"),
		},
		{
			Pattern: "GET /v3/apps", Needs: access.Authenticated,
			Handler: s.listApps, Shape: rest.PageOf[v3.App]("names", "guids", "space_guids", "organization_guids", "stacks", "lifecycle_type", "include", rest.ParamSelector).OrderedBy("created_at", "updated_at", "name", "state"),
		},
		{
			Pattern: "POST /v3/apps", Needs: access.Authenticated, // the body names the space
			Handler: s.createApp, Shape: rest.Returns[v3.App](201).Reads(rest.JSON[v3.CreateApp]()),
		},
		{Pattern: "GET /v3/apps/{guid}", Needs: access.Read, Resource: access.App, Handler: s.getApp, Shape: rest.Returns[v3.App](200).Query("include")},
		{
			Pattern: "PATCH /v3/apps/{guid}", Needs: access.Develop, Resource: access.App,
			Handler: s.updateApp, Shape: rest.Returns[v3.App](200).Reads(rest.JSON[v3.UpdateApp]()),
		},
		{Pattern: "POST /v3/apps/{guid}/actions/start", Needs: access.Support, Resource: access.App, Handler: s.startApp, Shape: rest.Returns[v3.App](200)},
		{Pattern: "POST /v3/apps/{guid}/actions/stop", Needs: access.Support, Resource: access.App, Handler: s.stopApp, Shape: rest.Returns[v3.App](200)},
		{Pattern: "POST /v3/apps/{guid}/actions/restart", Needs: access.Support, Resource: access.App, Handler: s.restartApp, Shape: rest.Returns[v3.App](200)},
		{Pattern: "GET /v3/apps/{guid}/permissions", Needs: access.Read, Resource: access.App, Handler: s.getPermissions, Shape: rest.Returns[v3.Permissions](200)},
	}
}

// appOf is the app that the path names.
func (s *Server) appOf(r *http.Request) (app.App, error) {
	a, err := s.c.Registry.App(r.PathValue("guid"))
	return a, rest.Missing("App", err)
}

func (s *Server) listApps(r *http.Request) (any, error) {
	return s.pageOfApps(r, func(app.App) bool { return true })
}

// pageOfApps is the list of those apps that are among.
func (s *Server) pageOfApps(r *http.Request, among func(a app.App) bool) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	asked, err := q.Includes(besideApp...)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	apps, err := s.c.Registry.Apps()
	if err != nil {
		return nil, err
	}
	orgs, err := s.platform.OrgsOfSpaces()
	if err != nil {
		return nil, err
	}
	apps = slices.DeleteFunc(apps, func(a app.App) bool {
		return !perms.SeesSpace(a.Space) || !among(a) || !q.Matches("organization_guids", orgs[a.Space]) || !s.letsApp(q, a)
	})
	out := rest.List(s.links, r, q, apps, rest.View[app.App, v3.App]{
		Key:     func(a app.App) rest.Key { return appKey(q, a) },
		Present: s.presentApp,
		Labels:  func(a app.App) map[string]string { return a.Metadata.Labels },
	})
	var spaces []string
	for _, a := range out.Resources {
		spaces = append(spaces, a.Relationships.Space.ID())
	}
	out.Included, err = s.included(asked, beside{spaces: spaces}, perms)
	return out, err
}

func (s *Server) letsApp(q rest.Query, a app.App) bool {
	return q.Matches("names", a.Name) && q.Matches("guids", a.GUID) && q.Matches("space_guids", a.Space) &&
		q.Matches("stacks", s.appLifecycle(a).Data.Stack) && q.Matches("lifecycle_type", s.appLifecycle(a).Type)
}

func appKey(q rest.Query, a app.App) rest.Key {
	if q.OrderBy == "state" {
		return rest.Key{Name: string(a.State), Created: a.CreatedAt, Updated: a.UpdatedAt, GUID: a.GUID}
	}
	return rest.Key{Name: a.Name, Created: a.CreatedAt, Updated: a.UpdatedAt, GUID: a.GUID}
}

func (s *Server) createApp(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateApp](r)
	if err != nil {
		return nil, err
	}
	a := app.App{
		Name: body.Name, Space: body.Relationships.Space.ID(), Env: body.Env,
		Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)),
	}
	if err := s.access.Require(r.Context(), access.Develop, a.Space); err != nil {
		return nil, platform.InvalidSpace(err)
	}
	if err := s.setLifecycle(r.Context(), &a, body.Lifecycle); err != nil {
		return nil, err
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if err := nameIsFree(w.Registry, a); err != nil {
			return err
		}
		if a, err = w.Registry.PutApp(a); err != nil {
			return err
		}
		if err := w.RecordNew(a, nil, nil); err != nil {
			return err
		}
		return w.Record("audit.app.create", a, map[string]any{"request": withoutVariables(body)})
	})
	if err != nil {
		return nil, err
	}
	s.platform.LogToApp(a.GUID, "Created app with guid "+a.GUID)
	return rest.Answer{Status: http.StatusCreated, Body: s.presentApp(a)}, nil
}

// nameIsFree says in the platform's words that a name is taken: clients take that
// for "there it is".
func nameIsFree(reg *registry.Registry, a app.App) error {
	other, err := reg.AppIn(a.Space, a.Name)
	if err == nil && other.GUID != a.GUID {
		return rest.Unprocessable("App with the name '%s' already exists.", a.Name)
	}
	return nil // PutApp has the last word
}

func (s *Server) setLifecycle(ctx context.Context, a *app.App, l *v3.Lifecycle) error {
	if l == nil {
		return nil
	}
	if l.Type != v3.LifecycleBuildpack && l.Type != v3.LifecycleDocker {
		return rest.Unprocessable("lifecycle.type must be %s or %s, not %q", v3.LifecycleBuildpack, v3.LifecycleDocker, l.Type)
	}
	if err := s.setDocker(ctx, a, l.Type); err != nil || a.Docker() {
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
	return s.platform.CheckStaging(a.Space, a.Stack, a.Buildpacks)
}

// besideApp is what can stand beside an app.
var besideApp = []string{"space", "space.organization", "org"}

func (s *Server) getApp(r *http.Request) (any, error) {
	asked, err := rest.ReadInclude(r, besideApp)
	if err != nil {
		return nil, err
	}
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	out := s.presentApp(a)
	out.Included, err = s.included(asked, beside{spaces: []string{a.Space}}, perms)
	return out, err
}

// getPermissions tells what the one who asks may read of an app.
func (s *Server) getPermissions(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.Permissions(r.Context())
	return v3.Permissions{ReadBasic: perms.SeesSpace(a.Space), ReadSensitive: perms.Can(access.ReadSecrets, a.Space)}, err
}

func (s *Server) updateApp(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateApp](r)
	if err != nil {
		return nil, err
	}
	request := map[string]any{}
	a, err := s.changeApp(r, "audit.app.update", request, func(w platform.Tx, a *app.App) error {
		if body.Name != nil {
			a.Name = *body.Name
			request["name"] = a.Name
		}
		if body.Lifecycle != nil {
			request["lifecycle"] = lifecycle(body.Lifecycle.Data.Buildpacks, body.Lifecycle.Data.Stack)
		}
		if body.Metadata != nil {
			request["metadata"] = body.Metadata
			a.Metadata = a.Metadata.Merge(platform.MetadataChange(body.Metadata))
		}
		if err := nameIsFree(w.Registry, *a); err != nil {
			return err
		}
		return s.setLifecycle(r.Context(), a, body.Lifecycle)
	})
	if err != nil {
		return nil, err
	}
	s.platform.LogToApp(a.GUID, "Updated app with guid "+a.GUID)
	return s.presentApp(a), nil
}

// withoutVariables is what somebody asked a new app to be, for everybody to read.
func withoutVariables(body v3.CreateApp) map[string]any {
	request := map[string]any{"name": body.Name, "relationships": body.Relationships}
	if body.Env != nil {
		request["environment_variables"] = platform.Hidden
	}
	if body.Lifecycle != nil {
		asked := lifecycle(body.Lifecycle.Data.Buildpacks, body.Lifecycle.Data.Stack)
		asked.Type = body.Lifecycle.Type
		request["lifecycle"] = asked
	}
	if body.Metadata != nil {
		request["metadata"] = body.Metadata
	}
	return request
}

// changeApp changes the app that the path names and records it.
func (s *Server) changeApp(r *http.Request, event string, request map[string]any, fn func(w platform.Tx, a *app.App) error) (a app.App, err error) {
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
		a, err = w.Registry.UpdateApp(r.PathValue("guid"), func(a *app.App) error { return fn(w, a) })
		if err != nil {
			return rest.Missing("App", err)
		}
		return w.Record(event, a, map[string]any{"request": request})
	})
	return a, err
}

func (s *Server) startApp(r *http.Request) (any, error) {
	return s.setState(r, "audit.app.start", "Starting app with guid ", func(w platform.Tx, a *app.App) error {
		a.State = app.Started
		if err := s.platform.MayStart(w.Registry, a); err != nil {
			return err
		}
		return s.platform.Revise(w, *a)
	})
}

func (s *Server) stopApp(r *http.Request) (any, error) {
	return s.setState(r, "audit.app.stop", "Stopping app with guid ", func(_ platform.Tx, a *app.App) error {
		a.State = app.Stopped
		return nil
	})
}

func (s *Server) restartApp(r *http.Request) (any, error) {
	return s.setState(r, "audit.app.restart", "Restarting app with guid ", func(w platform.Tx, a *app.App) error {
		a.State = app.Started
		if err := s.platform.MayStart(w.Registry, a); err != nil {
			return err
		}
		if err := s.platform.Revise(w, *a); err != nil {
			return err
		}
		return w.Registry.Restart(a.GUID)
	})
}

func (s *Server) setState(r *http.Request, event, sentence string, fn func(w platform.Tx, a *app.App) error) (any, error) {
	var a app.App
	err := s.platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if a, err = w.Registry.UpdateApp(r.PathValue("guid"), func(a *app.App) error { return fn(w, a) }); err != nil {
			return rest.Missing("App", err)
		}
		return w.Record(event, a, nil)
	})
	if err != nil {
		return nil, err
	}
	s.platform.LogToApp(a.GUID, sentence+a.GUID)
	return s.presentApp(a), nil
}

func (s *Server) presentApp(a app.App) v3.App {
	self := s.links.Href("v3", "apps", a.GUID)
	at := func(elem ...string) v3.Link {
		return v3.Link{Href: s.links.Href(append([]string{"v3", "apps", a.GUID}, elem...)...)}
	}
	return v3.App{
		GUID: a.GUID, CreatedAt: v3.At(a.CreatedAt), UpdatedAt: v3.At(a.UpdatedAt), Name: a.Name, State: string(a.State),
		Lifecycle:     s.appLifecycle(a),
		Relationships: v3.AppRelationships{Space: v3.To(a.Space), CurrentDroplet: v3.To(a.Droplet)},
		Metadata:      rest.PresentMetadata(a.Metadata),
		Links: v3.Links{
			"self":                  {Href: self},
			"space":                 {Href: s.links.Href("v3", "spaces", a.Space)},
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

// lifecycle shows how an app is staged; what lets somebody fetch a buildpack is
// nobody else's business.
func lifecycle(buildpacks []string, stack string) v3.Lifecycle {
	shown := []string{}
	for _, b := range buildpacks {
		shown = append(shown, droplet.WithoutSecret(b))
	}
	return v3.Lifecycle{Type: v3.LifecycleBuildpack, Data: v3.LifecycleData{Buildpacks: shown, Stack: stack}}
}

// listStackApps gives the apps that run on a stack, also those that name another
// one that it stands for.
func (s *Server) listStackApps(r *http.Request) (any, error) {
	k, err := s.stackOf(r)
	if err != nil {
		return nil, err
	}
	return s.pageOfApps(r, func(a app.App) bool { return platform.RunsOn(a, k) })
}
