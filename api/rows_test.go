package api

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
)

// rights are the rows of the API by pattern, and the one for every other path.
var rights = func() map[string]Endpoint {
	out := map[string]Endpoint{"/": {Pattern: "/", Needs: authenticated}}
	s := &Server{c: Config{Metrics: NewMetrics()}, log: slog.New(slog.DiscardHandler)}
	for _, e := range s.endpoints() {
		out[e.Pattern] = e
	}
	return out
}()

// operations are the shapes of the rows.
var operations = sync.OnceValue(func() map[string]operation {
	out := map[string]operation{}
	for pattern, e := range rights {
		if pattern != "/" {
			out[pattern] = e.Shape
		}
	}
	return out
})

// description is the description of the rows.
var description = sync.OnceValue(func() object {
	rows := slices.Collect(maps.Values(rights))
	rows = slices.DeleteFunc(rows, func(e Endpoint) bool { return e.Pattern == "/" })
	slices.SortFunc(rows, func(a, b Endpoint) int { return strings.Compare(a.Pattern, b.Pattern) })
	return describeAll(rows, serviceFieldNames)
})
