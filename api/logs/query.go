package logs

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/logs/promql"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime/usage"
)

// queryEndpoints returns the endpoints of this file.
func (h *Handlers) queryEndpoints() []rest.Endpoint {
	shape := func(params ...string) rest.Shape {
		return rest.Returns[v3.PromQLResponse](http.StatusOK).Query(params...).IgnoresOthers().Or(rest.Returns[v3.PromQLError](http.StatusBadRequest))
	}
	return []rest.Endpoint{
		{Pattern: "GET /api/v1/query", Needs: access.Authenticated, Scopes: access.ScopesOfLogs, Handler: h.queryInstant, Shape: shape("query", "time")},
		{Pattern: "GET /api/v1/query_range", Needs: access.Authenticated, Scopes: access.ScopesOfLogs, Handler: h.queryRange, Shape: shape("query", "start", "end", "step")},
	}
}

// queryInstant evaluates a query for container metrics at one time.
func (h *Handlers) queryInstant(r *http.Request) (any, error) {
	at := time.Now().Truncate(time.Second)
	if text := r.URL.Query().Get("time"); text != "" {
		var err error
		if at, err = queryTime(text); err != nil {
			return badQueryData(err)
		}
	}
	q, err := promql.Parse(r.URL.Query().Get("query"))
	if err != nil {
		return badQueryData(err)
	}
	all, err := h.querySeries(r, q)
	if err != nil {
		return nil, err
	}
	out, matrix := q.Instant(all, at)
	return queryResult(out, matrix, !matrix)
}

// queryRange evaluates a query at each step of a time range.
func (h *Handlers) queryRange(r *http.Request) (any, error) {
	v := r.URL.Query()
	start, err := queryTime(v.Get("start"))
	if err != nil {
		return badQueryData(fmt.Errorf("couldn't parse start: %w", err))
	}
	end, err := queryTime(v.Get("end"))
	if err != nil {
		return badQueryData(fmt.Errorf("couldn't parse end: %w", err))
	}
	step, err := queryStep(v.Get("step"))
	if err != nil {
		return badQueryData(fmt.Errorf("couldn't parse step: %w", err))
	}
	q, err := promql.Parse(v.Get("query"))
	if err != nil {
		return badQueryData(err)
	}
	all, err := h.querySeries(r, q)
	if err != nil {
		return nil, err
	}
	out, err := q.Range(r.Context(), all, start, end, step)
	switch {
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	case err != nil:
		return badQueryData(err)
	}
	return queryResult(out, true, false)
}

