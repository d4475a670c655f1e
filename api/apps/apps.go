package apps

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
)

// appHandlers answers requests about apps.
type appHandlers struct{ *Handlers }

func (h appHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/stacks/{guid}/apps", Needs: access.Authenticated,
			Handler: h.listStackApps, Shape: rest.PageOf[v3.App]("names", "guids", "space_guids", "organization_guids", "stacks", "lifecycle_type", "include", rest.ParamSelector).OrderedBy("created_at", "updated_at", "name", "state"),
		},
		{
			Pattern: "GET /v3/apps", Needs: access.Authenticated,
			Handler: h.listApps, Shape: rest.PageOf[v3.App]("names", "guids", "space_guids", "organization_guids", "stacks", "lifecycle_type", "include", rest.ParamSelector).OrderedBy("created_at", "updated_at", "name", "state"),
		},
		{
			Pattern: "POST /v3/apps", Needs: access.Authenticated, // the body names the space
			Handler: h.createApp, Shape: rest.Returns[v3.App](201).Reads(rest.JSON[v3.CreateApp]()),
		},
		{Pattern: "GET /v3/apps/{guid}", Needs: access.Read, Resource: access.App, Handler: h.getApp, Shape: rest.Returns[v3.App](200).Query("include")},
		{
			Pattern: "PATCH /v3/apps/{guid}", Needs: access.Develop, Resource: access.App,
			Handler: h.updateApp, Shape: rest.Returns[v3.App](200).Reads(rest.JSON[v3.UpdateApp]()),
		},
		{Pattern: "POST /v3/apps/{guid}/actions/start", Needs: access.Support, Resource: access.App, Handler: h.startApp, Shape: rest.Returns[v3.App](200)},
		{Pattern: "POST /v3/apps/{guid}/actions/stop", Needs: access.Support, Resource: access.App, Handler: h.stopApp, Shape: rest.Returns[v3.App](200)},
		{Pattern: "POST /v3/apps/{guid}/actions/restart", Needs: access.Support, Resource: access.App, Handler: h.restartApp, Shape: rest.Returns[v3.App](200)},
		{Pattern: "GET /v3/apps/{guid}/permissions", Needs: access.Read, Resource: access.App, Handler: h.getPermissions, Shape: rest.Returns[v3.Permissions](200)},
		{Pattern: "DELETE /v3/apps/{guid}", Needs: access.Develop, Resource: access.App, Handler: h.deleteApp, Shape: rest.StartsJob()},
	}
}

func (h appHandlers) listApps(r *http.Request) (any, error) {
	return h.pageOfApps(r, func(app.App) bool { return true })
}

// pageOfApps returns the page of the visible apps for which among returns true.
func (h appHandlers) pageOfApps(r *http.Request, among func(a app.App) bool) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	requested, err := q.Includes(appIncludes...)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	orgs, err := h.Platform.OrgsOfSpaces()
	if err != nil {
		return nil, err
	}
	apps, err := h.Platform.Registry.AppsWhere(func(a app.App) bool {
		return perms.SeesSpace(a.Space) && q.Matches("names", a.Name) && among(a) && q.Matches("organization_guids", orgs[a.Space]) && h.letsApp(q, a)
	})
	if err != nil {
		return nil, err
	}
	out := rest.List(h.Links, r, q, apps, rest.View[app.App, v3.App]{
		Key:     func(a app.App) rest.Key { return appKey(q, a) },
		Present: h.Present.ShowApp,
		Labels:  func(a app.App) map[string]string { return a.Metadata.Labels },
	})
	var spaces []string
	for _, a := range out.Resources {
		spaces = append(spaces, a.Relationships.Space.ID())
	}
	out.Included, err = h.Present.Included(requested, present.Related{Spaces: spaces}, perms)
	return out, err
}

func (h appHandlers) letsApp(q rest.Query, a app.App) bool {
	return q.Matches("names", a.Name) && q.Matches("guids", a.GUID) && q.Matches("space_guids", a.Space) &&
		q.Matches("stacks", h.Present.AppLifecycle(a).Data.Stack) && q.Matches("lifecycle_type", h.Present.AppLifecycle(a).Type)
}

func appKey(q rest.Query, a app.App) rest.Key {
	if q.OrderBy == "state" {
		return rest.Key{Name: string(a.State), Created: a.CreatedAt, Updated: a.UpdatedAt, GUID: a.GUID}
	}
	return rest.Key{Name: a.Name, Created: a.CreatedAt, Updated: a.UpdatedAt, GUID: a.GUID}
}

func (h appHandlers) createApp(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateApp](r)
	if err != nil {
		return nil, err
	}
	a := app.App{
		Name: body.Name, Space: body.Relationships.Space.ID(), Env: body.Env,
		Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)),
	}
	if err := h.Access.Require(r.Context(), access.Develop, a.Space); err != nil {
		return nil, platform.InvalidSpace(err)
	}
	if err := h.Present.SetLifecycle(r.Context(), &a, body.Lifecycle); err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
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
	h.Platform.LogToApp(a.GUID, "Created app with guid "+a.GUID)
	return rest.Answer{Status: http.StatusCreated, Body: h.Present.ShowApp(a)}, nil
}

