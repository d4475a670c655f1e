package apps

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services/bindingfiles"
)

// envHandlers answers requests about environment variables of apps.
type envHandlers struct{ *Handlers }

func (h envHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /v3/apps/{guid}/env", Needs: access.ReadEnv, Resource: access.App, Handler: h.getEnv, Shape: rest.Returns[v3.Env](200)},
		{Pattern: "GET /v3/apps/{guid}/environment_variables", Needs: access.ReadEnv, Resource: access.App, Handler: h.getVariables, Shape: rest.Returns[v3.EnvVars](200)},
		{
			Pattern: "PATCH /v3/apps/{guid}/environment_variables", Needs: access.Support, Resource: access.App,
			Handler: h.updateVariables, Shape: rest.Returns[v3.EnvVars](200).Reads(rest.JSON[v3.UpdateEnvVars]()),
		},
	}
}

func (h envHandlers) getEnv(r *http.Request) (any, error) {
	if err := h.envIsVisible(r); err != nil {
		return nil, err
	}
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	vcap, err := h.vcapApplication(a)
	if err != nil {
		return nil, err
	}
	services, err := h.vcapServices(a)
	if err != nil {
		return nil, err
	}
	staging, err := h.Platform.Registry.WithGroup(app.StagingGroup, nil)
	if err != nil {
		return nil, err
	}
	running, err := h.Platform.Registry.WithGroup(app.RunningGroup, nil)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	system := map[string]any{"VCAP_SERVICES": services}
	if name, value := bindingfiles.Of(a.K8sBindings, a.VCAPBindings).Variable(); name != "" {
		system = map[string]any{name: value}
	}
	if !perms.Can(access.ReadSecrets, a.Space) {
		system = map[string]any{"redacted_message": platform.Hidden}
	}
	if err := h.recordRead(r, "audit.app.environment.show", a); err != nil {
		return nil, err
	}
	return v3.Env{
		Staging: staging, Running: running, Environment: variables(a),
		System:      system,
		Application: map[string]any{"VCAP_APPLICATION": vcap},
	}, nil
}

// vcapServices returns VCAP_SERVICES for the app's next instances: the services that
// its droplet was staged with, unless bindings are read at every start.
func (h envHandlers) vcapServices(a app.App) (json.RawMessage, error) {
	if h.Platform.Bindings != nil {
		v, err := h.Platform.Bindings(a.GUID)
		return json.RawMessage(v.Variable()), err
	}
	var d droplet.Droplet
	if a.Droplet != "" {
		var err error
		if d, err = h.Platform.Droplets.Get(a.Droplet); err != nil && !errors.Is(err, droplet.ErrNotFound) {
			return nil, err
		}
	}
	return json.RawMessage(d.Bindings.Variable()), nil
}

// vcapApplication returns the part of VCAP_APPLICATION that all instances of the app's
// web process share.
func (h envHandlers) vcapApplication(a app.App) (map[string]any, error) {
	space, err := h.Platform.Registry.Space(a.Space)
	if err != nil {
		return nil, rest.Missing("Space", err)
	}
	org, err := h.Platform.Registry.Org(space.Org)
	if err != nil {
		return nil, rest.Missing("Organization", err)
	}
	routes, err := h.Platform.Registry.RoutesOf(a.GUID)
	if err != nil {
		return nil, err
	}
	web, err := h.Platform.Registry.Process(a.GUID)
	if err != nil {
		return nil, rest.Missing("Process", err)
	}
	share, err := h.mainShare(web)
	if err != nil {
		return nil, err
	}
	names, err := h.Platform.DomainNames()
	if err != nil {
		return nil, err
	}
	uris := []string{}
	for _, rt := range routes {
		uris = append(uris, rt.URL(names[rt.Domain]))
	}
	return map[string]any{
		"cf_api": h.Links.Public.String(), "limits": map[string]any{"fds": openFiles, "mem": share, "disk": web.DiskMB},
		"process_id": web.GUID, "process_type": web.Type, "application_version": web.Version, "version": web.Version,
		"application_id": a.GUID, "application_name": a.Name, "name": a.Name,
		"application_uris": uris, "uris": uris,
		"space_id": space.GUID, "space_name": space.Name,
		"organization_id": org.GUID, "organization_name": org.Name,
		"users": nil,
	}, nil
}

// mainShare returns the memory in MB that the sidecars of a process leave to its main
// command.
func (h envHandlers) mainShare(p app.Process) (int, error) {
	sidecars, err := h.Platform.Registry.SidecarsOf(p.App, p.Type)
	mb := p.MemoryMB
	for _, c := range sidecars {
		mb -= c.MemoryMB
	}
	return mb, err
}

// envIsVisible refuses the request if an administrator disabled reading variables.
func (h *Handlers) envIsVisible(r *http.Request) error {
	return errors.Join(h.Present.Feature(r.Context(), app.FlagEnvVisibility), h.Present.Feature(r.Context(), app.FlagSpaceEnv))
}

// envIsHidden reports the same for responses of which the variables are only a part.
func (h *Handlers) envIsHidden(r *http.Request) (bool, error) {
	if access.Principal(r.Context()).Admin() {
		return false, nil
	}
	err := h.envIsVisible(r)
	if rest.IsA[*rest.Error](err) {
		return true, nil
	}
	return false, err
}

func (h envHandlers) getVariables(r *http.Request) (any, error) {
	if err := h.envIsVisible(r); err != nil {
		return nil, err
	}
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	if err := h.recordRead(r, "audit.app.environment_variables.show", a); err != nil {
		return nil, err
	}
	return h.presentVariables(a), nil
}

// recordRead records that a caller read environment variables.
func (h envHandlers) recordRead(r *http.Request, event string, a app.App) error {
	return h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.Record(event, a, nil) })
}

func (h envHandlers) updateVariables(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateEnvVars](r)
	if err != nil {
		return nil, err
	}
	request := map[string]any{"environment_variables": platform.Hidden}
	a, err := h.Present.ChangeApp(r, "audit.app.update", request, func(_ platform.Tx, a *app.App) error {
		if a.Env == nil {
			a.Env = map[string]string{}
		}
		for name, value := range body.Var {
			if value == nil {
				delete(a.Env, name)
				continue
			}
			a.Env[name] = *value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h.presentVariables(a), nil
}

func (h envHandlers) presentVariables(a app.App) v3.EnvVars {
	return v3.EnvVars{Var: variables(a), Links: v3.Links{
		"self": {Href: h.Links.Href("v3", "apps", a.GUID, "environment_variables")},
		"app":  {Href: h.Links.Href("v3", "apps", a.GUID)},
	}}
}

// variables returns the app's own variables, or an empty map if it has none.
func variables(a app.App) map[string]string {
	if a.Env == nil {
		return map[string]string{}
	}
	return a.Env
}
