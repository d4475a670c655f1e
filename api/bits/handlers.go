// Package bits answers requests about the files of apps: packages, builds, droplets,
// buildpacks and stacks. Each resource has one file with its endpoints and their
// handlers.
package bits

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

	Downloads *Downloads // URLs of files
	UploadDir string     // folder for uploads in progress; empty: the system's temporary folder
	MaxUpload int64      // size limit of one upload in bytes
}

// Endpoints returns the endpoints of all resources.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		buildpackHandlers{h}.endpoints(),
		buildHandlers{h}.endpoints(),
		dropletHandlers{h}.endpoints(),
		downloadHandlers{h}.endpoints(),
		packageHandlers{h}.endpoints(),
		stackHandlers{h}.endpoints(),
	)
}
