package route

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/dewrun/dew/runtime"
)

// The requests of an instance are counted until it ends, even after it was not ready
// for a while, and after the routes changed.
func TestTraffic(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "done") }))
	w.instance("a", 1, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) }))
	id := idOf("a", 0)
	for range 6 {
		w.get("shop", "/")
	}
	got := w.router.Traffic()
	if got[id].Requests != 3 || got[id].Time <= 0 || got[idOf("a", 1)].Requests != 3 {
		t.Errorf("traffic = %+v, want 3 requests of each instance", got)
	}
	waiting := ready("a", 0)
	waiting.Ready = false
	w.router.Changed(waiting)
	w.router.Changed(ready("a", 0))
	w.registry.set(func() { w.registry.routes = append(w.registry.routes, routeTo("other", "", "a")) })
	if err := w.router.Reload(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.get("other", "/")
	}
	if got := w.router.Traffic()[id]; got.Requests != 4 {
		t.Errorf("traffic = %+v, want 4 requests", got)
	}
	down := ready("a", 0)
	down.State, down.Ready = runtime.Down, false
	w.router.Changed(down)
	next := ready("a", 1)
	next.Instance = "next"
	w.router.Changed(next)
	got = w.router.Traffic()
	if len(got) != 1 || got["next"].Requests != 0 {
		t.Errorf("traffic = %+v, want only the new instance, without requests", got)
	}
}

// A request that no instance answered is not counted.
func TestTrafficRefused(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.refuses("a", 0)
	if res, _ := w.get("shop", "/"); res.StatusCode != http.StatusBadGateway {
		t.Fatalf("status = %d, want 502", res.StatusCode)
	}
	if got := w.router.Traffic()[idOf("a", 0)]; got.Requests != 0 {
		t.Errorf("traffic = %+v, want none", got)
	}
}
