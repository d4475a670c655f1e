// Package routes answers requests about routes, their destinations, and domains. The rows of its
// endpoints stand beside the handlers, one file for each resource.
package routes

import (
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
)

// Handlers has what the handlers of all resources share. Each resource has a type of its own around it.
type Handlers struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform
	Present  *present.Presenter
}

// Endpoints are the rows of all resources.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		destinationHandlers{h}.endpoints(),
		domainHandlers{h}.endpoints(),
		reservationHandlers{h}.endpoints(),
		sharingHandlers{h}.endpoints(),
		routerGroupHandlers{h}.endpoints(),
		routeHandlers{h}.endpoints(),
	)
}
