package route

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/dewrun/dew/app/routeoptions"
	"github.com/dewrun/dew/testkit"
)

// With least-connection, a blocked instance gets no further request until it has
// responded. With round-robin it gets every other one.
func TestLeastConnection(t *testing.T) {
	rt := routeTo("shop", "", "a")
	rt.Options = map[string]string{routeoptions.Balancing: routeoptions.LeastConnection}
	w := newWorld(t, rt)
	began, goOn := make(chan int, 2), make(chan struct{})
	for index := range 2 {
		w.instance("a", index, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				began <- index
				<-goOn
			}
			fmt.Fprint(rw, index)
		}))
	}
	answered := make(chan string)
	go func() {
		_, body := w.get("shop", "/slow")
		answered <- body
	}()
	held := <-began
	for range 10 {
		if _, body := w.get("shop", "/"); body != fmt.Sprint(1-held) {
			t.Errorf("instance %s answered, want the one that has nothing to do", body)
		}
	}
	close(goOn)
	<-answered
	seen := map[string]bool{}
	testkit.EventuallyTrue(t, "both instances answer again", func() bool {
		_, body := w.get("shop", "/")
		seen[body] = true
		return len(seen) == 2
	})
}
