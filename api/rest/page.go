package rest

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/inbound"
)

const (
	// DefaultPerPage is the default number of items on a page.
	DefaultPerPage = 50
	// MaxPerPage is the maximum number of items on a page.
	MaxPerPage = 5000
)

// Query holds the parameters of a list request.
type Query struct {
	Page, PerPage int
	OrderBy       string // one of the list's orders, empty for the time of creation
	Descending    bool
	Filters       map[string][]string
	created       []bound
	updated       []bound
	selector      app.Selector
}

// defaultOrders are the orders of most lists. ByTime is for items without a name.
var (
	defaultOrders = []string{"created_at", "updated_at", "name"}
	ByTime        = defaultOrders[:2:2]
)

// The parameters that are not just lists of values.
const (
	ParamSelector = "label_selector"
	ParamCreated  = "created_ats"
	ParamUpdated  = "updated_ats"
)

// ReadQuery reads the parameters that the endpoint's row names. It refuses all others,
// because ignoring a filter would give wrong results. Every list has the times of
// creation and change, pages and orders.
func ReadQuery(r *http.Request) (Query, error) {
	shape := shapeOf(r.Context())
	filters, orders := shape.Params, shape.Orders
	if len(orders) == 0 {
		orders = defaultOrders
	}
	q := Query{Page: 1, PerPage: DefaultPerPage, Filters: map[string][]string{}}
	values := r.URL.Query()
	if err := checkParams(values, filters); err != nil {
		return q, err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		vs := values[name]
		var err error
		if name == "order_by" {
			err = q.order(vs[len(vs)-1], orders)
		} else {
			err = q.read(name, vs[len(vs)-1])
		}
		if err != nil {
			return q, err
		}
	}
	return q, nil
}

// checkParams refuses the parameters that the list does not have, all at once.
func checkParams(values url.Values, filters []string) error {
	known := append(slices.Clone(filters), "page", "per_page", "order_by", ParamCreated, ParamUpdated)
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		bare, _, _ := strings.Cut(name, "[")
		if !slices.Contains(known, name) && bare != ParamCreated && bare != ParamUpdated {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return BadQuery("Unknown query parameter(s): '%s'. Valid parameters are: '%s'", strings.Join(unknown, "', '"), strings.Join(known, "', '"))
}

// order reads the order; a leading - means descending. A leading + has no effect, and
// is a space if it was not escaped.
func (q *Query) order(value string, orders []string) error {
	q.OrderBy, q.Descending = strings.CutPrefix(value, "-")
	if !q.Descending {
		q.OrderBy = strings.TrimLeft(q.OrderBy, "+ ")
	}
	if !slices.Contains(orders, q.OrderBy) {
		return BadQuery("Order by can only be: '%s'", strings.Join(orders, "', '"))
	}
	return nil
}

func (q *Query) read(name, value string) (err error) {
	bare, _, _ := strings.Cut(name, "[")
	switch {
	case name == "page":
		q.Page, err = number(name, value, 1<<31)
	case name == "per_page":
		q.PerPage, err = number(name, value, MaxPerPage)
	case bare == ParamCreated:
		q.created, err = readBound(q.created, name, value)
	case bare == ParamUpdated:
		q.updated, err = readBound(q.updated, name, value)
	case name == ParamSelector:
		if q.selector, err = app.ParseSelector(value); err != nil {
			err = BadQuery("%s: %v", name, err)
		}
	default:
		q.Filters[name] = SplitList(value)
		if slices.ContainsFunc(q.Filters[name], func(v string) bool { return !utf8.ValidString(v) }) {
			err = BadQuery("parameter %q has %v", name, inbound.ErrUTF8)
		}
	}
	return err
}

// bound is one limit of a time.
type bound struct {
	operator string // "gt", "gte", "lt" or "lte"; if empty, the time must be one of at
	at       []time.Time
}

// readBound reads created_ats=a,b or created_ats[gt]=a.
func readBound(bounds []bound, name, value string) ([]bound, error) {
	_, operator, bracket := strings.Cut(name, "[")
	operator, closed := strings.CutSuffix(operator, "]")
	if bracket != closed || bracket && !slices.Contains([]string{"gt", "gte", "lt", "lte"}, operator) {
		return nil, BadQuery("%s has an unknown operator: valid operators are gt, gte, lt and lte", name)
	}
	b := bound{operator: operator}
	for _, text := range SplitList(value) {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, BadQuery("%s must have times such as 2026-01-02T03:04:05Z, not %q", name, text)
		}
		b.at = append(b.at, at)
	}
	if bracket && len(b.at) != 1 {
		return nil, BadQuery("%s must have exactly one time", name)
	}
	return append(bounds, b), nil
}

