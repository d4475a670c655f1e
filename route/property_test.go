package route

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/testkit"
)

// longestPrefix is a simple model of the choice of a route: of the routes of a host, the
// one with the longest path that the request is at or below.
func longestPrefix(routes []app.Route, host, path string) (best string) {
	longest := -1
	for _, rt := range routes {
		at := strings.TrimRight(rt.Path, "/")
		under := at == "" || path == at || strings.HasPrefix(path, at+"/")
		if rt.Host == host && under && len(at) > longest {
			best, longest = rt.GUID, len(at)
		}
	}
	return best
}

func randomPath(r *rand.Rand, most int) string {
	var b strings.Builder
	for range r.IntN(most + 1) {
		b.WriteString("/" + []string{"a", "b", "ab", "a.b", ""}[r.IntN(5)])
	}
	return b.String()
}

// The router chooses the longest prefix for any set of routes. Without a route of the
// host, it chooses that of the wildcard in the same way.
func TestChoiceIsLongestPrefix(t *testing.T) {
	r := testkit.Random(t)
	matched := 0
	for range 5000 {
		var routes []app.Route
		taken := map[string]bool{}
		for i := range 1 + r.IntN(8) {
			rt := routeTo([]string{"shop", "cart", "*"}[r.IntN(3)], randomPath(r, 4), fmt.Sprintf("app-%d", i))
			rt.GUID = fmt.Sprintf("route-%d", i)
			if key := rt.Host + strings.TrimRight(rt.Path, "/"); !taken[key] {
				taken[key] = true
				routes = append(routes, rt)
			}
		}
		tb := tableOf(routes...)
		for range 5 {
			host, path := []string{"shop", "cart", "other"}[r.IntN(3)], randomPath(r, 6)
			want := longestPrefix(routes, host, path)
			if want == "" {
				want = longestPrefix(routes, "*", path)
			}
			got := ""
			if e := tb.match(host+".dew.localhost", path); e != nil {
				got = e.route
				matched++
			}
			if got != want {
				t.Fatalf("%s%s leads to %q, want %q of %+v", host, path, got, want, routes)
			}
		}
	}
	if matched < 1000 {
		t.Errorf("%d requests had a route: the test checks too few", matched)
	}
}
