package route

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/app/routeoptions"
	"github.com/dewrun/dew/runtime"
)

// hashRoute returns a route that selects instances by the header X-User.
func hashRoute(host, balance string, apps ...string) app.Route {
	rt := routeTo(host, "", apps...)
	rt.Options = map[string]string{routeoptions.Balancing: routeoptions.Hash, routeoptions.HashHeader: "X-User"}
	if balance != "" {
		rt.Options[routeoptions.HashBalance] = balance
	}
	return rt
}

// hashTargets returns n instances of one process.
func hashTargets(n, generation int) []target {
	var all []target
	for i := range n {
		st := ready("a", i)
		st.Slot.Generation = generation
		st.Instance += runtime.InstanceID(strconv.Itoa(generation))
		all = append(all, target{endpoint: newEndpoint(st, nil, idleTimeout)})
	}
	return all
}

const hashKeys = 20_000

// assigned returns the instance of each key.
func assigned(t *testing.T, all []target) []*endpoint {
	t.Helper()
	var out []*endpoint
	for k := range hashKeys {
		got, ok := hashing{header: "X-User"}.pick(all, nil, fmt.Sprint("user-", k))
		if !ok {
			t.Fatal("no instance")
		}
		out = append(out, got.endpoint)
	}
	return out
}

// Keys are spread evenly. When an instance is removed, exactly its own keys move, to all
// of the others. When it returns, with another id, it has the same keys again.
func TestHashIsConsistent(t *testing.T) {
	const n = 7
	all := hashTargets(n, 0)
	before := assigned(t, all)
	count := map[*endpoint]int{}
	for _, e := range before {
		count[e]++
	}
	for _, tg := range all {
		if got := count[tg.endpoint]; got < hashKeys/n*9/10 || got > hashKeys/n*11/10 {
			t.Errorf("instance %d has %d of %d keys, want about a share of %d", tg.endpoint.slot.Index, got, hashKeys, n)
		}
	}
	for gone := range n {
		rest := append(append([]target{}, all[:gone]...), all[gone+1:]...)
		heirs := map[*endpoint]int{}
		for k, e := range assigned(t, rest) {
			if before[k] != all[gone].endpoint {
				if e != before[k] {
					t.Fatalf("without instance %d, key %d moved from instance %d to %d", gone, k, before[k].slot.Index, e.slot.Index)
				}
				continue
			}
			heirs[e]++
		}
		if len(heirs) != n-1 {
			t.Errorf("the keys of instance %d moved to %d instances, want all of the others", gone, len(heirs))
		}
		st := ready("a", gone)
		st.Instance = "restarted"
		again := append(append([]target{}, rest...), target{endpoint: newEndpoint(st, nil, idleTimeout)})
		for k, e := range assigned(t, again) {
			if e.slot != before[k].slot {
				t.Fatalf("after a restart of instance %d, key %d is at instance %d, want %d", gone, k, e.slot.Index, before[k].slot.Index)
			}
		}
	}
}

// A deployment moves the keys of an index from its old to its new instance, and no key to
// another index. While both run, they share the keys.
func TestHashInDeployment(t *testing.T) {
	const n = 3
	old, next := hashTargets(n, 0), hashTargets(n, 1)
	before := assigned(t, old)
	both := assigned(t, append(append([]target{}, old...), next...))
	after := assigned(t, next)
	count := map[int]int{}
	for k := range hashKeys {
		if both[k].slot.Index != before[k].slot.Index || after[k].slot.Index != before[k].slot.Index {
			t.Fatalf("key %d moved to another index", k)
		}
		count[both[k].slot.Generation]++
	}
	if count[0] < hashKeys*4/10 || count[1] < hashKeys*4/10 {
		t.Errorf("keys by generation = %v, want about half for each", count)
	}
}

// An instance with more than hash_balance times the average of requests gets no other
// one. The keys go to the next instance by score, which is always the same.
func TestHashBalance(t *testing.T) {
	all := hashTargets(4, 0)
	h := hashing{header: "X-User", balance: 1.5}
	first, _ := h.pick(all, nil, "ann")
	second, _ := h.pick(all, []*endpoint{first.endpoint}, "ann")
	third, _ := h.pick(all, []*endpoint{first.endpoint, second.endpoint}, "ann")
	load := func(tg target, n int32) { tg.endpoint.exchanges.Store(n) }
	for name, tt := range map[string]struct {
		first, second, third int32
		balance              float64
		want                 target
	}{
		"nothing to do":         {0, 0, 0, 1.5, first},
		"at the limit":          {6, 5, 5, 1.5, first}, // the average is 4
		"above the limit":       {7, 5, 4, 1.5, second},
		"both above the limit":  {9, 8, 0, 1.5, third},
		"without balance":       {100, 0, 0, 0, first},
		"one request in all":    {1, 0, 0, 1.5, second},
		"the highest tolerance": {4, 0, 0, 10, first},
	} {
		load(first, tt.first)
		load(second, tt.second)
		load(third, tt.third)
		if got, ok := (hashing{"X-User", tt.balance}).pick(all, nil, "ann"); !ok || got != tt.want {
			t.Errorf("%s: instance %d, want %d", name, got.endpoint.slot.Index, tt.want.endpoint.slot.Index)
		}
	}
	load(first, 50)
	load(second, 0)
	load(third, 0)
	rest := []*endpoint{second.endpoint, third.endpoint}
	for _, tg := range all {
		if tg != first && tg != second && tg != third {
			rest = append(rest, tg.endpoint)
		}
	}
	if got, ok := h.pick(all, rest, "ann"); !ok || got != first {
		t.Errorf("with all others tried: %v %v, want the busy instance", got, ok)
	}
	if _, ok := h.pick(all, append(rest, first.endpoint), "ann"); ok {
		t.Error("an instance was picked after all were tried")
	}
}

// Requests with the header always reach the same instance, requests without it take
// turns, and the values of an instance that fails move to others.
func TestHashRoute(t *testing.T) {
	w := newWorld(t, hashRoute("shop", "", "a"))
	const n = 3
	for index := range n {
		w.instance("a", index, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, index) }))
	}
	ask := func(user string) string {
		t.Helper()
		req := w.request("GET", "shop", "/", nil)
		req.Header.Set("X-User", user)
		res, body := w.do(req)
		if res.StatusCode != 200 {
			t.Fatalf("status %d %s", res.StatusCode, body)
		}
		return body
	}
	home, seen := map[string]string{}, map[string]bool{}
	for i := range 60 {
		user := fmt.Sprint("user-", i%20)
		at := ask(user)
		if home[user] == "" {
			home[user] = at
		}
		if home[user] != at {
			t.Errorf("%s is at instance %s, before at %s", user, at, home[user])
		}
		seen[at] = true
	}
	if len(seen) != n {
		t.Errorf("the users are at the instances %v, want all", seen)
	}
	turns := map[string]int{}
	for range 2 * n {
		turns[ask("")]++
	}
	if len(turns) != n || turns["0"] != 2 {
		t.Errorf("requests without the header: %v, want 2 for each instance", turns)
	}
	w.router.Changed(crashed("a", 1))
	for user, at := range home {
		if got := ask(user); at != "1" && got != at || got == "1" {
			t.Errorf("%s is at instance %s, before the crash of 1 at %s", user, got, at)
		}
	}
}
