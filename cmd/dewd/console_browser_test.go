//go:build integration || bench

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/dewrun/dew/testkit"
)

// recordProblems makes a page remember its errors, what its content security policy
// refused, and its event streams.
const recordProblems = `window.problems = [];
addEventListener("error", (e) => problems.push(e.message || "cannot load " + (e.target.src || e.target.href)), true);
addEventListener("unhandledrejection", (e) => problems.push("rejected: " + e.reason));
addEventListener("securitypolicyviolation", (e) => problems.push("refused: " + e.violatedDirective + " " + e.blockedURI));
window.streams = new Set();
window.fetch = ((plain) => (url, options) => {
	if (String(url).includes("/live/stream")) streams.add(options.signal);
	return plain(url, options);
})(window.fetch);
window.openStreams = () => [...streams].filter((s) => !s.aborted).length;
window.setHidden = (hidden) => { Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true }); document.dispatchEvent(new Event("visibilitychange")); };`

// tab is a page of a real browser.
type tab struct {
	t   testing.TB
	ctx context.Context
}

// newBrowser starts a browser and returns its first tab.
func newBrowser(t testing.TB) *tab {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("there is no chromium: make setup-test installs it")
	}
	ctx, cancel := chromedp.NewContext(t.Context(), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-quic", true), chromedp.Flag("no-proxy-server", true)))
	t.Cleanup(cancel)
	return startTab(t, ctx)
}

// other returns a tab with cookies of its own.
func (b *tab) other(t testing.TB) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	return startTab(t, ctx)
}

func startTab(t testing.TB, ctx context.Context) *tab {
	t.Helper()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("cannot start chromium: %v", err)
	}
	if _, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: recordProblems}); err != nil {
		t.Fatal(err)
	}
	return &tab{t: t, ctx: ctx}
}

// open loads an address.
func (b *tab) open(url string) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Navigate(url)); err != nil {
		b.t.Fatalf("cannot open %s: %v", url, err)
	}
}

// visit changes to a page of the console without loading it again.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.run(fmt.Sprintf(`import("/console/router.js").then((r) => r.go(%q))`, path))
}

// run runs a script and waits for its promise.
func (b *tab) run(script string) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Evaluate[chromedp.Void](script, chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
}

// text returns the value of an expression, which is a string or a promise of one.
func (b *tab) text(expression string) string {
	b.t.Helper()
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return got
}

// await waits until an expression is true.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	err := testkit.Until(func() error {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && !ok {
			err = fmt.Errorf("%s is false", expression)
		}
		return err
	})
	if err != nil {
		shown, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`location.pathname + "\n" + document.body.innerText.slice(0, 3000) + "\n" + JSON.stringify(window.problems)`))
		b.t.Fatalf("%s: %v\nThe page shows:\n%s", what, err, shown)
	}
}

// awaitText waits until an element that matches a selector has a text.
func (b *tab) awaitText(selector, text string) {
	b.t.Helper()
	b.await(fmt.Sprintf("%s shows %q", selector, text), fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.textContent.includes(%q))`, selector, text))
}

// click clicks the first enabled button or link with this name, in the open dialog if
// there is one.
func (b *tab) click(name string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...(document.querySelector("dialog[open]") || document).querySelectorAll("button, a, summary")].find((e) => !e.disabled && !e.closest("dialog:not([open])") && ((e.getAttribute("aria-label") || e.textContent).trim() === %q))`, name)
	b.await("there is a button "+name, find)
	b.run(find + ".click()")
}

// press presses keys as a keyboard does: one event has the key and its text.
func (b *tab) press(keys string) {
	b.t.Helper()
	for _, r := range keys {
		k := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: string(r), Text: string(r), UnmodifiedText: string(r)}
		if r == '\r' {
			k.Key, k.Code, k.WindowsVirtualKeyCode = "Enter", "Enter", 13
		}
		_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, k)
		if err == nil {
			k.Type, k.Text, k.UnmodifiedText = input.DispatchKeyEventTypeKeyUp, "", ""
			_, err = chromedp.Call(b.ctx, input.DispatchKeyEvent, k)
		}
		if err != nil {
			b.t.Fatalf("cannot press %q: %v", r, err)
		}
	}
}

// checkProblems fails if the page had errors, or if the policy refused something.
func (b *tab) checkProblems() {
	b.t.Helper()
	if got := b.text(`JSON.stringify(window.problems)`); got != "[]" {
		b.t.Errorf("problems on %s: %s", b.text("location.pathname"), got)
	}
}

// checkAccessibility fails for serious and critical findings of axe-core. rules limits
// the check, if it is not empty.
func (b *tab) checkAccessibility(t *testing.T, rules ...string) {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", "axe", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	if b.text(`typeof window.axe`) == "undefined" {
		b.run(string(script) + ";undefined")
	}
	only, err := json.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	got := b.text(`axe.run(document, { resultTypes: ["violations"], ...((only) => (only ? { runOnly: only } : {}))(` + string(only) + `) }).then((r) => JSON.stringify(
		r.violations.filter((v) => v.impact === "serious" || v.impact === "critical").map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + (n.any[0] || {}).message).join(" | "))))`)
	var found []string
	if err := json.Unmarshal([]byte(got), &found); err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Errorf("%s: %s", b.text("location.pathname"), f)
	}
}
