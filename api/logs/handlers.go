// Package logs answers requests about log lines: log-cache and the streams. The rows of its
// endpoints stand beside the handlers, one file for each resource.
package logs

import (
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
)

// Handlers has what the handlers need.
type Handlers struct {
	Access   *access.Control
	Platform *platform.Platform
	Present  *present.Presenter

	// Fail writes the response to an error, for streams.
	Fail func(w http.ResponseWriter, r *http.Request, err error)

	// Beat is how often a stream without lines says that it is alive.
	Beat      time.Duration
	recent    recentTimes
	followers followers
}

// Endpoints are the rows of all endpoints of this package.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		h.logcacheEndpoints(),
		h.streamEndpoints(),
	)
}
