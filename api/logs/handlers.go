// Package logs answers requests about log lines and container metrics: the log-cache
// API, log streams, and the log stream gateway of Cloud Foundry. Each has one file with
// its endpoints and their handlers.
package logs

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/usage"
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

	// Usage has the usage of instances. Nil means unknown.
	Usage Usage
	// GaugeInterval is the time between two container metrics of an instance.
	GaugeInterval time.Duration
	shards        shards
	appChanges    appChanges
}

// Usage is what the handlers need of the usage of instances. *usage.Sampler implements
// it.
type Usage interface {
	Once(ctx context.Context) map[runtime.InstanceID]*usage.Usage
	History(app string) []usage.History
}

// Endpoints returns all endpoints of this package.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		h.logcacheEndpoints(),
		h.streamEndpoints(),
		h.gatewayEndpoints(),
		h.queryEndpoints(),
	)
}
