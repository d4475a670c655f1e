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

// Handlers has what the handlers need.
type Handlers struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform
	Present  *present.Presenter

	UploadDir string // holds uploads while they come in; empty: the temporary folder of the system
	MaxUpload int64  // bound of one upload in bytes
}

// Endpoints are the rows of all endpoints of this package.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		h.buildpackChangesEndpoints(),
		h.buildpackFoldersEndpoints(),
		h.buildpacksEndpoints(),
		h.buildsEndpoints(),
		h.copiesEndpoints(),
		h.dropletsEndpoints(),
		h.packagesEndpoints(),
		h.stacksEndpoints(),
	)
}
