//go:build integration

package inbox

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A real browser shows the mail. Nothing in the sender's HTML runs or sends a request.
func TestPageInBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("there is no chromium: make setup-test installs it")
	}
	w := newPageWorld(t)
	m := sampleMail(1)
	m.HTML = evilHTML
	storeMail(t, w.inbox, m)
	dump := func(url string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+t.TempDir(),
			"--virtual-time-budget=2000", "--dump-dom", url).Output()
		if err != nil {
			t.Fatalf("chromium: %v", err)
		}
		return string(out)
	}
	if dom := dump(w.link()); !strings.Contains(dom, `<a href="/notify/inbox/id-1">Hello</a>`) {
		t.Errorf("the list = %s", dom)
	}
	if dom := dump(w.url + "/enter?to=id-1"); !strings.Contains(dom, `<iframe id="html"`) || !strings.Contains(dom, "<title>Hello - dew inbox</title>") {
		t.Errorf("the mail = %s", dom)
	}
	if dom := dump(w.url + "/enter?to=id-1/html"); !strings.Contains(dom, `<h1 id="h">Hello</h1>`) || strings.Contains(dom, "<title>ran</title>") {
		t.Errorf("the frame = %s", dom)
	}
	select {
	case path := <-w.evil:
		t.Errorf("the mail made the browser ask for %s", path)
	default:
	}
	dump(w.url + "/open")
	select {
	case <-w.evil: // the browser can exit before the server has read its request
	case <-time.After(time.Minute):
		t.Error("without rules the mail is as harmless: this test proves nothing")
	}
}
