package inbox

import (
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
)

// evilHTML is hostile HTML of a sender.
const evilHTML = `<html><head><script>document.title='ran'</script><meta http-equiv="refresh" content="0;url=/evil"></head>
<body onload="document.title='ran'"><h1 id=h>Hello</h1><img src="/evil"><img src=x onerror="fetch('/evil')"><script src="/evil"></script>
<iframe src="/evil"></iframe><form action="/evil"><button>x</button></form><link rel=stylesheet href="/evil">
<svg><script>fetch('/evil')</script></svg><a href="javascript:fetch('/evil')">x</a><script>top.location='/evil'</script></body></html>`

// pageWorld is a browser's view of the page.
type pageWorld struct {
	t     testing.TB
	inbox *Inbox
	page  *Page
	url   string
	evil  chan string // requests that a mail caused
}

func newPageWorld(t testing.TB) *pageWorld {
	t.Helper()
	w := &pageWorld{t: t, inbox: newInbox(t), evil: make(chan string, 100)}
	var handler http.Handler
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/enter" { // starts a session and redirects to any path
			code, _ := strings.CutPrefix(w.link(), w.url+"/notify/inbox?code=")
			session, _ := w.page.redeem(code)
			http.SetCookie(rw, &http.Cookie{Name: cookieName, Value: session, Path: "/notify/inbox", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			http.Redirect(rw, r, "/notify/inbox/"+r.FormValue("to"), http.StatusSeeOther)
			return
		}
		if r.URL.Path == "/open" { // without the policy
			_, _ = rw.Write([]byte(evilHTML))
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/notify/inbox") {
			if r.URL.Path != "/favicon.ico" {
				w.evil <- r.URL.Path
			}
			http.NotFound(rw, r)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	page, err := NewPage(w.inbox, srv.URL+"/notify", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handler = http.StripPrefix("/notify", page.Handler())
	w.page, w.url = page, srv.URL
	return w
}

func (w *pageWorld) link() string {
	w.t.Helper()
	l, err := w.page.Link()
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// browser is a client with cookies.
func (w *pageWorld) browser() *http.Client {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func (w *pageWorld) get(c *http.Client, url string, want int) (string, http.Header) {
	w.t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != want {
		w.t.Errorf("%s = %d, want %d", url, resp.StatusCode, want)
	}
	return b.String(), resp.Header
}

// A link works once; without a link, all pages are refused.
func TestPageAccess(t *testing.T) {
	w := newPageWorld(t)
	storeMail(t, w.inbox, sampleMail(1))
	stranger := w.browser()
	for _, path := range []string{"/inbox", "/inbox/id-1", "/inbox/id-1/html", "/inbox/style.css", "/inbox?code=guess", "/inbox/id-1?code=guess"} {
		if body, _ := w.get(stranger, w.url+"/notify"+path, 401); strings.Contains(body, "Hello") || strings.Contains(body, "user-1@") {
			t.Errorf("%s shows mails to a stranger", path)
		}
	}
	link := w.link()
	b := w.browser()
	if body, _ := w.get(b, link, 200); !strings.Contains(body, "user-1@example.com") || strings.Contains(body, "code=") {
		t.Errorf("the page = %s", body)
	}
	if body, _ := w.get(w.browser(), link, 401); !strings.Contains(body, "already used") {
		t.Errorf("the link opened twice: %s", body)
	}
	if body, _ := w.get(b, w.url+"/notify/inbox/id-1", 200); !strings.Contains(body, `sandbox src="/notify/inbox/id-1/html"`) {
		t.Errorf("the mail = %s", body)
	}
	w.get(b, w.url+"/notify/inbox/none", 404)
	w.get(b, w.url+"/notify/inbox/style.css", 200)
}

// Every response has the content security policy; that of the frame forbids scripts.
func TestPageRules(t *testing.T) {
	w := newPageWorld(t)
	m := sampleMail(1)
	m.Subject, m.Text, m.HTML = "<script>alert(1)</script>", "</pre><script>alert(2)</script>", evilHTML
	storeMail(t, w.inbox, m)
	b := w.browser()
	w.get(b, w.link(), 200)
	for _, path := range []string{"/inbox", "/inbox/id-1", "/inbox/none"} {
		resp, err := b.Get(w.url + "/notify" + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if csp := resp.Header.Get("Content-Security-Policy"); csp != pagePolicy || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	body, _ := w.get(b, w.url+"/notify/inbox/id-1", 200)
	if strings.Contains(body, "<script") || !strings.Contains(body, "&lt;script&gt;alert(2)") {
		t.Errorf("the sender's text is markup: %s", body)
	}
	_, h := w.get(b, w.url+"/notify/inbox/id-1/html", 200)
	if csp := h.Get("Content-Security-Policy"); csp != framePolicy || !strings.Contains(csp, "; sandbox") {
		t.Errorf("policy of the frame = %q", csp)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"} {
		if h.Get(name) != want {
			t.Errorf("%s = %q, want %q", name, h.Get(name), want)
		}
	}
}
