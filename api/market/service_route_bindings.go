package market

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

// routeEndpoints returns the endpoints of route bindings.
func (h bindingHandlers) routeEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/service_route_bindings", Needs: access.Authenticated,
			Handler: h.listRouteBindings, Shape: rest.PageOf[v3.ServiceRouteBinding]("guids", "route_guids", "service_instance_guids", "service_instance_names", "include", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "POST /v3/service_route_bindings", Needs: access.Authenticated, // the body names the route
			Handler: h.createRouteBinding, Shape: rest.StartsJob().Or(rest.Returns[v3.ServiceRouteBinding](201)).Reads(rest.JSON[v3.CreateServiceRouteBinding]()),
		},
		{
			Pattern: "GET /v3/service_route_bindings/{guid}", Needs: access.Read, Resource: access.RouteBinding,
			Handler: h.getRouteBinding, Shape: rest.Returns[v3.ServiceRouteBinding](200).Query("include"),
		},
		{
			Pattern: "PATCH /v3/service_route_bindings/{guid}", Needs: access.Develop, Resource: access.RouteBinding,
			Handler: h.updateRouteBinding, Shape: rest.Returns[v3.ServiceRouteBinding](200).Reads(rest.JSON[v3.UpdateMetadata]()),
		},
	}
}

func (h bindingHandlers) listRouteBindings(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	requested, err := q.Includes("route", "service_instance")
	if err != nil {
		return nil, err
	}
	all, err := h.seenBindings(r, services.BindingFilter{
		GUIDs: q.Filters["guids"], Types: []services.BindingType{services.RouteBinding}, Routes: q.Filters["route_guids"],
		Instances: q.Filters["service_instance_guids"], InstanceNames: q.Filters["service_instance_names"],
	})
	if err != nil {
		return nil, err
	}
	out := rest.List(h.Links, r, q, all, rest.View[services.Binding, v3.ServiceRouteBinding]{
		Key:     bindingKey,
		Present: h.PresentRouteBinding,
		Labels:  func(b services.Binding) map[string]string { return b.Metadata.Labels },
	})
	out.Included, err = h.routeBindingIncludes(requested, out.Resources)
	return out, err
}

func (h bindingHandlers) routeBindingIncludes(requested map[string]bool, all []v3.ServiceRouteBinding) (map[string]any, error) {
	if len(requested) == 0 {
		return nil, nil
	}
	names, err := h.Platform.DomainNames()
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if requested["route"] {
		guids := rest.Values(all, func(b v3.ServiceRouteBinding) string { return b.Relationships.Route.ID() })
		out["routes"], err = rest.PresentEach(guids, h.Platform.Registry.Route, func(rt app.Route) v3.Route { return h.Present.ShowRoute(rt, names[rt.Domain]) })
		if err != nil {
			return nil, err
		}
	}
	if requested["service_instance"] {
		guids := rest.Values(all, func(b v3.ServiceRouteBinding) string { return b.Relationships.ServiceInstance.ID() })
		out["service_instances"], err = rest.PresentEach(guids, h.Platform.Services.Instance, h.presentService)
	}
	return out, err
}

func (h bindingHandlers) getRouteBinding(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	requested, err := q.Includes("route", "service_instance")
	if err != nil {
		return nil, err
	}
	b, err := h.serviceBindingOf(r)
	if err != nil {
		return nil, err
	}
	out := h.PresentRouteBinding(b)
	out.Included, err = h.routeBindingIncludes(requested, []v3.ServiceRouteBinding{out})
	return out, err
}

func (h bindingHandlers) createRouteBinding(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateServiceRouteBinding](r)
	if err != nil {
		return nil, err
	}
	n := services.NewBinding{
		Type: services.RouteBinding, Instance: body.Relationships.ServiceInstance.ID(), Route: body.Relationships.Route.ID(),
		Parameters: body.Parameters, Metadata: app.Metadata{}.Merge(platform.MetadataChange(body.Metadata)), By: platform.ActorOf(r.Context()),
	}
	if _, err := h.seenInstance(r, n.Instance); err != nil {
		return nil, err
	}
	rt, err := h.Platform.Registry.Route(n.Route)
	if err == nil {
		err = h.Access.Require(r.Context(), access.Support, rt.Space)
	}
	if errors.Is(err, app.ErrNotFound) {
		return nil, rest.Unprocessable("The route could not be found: '%s'", n.Route)
	}
	if err != nil {
		return nil, err
	}
	return h.bind(r.Context(), n)
}

func (h bindingHandlers) updateRouteBinding(r *http.Request) (any, error) {
	b, err := h.noteBinding(r)
	if err != nil {
		return nil, err
	}
	return h.PresentRouteBinding(b), nil
}

// PresentRouteBinding shows a route binding. It removes a secret from the URL, as for a
// service instance.
func (h *Handlers) PresentRouteBinding(b services.Binding) v3.ServiceRouteBinding {
	self := h.Links.Href("v3", "service_route_bindings", b.GUID)
	return v3.ServiceRouteBinding{
		GUID: b.GUID, CreatedAt: v3.At(b.CreatedAt), UpdatedAt: v3.At(b.UpdatedAt), RouteServiceURL: droplet.WithoutSecret(b.RouteService),
		LastOperation: presentLast(b.Last), Metadata: rest.PresentMetadata(b.Metadata),
		Relationships: v3.ServiceRouteBindingRelationships{Route: v3.To(b.Route), ServiceInstance: v3.To(b.Instance)},
		Links: v3.Links{
			"self": {Href: self}, "parameters": {Href: self + "/parameters"}, "route": {Href: h.Links.Href("v3", "routes", b.Route)},
			"service_instance": {Href: h.Links.Href("v3", "service_instances", b.Instance)},
		},
	}
}