// nameIsFree returns Cloud Foundry's error if the name is taken. Clients read that
// message as "the app already exists".
func nameIsFree(reg *registry.Registry, a app.App) error {
	other, err := reg.AppIn(a.Space, a.Name)
	if err == nil && other.GUID != a.GUID {
		return rest.Unprocessable("App with the name '%s' already exists.", a.Name)
	}
	return nil // PutApp checks it again
}

// appIncludes lists the resources that a client can include with an app.
var appIncludes = []string{"space", "space.organization", "org"}

func (h appHandlers) getApp(r *http.Request) (any, error) {
	requested, err := rest.ReadInclude(r, appIncludes)
	if err != nil {
		return nil, err
	}
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	out := h.Present.ShowApp(a)
	out.Included, err = h.Present.Included(requested, present.Related{Spaces: []string{a.Space}}, perms)
	return out, err
}

// getPermissions shows which data of an app the caller can read.
func (h appHandlers) getPermissions(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	return v3.Permissions{ReadBasic: perms.SeesSpace(a.Space), ReadSensitive: perms.Can(access.ReadSecrets, a.Space)}, err
}

func (h appHandlers) updateApp(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateApp](r)
	if err != nil {
		return nil, err
	}
	request := map[string]any{}
	a, err := h.Present.ChangeApp(r, "audit.app.update", request, func(w platform.Tx, a *app.App) error {
		if body.Name != nil {
			a.Name = *body.Name
			request["name"] = a.Name
		}
		if body.Lifecycle != nil {
			request["lifecycle"] = present.Lifecycle(body.Lifecycle.Data.Buildpacks, body.Lifecycle.Data.Stack)
		}
		if body.Metadata != nil {
			request["metadata"] = body.Metadata
			a.Metadata = a.Metadata.Merge(platform.MetadataChange(body.Metadata))
		}
		if err := nameIsFree(w.Registry, *a); err != nil {
			return err
		}
		return h.Present.SetLifecycle(r.Context(), a, body.Lifecycle)
	})
	if err != nil {
		return nil, err
	}
	h.Platform.LogToApp(a.GUID, "Updated app with guid "+a.GUID)
	return h.Present.ShowApp(a), nil
}

// withoutVariables returns the request for a new app with the values of its environment
// variables hidden: everyone who can read the event sees it.
func withoutVariables(body v3.CreateApp) map[string]any {
	request := map[string]any{"name": body.Name, "relationships": body.Relationships}
	if body.Env != nil {
		request["environment_variables"] = platform.Hidden
	}
	if body.Lifecycle != nil {
		requested := present.Lifecycle(body.Lifecycle.Data.Buildpacks, body.Lifecycle.Data.Stack)
		requested.Type = body.Lifecycle.Type
		request["lifecycle"] = requested
	}
	if body.Metadata != nil {
		request["metadata"] = body.Metadata
	}
	return request
}

func (h appHandlers) startApp(r *http.Request) (any, error) {
	return h.setState(r, "audit.app.start", "Starting app with guid ", func(w platform.Tx, a *app.App) error {
		a.State = app.Started
		if err := h.Platform.CheckStart(w.Registry, a); err != nil {
			return err
		}
		return h.Platform.Revise(w, *a)
	})
}

func (h appHandlers) stopApp(r *http.Request) (any, error) {
	return h.setState(r, "audit.app.stop", "Stopping app with guid ", func(_ platform.Tx, a *app.App) error {
		a.State = app.Stopped
		return nil
	})
}

func (h appHandlers) restartApp(r *http.Request) (any, error) {
	return h.setState(r, "audit.app.restart", "Restarting app with guid ", func(w platform.Tx, a *app.App) error {
		a.State = app.Started
		if err := h.Platform.CheckStart(w.Registry, a); err != nil {
			return err
		}
		if err := h.Platform.Revise(w, *a); err != nil {
			return err
		}
		return w.Registry.Restart(a.GUID)
	})
}

func (h appHandlers) setState(r *http.Request, event, sentence string, fn func(w platform.Tx, a *app.App) error) (any, error) {
	var a app.App
	err := h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if a, err = w.Registry.UpdateApp(r.PathValue("guid"), func(a *app.App) error { return fn(w, a) }); err != nil {
			return rest.Missing("App", err)
		}
		return w.Record(event, a, nil)
	})
	if err != nil {
		return nil, err
	}
	h.Platform.LogToApp(a.GUID, sentence+a.GUID)
	return h.Present.ShowApp(a), nil
}

// listStackApps lists the apps that run on a stack, including apps that name another
// stack that it replaces.
func (h appHandlers) listStackApps(r *http.Request) (any, error) {
	k, err := h.Present.Stack(r)
	if err != nil {
		return nil, err
	}
	return h.pageOfApps(r, func(a app.App) bool { return platform.RunsOn(a, k) })
}

func (h appHandlers) deleteApp(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordDeletion(a) })
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteApp, platform.Removal{GUID: a.GUID})
}
