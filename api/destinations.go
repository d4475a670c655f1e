package api

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
	"github.com/dewrun/dew/route"
)

// destinationsEndpoints are the endpoints of this file.
func (s *Server) destinationsEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/routes/{guid}/destinations", Needs: access.ReadRoute, Resource: access.Route,
			Handler: s.getDestinations, Shape: rest.Returns[v3.Destinations](200),
		},
		{
			Pattern: "POST /v3/routes/{guid}/destinations", Needs: access.Support, Resource: access.SharedRoute,
			Handler: s.addDestinations, Shape: rest.Returns[v3.Destinations](200).Reads(rest.JSON[v3.ChangeDestinations]()),
		},
		{
			Pattern: "PATCH /v3/routes/{guid}/destinations", Needs: access.Support, Resource: access.Route,
			Handler: s.setDestinations, Shape: rest.Returns[v3.Destinations](200).Reads(rest.JSON[v3.ChangeDestinations]()),
		},
		{
			Pattern: "DELETE /v3/routes/{guid}/destinations/{destination}", Needs: access.Support, Resource: access.SharedRoute,
			Handler: s.removeDestination, Shape: rest.Empty(204),
		},
		{
			Pattern: "PATCH /v3/routes/{guid}/destinations/{destination}", Needs: access.Support, Resource: access.Route,
			Handler: s.updateDestination, Shape: rest.Returns[v3.Destination](200).Reads(rest.JSON[v3.UpdateDestination]()),
		},
	}
}

func (s *Server) getDestinations(r *http.Request) (any, error) {
	rt, err := s.routeOf(r)
	if err != nil {
		return nil, err
	}
	return s.presentDestinations(rt), nil
}

func (s *Server) addDestinations(r *http.Request) (any, error) {
	return s.changeDestinations(r, func(reg *registry.Registry, ds []app.Destination) (app.Route, error) {
		return reg.AddDestinations(r.PathValue("guid"), ds)
	})
}

func (s *Server) setDestinations(r *http.Request) (any, error) {
	return s.changeDestinations(r, func(reg *registry.Registry, ds []app.Destination) (app.Route, error) {
		return reg.SetDestinations(r.PathValue("guid"), ds)
	})
}

// updateDestination gives a destination another protocol; null is the default.
func (s *Server) updateDestination(r *http.Request) (any, error) {
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
	err = s.platform.Change(r.Context(), func(w platform.Tx) (err error) {
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
	for _, d := range s.presentDestinations(rt).Destinations {
		if d.GUID == r.PathValue("destination") {
			return d, nil
		}
	}
	return nil, rest.NotFound("Destination")
}

// removeDestination makes a route no longer lead to one of its destinations.
func (s *Server) removeDestination(r *http.Request) (any, error) {
	if err := s.mayUnmap(r); err != nil {
		return nil, err
	}
	err := s.platform.Change(r.Context(), func(w platform.Tx) error {
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

func (s *Server) changeDestinations(r *http.Request, fn func(reg *registry.Registry, ds []app.Destination) (app.Route, error)) (any, error) {
	body, err := rest.Decode[v3.ChangeDestinations](r)
	if err != nil {
		return nil, err
	}
	ds, err := destinations(body)
	if err != nil {
		return nil, err
	}
	for i, d := range ds {
		if _, err := s.appInBody(r.Context(), access.Support, d.App); err != nil {
			return nil, invalidApp(i, d.App, err)
		}
	}
	var rt app.Route
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
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
	return s.presentDestinations(rt), nil
}

func invalidApp(i int, guid string, err error) error {
	if platform.IsNotFound(err) || errors.Is(err, access.ErrNotAuthorized) {
		return rest.Unprocessable("destinations[%d].app.guid: App(s) with guid(s) %q do not exist or you do not have access.", i, guid)
	}
	return err
}

func destinations(body v3.ChangeDestinations) ([]app.Destination, error) {
	if body.Destinations == nil {
		return nil, rest.Unprocessable("destinations must be an array, and is missing")
	}
	out := make([]app.Destination, 0, len(body.Destinations))
	for i, d := range body.Destinations {
		key := fmt.Sprintf("destinations[%d]", i)
		if d.Weight != nil {
			return nil, &app.Invalid{Key: key + ".weight", Message: "requests are spread evenly; leave it out"}
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
				return nil, &app.Invalid{Key: key + ".port", Message: fmt.Sprintf("must be 1 to 65535, or left out for the process's own, not %d", one.Port)}
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// defaultPort is where a process listens that names no port.
const defaultPort = 8080

func (s *Server) presentDestinations(rt app.Route) v3.Destinations {
	out := v3.Destinations{Destinations: []v3.Destination{}, Links: v3.Links{
		"self":  {Href: s.links.Href("v3", "routes", rt.GUID, "destinations")},
		"route": {Href: s.links.Href("v3", "routes", rt.GUID)},
	}}
	for _, d := range rt.Destinations {
		port := d.Port
		if port == 0 {
			port = defaultPort
		}
		out.Destinations = append(out.Destinations, v3.Destination{
			GUID: d.GUID, CreatedAt: v3.At(rt.CreatedAt), UpdatedAt: v3.At(rt.UpdatedAt),
			App:  v3.DestinationApp{GUID: d.App, Process: v3.DestinationProcess{Type: d.ProcessType}},
			Port: port, Protocol: d.Protocol, Pending: s.pending(d),
		})
	}
	return out
}

// pending tells whether a destination waits for a restart. That nobody knows is
// not worth an error: the wish itself is told all the same.
func (s *Server) pending(d app.Destination) bool {
	if d.Port == 0 {
		return false
	}
	ps, err := s.c.Registry.Processes(d.App)
	if err != nil {
		s.log.Error("cannot read the processes of an app", "app", d.App, "err", err)
		return false
	}
	for _, p := range ps {
		if p.Type == d.ProcessType {
			return route.Pending(d, s.c.Processes.Instances(p.GUID))
		}
	}
	return false
}
