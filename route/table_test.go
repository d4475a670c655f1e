package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

func TestHostKey(t *testing.T) {
	for in, want := range map[string]string{
		"shop.dew.localhost":        "shop.dew.localhost",
		"Shop.DEW.localhost:8080":   "shop.dew.localhost",
		"shop.dew.localhost.":       "shop.dew.localhost",
		"shop.dew.localhost.:8080":  "shop.dew.localhost",
		"shop.dew.localhost:":       "shop.dew.localhost",
		"[::1]:8080":                "::1",
		"[::1]":                     "::1",
		"::1":                       "::1",
		"127.0.0.1:80":              "127.0.0.1",
		"":                          "",
		":80":                       "",
		"[":                         "",
		"shop.dew.localhost:80:443": "shop.dew.localhost:80:443",
	} {
		if got := hostKey(in); got != want {
			t.Errorf("hostKey(%q) = %q, want %q", in, got, want)
		}
	}
}

var twoDomains = []app.Domain{{GUID: "d", Name: "dew.localhost"}, {GUID: "i", Name: "apps.internal", Internal: true}}

func tableOf(routes ...app.Route) *table {
	return newTable(routes, twoDomains, func(processKey) *pool { return &pool{} })
}

func TestMatch(t *testing.T) {
	domainItself := routeTo("", "", "apex")
	internal := routeTo("shop", "", "internal")
	internal.Domain = "i"
	orphan := routeTo("orphan", "", "orphan")
	orphan.Domain = "gone"
	below := routeTo("*.below", "/", "below")
	tb := tableOf(routeTo("shop", "", "root"), routeTo("shop", "/api", "api"), routeTo("shop", "/api/v2", "v2"), routeTo("shop", "/b/", "b"),
		routeTo("only", "/path", "path"), domainItself, internal, orphan, routeTo("*", "", "any"), routeTo("*", "/x", "any x"), below)
	for _, c := range []struct{ host, path, want string }{
		{"shop.dew.localhost", "/", "root"},
		{"SHOP.Dew.Localhost:8080", "/", "root"},
		{"shop.dew.localhost", "", "root"},
		{"shop.dew.localhost", "*", "root"},
		{"shop.dew.localhost", "/api", "api"},
		{"shop.dew.localhost", "/api/", "api"},
		{"shop.dew.localhost", "/api/v1", "api"},
		{"shop.dew.localhost", "/apis", "root"},
		{"shop.dew.localhost", "/API", "root"},
		{"shop.dew.localhost", "/api/v2", "v2"},
		{"shop.dew.localhost", "/api/v2/x", "v2"},
		{"shop.dew.localhost", "/api/v22", "api"},
		{"shop.dew.localhost", "/b", "b"},
		{"only.dew.localhost", "/", "any"},
		{"any.b.dew.localhost", "/", "any"},
		{"any.dew.localhost", "/x/y", "any x"},
		{"any.dew.localhost", "/xy", "any"},
		{"any.below.dew.localhost", "/", "below"},
		{"any.below.dew.localhost", "/x", "below"},
		{"xdew.localhost", "/", ""},
		{"only.dew.localhost", "/path/x", "path"},
		{"dew.localhost", "/x", "apex"},
		{"other.dew.localhost", "/", "any"},
		{"shop.apps.internal", "/", ""},
		{"orphan.dew.localhost", "/", "any"},
		{"orphan.other.localhost", "/", ""},
		{"shop", "/", ""},
		{"", "/", ""},
	} {
		got := ""
		if e := tb.match(c.host, c.path); e != nil {
			got = e.destinations[0].App
		}
		if got != c.want {
			t.Errorf("match(%q, %q) = %q, want %q", c.host, c.path, got, c.want)
		}
	}
}

// If two routes have the same address, the older one has priority.
func TestOlderRouteWins(t *testing.T) {
	domains := []app.Domain{{GUID: "d", Name: "dew.localhost"}, {GUID: "e", Name: "shop.dew.localhost"}}
	older, newer := routeTo("", "", "older"), routeTo("shop", "", "newer")
	older.Domain, older.CreatedAt = "e", time.Unix(1, 0)
	newer.CreatedAt = time.Unix(2, 0)
	for _, routes := range [][]app.Route{{older, newer}, {newer, older}} {
		tb := newTable(routes, domains, func(processKey) *pool { return &pool{} })
		if got := tb.match("shop.dew.localhost", "/").destinations[0].App; got != "older" {
			t.Errorf("route of %s, want older", got)
		}
	}
}

// FuzzMatch compares the table with a simple implementation of the rule.
func FuzzMatch(f *testing.F) {
	f.Add("Shop.dew.localhost:80", "/api/v2/x", "shop", "/api")
	f.Add("[::1]:80", "/", "a", "/")
	f.Add("a.dew.localhost.", "/b", "A", "/b/")
	f.Add("::", "*", "", "")
	f.Add("a.b.dew.localhost", "/x/y", "*", "/x")
	f.Add("a.dew.localhost", "////////////x", "*", "/////")
	f.Add("a:b:c", "/\x00", "a", "/\xff")
	f.Fuzz(func(t *testing.T, host, path, routeHost, routePath string) {
		routes := []app.Route{routeTo(routeHost, routePath, "fuzzed"), routeTo("shop", "/api", "api"), routeTo("shop", "", "root")}
		got := ""
		if e := tableOf(routes...).match(host, path); e != nil {
			got = e.destinations[0].App
		}
		if want := slowMatch(routes, host, path); got != want {
			t.Errorf("match(%q, %q) with %q %q = %q, want %q", host, path, routeHost, routePath, got, want)
		}
		if k := hostKey(host); k != strings.ToLower(k) {
			t.Errorf("hostKey(%q) = %q", host, k)
		}
	})
}

