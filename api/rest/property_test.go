package rest

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// The pages of a list together have every item exactly once, in one order, for any number
// of items, size of a page and order.
func TestPagesCoverAll(t *testing.T) {
	r := testkit.Random(t)
	links := Links{Public: testkit.Must(url.Parse("http://127.0.0.1"))(t)}
	req := httptest.NewRequest("GET", "/v3/things", nil)
	view := View[Key, string]{Key: func(k Key) Key { return k }, Present: func(k Key) string { return k.GUID }}
	for range 500 {
		items := randomKeys(r)
		q := Query{PerPage: 1 + r.IntN(8), Descending: r.IntN(2) == 0, OrderBy: []string{"", "name", "updated_at", "created_at"}[r.IntN(4)]}
		var seen []string
		for q.Page = 1; ; q.Page++ {
			page := List(links, req, q, slices.Clone(items), view)
			seen = append(seen, page.Resources...)
			if page.Pagination.TotalResults != len(items) || len(page.Resources) > q.PerPage {
				t.Fatalf("page %d of %+v has %d items of %d", q.Page, q, len(page.Resources), page.Pagination.TotalResults)
			}
			if page.Pagination.Next == nil {
				break
			}
		}
		q.Page, q.PerPage = 1, len(items)+1
		if all := List(links, req, q, slices.Clone(items), view); !slices.Equal(seen, all.Resources) {
			t.Fatalf("%+v: the pages have %v, want %v", q, seen, all.Resources)
		}
		q.Page = 1000
		if beyond := List(links, req, q, slices.Clone(items), view); len(beyond.Resources) != 0 {
			t.Fatalf("a page beyond the end has %v", beyond.Resources)
		}
	}
}

// randomKeys returns items of which many have the same name or time.
func randomKeys(r *rand.Rand) []Key {
	var out []Key
	for i := range r.IntN(30) {
		at := time.Unix(int64(r.IntN(4)), 0)
		out = append(out, Key{Name: fmt.Sprint(r.IntN(4)), Created: at, Updated: at.Add(time.Duration(r.IntN(2)) * time.Second), GUID: fmt.Sprintf("guid-%02d", i)})
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
