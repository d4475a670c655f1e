//go:build integration

package sso

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/testkit"
)

// A real browser logs in and arrives at a dashboard that redirects to another host after
// its callback. The policy of the login page does not stop it.
func TestLoginInBrowser(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("there is no chromium: make setup-test installs it")
	}
	ctx, cancel := chromedp.NewContext(t.Context(), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("no-proxy-server", true)))
	t.Cleanup(cancel)
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<h1>My dashboard</h1>") }))
	t.Cleanup(home.Close)
	var code atomic.Value
	dash := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code.Store(r.FormValue("code"))
		http.Redirect(w, r, home.URL+"/home", http.StatusFound)
	}))
	t.Cleanup(dash.Close)
	w := newWorld(t)
	w.client("again", dash.URL+"/cb")
	dew := httptest.NewUnstartedServer(nil)
	dew.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.server.ServeHTTP(rw, r.WithContext(auth.WithURL(r.Context(), dew.URL)))
	})
	dew.Start()
	t.Cleanup(dew.Close)
	ask := url.Values{"client_id": {"again"}, "response_type": {"code"}, "state": {"s1"}}
	fill := `document.querySelector("#username").value = "dora"; document.querySelector("#password").value = %q; document.querySelector("button").click()`
	await := func(what, expression string) {
		t.Helper()
		testkit.Eventually(t, what, func() error {
			ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
			if err == nil && !ok {
				shown, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
				err = fmt.Errorf("the browser shows %s", shown)
			}
			return err
		})
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(dew.URL+"/uaa/oauth/authorize?"+ask.Encode())); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(fill, "wrong"))); err != nil {
		t.Fatal(err)
	}
	await("a wrong password", `document.querySelector(".problem")`)
	if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(fill, "secret"))); err != nil {
		t.Fatal(err)
	}
	await("the dashboard", fmt.Sprintf(`location.href === %q && document.querySelector("h1").textContent === "My dashboard"`, home.URL+"/home"))
	if got, _ := code.Load().(string); got == "" {
		t.Error("the dashboard got no code")
	}
}
