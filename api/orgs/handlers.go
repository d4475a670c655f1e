// Package orgs answers requests about orgs, spaces, users and roles. It also answers
// requests about settings of administrators: quotas, security groups, isolation
// segments and feature flags. Each resource has one file with its endpoints and their
// handlers.
package orgs

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
