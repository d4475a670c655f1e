package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
)

// routesEndpoints are the endpoints of this file.
func (s *Server) routesEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/routes", Needs: authenticated,
			Handler: s.listRoutes, Shape: pageOf[v3.Route]("space_guids", "organization_guids", "app_guids", "service_instance_guids", "guids", "domain_guids", "hosts", "paths", "ports", "include", paramSelector).by(byTime...),
		},
		{
			Pattern: "POST /v3/routes", Needs: authenticated, // the body names the space
			Handler: s.createRoute, Shape: gives[v3.Route](201).from(jsonOf[v3.CreateRoute]()),
		},
		{
			Pattern: "PATCH /v3/routes/{guid}", Needs: toSupport, Resource: aRoute,
			Handler: s.updateRoute, Shape: gives[v3.Route](200).from(jsonOf[v3.UpdateRoute]()),
		},
		{Pattern: "GET /v3/routes/{guid}", Needs: toReadRoute, Resource: aRoute, Handler: s.getRoute, Shape: gives[v3.Route](200).ask("include")},
		{Pattern: "DELETE /v3/routes/{guid}", Needs: toSupport, Resource: aRoute, Handler: s.deleteRoute, Shape: begins()},
		{
			Pattern: "GET /v3/apps/{guid}/routes", Needs: toRead, Resource: anApp,
			Handler: s.listAppRoutes, Shape: pageOf[v3.Route]("space_guids", "guids", "domain_guids", "hosts", "paths", "ports", "include", paramSelector).by(byTime...),
		},
	}
}

func (s *Server) listRoutes(r *http.Request) (any, error) {
	all, err := s.c.Registry.Routes()
	if err != nil {
		return nil, err
	}
	return s.pageOfRoutes(r, all)
}

func (s *Server) listAppRoutes(r *http.Request) (any, error) {
	a, err := s.appOf(r)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.RoutesOf(a.GUID)
	if err != nil {
		return nil, err
	}
	return s.pageOfRoutes(r, all)
}

func (s *Server) pageOfRoutes(r *http.Request, all []app.Route) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	asked, err := q.includes(besideRoute...)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	names, err := s.domainNames()
	if err != nil {
		return nil, err
	}
	orgs, err := s.orgsOfSpaces()
	if err != nil {
		return nil, err
	}
	bound, err := s.boundTo(q.filters["service_instance_guids"])
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(rt app.Route) bool {
		seen := perms.may(toReadRoute, rt.Space) || slices.ContainsFunc(rt.SharedWith, perms.space)
		return !seen || !letsRoute(q, rt) || !q.lets("organization_guids", orgs[rt.Space]) || !bound(rt.GUID)
	})
	out := list(s.links, r, q, all, look[app.Route, v3.Route]{
		key:     func(rt app.Route) key { return key{rt.Host, rt.CreatedAt, rt.UpdatedAt, rt.GUID} },
		present: func(rt app.Route) v3.Route { return s.presentRoute(rt, names[rt.Domain]) },
		labels:  func(rt app.Route) map[string]string { return rt.Metadata.Labels },
	})
	var b beside
	for _, rt := range out.Resources {
		b.spaces = append(b.spaces, rt.Relationships.Space.ID())
		b.domains = append(b.domains, rt.Relationships.Domain.ID())
	}
	out.Included, err = s.included(asked, b, perms)
	return out, err
}

// boundTo tells the routes that are bound to one of the service instances; without
// any it tells all.
func (s *Server) boundTo(instances []string) (func(route string) bool, error) {
	if instances == nil {
		return func(string) bool { return true }, nil
	}
	found, err := s.c.Services.Bindings(services.BindingFilter{Types: []services.BindingType{services.RouteBinding}, Instances: instances})
	routes := each(found, func(b services.Binding) string { return b.Route })
	return func(route string) bool { return slices.Contains(routes, route) }, err
}

// letsRoute tells whether the query asks for the route. Host names have no case, and
// only TCP routes have a port.
func letsRoute(q query, rt app.Route) bool {
	apps := make([]string, 0, len(rt.Destinations))
	for _, d := range rt.Destinations {
		apps = append(apps, d.App)
	}
	return q.lets("guids", rt.GUID) && q.lets("space_guids", append([]string{rt.Space}, rt.SharedWith...)...) && q.lets("domain_guids", rt.Domain) &&
		q.lets("app_guids", apps...) && q.letsFold("hosts", rt.Host) && q.lets("paths", rt.Path) && q.lets("ports", portText(rt))
}

