//go:build integration

package unsubscribe

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// A real browser can send the form: the policy of the page allows it, and the origin is
// that of the page, so that the API does not refuse it.
func TestFormInBrowser(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("there is no chromium: make setup-test installs it")
	}
	ctx, cancel := chromedp.NewContext(t.Context(), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("no-proxy-server", true)))
	t.Cleanup(cancel)
	server := httptest.NewUnstartedServer(nil)
	origins := make(chan string, 10)
	server.Start()
	t.Cleanup(server.Close)
	db := testkit.Open(store.Open(filepath.Join(t.TempDir(), "a.db"), store.Options{NoSync: true}))(t)
	l := testkit.Must(NewLinks(db, server.URL))(t)
	subs := &fakeSubscriptions{state: State{Source: "Shop", Kind: "Offers", Subscribed: true}}
	page := NewPage(l, subs, slog.New(slog.DiscardHandler))
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			origins <- r.Header.Get("Origin")
		}
		page.ServeHTTP(w, r)
	})
	if err := chromedp.Do(ctx, chromedp.Navigate(l.URL(Subscription{Version: 1, User: "u", Client: "shop", Kind: "offers"}))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"You are unsubscribed.", "You are subscribed again."} {
		if err := chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector("button").click()`)); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the page says "+want, func() error {
			shown, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
			if err == nil && !strings.Contains(shown, want) {
				err = fmt.Errorf("the browser shows %s", shown)
			}
			return err
		})
		if got := <-origins; got != server.URL {
			t.Errorf("the form has the origin %q, want %q", got, server.URL)
		}
	}
}
