// Package promql evaluates queries for container metrics in a part of PromQL, the query
// language of Prometheus: selectors, functions over a time range, and aggregations. It
// refuses all other expressions.
package promql

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"time"
)

// Point is one sample of a series.
type Point struct {
	T int64 // milliseconds since 1970
	V float64
}

// Series has the samples with the same labels, oldest first.
type Series struct {
	Labels map[string]string
	Points []Point
}

// lookback is how old a sample can be to count as the current value.
const lookback = 5 * time.Minute

// MaxSteps is the maximum number of values of a series in a response.
const MaxSteps = 11_000

// maxValues is the maximum number of values that one query calculates from.
const maxValues = 2_000_000

// Instant evaluates the query at one time. matrix says that the result has all samples
// of a range instead of one value for each series.
func (q *Query) Instant(all []Series, at time.Time) (out []Series, matrix bool) {
	all = q.selected(all)
	t := at.UnixMilli()
	if q.root.over == "" && q.root.width > 0 {
		for _, s := range all {
			if ps := window(s.Points, t-q.root.width.Milliseconds(), t); len(ps) > 0 {
				out = append(out, Series{s.Labels, ps})
			}
		}
		return out, true
	}
	return q.root.eval(all, t), false
}

// Range evaluates the query at each step from start to end.
func (q *Query) Range(ctx context.Context, all []Series, start, end time.Time, step time.Duration) ([]Series, error) {
	switch {
	case q.root.over == "" && q.root.width > 0:
		return nil, fmt.Errorf("invalid expression type \"range vector\" for range query, must be Scalar or instant Vector")
	case step < time.Millisecond:
		return nil, fmt.Errorf("zero or negative query resolution step widths are not accepted. Try a positive integer")
	case end.Before(start):
		return nil, fmt.Errorf("end timestamp must not be before start time")
	case end.Sub(start)/step > MaxSteps:
		return nil, fmt.Errorf("exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)")
	}
	all = q.selected(all)
	if steps := int(end.Sub(start)/step) + 1; steps*len(all) > maxValues {
		return nil, fmt.Errorf("the query selects %d series at %d times, more than %d values. Try a larger step or fewer series", len(all), steps, maxValues)
	}
	found := map[string]*Series{}
	for at := start; !at.After(end); at = at.Add(step) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, s := range q.root.eval(all, at.UnixMilli()) {
			key := labelKey(s.Labels)
			if found[key] == nil {
				found[key] = &Series{Labels: s.Labels}
			}
			found[key].Points = append(found[key].Points, s.Points...)
		}
	}
	var out []Series
	for _, key := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[key])
	}
	return out, nil
}

// selected returns the series that the selector matches.
func (q *Query) selected(all []Series) []Series {
	return slices.DeleteFunc(slices.Clone(all), func(s Series) bool {
		return slices.ContainsFunc(q.matchers, func(m matcher) bool { return !m.matches(s.Labels[m.label]) })
	})
}

// eval returns the value of each series at a time.
func (n *node) eval(all []Series, t int64) []Series {
	if n.aggregate != "" {
		return n.combine(n.inner.eval(all, t), t)
	}
	width := lookback.Milliseconds()
	if n.over != "" {
		width = n.width.Milliseconds()
	}
	var out []Series
	for _, s := range all {
		ps := window(s.Points, t-width, t)
		if len(ps) == 0 {
			continue
		}
		labels, v := s.Labels, ps[len(ps)-1].V
		if n.over != "" {
			v = reduce(strings.TrimSuffix(n.over, overTime), ps)
			labels = without(labels, nameLabel)
		}
		out = append(out, Series{labels, []Point{{t, v}}})
	}
	return out
}

// window returns the points after from, up to to.
func window(ps []Point, from, to int64) []Point {
	first := sort.Search(len(ps), func(i int) bool { return ps[i].T > from })
	last := sort.Search(len(ps), func(i int) bool { return ps[i].T > to })
	return ps[first:max(first, last)]
}

// combine groups the series by labels, and returns one value for each group.
func (n *node) combine(all []Series, t int64) []Series {
	groups := map[string]*Series{}
	for _, s := range all {
		labels := map[string]string{}
		for name, value := range s.Labels {
			if name != nameLabel && slices.Contains(n.labels, name) != n.without {
				labels[name] = value
			}
		}
		key := labelKey(labels)
		if groups[key] == nil {
			groups[key] = &Series{Labels: labels}
		}
		groups[key].Points = append(groups[key].Points, s.Points...)
	}
	var out []Series
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		out = append(out, Series{g.Labels, []Point{{t, reduce(n.aggregate, g.Points)}}})
	}
	return out
}

// reduce returns one value for at least one point.
func reduce(how string, ps []Point) float64 {
	sum, least, most := 0.0, math.Inf(1), math.Inf(-1)
	for _, p := range ps {
		sum, least, most = sum+p.V, min(least, p.V), max(most, p.V)
	}
	switch how {
	case "sum":
		return sum
	case "avg":
		return sum / float64(len(ps))
	case "min":
		return least
	case "max":
		return most
	case "count":
		return float64(len(ps))
	}
	return ps[len(ps)-1].V // last
}

// nameLabel is the label with the name of the metric.
const nameLabel = "__name__"

func without(labels map[string]string, name string) map[string]string {
	out := maps.Clone(labels)
	delete(out, name)
	return out
}

// labelKey returns a key that is the same for the same labels.
func labelKey(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(cmp.Or(name, "-") + "\x00" + labels[name] + "\x01")
	}
	return b.String()
}
