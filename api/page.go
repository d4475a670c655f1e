package api

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
)

const (
	defaultPerPage = 50
	maxPerPage     = 5000
)

// query is what a request for a list asks.
type query struct {
	page, perPage int
	orderBy       string // "created_at", "updated_at" or "name"; empty: as created
	descending    bool
	filters       map[string][]string
}

// readQuery reads the parameters of a list. One that the list does not know is
// refused: a filter that is passed over gives wrong answers.
func readQuery(r *http.Request, filters ...string) (query, error) {
	q := query{page: 1, perPage: defaultPerPage, filters: map[string][]string{}}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, badQuery("%v", err)
	}
	for name, vs := range values {
		if err := q.read(name, vs[len(vs)-1], filters); err != nil {
			return q, err
		}
	}
	return q, nil
}

func (q *query) read(name, value string, filters []string) (err error) {
	switch {
	case name == "page":
		q.page, err = number(name, value, 1<<31)
	case name == "per_page":
		q.perPage, err = number(name, value, maxPerPage)
	case name == "order_by":
		q.orderBy, q.descending = strings.CutPrefix(value, "-")
		if !slices.Contains([]string{"created_at", "updated_at", "name"}, q.orderBy) {
			return badQuery("Order by can only be: 'created_at', 'updated_at', 'name'")
		}
	case slices.Contains(filters, name):
		q.filters[name] = splitList(value)
	default:
		known := append(slices.Clone(filters), "page", "per_page", "order_by")
		return badQuery("Unknown query parameter(s): '%s'. Valid parameters are: '%s'", name, strings.Join(known, "', '"))
	}
	return err
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
	name             string
	created, updated time.Time
	guid             string
}

// list is the page of all that the query asks for. It changes all.
func list[T, V any](s *Server, r *http.Request, q query, all []T, look look[T, V]) v3.List[V] {
	slices.SortStableFunc(all, func(a, b T) int {
		n := q.compare(look.key(a), look.key(b))
		if q.descending {
			return -n
		}
		return n
	})
	total := len(all)
	from := min((q.page-1)*q.perPage, total)
	out := v3.List[V]{Pagination: s.pagination(r, q, total), Resources: []V{}}
	for _, v := range all[from:min(from+q.perPage, total)] {
		out.Resources = append(out.Resources, look.present(v))
	}
	return out
}

// look is how a list sees its items: what to order by, and what to show.
type look[T, V any] struct {
	key     func(T) key
	present func(T) V
}

func (q query) compare(a, b key) int {
	switch q.orderBy {
	case "name":
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.guid, b.guid))
	case "updated_at":
		return cmp.Or(a.updated.Compare(b.updated), cmp.Compare(a.guid, b.guid))
	}
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.guid, b.guid))
}

func (s *Server) pagination(r *http.Request, q query, total int) v3.Pagination {
	pages := max((total+q.perPage-1)/q.perPage, 1)
	at := func(page int) v3.Link {
		values := r.URL.Query()
		values.Set("page", strconv.Itoa(page))
		values.Set("per_page", strconv.Itoa(q.perPage))
		u := s.public.JoinPath(r.URL.EscapedPath())
		u.RawQuery = values.Encode()
		return v3.Link{Href: u.String()}
	}
	p := v3.Pagination{TotalResults: total, TotalPages: pages, First: at(1), Last: at(pages)}
	if q.page < pages {
		next := at(q.page + 1)
		p.Next = &next
	}
	if q.page > 1 {
		previous := at(min(q.page-1, pages))
		p.Previous = &previous
	}
	return p
}