func portText(rt app.Route) string {
	if !rt.TCP() {
		return ""
	}
	return strconv.Itoa(rt.Port)
}

func (s *Server) routeOf(r *http.Request) (app.Route, error) {
	rt, err := s.c.Registry.Route(r.PathValue("guid"))
	return rt, missing("Route", err)
}

// besideRoute is what can stand beside a route.
var besideRoute = []string{"domain", "space", "space.organization"}

func (s *Server) getRoute(r *http.Request) (any, error) {
	asked, err := readInclude(r, besideRoute)
	if err != nil {
		return nil, err
	}
	rt, err := s.routeOf(r)
	if err != nil {
		return nil, err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil {
		return nil, err
	}
	names, err := s.domainNames()
	if err != nil {
		return nil, err
	}
	out := s.presentRoute(rt, names[rt.Domain])
	out.Included, err = s.included(asked, beside{spaces: []string{rt.Space}, domains: []string{rt.Domain}}, perms)
	return out, err
}

// createRoute makes a route that leads nowhere yet.
func (s *Server) createRoute(r *http.Request) (any, error) {
	body, err := decode[v3.CreateRoute](r)
	if err != nil {
		return nil, err
	}
	rt := app.Route{
		Space: body.Relationships.Space.ID(), Domain: body.Relationships.Domain.ID(), Host: body.Host, Path: body.Path,
		Options: changedOptions(nil, body.Options), Metadata: app.Metadata{}.Merge(metadataChange(body.Metadata)),
	}
	if err := s.access.require(r.Context(), toSupport, rt.Space); err != nil {
		return nil, invalidSpace(err)
	}
	if err := s.feature(r.Context(), app.FlagRouteCreation); err != nil {
		return nil, err
	}
	if body.Port != nil {
		rt.Port = int(*body.Port)
	}
	var domain app.Domain
	err = s.change(r.Context(), func(w transaction) (err error) {
		if domain, err = w.domainFor(rt); err != nil {
			return err
		}
		if err := fits(rt, domain, body.Port != nil); err != nil {
			return err
		}
		if err := placeIsFree(w.registry, rt, domain); err != nil {
			return err
		}
		if rt, err = w.registry.PutRoute(rt); err != nil {
			return err
		}
		return w.recordRoute("audit.route.create", rt, map[string]any{"request": body})
	})
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusCreated, body: s.presentRoute(rt, domain.Name)}, nil
}

// domainFor is the domain of a new route, if its space may have routes there.
func (w transaction) domainFor(rt app.Route) (app.Domain, error) {
	d, err := w.registry.Domain(rt.Domain)
	if err != nil && !errors.Is(err, app.ErrNotFound) {
		return d, err
	}
	space, spaceErr := w.registry.Space(rt.Space)
	switch {
	case spaceErr != nil:
		return d, invalidSpace(spaceErr)
	case err != nil || !d.UsableIn(space.Org):
		return d, unprocessable("Invalid domain. Ensure that the domain exists and you have access to it.")
	case rt.Host == "" && d.Org == "" && !d.TCP():
		return d, unprocessable("Missing host. Routes in shared domains must have a host defined.")
	}
	return d, nil
}

// fits says in the platform's words what a route of the domain cannot have.
func fits(rt app.Route, d app.Domain, port bool) error {
	switch {
	case !d.TCP() && port:
		return unprocessable("port: Routes with protocol 'http' do not support ports.")
	case !d.TCP():
		return nil
	case rt.Host != "":
		return unprocessable("host: Hosts are not supported for TCP routes.")
	case rt.Path != "":
		return unprocessable("path: Paths are not supported for TCP routes.")
	case port && rt.Port < 1:
		return unprocessable("port: must be a port of the domain's router group, not %d: leave it out for any", rt.Port)
	}
	return nil
}

// placeIsFree says in the platform's words that there is such a route already:
// clients take that for "there it is".
func placeIsFree(reg *registry.Registry, rt app.Route, d app.Domain) error {
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
	return unprocessable("Route already exists%s for domain '%s'.", with, d.Name)
}

