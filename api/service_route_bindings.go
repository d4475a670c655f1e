package api

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/services"
)

// serviceRouteBindingsEndpoints are the endpoints of this file.
func (s *Server) serviceRouteBindingsEndpoints() []Endpoint {
	return []Endpoint{
		{
			Pattern: "GET /v3/service_route_bindings", Needs: authenticated,
			Handler: s.listRouteBindings, Shape: pageOf[v3.ServiceRouteBinding]("guids", "route_guids", "service_instance_guids", "service_instance_names", "include", paramSelector).by(byTime...),
		},
		{
			Pattern: "POST /v3/service_route_bindings", Needs: authenticated, // the body names the route
			Handler: s.createRouteBinding, Shape: begins().or(gives[v3.ServiceRouteBinding](201)).from(jsonOf[v3.CreateServiceRouteBinding]()),
		},
		{
			Pattern: "GET /v3/service_route_bindings/{guid}", Needs: toRead, Resource: aRouteBinding,
			Handler: s.getRouteBinding, Shape: gives[v3.ServiceRouteBinding](200).ask("include"),
		},
		{
			Pattern: "PATCH /v3/service_route_bindings/{guid}", Needs: toDevelop, Resource: aRouteBinding,
			Handler: s.updateRouteBinding, Shape: gives[v3.ServiceRouteBinding](200).from(jsonOf[v3.UpdateMetadata]()),
		},
	}
}

func (s *Server) listRouteBindings(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	asked, err := q.includes("route", "service_instance")
	if err != nil {
		return nil, err
	}
	all, err := s.seenBindings(r, services.BindingFilter{
		GUIDs: q.filters["guids"], Types: []services.BindingType{services.RouteBinding}, Routes: q.filters["route_guids"],
		Instances: q.filters["service_instance_guids"], InstanceNames: q.filters["service_instance_names"],
	})
	if err != nil {
		return nil, err
	}
	out := list(s.links, r, q, all, look[services.Binding, v3.ServiceRouteBinding]{
		key:     bindingKey,
		present: s.presentRouteBinding,
		labels:  func(b services.Binding) map[string]string { return b.Metadata.Labels },
	})
	out.Included, err = s.besideRouteBindings(asked, out.Resources)
	return out, err
}

func (s *Server) besideRouteBindings(asked map[string]bool, all []v3.ServiceRouteBinding) (map[string]any, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	names, err := s.domainNames()
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if asked["route"] {
		guids := each(all, func(b v3.ServiceRouteBinding) string { return b.Relationships.Route.ID() })
		out["routes"], err = presentEach(guids, s.c.Registry.Route, func(rt app.Route) v3.Route { return s.presentRoute(rt, names[rt.Domain]) })
		if err != nil {
			return nil, err
		}
	}
	if asked["service_instance"] {
		guids := each(all, func(b v3.ServiceRouteBinding) string { return b.Relationships.ServiceInstance.ID() })
		out["service_instances"], err = presentEach(guids, s.c.Services.Instance, s.presentService)
	}
	return out, err
}

func (s *Server) getRouteBinding(r *http.Request) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	asked, err := q.includes("route", "service_instance")
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
	body, err := decode[v3.CreateServiceRouteBinding](r)
	if err != nil {
		return nil, err
	}
	n := services.NewBinding{
		Type: services.RouteBinding, Instance: body.Relationships.ServiceInstance.ID(), Route: body.Relationships.Route.ID(),
		Parameters: body.Parameters, Metadata: app.Metadata{}.Merge(metadataChange(body.Metadata)), By: actor(r.Context()),
	}
	if _, err := s.seenInstance(r, n.Instance); err != nil {
		return nil, err
	}
	rt, err := s.c.Registry.Route(n.Route)
	if err == nil {
		err = s.access.require(r.Context(), toSupport, rt.Space)
	}
	if errors.Is(err, app.ErrNotFound) {
		return nil, unprocessable("The route could not be found: '%s'", n.Route)
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
		LastOperation: presentLast(b.Last), Metadata: presentMetadata(b.Metadata),
		Relationships: v3.ServiceRouteBindingRelationships{Route: v3.To(b.Route), ServiceInstance: v3.To(b.Instance)},
		Links: v3.Links{
			"self": {Href: self}, "parameters": {Href: self + "/parameters"}, "route": {Href: s.links.Href("v3", "routes", b.Route)},
			"service_instance": {Href: s.links.Href("v3", "service_instances", b.Instance)},
		},
	}
}
