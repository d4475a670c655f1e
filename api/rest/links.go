package rest

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// Links builds the absolute URLs of responses. Public is the URL at which the client
// reached the API, whose name is one of the listener's own, or the configured one.
type Links struct{ Public *url.URL }

// Href returns the absolute URL of a path.
func (l Links) Href(elem ...string) string { return l.Public.JoinPath(elem...).String() }

func (l Links) pagination(r *http.Request, q Query, total int) v3.Pagination {
	pages := max((total+q.PerPage-1)/q.PerPage, 1)
	at := func(page int) v3.Link {
		values := r.URL.Query()
		values.Set("page", strconv.Itoa(page))
		values.Set("per_page", strconv.Itoa(q.PerPage))
		u := l.Public.JoinPath(r.URL.EscapedPath())
		u.RawQuery = values.Encode()
		return v3.Link{Href: u.String()}
	}
	p := v3.Pagination{TotalResults: total, TotalPages: pages, First: at(1), Last: at(pages)}
	if q.Page < pages {
		next := at(q.Page + 1)
		p.Next = &next
	}
	if q.Page > 1 {
		previous := at(min(q.Page-1, pages))
		p.Previous = &previous
	}
	return p
}
