package logs

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
)

// gatewayEndpoints returns the endpoints of this file.
func (h *Handlers) gatewayEndpoints() []rest.Endpoint {
	return []rest.Endpoint{{
		Pattern: "GET /v2/read", Needs: access.Authenticated, Scopes: access.ScopesOfLogs,
		Raw: http.HandlerFunc(h.readGateway), Shape: rest.ReturnsBytes("text/event-stream").Query(gatewayParameters...).IgnoresOthers().
			Or(rest.Returns[v3.GatewayError](http.StatusBadRequest)).Or(rest.Returns[v3.GatewayError](http.StatusNotFound)),
	}}
}

// gatewayParameters are the query parameters of the gateway.
var gatewayParameters = []string{"log", "counter", "counter.name", "gauge", "gauge.name", "timer", "event", "source_id", "shard_id", "deterministic_name"}

// gatewayError is an error response of the gateway.
type gatewayError struct {
	status int
	body   v3.GatewayError
}

// The errors of the gateway, in the words of Cloud Foundry.
var (
	errEmptyQuery  = &gatewayError{http.StatusBadRequest, v3.GatewayError{Message: "query cannot be empty", Error: "empty_query"}}
	errMissingType = &gatewayError{http.StatusBadRequest, v3.GatewayError{Message: "query must provide at least one envelope type", Error: "missing_envelope_type"}}
	errGatewayNone = &gatewayError{http.StatusNotFound, v3.GatewayError{Message: "resource not found", Error: "not_found"}}
)

func (e *gatewayError) write(w http.ResponseWriter) {
	b, _ := json.Marshal(e.body) // two strings can be encoded
	http.Error(w, string(b)+"\n", e.status)
}

// gatewayQuery selects the envelopes of a stream.
type gatewayQuery struct {
	sources         []string // guids of apps; empty: all apps
	log, gauge, tmr bool
	gauges          [][]string // names that a gauge must have, as alternatives; empty: any gauge
	shard, name     string
}

// readGatewayQuery reads the query. dew has no counters and no events, so these types
// select nothing.
func readGatewayQuery(v url.Values) (gatewayQuery, *gatewayError) {
	if len(v) == 0 {
		return gatewayQuery{}, errEmptyQuery
	}
	if !slices.ContainsFunc(gatewayParameters[:7], v.Has) {
		return gatewayQuery{}, errMissingType
	}
	q := gatewayQuery{
		sources: slices.Compact(slices.Sorted(slices.Values(v["source_id"]))),
		log:     v.Has("log"), gauge: v.Has("gauge") || len(v["gauge.name"]) > 0, tmr: v.Has("timer"),
		shard: v.Get("shard_id"), name: v.Get("deterministic_name"),
	}
	for _, names := range v["gauge.name"] {
		q.gauges = append(q.gauges, strings.Split(names, ","))
	}
	return q, nil
}

// wants reports whether the query selects a gauge with these metrics.
func (q gatewayQuery) wants(metrics map[string]v3.GaugeValue) bool {
	if len(q.gauges) == 0 {
		return q.gauge
	}
	return slices.ContainsFunc(q.gauges, func(names []string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { _, ok := metrics[name]; return !ok })
	})
}

// readGateway sends the log lines, container metrics and request times of apps as
// server-sent events, like Cloud Foundry's log stream gateway.
func (h *Handlers) readGateway(w http.ResponseWriter, r *http.Request) {
	sources := r.URL.Query()["source_id"]
	who := access.Principal(r.Context())
	if err := h.mayRead(who, sources); err != nil {
		if platform.IsNotFound(err) {
			errGatewayNone.write(w)
			return
		}
		h.Fail(w, r, err)
		return
	}
	q, bad := readGatewayQuery(r.URL.Query())
	if bad != nil {
		bad.write(w)
		return
	}
	h.followers.join()
	defer h.followers.leave()
	s := &gatewayStream{h: h, q: q, who: who, events: make(chan []byte), failed: make(chan error, 1), following: map[string]bool{}}
	if err := s.run(w, r); err != nil && r.Context().Err() == nil {
		h.Platform.Log.Warn("log stream failed", "request", rest.RequestID(r.Context()), "err", err)
	}
}

// mayRead returns an error if the caller cannot read the logs of the apps. Only callers
// who can read all logs need not name them.
func (h *Handlers) mayRead(who auth.Principal, sources []string) error {
	if access.SeesAllLogs(who) {
		return nil
	}
	if len(sources) == 0 {
		return app.ErrNotFound
	}
	perms, err := h.Access.PermissionsOf(who)
	if err != nil {
		return err
	}
	for _, guid := range sources {
		a, err := h.Platform.Registry.App(guid)
		if err != nil {
			return err
		}
		if !perms.SeesSpace(a.Space) {
			return app.ErrNotFound
		}
	}
	return nil
}

// gatewayEnvelope returns an envelope in the form of the gateway.
func gatewayEnvelope(e v3.LogCacheEnvelope) v3.GatewayEnvelope {
	return v3.GatewayEnvelope{Timestamp: e.Timestamp, SourceID: e.SourceID, InstanceID: e.InstanceID, Tags: e.Tags, Log: e.Log}
}
