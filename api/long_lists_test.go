package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// A list that is longer than any page is returned completely and in order, and its
// filters apply to every page.
func TestLongLists(t *testing.T) {
	t.Parallel()
	const n = rest.MaxPerPage + 3
	w := newTestServer(t)
	w.local = w.s.Local() // other tests compare responses with the description
	err := w.c.DB.Update(func(tx *store.Tx) error {
		events := w.c.Events.With(tx)
		for i := range n {
			kind := "audit.app.update"
			if i%3 == 0 {
				kind = "audit.app.start"
			}
			err := events.Record(app.Event{
				Type: kind, Space: w.space.GUID, Org: w.space.Org,
				Target: app.Target{GUID: fmt.Sprintf("target-%d", i%2), Type: "app", Name: fmt.Sprint(i)},
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		per   int
		query string
		total int
		pages int
	}{
		{rest.MaxPerPage, "", n, 2},
		{2500, "order_by=-created_at", n, 3},
		{rest.MaxPerPage, "types=audit.app.start", 1668, 1},
		{600, "types=audit.app.start&target_guids=target-0", 834, 2},
		{1000, "types=audit.app.start,audit.app.update&target_guids=target-1&space_guids=" + w.space.GUID, 2501, 3},
		{500, "types=audit.app.start&space_guids=nonesuch", 0, 1},
	} {
		w.wantPages(t, fmt.Sprintf("/v3/audit_events?per_page=%d&%s", tt.per, tt.query), tt.total, tt.pages)
	}
}

// wantPages reads a list page by page as clients do, and expects every item once.
func (w *testServer) wantPages(t *testing.T, path string, total, pages int) {
	t.Helper()
	seen, last, pageCount := map[string]bool{}, "", 0
	descending := strings.Contains(path, "order_by=-")
	for path != "" {
		var page v3.List[struct {
			GUID      string    `json:"guid"`
			CreatedAt time.Time `json:"created_at"`
		}]
		w.want(200, "GET", path, "", &page)
		if page.Pagination.TotalResults != total || page.Pagination.TotalPages != pages {
			t.Fatalf("%s says %d items on %d pages, want %d on %d", path, page.Pagination.TotalResults, page.Pagination.TotalPages, total, pages)
		}
		pageCount++
		for _, e := range page.Resources {
			at := e.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000000")
			if last != "" && (descending && at > last || !descending && at < last) {
				t.Errorf("%s is not in order: %s after %s", path, at, last)
			}
			last, seen[e.GUID] = at, true
		}
		path = ""
		if page.Pagination.Next != nil {
			u := must(url.Parse(page.Pagination.Next.Href))(t)
			path = u.RequestURI()
		}
	}
	if len(seen) != total || pageCount != pages {
		t.Errorf("%d items came on %d pages, want %d on %d", len(seen), pageCount, total, pages)
	}
}