// queryTime reads seconds since 1970, or a time such as 2006-01-02T15:04:05Z.
func queryTime(text string) (time.Time, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < maxSeconds {
		return time.UnixMilli(int64(math.Round(f * 1000))), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() > maxYear || at.Year() < 1970 {
		return at, fmt.Errorf("cannot parse %q to a valid Unix or RFC3339 timestamp", text)
	}
	return at, nil
}

// maxSeconds is the end of the times that are accepted, in seconds since 1970.
const maxSeconds = 9e9

// queryStep reads seconds, or a duration such as 1m.
func queryStep(text string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < maxSeconds {
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("cannot parse %q to a valid step", text)
	}
	return time.Duration(d), nil
}

// badQueryData is the response for a query that cannot be evaluated, in the form of
// Prometheus.
func badQueryData(err error) (any, error) {
	return rest.Answer{Status: http.StatusBadRequest, Body: v3.PromQLError{Status: "error", ErrorType: "bad_data", Error: err.Error()}}, nil
}

// querySeries returns the samples of the metric that the query asks for. The caller must
// be able to read all apps that the query names.
func (h *Handlers) querySeries(r *http.Request, q *promql.Query) ([]promql.Series, error) {
	if err := h.mayRead(access.Principal(r.Context()), q.Sources); err != nil {
		return nil, rest.Missing("App", err)
	}
	if h.Usage == nil {
		return nil, nil
	}
	var out []promql.Series
	for _, guid := range slices.Compact(slices.Sorted(slices.Values(q.Sources))) {
		a, err := h.Platform.Registry.App(guid)
		if err != nil { // an administrator can name other sources
			continue
		}
		form, err := h.EnvelopeForm(a)
		if err != nil {
			return nil, err
		}
		for _, s := range h.Usage.History(a.GUID) {
			p := form.processes[strings.ToUpper(s.Type)]
			if points := pointsOf(q.Metric, p, s); len(points) > 0 {
				out = append(out, promql.Series{Labels: seriesLabels(form, q.Metric, s), Points: points})
			}
		}
	}
	return merged(out), nil
}

// seriesLabels returns the labels of an instance's metrics: the tags of its envelopes.
// They do not have the guid of the instance, so a restart continues the series.
func seriesLabels(form envelopeForm, metric string, s usage.History) map[string]string {
	e := form.Present(logstream.Source{Type: "APP/PROC/" + strings.ToUpper(s.Type), Index: s.Slot.Index})
	delete(e.Tags, "source_type")
	e.Tags["__name__"], e.Tags["source_id"] = metric, e.SourceID
	return e.Tags
}

// merged joins the series of instances that followed each other.
func merged(all []promql.Series) []promql.Series {
	var out []promql.Series
	for _, s := range all {
		i := slices.IndexFunc(out, func(o promql.Series) bool { return maps.Equal(o.Labels, s.Labels) })
		if i < 0 {
			out = append(out, s)
			continue
		}
		out[i].Points = append(out[i].Points, s.Points...)
		slices.SortStableFunc(out[i].Points, func(a, b promql.Point) int { return int(a.T - b.T) })
	}
	return out
}

// pointsOf returns the samples of a metric, or none if the metric is not known.
func pointsOf(metric string, p app.Process, s usage.History) []promql.Point {
	value := metricAt(metric, p, s)
	if value == nil {
		return nil
	}
	out := make([]promql.Point, len(s.Times))
	for i, at := range s.Times {
		out[i] = promql.Point{T: at * 1000, V: value(i)}
	}
	return out
}

// metricAt returns a function for the values of a metric, or nil if it is not known.
func metricAt(metric string, p app.Process, s usage.History) func(i int) float64 {
	memory, disk, limit := quotas(p)
	constant := func(v float64) func(int) float64 { return func(int) float64 { return v } }
	cpu := func(i int) (sum float64) {
		for _, part := range s.Parts {
			sum += part.CPU[i]
		}
		return sum * 100
	}
	switch metric {
	case metricCPU:
		return cpu
	case metricEntitlement:
		if s.Entitled > 0 {
			return func(i int) float64 { return cpu(i) / s.Entitled }
		}
	case metricMemory:
		return func(i int) (sum float64) {
			for _, part := range s.Parts {
				sum += float64(part.Memory[i])
			}
			return sum
		}
	case metricDisk:
		if len(s.Disk) == len(s.Times) {
			return func(i int) float64 { return float64(s.Disk[i]) }
		}
	case metricLogRate:
		return func(i int) float64 { return float64(s.LogRate[i]) }
	case metricMemoryQuota:
		return constant(memory)
	case metricDiskQuota:
		return constant(disk)
	case metricLogLimit:
		return constant(limit)
	}
	return nil
}

// queryResult encodes a result: one value for each series, or all.
func queryResult(all []promql.Series, matrix, single bool) (any, error) {
	out := v3.PromQLResponse{Status: "success", Data: v3.PromQLData{ResultType: "vector", Result: []v3.PromQLSeries{}}}
	if matrix {
		out.Data.ResultType = "matrix"
	}
	for _, s := range all {
		labels := maps.Clone(s.Labels)
		delete(labels, "__name__") // as log-cache does
		series := v3.PromQLSeries{Metric: labels}
		for _, p := range s.Points {
			series.Values = append(series.Values, queryPoint(p))
		}
		if single {
			series.Value, series.Values = series.Values[0], nil
		}
		out.Data.Result = append(out.Data.Result, series)
	}
	return out, nil
}

// queryPoint encodes a value as [seconds, "value"].
func queryPoint(p promql.Point) json.RawMessage {
	return fmt.Appendf(nil, `[%.3f,"%s"]`, float64(p.T)/1000, strconv.FormatFloat(p.V, 'f', -1, 64))
}
