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

// Handlers has what the handlers need.
type Handlers struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform
	Present  *present.Presenter
}

// Endpoints are the rows of all endpoints of this package.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		h.serviceBindingsEndpoints(),
		h.serviceBrokersEndpoints(),
		h.serviceInstancesEndpoints(),
		h.serviceOfferingsEndpoints(),
		h.servicePlansEndpoints(),
		h.serviceRouteBindingsEndpoints(),
		h.serviceSharingEndpoints(),
		h.serviceSnapshotsEndpoints(),
	)
}
