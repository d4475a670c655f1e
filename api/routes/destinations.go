package routes

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
)

// destinationHandlers answers requests about destinations of routes.
type destinationHandlers struct{ *Handlers }

func (h destinationHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/routes/{guid}/destinations", Needs: access.ReadRoute, Resource: access.Route,
			Handler: h.getDestinations, Shape: rest.Returns[v3.Destinations](200),
		},
		{
			Pattern: "POST /v3/routes/{guid}/destinations", Needs: access.Support, Resource: access.SharedRoute,
			Handler: h.addDestinations, Shape: rest.Returns[v3.Destinations](200).Reads(rest.JSON[v3.ChangeDestinations]()),
		},
		{
			Pattern: "PATCH /v3/routes/{guid}/destinations", Needs: access.Support, Resource: access.Route,
			Handler: h.setDestinations, Shape: rest.Returns[v3.Destinations](200).Reads(rest.JSON[v3.ChangeDestinations]()),
		},
		{
			Pattern: "DELETE /v3/routes/{guid}/destinations/{destination}", Needs: access.Support, Resource: access.SharedRoute,
			Handler: h.removeDestination, Shape: rest.Empty(204),
		},
		{
			Pattern: "PATCH /v3/routes/{guid}/destinations/{destination}", Needs: access.Support, Resource: access.Route,
			Handler: h.updateDestination, Shape: rest.Returns[v3.Destination](200).Reads(rest.JSON[v3.UpdateDestination]()),
		},
	}
}

func (h destinationHandlers) getDestinations(r *http.Request) (any, error) {
	rt, err := h.routeOf(r)
	if err != nil {
		return nil, err
	}
	return h.Present.ShowDestinations(rt), nil
}

func (h destinationHandlers) addDestinations(r *http.Request) (any, error) {
	return h.changeDestinations(r, func(reg *registry.Registry, ds []app.Destination) (app.Route, error) {
		return reg.AddDestinations(r.PathValue("guid"), ds)
	})
}

func (h destinationHandlers) setDestinations(r *http.Request) (any, error) {
	return h.changeDestinations(r, func(reg *registry.Registry, ds []app.Destination) (app.Route, error) {
		return reg.SetDestinations(r.PathValue("guid"), ds)
	})
}

// updateDestination changes the protocol of a destination; null sets the default.
func (h destinationHandlers) updateDestination(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateDestination](r)
	if err != nil {
		return nil, err
	}
	protocol := ""
	if body.Protocol != nil {
		if protocol = *body.Protocol; protocol == "" {
			return nil, &app.Invalid{Key: "protocol", Message: "must be http1, http2 or tcp, or null for the route's default"}
		}
	}
	var rt app.Route
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		if _, err := w.Registry.Route(r.PathValue("guid")); err != nil {
			return rest.Missing("Route", err)
		}
		rt, err = w.Registry.UpdateDestination(r.PathValue("guid"), r.PathValue("destination"), protocol)
		if err != nil {
			return rest.Missing("Destination", err)
		}
		return w.RecordRoute("audit.route.update", rt, map[string]any{"request": body})
	})
	if err != nil {
		return nil, err
	}
	for _, d := range h.Present.ShowDestinations(rt).Destinations {
		if d.GUID == r.PathValue("destination") {
			return d, nil
		}
	}
	return nil, rest.NotFound("Destination")
}

// removeDestination removes a destination from a route.
func (h destinationHandlers) removeDestination(r *http.Request) (any, error) {
	if err := h.mayUnmap(r); err != nil {
		return nil, err
	}
	err := h.Platform.Change(r.Context(), func(w platform.Tx) error {
		old, err := w.Registry.Route(r.PathValue("guid"))
		if err != nil {
			return rest.Missing("Route", err)
		}
		err = w.Registry.RemoveDestination(old.GUID, r.PathValue("destination"))
		if errors.Is(err, app.ErrNotFound) {
			return rest.Unprocessable("Unable to unmap route from destination. Ensure the route has a destination with this guid.")
		}
		if err != nil {
			return err
		}
		rt, err := w.Registry.Route(old.GUID)
		if err != nil {
			return err
		}
		return w.RecordMapping(old, rt, nil)
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

func (h destinationHandlers) changeDestinations(r *http.Request, fn func(reg *registry.Registry, ds []app.Destination) (app.Route, error)) (any, error) {
	body, err := rest.Decode[v3.ChangeDestinations](r)
	if err != nil {
		return nil, err
	}
	ds, err := destinations(body)
	if err != nil {
		return nil, err
	}
	for i, d := range ds {
		if _, err := h.Present.AppInBody(r.Context(), access.Support, d.App); err != nil {
			return nil, invalidApp(i, d.App, err)
		}
	}
	var rt app.Route
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		old, err := w.Registry.Route(r.PathValue("guid"))
		if err != nil {
			return rest.Missing("Route", err)
		}
		for i, d := range ds {
			if _, err := w.Registry.App(d.App); err != nil {
				return invalidApp(i, d.App, err)
			}
		}
		if rt, err = fn(w.Registry, ds); err != nil {
			return err
		}
		return w.RecordMapping(old, rt, nil)
	})
	if err != nil {
		return nil, err
	}
	return h.Present.ShowDestinations(rt), nil
}

func invalidApp(i int, guid string, err error) error {
	if platform.IsNotFound(err) || errors.Is(err, access.ErrNotAuthorized) {
		return rest.Unprocessable("destinations[%d].app.guid: App(s) with guid(s) %q do not exist or you do not have access.", i, guid)
	}
	return err
}

func destinations(body v3.ChangeDestinations) ([]app.Destination, error) {
	if body.Destinations == nil {
		return nil, rest.Unprocessable("destinations is missing: it must be an array")
	}
	out := make([]app.Destination, 0, len(body.Destinations))
	for i, d := range body.Destinations {
		key := fmt.Sprintf("destinations[%d]", i)
		if d.Weight != nil {
			return nil, &app.Invalid{Key: key + ".weight", Message: "is not supported: dewd distributes requests evenly; leave it out"}
		}
		if d.App.GUID == "" {
			return nil, &app.Invalid{Key: key + ".app.guid", Message: "is missing"}
		}
		one := app.Destination{App: d.App.GUID, Protocol: d.Protocol}
		if d.App.Process != nil {
			one.ProcessType = d.App.Process.Type
		}
		if d.Port != nil {
			if one.Port = int(*d.Port); one.Port < 1 {
				return nil, &app.Invalid{Key: key + ".port", Message: fmt.Sprintf("must be 1 to 65535, or left out for the port of the process, not %d", one.Port)}
			}
		}
		out = append(out, one)
	}
	return out, nil
}
