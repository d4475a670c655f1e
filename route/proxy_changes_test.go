package route

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// Requests in progress finish when their instance is withdrawn; new ones go to others.
// Afterwards no connection to it is left.
func TestWithdrawnWhileRequestsRun(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	entered, goOn := make(chan bool), make(chan bool)
	w.instance("a", 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		entered <- true
		<-goOn
		_, _ = io.WriteString(rw, "old")
	}))
	const n = 5
	answers := make(chan string, n)
	for range n {
		go func() {
			res, err := w.front.Client().Do(w.request(http.MethodGet, "shop", "/", nil))
			if err != nil {
				answers <- err.Error()
				return
			}
			defer res.Body.Close()
			b, _ := io.ReadAll(res.Body)
			answers <- string(b)
		}()
	}
	for range n {
		<-entered
	}
	w.router.Changed(crashed("a", 0))
	if res, _ := w.get("shop", "/"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status = %d, want 503", res.StatusCode)
	}
	w.instance("a", 1, says("new"))
	if _, body := w.get("shop", "/"); body != "new" {
		t.Errorf("body = %q, want that of the new instance", body)
	}
	close(goOn)
	for range n {
		if got := <-answers; got != "old" {
			t.Errorf("answer = %q, want old", got)
		}
	}
	testkit.EventuallyTrue(t, "connections to the old instance are closed", func() bool { return w.openTo(idOf("a", 0)) == 0 })
	if got := w.openTo(idOf("a", 1)); got == 0 {
		t.Error("the connection to the new instance is not kept")
	}
}

// An idle connection would pin the network namespace of a stopped instance.
func TestIdleConnectionsEndWithTheInstance(t *testing.T) {
	stop := ready("a", 0)
	stop.State, stop.Ready = runtime.Stopping, false
	unready := ready("a", 0)
	unready.Ready = false
	next := ready("a", 0)
	next.Instance, next.Address = "another-0", addressOf("another-0")
	for name, st := range map[string]runtime.Status{"crashed": crashed("a", 0), "stopping": stop, "not ready": unready, "replaced": next} {
		w := newWorld(t, routeTo("shop", "", "a"))
		w.instance("a", 0, says("x"))
		w.get("shop", "/")
		if w.openTo(idOf("a", 0)) != 1 {
			t.Fatal("the connection was not kept")
		}
		w.router.Changed(st)
		// At once: the removal of the instance does not wait.
		if n := w.openTo(idOf("a", 0)); n != 0 {
			t.Errorf("%s: %d connections are open", name, n)
		}
	}
}

// A status that changes nothing for routes does not close connections.
func TestSameStatusKeepsConnections(t *testing.T) {
	w := newWorld(t, routeTo("shop", "", "a"))
	w.instance("a", 0, says("x"))
	for range 5 {
		w.get("shop", "/")
		st := ready("a", 0)
		st.Since, st.Details = time.Now(), "something"
		w.router.Changed(st)
	}
	if n := w.dialsTo(idOf("a", 0)); n != 1 {
		t.Errorf("dials = %d, want 1", n)
	}
}

// While instances start and stop and routes change, no request is lost as long as one
// instance is ready.
func TestChangesDropNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, routeTo("shop", "", "a"))
	w.run()
	for i := range 3 {
		w.instance("a", i, echo)
	}
	stop := make(chan struct{})
	var churn, clients sync.WaitGroup
	churn.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Microsecond):
			}
			w.router.Changed(crashed("a", 1+i%2))
			w.router.Changed(ready("a", 1+(i+1)%2))
			w.registry.set(func() {
				w.registry.routes = []app.Route{routeTo("shop", "", "a"), routeTo("other", fmt.Sprintf("/%d", i), "b")}
			})
		}
	})
	for range 4 {
		clients.Go(func() {
			for i := range 40 {
				res, err := w.front.Client().Do(w.request(http.MethodPost, "shop", "/", strings.NewReader(fmt.Sprint(i))))
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != 200 || string(b) != fmt.Sprint(i) {
					t.Errorf("%d %q %v", res.StatusCode, b, err)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	churn.Wait()
}
