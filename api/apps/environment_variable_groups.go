package apps

import (
	"maps"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// variableGroupHandlers answers requests about environment variable groups.
type variableGroupHandlers struct{ *Handlers }

func (h variableGroupHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/environment_variable_groups/{name}", Needs: access.Authenticated, // every app gets them
			Handler: h.getVariableGroup, Shape: rest.Returns[v3.EnvVarGroup](200),
		},
		{
			Pattern: "PATCH /v3/environment_variable_groups/{name}", Needs: access.Administer,
			Handler: h.updateVariableGroup, Shape: rest.Returns[v3.EnvVarGroup](200).Reads(rest.JSON[v3.UpdateEnvVars]()),
		},
	}
}

const nounVariableGroup = "Environment variable group"

func (h variableGroupHandlers) getVariableGroup(r *http.Request) (any, error) {
	g, err := h.Platform.Registry.EnvGroup(r.PathValue("name"))
	if err != nil {
		return nil, rest.Missing(nounVariableGroup, err)
	}
	return h.presentVariableGroup(g), nil
}

func (h variableGroupHandlers) updateVariableGroup(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateEnvVars](r)
	if err != nil {
		return nil, err
	}
	var g app.EnvGroup
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if g, err = w.Registry.UpdateEnvGroup(r.PathValue("name"), body.Var); err != nil {
			return rest.Missing(nounVariableGroup, err)
		}
		return w.Events.Record(app.Event{
			Type: "audit.environment_variable_group.update", Actor: w.Actor, Data: map[string]any{"environment_variables": platform.Hidden},
			Target: app.Target{GUID: g.Name, Type: "environment_variable_group", Name: g.Name},
		})
	})
	if err != nil {
		return nil, err
	}
	return h.presentVariableGroup(g), nil
}

func (h variableGroupHandlers) presentVariableGroup(g app.EnvGroup) v3.EnvVarGroup {
	out := v3.EnvVarGroup{
		Name: g.Name, Var: map[string]string{}, Links: v3.Links{"self": {Href: h.Links.Href("v3", "environment_variable_groups", g.Name)}},
	}
	maps.Copy(out.Var, g.Var)
	if !g.UpdatedAt.IsZero() {
		at := v3.At(g.UpdatedAt)
		out.UpdatedAt = &at
	}
	return out
}
