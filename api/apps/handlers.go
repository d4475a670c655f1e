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

// Handlers has what the handlers need.
type Handlers struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform
	Present  *present.Presenter

	// SSH is the SSH server of instances; nil: there is none.
	SSH     *platform.SSHEndpoint
	Version string // of the program
}

// Endpoints are the rows of all endpoints of this package.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		h.appDeletionEndpoints(),
		h.appsEndpoints(),
		h.deploymentsEndpoints(),
		h.envEndpoints(),
		h.environmentVariableGroupsEndpoints(),
		h.featuresEndpoints(),
		h.manifestsEndpoints(),
		h.processesEndpoints(),
		h.revisionsEndpoints(),
		h.sidecarsEndpoints(),
		h.statsEndpoints(),
		h.tasksEndpoints(),
	)
}
