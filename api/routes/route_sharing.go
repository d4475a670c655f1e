package routes

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
)

// sharingHandlers answers requests about the spaces that routes are shared with.
type sharingHandlers struct{ *Handlers }

func (h sharingHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/routes/{guid}/relationships/shared_spaces", Needs: access.ReadRoute, Resource: access.Route,
			Handler: h.getRouteShares, Shape: rest.Returns[v3.SharedSpaces](200),
		},
		{
			Pattern: "POST /v3/routes/{guid}/relationships/shared_spaces", Needs: access.Support, Resource: access.Route,
			Handler: h.shareRoute, Shape: rest.Returns[v3.SharedSpaces](200).Reads(rest.JSON[v3.ShareServiceInstance]()),
		},
		{
			Pattern: "DELETE /v3/routes/{guid}/relationships/shared_spaces/{space}", Needs: access.Support, Resource: access.Route,
			Handler: h.unshareRoute, Shape: rest.Empty(204),
		},
		{
			Pattern: "PATCH /v3/routes/{guid}/relationships/space", Needs: access.Develop, Resource: access.Route,
			Handler: h.moveRoute, Shape: rest.Returns[v3.Related](200).Reads(rest.JSON[v3.ToOne]()),
		},
	}
}

func (h sharingHandlers) getRouteShares(r *http.Request) (any, error) {
	rt, err := h.routeOf(r)
	if err != nil {
		return nil, err
	}
	return h.presentRouteShares(rt), nil
}

func (h sharingHandlers) presentRouteShares(rt app.Route) v3.SharedSpaces {
	out := v3.SharedSpaces{Data: []v3.GUID{}, Links: v3.Links{
		"self": {Href: h.Links.Href("v3", "routes", rt.GUID, "relationships", "shared_spaces")},
	}}
	for _, space := range rt.SharedWith {
		out.Data = append(out.Data, v3.GUID{GUID: space})
	}
	return out
}

// shareRoute shares a route with more spaces, whose apps can then use it. The caller
// must be a developer in those spaces.
func (h sharingHandlers) shareRoute(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ShareServiceInstance](r)
	if err != nil {
		return nil, err
	}
	if err := h.Present.Feature(r.Context(), app.FlagRouteSharing); err != nil {
		return nil, err
	}
	if len(body.Data) == 0 {
		return nil, rest.Unprocessable("Data must be a list of spaces such as [{\"guid\": \"…\"}]")
	}
	var spaces []string
	for _, d := range body.Data {
		if err := routeSpaceError("share", d.GUID, h.Access.Require(r.Context(), access.Develop, d.GUID)); err != nil {
			return nil, err
		}
		spaces = append(spaces, d.GUID)
	}
	rt, err := h.giveRoute(r, eventShareRoute, spaces, func(reg *registry.Registry, guid string) (app.Route, error) {
		return reg.ShareRoute(guid, spaces)
	})
	if err != nil {
		return nil, err
	}
	return h.presentRouteShares(rt), nil
}

func (h sharingHandlers) unshareRoute(r *http.Request) (any, error) {
	space := r.PathValue("space")
	rt, err := h.routeOf(r)
	if err != nil {
		return nil, err
	}
	if err := h.Present.Feature(r.Context(), app.FlagRouteSharing); err != nil {
		return nil, err
	}
	if space == rt.Space {
		return nil, rest.Unprocessable("Unable to unshare route '%s' from space '%s'. Routes cannot be removed from the space that owns them.", rt.GUID, space)
	}
	if err := routeSpaceError("unshare", space, h.Access.Require(r.Context(), access.Support, space)); err != nil {
		return nil, err
	}
	_, err = h.giveRoute(r, "audit.route.unshare", []string{space}, func(reg *registry.Registry, guid string) (app.Route, error) {
		rt, err := reg.UnshareRoute(guid, space)
		if errors.Is(err, app.ErrNotFound) {
			err = rest.Unprocessable("Unable to unshare route from space %s. Ensure the space exists and the route has been shared to this space.", space)
		}
		return rt, err
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}

// eventShareRoute is the only one of these events that can name several spaces.
const eventShareRoute = "audit.route.share"

// moveRoute moves a route to another space.
func (h sharingHandlers) moveRoute(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.ToOne](r)
	if err != nil {
		return nil, err
	}
	if err := h.Present.Feature(r.Context(), app.FlagRouteSharing); err != nil {
		return nil, err
	}
	if err := routeSpaceError("transfer owner of", body.ID(), h.Access.Require(r.Context(), access.Support, body.ID())); err != nil {
		return nil, err
	}
	rt, err := h.giveRoute(r, "audit.route.transfer-owner", []string{body.ID()}, func(reg *registry.Registry, guid string) (app.Route, error) {
		return reg.MoveRoute(guid, body.ID())
	})
	if err != nil {
		return nil, err
	}
	return v3.Related{Data: &v3.GUID{GUID: rt.Space}, Links: v3.Links{
		"self":    {Href: h.Links.Href("v3", "routes", rt.GUID, "relationships", "space")},
		"related": {Href: h.Links.Href("v3", "spaces", rt.Space)},
	}}, nil
}

// routeSpaceError returns Cloud Foundry's error if the caller cannot share a route with a
// space, or move or unshare it there.
func routeSpaceError(what, space string, err error) error {
	switch {
	case errors.Is(err, app.ErrNotFound):
		return rest.Unprocessable("Unable to %s route with space '%s'. Ensure the space exists and that you have access to it.", what, space)
	case errors.Is(err, access.ErrNotAuthorized):
		return rest.Unprocessable("Unable to %s route with space '%s'. Write permission is required there.", what, space)
	}
	return err
}

// giveRoute changes the spaces of a route, and records the change.
func (h sharingHandlers) giveRoute(r *http.Request, event string, spaces []string, give func(reg *registry.Registry, guid string) (app.Route, error)) (rt app.Route, err error) {
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		old, err := w.Registry.Route(r.PathValue("guid"))
		if err != nil {
			return rest.Missing("Route", err)
		}
		if rt, err = give(w.Registry, old.GUID); err != nil {
			return err
		}
		if err := w.RecordMapping(old, rt, nil); err != nil {
			return err
		}
		data := map[string]any{"target_space_guids": spaces}
		if event != eventShareRoute {
			data = map[string]any{"target_space_guid": spaces[0]}
		}
		was := rt
		was.Space = old.Space // the event belongs to the previous owner
		return w.RecordRoute(event, was, data)
	})
	return rt, err
}

// mayUnmap checks whether the caller can remove a destination. A caller from a space
// that the route is shared with can only remove its own apps.
func (h *Handlers) mayUnmap(r *http.Request) error {
	rt, err := h.routeOf(r)
	if err != nil || h.Access.Require(r.Context(), access.Support, rt.Space) == nil {
		return err
	}
	d, ok := platform.DestinationsByGUID(rt)[r.PathValue("destination")]
	if !ok {
		return nil // the handler reports it
	}
	if _, err = h.Present.AppInBody(r.Context(), access.Support, d.App); platform.IsNotFound(err) {
		return access.ErrNotAuthorized
	}
	return err
}
