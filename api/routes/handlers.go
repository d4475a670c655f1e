// Package routes answers requests about routes, their destinations, and domains. Each
// resource has one file with its endpoints and their handlers.
package routes

import (
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
)

// Handlers holds the fields that the handlers of all resources share. Each resource has
// its own type that embeds it.
type Handlers struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform
	Present  *present.Presenter
}

// Endpoints returns the endpoints of all resources.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		destinationHandlers{h}.endpoints(),
		domainHandlers{h}.endpoints(),
		networkPolicyHandlers{h}.endpoints(),
		reservationHandlers{h}.endpoints(),
		sharingHandlers{h}.endpoints(),
		routerGroupHandlers{h}.endpoints(),
		routeHandlers{h}.endpoints(),
	)
}
