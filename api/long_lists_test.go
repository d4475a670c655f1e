package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// The filters of a list combine on every page.
func TestLongLists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := 1 // hundreds of what is left of all
	if proof() {
		k = 10
	}
	n := 600*k + 3
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
		{500 * k, "", n, 2},
		{250 * k, "order_by=-created_at", n, 3},
		{500 * k, "types=audit.app.start", 200*k + 1, 1},
		{60 * k, "types=audit.app.start&target_guids=target-0", 100*k + 1, 2},
		{150 * k, "types=audit.app.start,audit.app.update&target_guids=target-1&space_guids=" + w.space.GUID, 300*k + 1, 3},
		{50 * k, "types=audit.app.start&space_guids=nonesuch", 0, 1},
	} {
		w.wantPages(t, fmt.Sprintf("/v3/audit_events?per_page=%d&%s", tt.per, tt.query), tt.total, tt.pages)
	}
}

// A list that is longer than any page comes whole and in order.
func TestLongestPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.local = w.s.Local() // answers are compared with the description elsewhere
	before := len(must(w.c.Registry.Orgs())(t))
	err := w.c.DB.Update(func(tx *store.Tx) error {
		for i := range maxPerPage {
			if _, err := w.c.Registry.With(tx).PutOrg(app.Org{Name: fmt.Sprintf("org-%d", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.wantPages(t, fmt.Sprintf("/v3/organizations?per_page=%d", maxPerPage), maxPerPage+before, 2)
}

// wantPages follows a list from page to page as clients do, and wants every item
// once.
func (w *world) wantPages(t *testing.T, path string, total, pages int) {
	t.Helper()
	seen, last, asked := map[string]bool{}, "", 0
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
		asked++
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
	if len(seen) != total || asked != pages {
		t.Errorf("%d items came on %d pages, want %d on %d", len(seen), asked, total, pages)
	}
}