// slowMatch checks every route and returns the one with the longest path. Among equals
// it is the first by guid, because all have the same age.
func slowMatch(routes []app.Route, host, path string) string {
	names := []string{hostKey(host)}
	for rest := names[0]; strings.Contains(rest, "."); {
		_, rest, _ = strings.Cut(rest, ".")
		names = append(names, "*."+rest)
	}
	for _, name := range names {
		if found := slowMatchName(routes, name, path); found != "" {
			return found
		}
	}
	return ""
}

func slowMatchName(routes []app.Route, host, path string) string {
	routes = slices.Clone(routes)
	slices.SortFunc(routes, func(a, b app.Route) int { return strings.Compare(a.GUID, b.GUID) })
	best, longest := "", -1
	for _, rt := range routes {
		name := "dew.localhost"
		if rt.Host != "" {
			name = rt.Host + "." + name
		}
		p := strings.TrimRight(rt.Path, "/")
		under := p == "" || path == p || strings.HasPrefix(path, p+"/")
		if hostKey(name) == host && under && len(p) > longest {
			best, longest = rt.Destinations[0].App, len(p)
		}
	}
	return best
}

// In any order of changes, the table has exactly the ready instances of the processes
// with routes, and nothing else.
func TestTableMatchesTheRegistry(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			reg := &fakeRegistry{domains: twoDomains}
			w := &world{registry: reg}
			r, err := New(w.config())
			if err != nil {
				t.Fatal(err)
			}
			apps := []string{"a", "b", "c"}
			truth := map[runtime.SlotID]runtime.Status{}
			for range 100 {
				if rnd.IntN(3) == 0 {
					reg.routes = randomRoutes(rnd, apps)
					if err := r.readRoutes(); err != nil {
						t.Fatal(err)
					}
					checkPools(t, r)
				} else {
					st := randomStatus(rnd, apps)
					truth[st.Slot] = st
					r.Changed(st)
				}
				checkTable(t, r, truth)
			}
		})
	}
}

func randomRoutes(rnd *rand.Rand, apps []string) []app.Route {
	var out []app.Route
	for _, path := range []string{"", "/x", "/x/y"} {
		var to []string
		for _, a := range apps {
			if rnd.IntN(2) == 0 {
				to = append(to, a)
			}
		}
		if rnd.IntN(4) > 0 {
			out = append(out, routeTo("shop", path, to...))
		}
	}
	return out
}

func randomStatus(rnd *rand.Rand, apps []string) runtime.Status {
	st := ready(apps[rnd.IntN(len(apps))], rnd.IntN(4))
	st.Instance = runtime.InstanceID(fmt.Sprintf("%s-%d", st.Instance, rnd.IntN(3)))
	switch rnd.IntN(4) {
	case 0:
		st.State, st.Ready = runtime.Crashed, false
	case 1:
		st.Ready = false
	}
	return st
}

func checkTable(t *testing.T, r *Router, truth map[runtime.SlotID]runtime.Status) {
	t.Helper()
	routes, _ := r.c.Registry.Routes()
	for _, rt := range routes {
		want := map[runtime.InstanceID]bool{}
		for _, d := range rt.Destinations {
			for _, st := range truth {
				if st.App == d.App && st.Ready && st.State == runtime.Running {
					want[st.Instance] = true
				}
			}
		}
		got := map[runtime.InstanceID]bool{}
		e := r.table.Load().match("shop.dew.localhost", rt.Path)
		for range 12 { // at most this number of instances: each one is selected
			if e == nil || len(rt.Destinations) == 0 {
				break
			}
			if tg, ok := e.pick(nil); ok {
				got[tg.endpoint.instance] = true
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("route %q: -want +got\n%s", rt.Path, d)
		}
	}
}

// checkPools looks for pools without routes and without instances.
func checkPools(t *testing.T, r *Router) {
	t.Helper()
	used := map[*pool]bool{}
	for _, es := range r.table.Load().hosts {
		for _, e := range es.entries {
			for _, d := range e.destinations {
				used[d.pool] = true
			}
		}
	}
	for k, p := range r.pools {
		if !used[p] && len(p.endpoints()) == 0 {
			t.Fatalf("pool %v is of no use", k)
		}
		delete(used, p)
	}
	if len(used) > 0 {
		t.Fatalf("%d pools of the table are not kept up to date", len(used))
	}
}

// manyRoutes returns 1,000 routes to one app.
func manyRoutes() []app.Route {
	var out []app.Route
	for i := range 250 {
		for _, path := range []string{"", "/api", "/api/v2", "/other"} {
			out = append(out, routeTo(fmt.Sprintf("host%d", i*2), path, "a"))
		}
	}
	return out
}
