// Package logs answers requests about log lines: the log-cache API and log streams.
// Each of the two has one file with its endpoints and their handlers.
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

// Handlers holds the fields that the handlers need.
type Handlers struct {
	Access   *access.Control
	Platform *platform.Platform
	Present  *present.Presenter

	// Fail writes the error response of a stream.
	Fail func(w http.ResponseWriter, r *http.Request, err error)

	// Beat is the interval of heartbeats on a stream without lines.
	Beat      time.Duration
	recent    recentTimes
	followers streamCount
}

// Endpoints returns all endpoints of this package.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		h.logcacheEndpoints(),
		h.streamEndpoints(),
	)
}
