// Package bits answers requests about what apps are made from: packages, builds, droplets, buildpacks and stacks. The rows of its
// endpoints stand beside the handlers, one file for each resource.
package bits

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

	UploadDir string // holds uploads while they come in; empty: the temporary folder of the system
	MaxUpload int64  // bound of one upload in bytes
}

// Endpoints are the rows of all resources.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		buildpackHandlers{h}.endpoints(),
		buildHandlers{h}.endpoints(),
		dropletHandlers{h}.endpoints(),
		packageHandlers{h}.endpoints(),
		stackHandlers{h}.endpoints(),
	)
}
