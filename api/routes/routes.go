package routes

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
)

// routeHandlers answers requests about routes.
type routeHandlers struct{ *Handlers }

func (h routeHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/routes", Needs: access.Authenticated,
			Handler: h.listRoutes, Shape: rest.PageOf[v3.Route]("space_guids", "organization_guids", "app_guids", "service_instance_guids", "guids", "domain_guids", "hosts", "paths", "ports", "include", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "POST /v3/routes", Needs: access.Authenticated, // the body names the space
			Handler: h.createRoute, Shape: rest.Returns[v3.Route](201).Reads(rest.JSON[v3.CreateRoute]()),
		},
		{
			Pattern: "PATCH /v3/routes/{guid}", Needs: access.Support, Resource: access.Route,
			Handler: h.updateRoute, Shape: rest.Returns[v3.Route](200).Reads(rest.JSON[v3.UpdateRoute]()),
		},
		{Pattern: "GET /v3/routes/{guid}", Needs: access.ReadRoute, Resource: access.Route, Handler: h.getRoute, Shape: rest.Returns[v3.Route](200).Query("include")},
		{Pattern: "DELETE /v3/routes/{guid}", Needs: access.Support, Resource: access.Route, Handler: h.deleteRoute, Shape: rest.StartsJob()},
		{
			Pattern: "GET /v3/apps/{guid}/routes", Needs: access.Read, Resource: access.App,
			Handler: h.listAppRoutes, Shape: rest.PageOf[v3.Route]("space_guids", "guids", "domain_guids", "hosts", "paths", "ports", "include", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
	}
}

func (h routeHandlers) listRoutes(r *http.Request) (any, error) {
	all, err := h.Platform.Registry.Routes()
	if err != nil {
		return nil, err
	}
	return h.pageOfRoutes(r, all)
}

func (h routeHandlers) listAppRoutes(r *http.Request) (any, error) {
	a, err := h.Present.App(r)
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Registry.RoutesOf(a.GUID)
	if err != nil {
		return nil, err
	}
	return h.pageOfRoutes(r, all)
}

func (h routeHandlers) pageOfRoutes(r *http.Request, all []app.Route) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	requested, err := q.Includes(routeIncludes...)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	names, err := h.Platform.DomainNames()
	if err != nil {
		return nil, err
	}
	orgs, err := h.Platform.OrgsOfSpaces()
	if err != nil {
		return nil, err
	}
	bound, err := h.boundTo(q.Filters["service_instance_guids"])
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(rt app.Route) bool {
		seen := perms.Can(access.ReadRoute, rt.Space) || slices.ContainsFunc(rt.SharedWith, perms.SeesSpace)
		return !seen || !matchesRoute(q, rt) || !q.Matches("organization_guids", orgs[rt.Space]) || !bound(rt.GUID)
	})
	out := rest.List(h.Links, r, q, all, rest.View[app.Route, v3.Route]{
		Key: func(rt app.Route) rest.Key {
			return rest.Key{Name: rt.Host, Created: rt.CreatedAt, Updated: rt.UpdatedAt, GUID: rt.GUID}
		},
		Present: func(rt app.Route) v3.Route { return h.Present.ShowRoute(rt, names[rt.Domain]) },
		Labels:  func(rt app.Route) map[string]string { return rt.Metadata.Labels },
	})
	var b present.Related
	for _, rt := range out.Resources {
		b.Spaces = append(b.Spaces, rt.Relationships.Space.ID())
		b.Domains = append(b.Domains, rt.Relationships.Domain.ID())
	}
	out.Included, err = h.Present.Included(requested, b, perms)
	return out, err
}

// boundTo returns a filter for routes that are bound to one of the service instances.
// If instances is nil, it matches all routes.
func (h routeHandlers) boundTo(instances []string) (func(route string) bool, error) {
	if instances == nil {
		return func(string) bool { return true }, nil
	}
	found, err := h.Platform.Services.Bindings(services.BindingFilter{Types: []services.BindingType{services.RouteBinding}, Instances: instances})
	routes := rest.Values(found, func(b services.Binding) string { return b.Route })
	return func(route string) bool { return slices.Contains(routes, route) }, err
}

// matchesRoute reports whether the route matches the query. Host names are not
// case-sensitive, and only TCP routes have a port.
func matchesRoute(q rest.Query, rt app.Route) bool {
	apps := make([]string, 0, len(rt.Destinations))
	for _, d := range rt.Destinations {
		apps = append(apps, d.App)
	}
	return q.Matches("guids", rt.GUID) && q.Matches("space_guids", append([]string{rt.Space}, rt.SharedWith...)...) && q.Matches("domain_guids", rt.Domain) &&
		q.Matches("app_guids", apps...) && q.MatchesFold("hosts", rt.Host) && q.Matches("paths", rt.Path) && q.Matches("ports", portText(rt))
}

func portText(rt app.Route) string {
	if !rt.TCP() {
		return ""
	}
	return strconv.Itoa(rt.Port)
}

func (h *Handlers) routeOf(r *http.Request) (app.Route, error) {
	rt, err := h.Platform.Registry.Route(r.PathValue("guid"))
	return rt, rest.Missing("Route", err)
}

// routeIncludes lists the resources that a client can include with a route.
var routeIncludes = []string{"domain", "space", "space.organization"}

