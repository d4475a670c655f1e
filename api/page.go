package api

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
	defaultPerPage = 50
	maxPerPage     = 5000
)

// query is what a request for a list asks.
type query struct {
	page, perPage int
	orderBy       string // one of the list's orders; empty: as created
	descending    bool
	filters       map[string][]string
	created       []bound
	updated       []bound
	selector      app.Selector
}

// defaultOrders are what most lists can be ordered by; byTime is for what has no name.
var (
	defaultOrders = []string{"created_at", "updated_at", "name"}
	byTime        = defaultOrders[:2:2]
)

// The parameters that are more than lists of values.
const (
	paramSelector = "label_selector"
	paramCreated  = "created_ats"
	paramUpdated  = "updated_ats"
)

// readQuery reads the parameters that the endpoint's row names. One that the row does
// not name is refused: a filter that is ignored gives wrong answers. Every list knows
// the times of creation and change, pages and orders.
func readQuery(r *http.Request) (query, error) {
	shape := shapeOf(r.Context())
	filters, orders := shape.asks, shape.orders
	if len(orders) == 0 {
		orders = defaultOrders
	}
	q := query{page: 1, perPage: defaultPerPage, filters: map[string][]string{}}
	values := r.URL.Query()
	if err := allKnown(values, filters); err != nil {
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

// allKnown refuses the parameters that the list does not know, all at once.
func allKnown(values url.Values, filters []string) error {
	known := append(slices.Clone(filters), "page", "per_page", "order_by", paramCreated, paramUpdated)
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		bare, _, _ := strings.Cut(name, "[")
		if !slices.Contains(known, name) && bare != paramCreated && bare != paramUpdated {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return badQuery("Unknown query parameter(s): '%s'. Valid parameters are: '%s'", strings.Join(unknown, "', '"), strings.Join(known, "', '"))
}

// order reads what to order by, with - before it for the other way. A + says
// nothing, and is a blank where it was not escaped.
func (q *query) order(value string, orders []string) error {
	q.orderBy, q.descending = strings.CutPrefix(value, "-")
	if !q.descending {
		q.orderBy = strings.TrimLeft(q.orderBy, "+ ")
	}
	if !slices.Contains(orders, q.orderBy) {
		return badQuery("Order by can only be: '%s'", strings.Join(orders, "', '"))
	}
	return nil
}

func (q *query) read(name, value string) (err error) {
	bare, _, _ := strings.Cut(name, "[")
	switch {
	case name == "page":
		q.page, err = number(name, value, 1<<31)
	case name == "per_page":
		q.perPage, err = number(name, value, maxPerPage)
	case bare == paramCreated:
		q.created, err = readBound(q.created, name, value)
	case bare == paramUpdated:
		q.updated, err = readBound(q.updated, name, value)
	case name == paramSelector:
		if q.selector, err = app.ParseSelector(value); err != nil {
			err = badQuery("%s: %v", name, err)
		}
	default:
		q.filters[name] = splitList(value)
		if slices.ContainsFunc(q.filters[name], func(v string) bool { return !utf8.ValidString(v) }) {
			err = badQuery("parameter %q has %v", name, inbound.ErrUTF8)
		}
	}
	return err
}

// bound is one limit of a time.
type bound struct {
	operator string // "gt", "gte", "lt", "lte"; empty: one of at
	at       []time.Time
}

// readBound reads created_ats=a,b or created_ats[gt]=a.
func readBound(bounds []bound, name, value string) ([]bound, error) {
	_, operator, bracket := strings.Cut(name, "[")
	operator, closed := strings.CutSuffix(operator, "]")
	if bracket != closed || bracket && !slices.Contains([]string{"gt", "gte", "lt", "lte"}, operator) {
		return nil, badQuery("%s has an unknown operator: there are gt, gte, lt and lte", name)
	}
	b := bound{operator: operator}
	for _, text := range splitList(value) {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, badQuery("%s must have times such as 2026-01-02T03:04:05Z, not %q", name, text)
		}
		b.at = append(b.at, at)
	}
	if bracket && len(b.at) != 1 {
		return nil, badQuery("%s must have one time", name)
	}
	return append(bounds, b), nil
}

// lets tells whether a time is within the bound. Times are compared as they are
// shown, in whole seconds.
func (b bound) lets(t time.Time) bool {
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

// letsTimes tells whether an item was made and changed when the query says.
func (q query) letsTimes(k key) bool {
	beyond := func(t time.Time) func(b bound) bool { return func(b bound) bool { return !b.lets(t) } }
	return !slices.ContainsFunc(q.created, beyond(k.created)) && !slices.ContainsFunc(q.updated, beyond(k.updated))
}

// includes tells whether the query asks for something related, and refuses what
// is none of known.
func (q query) includes(known ...string) (map[string]bool, error) {
	asked := map[string]bool{}
	for _, name := range q.filters["include"] {
		if !slices.Contains(known, name) {
			return nil, badQuery("Invalid included resource: '%s'. Valid included resources are: '%s'", name, strings.Join(known, "', '"))
		}
		asked[name] = true
	}
	return asked, nil
}

// readInclude reads what a request for a single thing wants to see beside it.
func readInclude(r *http.Request, known []string) (map[string]bool, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	return q.includes(known...)
}

func number(name, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 1, badQuery("%s must be a number from 1 to %d, not %q", name, most, value)
	}
	return n, nil
}

// splitList cuts at the commas first and decodes each item afterwards: a comma
// inside a name comes as %2C.
func splitList(value string) []string {
	items := strings.Split(value, ",")
	for i, item := range items {
		if decoded, err := url.QueryUnescape(item); err == nil && strings.Contains(item, "%") {
			items[i] = decoded
		}
	}
	return items
}

// lets tells whether the filter lets one of the values through. A filter that was
// not given lets everything through; an empty one lets only the empty value.
func (q query) lets(filter string, values ...string) bool {
	want, given := q.filters[filter]
	if !given {
		return true
	}
	return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(want, v) })
}

