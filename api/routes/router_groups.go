package routes

import (
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// routerGroupHandlers answers requests about router groups.
type routerGroupHandlers struct{ *Handlers }

func (h routerGroupHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "GET /routing/v1/router_groups", Needs: access.Authenticated, Handler: h.listRouterGroups, Shape: rest.Returns[[]v3.RouterGroup](200).Query("name")},
		{Pattern: "GET /routing/v1/router_groups/{guid}", Needs: access.Authenticated, Handler: h.getRouterGroup, Shape: rest.Returns[v3.RouterGroup](200)},
	}
}

// listRouterGroups lists the router groups, which provide the ports of TCP routes. The
// routing API has no pages. An unknown name gets a 404 response.
func (h routerGroupHandlers) listRouterGroups(r *http.Request) (any, error) {
	values := r.URL.Query()
	for name := range values {
		if name != "name" {
			return nil, rest.BadQuery("Unknown query parameter(s): '%s'. Valid parameters are: 'name'", name)
		}
	}
	all, err := h.Platform.Registry.RouterGroups()
	if err != nil {
		return nil, err
	}
	out := []v3.RouterGroup{}
	for _, g := range all {
		if !values.Has("name") || values.Get("name") == g.Name {
			out = append(out, presentRouterGroup(g))
		}
	}
	if values.Has("name") && len(out) == 0 {
		return nil, rest.NotFound("Router group")
	}
	return out, nil
}

func (h routerGroupHandlers) getRouterGroup(r *http.Request) (any, error) {
	g, err := h.Platform.Registry.RouterGroup(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Router group", err)
	}
	return presentRouterGroup(g), nil
}

func presentRouterGroup(g app.RouterGroup) v3.RouterGroup {
	return v3.RouterGroup{GUID: g.GUID, Name: g.Name, Type: "tcp", ReservablePorts: g.Ports.String()}
}