func (h routeHandlers) getRoute(r *http.Request) (any, error) {
	requested, err := rest.ReadInclude(r, routeIncludes)
	if err != nil {
		return nil, err
	}
	rt, err := h.routeOf(r)
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	names, err := h.Platform.DomainNames()
	if err != nil {
		return nil, err
	}
	out := h.Present.ShowRoute(rt, names[rt.Domain])
	out.Included, err = h.Present.Included(requested, present.Related{Spaces: []string{rt.Space}, Domains: []string{rt.Domain}}, perms)
	return out, err
}

// createRoute creates a route without destinations.
func (h routeHandlers) createRoute(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateRoute](r)
	if err != nil {
		return nil, err
	}
	rt := app.Route{
		Space: body.Relationships.Space.ID(), Domain: body.Relationships.Domain.ID(), Host: body.Host, Path: body.Path,
		Options: changedOptions(nil, body.Options), Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)),
	}
	if err := h.Access.Require(r.Context(), access.Support, rt.Space); err != nil {
		return nil, platform.InvalidSpace(err)
	}
	if err := h.Present.Feature(r.Context(), app.FlagRouteCreation); err != nil {
		return nil, err
	}
	if err := h.Present.CheckRouteOptions("options", rt.Options); err != nil {
		return nil, err
	}
	if body.Port != nil {
		rt.Port = int(*body.Port)
	}
	var domain app.Domain
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if domain, err = w.DomainFor(rt); err != nil {
			return err
		}
		if err := checkDomainFields(rt, domain, body.Port != nil); err != nil {
			return err
		}
		if err := checkRouteIsFree(w.Registry, rt, domain); err != nil {
			return err
		}
		if rt, err = w.Registry.PutRoute(rt); err != nil {
			return err
		}
		return w.RecordRoute("audit.route.create", rt, map[string]any{"request": body})
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.Present.ShowRoute(rt, domain.Name)}, nil
}

// checkDomainFields returns Cloud Foundry's error if the domain does not support a field of the
// route.
func checkDomainFields(rt app.Route, d app.Domain, port bool) error {
	switch {
	case !d.TCP() && port:
		return rest.Unprocessable("port: Routes with protocol 'http' do not support ports.")
	case !d.TCP():
		return nil
	case rt.Host != "":
		return rest.Unprocessable("host: Hosts are not supported for TCP routes.")
	case rt.Path != "":
		return rest.Unprocessable("path: Paths are not supported for TCP routes.")
	case port && rt.Port < 1:
		return rest.Unprocessable("port: must be a port of the domain's router group, not %d. Leave it out to use any free port.", rt.Port)
	}
	return nil
}

// checkRouteIsFree returns Cloud Foundry's error if the route already exists. Clients read
// that message as "the route already exists".
func checkRouteIsFree(reg *registry.Registry, rt app.Route, d app.Domain) error {
	if d.TCP() {
		return portIsFree(reg, rt, d)
	}
	_, err := reg.RouteAt(rt.Domain, rt.Host, rt.Path)
	if errors.Is(err, app.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	with := ""
	if rt.Host != "" {
		with = fmt.Sprintf(" with host '%s'", rt.Host)
	}
	if rt.Path != "" {
		with += fmt.Sprintf(" and path '%s'", rt.Path)
	}
	return rest.Unprocessable("Route already exists%s for domain '%s'.", with, d.Name)
}

func portIsFree(reg *registry.Registry, rt app.Route, d app.Domain) error {
	if rt.Port == 0 {
		return nil // dew chooses a free port
	}
	found, err := reg.RouteAtPort(rt.Port)
	switch {
	case errors.Is(err, app.ErrNotFound):
		return nil
	case err != nil:
		return err
	case found.Domain == rt.Domain:
		return rest.Unprocessable("Route already exists with port '%d' for domain '%s'.", rt.Port, d.Name)
	}
	return rest.Unprocessable("port: Port '%d' is not available. Try a different port or use a different domain.", rt.Port)
}

// changedOptions returns the options with a change applied; null removes an option.
func changedOptions(old map[string]string, change map[string]*v3.RouteOption) map[string]string {
	out := map[string]string{}
	maps.Copy(out, old)
	for k, v := range change {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = string(*v)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (h routeHandlers) updateRoute(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateRoute](r)
	if err != nil {
		return nil, err
	}
	if err := h.Present.CheckRouteOptions("options", changedOptions(nil, body.Options)); err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		rt, err := w.Registry.UpdateRoute(r.PathValue("guid"), func(rt *app.Route) error {
			rt.Options = changedOptions(rt.Options, body.Options)
			rt.Metadata = rt.Metadata.Merge(platform.MetadataChange(body.Metadata))
			return nil
		})
		if err != nil {
			return rest.Missing("Route", err)
		}
		return w.RecordRoute("audit.route.update", rt, map[string]any{"request": body})
	})
	if err != nil {
		return nil, err
	}
	return h.getRoute(r)
}

func (h routeHandlers) deleteRoute(r *http.Request) (any, error) {
	rt, err := h.routeOf(r)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error { return w.RecordRoute("audit.route.delete-request", rt, nil) })
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteRoute, platform.Removal{GUID: rt.GUID})
}
