package api

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/services"
)

// serviceRouteBindingsEndpoints are the endpoints of this file.
func (s *Server) serviceRouteBindingsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_route_bindings", Needs: access.Authenticated,
			Handler: s.listRouteBindings, Shape: rest.PageOf[v3.ServiceRouteBinding]("guids", "route_guids", "service_instance_guids", "service_instance_names", "include", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "POST /v3/service_route_bindings", Needs: access.Authenticated, // the body names the route
			Handler: s.createRouteBinding, Shape: rest.StartsJob().Or(rest.Returns[v3.ServiceRouteBinding](201)).Reads(rest.JSON[v3.CreateServiceRouteBinding]()),
		},
		{
			Pattern: "GET /v3/service_route_bindings/{guid}", Needs: access.Read, Resource: access.RouteBinding,
			Handler: s.getRouteBinding, Shape: rest.Returns[v3.ServiceRouteBinding](200).Query("include"),
		},
		{
			Pattern: "PATCH /v3/service_route_bindings/{guid}", Needs: access.Develop, Resource: access.RouteBinding,
			Handler: s.updateRouteBinding, Shape: rest.Returns[v3.ServiceRouteBinding](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
	}
}

func (s *Server) listRouteBindings(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	asked, err := q.Includes("route", "service_instance")
	if err != nil {
		return nil, err
	}
	all, err := s.seenBindings(r, services.BindingFilter{
		GUIDs: q.Filters["guids"], Types: []services.BindingType{services.RouteBinding}, Routes: q.Filters["route_guids"],
		Instances: q.Filters["service_instance_guids"], InstanceNames: q.Filters["service_instance_names"],
	})
	if err != nil {
		return nil, err
	}
	out := rest.List(s.links, r, q, all, rest.View[services.Binding, v3.ServiceRouteBinding]{
		Key:     bindingKey,
		Present: s.presentRouteBinding,
		Labels:  func(b services.Binding) map[string]string { return b.Metadata.Labels },
	})
	out.Included, err = s.besideRouteBindings(asked, out.Resources)
	return out, err
}

func (s *Server) besideRouteBindings(asked map[string]bool, all []v3.ServiceRouteBinding) (map[string]any, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	names, err := s.platform.DomainNames()
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if asked["route"] {
		guids := rest.Each(all, func(b v3.ServiceRouteBinding) string { return b.Relationships.Route.ID() })
		out["routes"], err = rest.PresentEach(guids, s.c.Registry.Route, func(rt app.Route) v3.Route { return s.presentRoute(rt, names[rt.Domain]) })
		if err != nil {
			return nil, err
		}
	}
	if asked["service_instance"] {
		guids := rest.Each(all, func(b v3.ServiceRouteBinding) string { return b.Relationships.ServiceInstance.ID() })
		out["service_instances"], err = rest.PresentEach(guids, s.c.Services.Instance, s.presentService)
	}
	return out, err
}

func (s *Server) getRouteBinding(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	asked, err := q.Includes("route", "service_instance")
	if err != nil {
		return nil, err
	}
	b, err := s.serviceBindingOf(r)
	if err != nil {
		return nil, err
	}
	out := s.presentRouteBinding(b)
	out.Included, err = s.besideRouteBindings(asked, []v3.ServiceRouteBinding{out})
	return out, err
}

func (s *Server) createRouteBinding(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateServiceRouteBinding](r)
	if err != nil {
		return nil, err
	}
	n := services.NewBinding{
		Type: services.RouteBinding, Instance: body.Relationships.ServiceInstance.ID(), Route: body.Relationships.Route.ID(),
		Parameters: body.Parameters, Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)), By: platform.ActorOf(r.Context()),
	}
	if _, err := s.seenInstance(r, n.Instance); err != nil {
		return nil, err
	}
	rt, err := s.c.Registry.Route(n.Route)
	if err == nil {
		err = s.access.Require(r.Context(), access.Support, rt.Space)
	}
	if errors.Is(err, app.ErrNotFound) {
		return nil, rest.Unprocessable("The route could not be found: '%s'", n.Route)
	}
	if err != nil {
		return nil, err
	}
	return s.bind(n)
}

func (s *Server) updateRouteBinding(r *http.Request) (any, error) {
	b, err := s.noteBinding(r)
	if err != nil {
		return nil, err
	}
	return s.presentRouteBinding(b), nil
}

// presentRouteBinding shows a route binding; the address may have a secret in it,
// as that of its instance.
func (s *Server) presentRouteBinding(b services.Binding) v3.ServiceRouteBinding {
	self := s.links.Href("v3", "service_route_bindings", b.GUID)
	return v3.ServiceRouteBinding{
		GUID: b.GUID, CreatedAt: v3.At(b.CreatedAt), UpdatedAt: v3.At(b.UpdatedAt), RouteServiceURL: droplet.WithoutSecret(b.RouteService),
		LastOperation: presentLast(b.Last), Metadata: rest.PresentMetadata(b.Metadata),
		Relationships: v3.ServiceRouteBindingRelationships{Route: v3.To(b.Route), ServiceInstance: v3.To(b.Instance)},
		Links: v3.Links{
			"self": {Href: self}, "parameters": {Href: self + "/parameters"}, "route": {Href: s.links.Href("v3", "routes", b.Route)},
			"service_instance": {Href: s.links.Href("v3", "service_instances", b.Instance)},
		},
	}
}