func portIsFree(reg *registry.Registry, rt app.Route, d app.Domain) error {
	if rt.Port == 0 {
		return nil // one is chosen
	}
	found, err := reg.RouteAtPort(rt.Port)
	switch {
	case errors.Is(err, app.ErrNotFound):
		return nil
	case err != nil:
		return err
	case found.Domain == rt.Domain:
		return unprocessable("Route already exists with port '%d' for domain '%s'.", rt.Port, d.Name)
	}
	return unprocessable("port: Port '%d' is not available. Try a different port or use a different domain.", rt.Port)
}

// changedOptions are options with a change made; null takes one away.
func changedOptions(old map[string]string, change map[string]*string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, old)
	for k, v := range change {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = *v
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (s *Server) updateRoute(r *http.Request) (any, error) {
	body, err := decode[v3.UpdateRoute](r)
	if err != nil {
		return nil, err
	}
	err = s.change(r.Context(), func(w transaction) error {
		rt, err := w.registry.UpdateRoute(r.PathValue("guid"), func(rt *app.Route) error {
			rt.Options = changedOptions(rt.Options, body.Options)
			rt.Metadata = rt.Metadata.Merge(metadataChange(body.Metadata))
			return nil
		})
		if err != nil {
			return missing("Route", err)
		}
		return w.recordRoute("audit.route.update", rt, map[string]any{"request": body})
	})
	if err != nil {
		return nil, err
	}
	return s.getRoute(r)
}

// recordRoute keeps an event about a route.
func (w transaction) recordRoute(kind string, rt app.Route, data map[string]any) error {
	d, err := w.registry.Domain(rt.Domain)
	if err != nil {
		return err
	}
	e := app.Event{
		Type: kind, Actor: w.actor, Space: rt.Space, Data: data,
		Target: app.Target{GUID: rt.GUID, Type: "route", Name: rt.URL(d.Name)},
	}
	if space, err := w.registry.Space(rt.Space); err == nil {
		e.Org = space.Org
	}
	return w.events.Record(e)
}

// opDeleteRoute is the job that removes a route.
const opDeleteRoute = "route.delete"

func (s *Server) deleteRoute(r *http.Request) (any, error) {
	rt, err := s.routeOf(r)
	if err != nil {
		return nil, err
	}
	err = s.change(r.Context(), func(w transaction) error { return w.recordRoute("audit.route.delete-request", rt, nil) })
	if err != nil {
		return nil, err
	}
	return s.begin(r.Context(), opDeleteRoute, removal{GUID: rt.GUID})
}

// doDeleteRoute removes a route. One that is gone already is fine: the job may
// be done twice.
func (s *Server) doDeleteRoute(_ context.Context, guid string) error {
	if err := s.c.Registry.DeleteRoute(guid); err != nil && !errors.Is(err, app.ErrNotFound) {
		return err
	}
	return nil
}

// routeProblem says why nothing answers on the port of a TCP route.
func (s *Server) routeProblem(rt app.Route) string {
	if !rt.TCP() || s.c.PortTrouble == nil {
		return ""
	}
	return s.c.PortTrouble(rt.Port)
}

func (s *Server) presentRoute(rt app.Route, domain string) v3.Route {
	self := s.links.Href("v3", "routes", rt.GUID)
	protocol, port := "http", (*int)(nil)
	if rt.TCP() {
		protocol, port = "tcp", &rt.Port
	}
	return v3.Route{
		GUID: rt.GUID, CreatedAt: v3.At(rt.CreatedAt), UpdatedAt: v3.At(rt.UpdatedAt), Protocol: protocol, Port: port, Problem: s.routeProblem(rt),
		Host: rt.Host, Path: rt.Path, URL: rt.URL(domain), Destinations: s.presentDestinations(rt).Destinations,
		Relationships: v3.RouteRelationships{Space: v3.To(rt.Space), Domain: v3.To(rt.Domain)},
		Options:       rt.Options, Metadata: presentMetadata(rt.Metadata),
		Links: v3.Links{
			"self":         {Href: self},
			"space":        {Href: s.links.Href("v3", "spaces", rt.Space)},
			"domain":       {Href: s.links.Href("v3", "domains", rt.Domain)},
			"destinations": {Href: self + "/destinations"},

			"shared_spaces": {Href: self + "/relationships/shared_spaces"},
		},
	}
}
