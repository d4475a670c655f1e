package routes

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// reservationHandlers answers requests about whether a route exists.
type reservationHandlers struct{ *Handlers }

func (h reservationHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "DELETE /v3/spaces/{guid}/routes", Needs: access.Support, Resource: access.Space, Handler: h.deleteUnmapped, Shape: rest.StartsJob().Query("unmapped")},
		{
			Pattern: "GET /v3/domains/{guid}/route_reservations", Needs: access.Authenticated,
			Handler: h.getReservation, Shape: rest.Returns[v3.Reservation](200).Query("host", "path", "port"),
		},
	}
}

// getReservation reports whether a route exists, even in spaces that the caller cannot
// see.
func (h reservationHandlers) getReservation(r *http.Request) (any, error) {
	d, err := h.Platform.Registry.Domain(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Domain", err)
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	if !perms.SeesDomain(d) {
		return nil, rest.NotFound("Domain")
	}
	values := r.URL.Query()
	for name := range values {
		if name != "host" && name != "path" && name != "port" {
			return nil, rest.BadQuery("Unknown query parameter(s): '%s'. Valid parameters are: 'host', 'path', 'port'", name)
		}
	}
	if port := values.Get("port"); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, rest.BadQuery("port must be 1 to 65535, not '%s'", port)
		}
		return h.portReservation(d, int(n))
	}
	_, err = h.Platform.Registry.RouteAt(d.GUID, values.Get("host"), values.Get("path"))
	if err != nil && !errors.Is(err, app.ErrNotFound) {
		return nil, err
	}
	return v3.Reservation{Matching: err == nil}, nil
}

func (h reservationHandlers) portReservation(d app.Domain, port int) (any, error) {
	rt, err := h.Platform.Registry.RouteAtPort(port)
	if err != nil && !errors.Is(err, app.ErrNotFound) {
		return nil, err
	}
	return v3.Reservation{Matching: err == nil && rt.Domain == d.GUID && port != 0}, nil
}

func (h reservationHandlers) deleteUnmapped(r *http.Request) (any, error) {
	if r.URL.Query().Get("unmapped") != "true" {
		return nil, rest.BadQuery("Mass delete not supported for routes. Use 'unmapped=true' parameter to delete all unmapped routes.")
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteUnmapped, platform.Unmapped{Space: r.PathValue("guid"), Actor: platform.ActorOf(r.Context())})
}