// letsFold is lets for what is compared without regard to case.
func (q query) letsFold(filter, value string) bool {
	want, given := q.filters[filter]
	if !given {
		return true
	}
	return slices.ContainsFunc(want, func(w string) bool { return strings.EqualFold(w, value) })
}

// key is what lists are ordered by.
type key struct {
	name             string // or what else the list is ordered by, as text
	created, updated time.Time
	guid             string
}

// list is the page of all that the query asks for. It changes all.
func list[T, V any](l Links, r *http.Request, q query, all []T, look look[T, V]) v3.List[V] {
	all = slices.DeleteFunc(all, func(v T) bool {
		return !q.letsTimes(look.key(v)) || q.selector != nil && (look.labels == nil || !q.selector.Matches(look.labels(v)))
	})
	slices.SortStableFunc(all, func(a, b T) int {
		n := q.compare(look.key(a), look.key(b))
		if q.descending {
			return -n
		}
		return n
	})
	total := len(all)
	from := min((q.page-1)*q.perPage, total)
	out := v3.List[V]{Pagination: l.pagination(r, q, total), Resources: []V{}}
	for _, v := range all[from:min(from+q.perPage, total)] {
		out.Resources = append(out.Resources, look.present(v))
	}
	return out
}

// look is how a list sees its items: what to order by, and what to show.
type look[T, V any] struct {
	key     func(T) key
	present func(T) V
	labels  func(T) map[string]string // nil: there are none
}

func (q query) compare(a, b key) int {
	switch q.orderBy {
	case "name", "position", "state", "lifecycle":
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.guid, b.guid))
	case "updated_at":
		return cmp.Or(a.updated.Compare(b.updated), cmp.Compare(a.guid, b.guid))
	}
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.guid, b.guid))
}
