// Package market answers requests about the marketplace: brokers, offerings, plans,
// service instances and bindings. Each resource has one file with its endpoints and
// their handlers.
package market

import (
	"slices"
	"time"

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

	// FirstAnswer is how long a request waits for the first answer of a broker.
	FirstAnswer time.Duration
}

// Endpoints returns the endpoints of all resources.
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
