// Package apps answers requests about apps: their processes, sidecars, environment
// variables, tasks, deployments, revisions and manifests. Each resource has one file
// with its endpoints and their handlers.
package apps

import (
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/sshd"
)

// Handlers holds the fields that the handlers of all resources share. Each resource has
// its own type that embeds it.
type Handlers struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform
	Present  *present.Presenter

	// SSH is the SSH server of instances; nil if there is none.
	SSH     *platform.SSHEndpoint
	Version string // version of the program

	Live  Live // the usage of running instances
	cache liveCache

	waiting atomic.Int64 // requests for stats that wait

	// Terminals opens shells in instances; nil if there is no SSH server.
	Terminals *sshd.Server
	// Fail writes the error response of a terminal.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// Endpoints returns the endpoints of all resources.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		appHandlers{h}.endpoints(),
		deploymentHandlers{h}.endpoints(),
		envHandlers{h}.endpoints(),
		variableGroupHandlers{h}.endpoints(),
		featureHandlers{h}.endpoints(),
		liveHandlers{h}.endpoints(),
		manifestHandlers{h}.endpoints(),
		processHandlers{h}.endpoints(),
		revisionHandlers{h}.endpoints(),
		sidecarHandlers{h}.endpoints(),
		statsHandlers{h}.endpoints(),
		taskHandlers{h}.endpoints(),
		terminalHandlers{h}.endpoints(),
	)
}
