// Package market answers requests about the marketplace: brokers, offerings, plans, service instances and bindings. The rows of its
// endpoints stand beside the handlers, one file for each resource.
package market

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
		bindingHandlers{h}.endpoints(),
		brokerHandlers{h}.endpoints(),
		instanceHandlers{h}.endpoints(),
		offeringHandlers{h}.endpoints(),
		planHandlers{h}.endpoints(),
		bindingHandlers{h}.routeEndpoints(),
		sharingHandlers{h}.endpoints(),
		snapshotHandlers{h}.endpoints(),
	)
}
