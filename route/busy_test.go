package route

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// A withdrawn instance is busy as long as a request is in progress there. An idle
// connection does not make it busy.
func TestBusy(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	began, goOn := make(chan struct{}), make(chan struct{})
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(began)
			<-goOn
		}
		fmt.Fprint(rw, "done")
	}))
	id := idOf("a", 0)
	w.get("shop", "/") // its connection stays open
	answered := make(chan string)
	go func() {
		_, body := w.get("shop", "/slow")
		answered <- body
	}()
	<-began
	gone := ready("a", 0)
	gone.State, gone.Ready = runtime.Stopping, false
	w.router.Changed(gone)
	if !w.router.Busy(id) || w.router.Busy("another") {
		t.Error("the instance is not busy with a request under way, or another one is")
	}
	close(goOn)
	if got := <-answered; got != "done" {
		t.Errorf("answer = %q, want it finished", got)
	}
	testkit.EventuallyTrue(t, "the instance is not busy", func() bool { return !w.router.Busy(id) })
}
