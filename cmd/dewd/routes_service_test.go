//go:build integration

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// An app is a route service. Requests go through it as soon as it is bound, even after
// a restart of dewd, and no longer after it is unbound. The service reaches the router
// by the public name of the route.
func TestRouteServiceIsAnApp(t *testing.T) {
	runParallel(t)
	w := newRouteTest(t)
	w.push("shop", "")
	w.push("guard", "")
	w.awaitResponse("shop", "/", "web 0")
	w.dewOutput("create-user-provided-service", "door", "-r", "https://guard.dew.localhost/guard")
	bind := []string{"dew.localhost", "--hostname", "shop", "door"}
	w.dewOutput(append([]string{"bind-route-service"}, bind...)...)
	w.becomes(http.StatusUnauthorized)
	w.through()
	w.kill(syscall.SIGKILL)
	w.startDewd()
	w.becomes(http.StatusUnauthorized)
	w.through()
	w.dewOutput("stop", "guard")
	w.becomes(http.StatusServiceUnavailable)
	w.dewOutput(append([]string{"unbind-route-service", "-f"}, bind...)...)
	w.becomes(http.StatusOK)
}

// becomes waits until requests to the shop get this status.
func (w *routeTest) becomes(status int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the shop answers %d", status), func() error {
		if got, body := w.get("shop", "/"); got != status {
			return fmt.Errorf("it answers %d %q", got, body)
		}
		return nil
	})
}

// through sends a request through the service.
func (w *routeTest) through() {
	w.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+w.front+"/echo?a=1", strings.NewReader("order"))
	if err != nil {
		w.t.Fatal(err)
	}
	_, port, _ := strings.Cut(w.front, ":")
	req.Host = "shop.dew.localhost:" + port
	req.Header.Set("Authorization", "word")
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || string(b) != "order" || res.Header.Get("X-Through") == "" {
		w.t.Errorf("through the service: %d %q, %v", res.StatusCode, b, err)
	}
}
