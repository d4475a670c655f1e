// Package orgs answers requests about orgs, spaces, users, roles, and what administrators set: quotas, security groups, isolation segments, feature flags. The rows of its
// endpoints stand beside the handlers, one file for each resource.
package orgs

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
		flagHandlers{h}.endpoints(),
		isolationSegmentHandlers{h}.endpoints(),
		orgHandlers{h}.endpoints(),
		quotaHandlers{h}.endpoints(),
		roleHandlers{h}.endpoints(),
		securityGroupHandlers{h}.endpoints(),
		spaceHandlers{h}.endpoints(),
		usageHandlers{h}.endpoints(),
		userHandlers{h}.endpoints(),
	)
}
