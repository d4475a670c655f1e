package api

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/api/market"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
)

// rights holds the endpoints by pattern, including the one for all other paths.
var rights = func() map[string]rest.Endpoint {
	out := map[string]rest.Endpoint{"/": {Pattern: "/", Needs: access.Authenticated}}
	s := &Server{c: Config{Metrics: daemon.NewMetrics()}, platform: &platform.Platform{Log: slog.New(slog.DiscardHandler)}}
	s.group()
	for _, e := range s.endpoints() {
		out[e.Pattern] = e
	}
	return out
}()

// operations returns the shapes of the endpoints.
var operations = sync.OnceValue(func() map[string]rest.Shape {
	out := map[string]rest.Shape{}
	for pattern, e := range rights {
		if pattern != "/" {
			out[pattern] = e.Shape
		}
	}
	return out
})

// description returns the OpenAPI description of the endpoints.
var description = sync.OnceValue(func() rest.Object {
	rows := slices.Collect(maps.Values(rights))
	rows = slices.DeleteFunc(rows, func(e rest.Endpoint) bool { return e.Pattern == "/" })
	slices.SortFunc(rows, func(a, b rest.Endpoint) int { return strings.Compare(a.Pattern, b.Pattern) })
	return rest.DescribeAll(rows, market.ServiceFieldNames)
})
