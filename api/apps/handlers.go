// Package apps answers requests about apps: their processes, sidecars, environment variables, tasks, deployments, revisions and manifests. The rows of its
// endpoints stand beside the handlers, one file for each resource.
package apps

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

	// SSH is the SSH server of instances; nil: there is none.
	SSH     *platform.SSHEndpoint
	Version string // of the program
}

// Endpoints are the rows of all resources.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		appHandlers{h}.endpoints(),
		deploymentHandlers{h}.endpoints(),
		envHandlers{h}.endpoints(),
		variableGroupHandlers{h}.endpoints(),
		featureHandlers{h}.endpoints(),
		manifestHandlers{h}.endpoints(),
		processHandlers{h}.endpoints(),
		revisionHandlers{h}.endpoints(),
		sidecarHandlers{h}.endpoints(),
		statsHandlers{h}.endpoints(),
		taskHandlers{h}.endpoints(),
	)
}