// includes reports whether a time is within the bound. Times are compared as they are
// shown, in whole seconds.
func (b bound) includes(t time.Time) bool {
	n := func(at time.Time) int { return t.Truncate(time.Second).Compare(at) }
	switch b.operator {
	case "gt":
		return n(b.at[0]) > 0
	case "gte":
		return n(b.at[0]) >= 0
	case "lt":
		return n(b.at[0]) < 0
	case "lte":
		return n(b.at[0]) <= 0
	}
	return slices.ContainsFunc(b.at, func(at time.Time) bool { return n(at) == 0 })
}

// MatchesTimes reports whether the item's times of creation and change match the query.
func (q Query) MatchesTimes(k Key) bool {
	beyond := func(t time.Time) func(b bound) bool { return func(b bound) bool { return !b.includes(t) } }
	return !slices.ContainsFunc(q.created, beyond(k.Created)) && !slices.ContainsFunc(q.updated, beyond(k.Updated))
}

// Includes returns the related resources that the query requests, and refuses those
// that are not known.
func (q Query) Includes(known ...string) (map[string]bool, error) {
	requested := map[string]bool{}
	for _, name := range q.Filters["include"] {
		if !slices.Contains(known, name) {
			return nil, BadQuery("Invalid included resource: '%s'. Valid included resources are: '%s'", name, strings.Join(known, "', '"))
		}
		requested[name] = true
	}
	return requested, nil
}

// ReadInclude reads the include parameter of a request for a single resource.
func ReadInclude(r *http.Request, known []string) (map[string]bool, error) {
	q, err := ReadQuery(r)
	if err != nil {
		return nil, err
	}
	return q.Includes(known...)
}

func number(name, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 1, BadQuery("%s must be a number from 1 to %d, not %q", name, most, value)
	}
	return n, nil
}

// SplitList splits at the commas first and decodes each item afterwards, because a
// comma inside a name is sent as %2C.
func SplitList(value string) []string {
	items := strings.Split(value, ",")
	for i, item := range items {
		if decoded, err := url.QueryUnescape(item); err == nil && strings.Contains(item, "%") {
			items[i] = decoded
		}
	}
	return items
}

// Matches reports whether the filter matches one of the values. A filter that was not
// given matches everything. An empty filter matches only the empty value.
func (q Query) Matches(filter string, values ...string) bool {
	want, given := q.Filters[filter]
	if !given {
		return true
	}
	return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(want, v) })
}

// MatchesFold is Matches without regard to case.
func (q Query) MatchesFold(filter, value string) bool {
	want, given := q.Filters[filter]
	if !given {
		return true
	}
	return slices.ContainsFunc(want, func(w string) bool { return strings.EqualFold(w, value) })
}

// Key holds the values that lists are ordered by.
type Key struct {
	Name             string // or another value to order by, as text
	Created, Updated time.Time
	GUID             string
}

// List returns the page of all that the query requests. It modifies all.
func List[T, V any](l Links, r *http.Request, q Query, all []T, view View[T, V]) v3.List[V] {
	all = slices.DeleteFunc(all, func(v T) bool {
		return !q.MatchesTimes(view.Key(v)) || q.selector != nil && (view.Labels == nil || !q.selector.Matches(view.Labels(v)))
	})
	slices.SortStableFunc(all, func(a, b T) int {
		n := q.compare(view.Key(a), view.Key(b))
		if q.Descending {
			return -n
		}
		return n
	})
	total := len(all)
	from := min((q.Page-1)*q.PerPage, total)
	out := v3.List[V]{Pagination: l.pagination(r, q, total), Resources: []V{}}
	for _, v := range all[from:min(from+q.PerPage, total)] {
		out.Resources = append(out.Resources, view.Present(v))
	}
	return out
}

// View says how a list uses its items: the values to order by, and the representation.
type View[T, V any] struct {
	Key     func(T) Key
	Present func(T) V
	Labels  func(T) map[string]string // nil if there are none
}

func (q Query) compare(a, b Key) int {
	switch q.OrderBy {
	case "name", "position", "state", "lifecycle":
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID))
	case "updated_at":
		return cmp.Or(a.Updated.Compare(b.Updated), cmp.Compare(a.GUID, b.GUID))
	}
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.GUID, b.GUID))
}
