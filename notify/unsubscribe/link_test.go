package unsubscribe

import (
	"bytes"
	"errors"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// fakeSubscriptions stores one state.
type fakeSubscriptions struct {
	state State
	fails error
	last  Subscription
}

func (f *fakeSubscriptions) Subscription(s Subscription) (State, error) {
	f.last = s
	return f.state, f.fails
}

func (f *fakeSubscriptions) SetSubscribed(_ Subscription, subscribed bool) error {
	f.state.Subscribed = subscribed
	return f.fails
}

func newLinks(t testing.TB, path string) *Links {
	t.Helper()
	return testkit.Must(NewLinks(testkit.Open(store.Open(path, store.Options{NoSync: true}))(t), "https://example.com/notify"))(t)
}

func TestLinks(t *testing.T) {
	l := newLinks(t, filepath.Join(t.TempDir(), "a.db"))
	s := Subscription{Version: 1, User: "u/1", Client: "c <&>", Kind: "k.é"}
	token := l.token(s)
	if got, err := l.parse(token); err != nil || got != s {
		t.Errorf("parse = %+v, %v, want %+v", got, err, s)
	}
	if l.URL(s) != "https://example.com/notify/unsubscribe/"+token || strings.ContainsAny(token, "/+=") {
		t.Errorf("link = %s", l.URL(s))
	}
	other := newLinks(t, filepath.Join(t.TempDir(), "b.db"))
	payload, sum, _ := strings.Cut(token, ".")
	for _, bad := range []string{
		"", ".", token + "A", payload, payload + ".", "." + sum, other.token(s), l.token(Subscription{User: "x"})[:20] + "." + sum, strings.Repeat("A", maxToken+1), "é.é",
	} {
		if got, err := l.parse(bad); !errors.Is(err, errSignature) || got != (Subscription{}) {
			t.Errorf("parse(%.40q) = %+v, %v", bad, got, err)
		}
	}
}

// Only one form of a token is accepted: not one with another last character or with line
// breaks, even if it decodes to the same bytes.
func TestLinksHaveOneForm(t *testing.T) {
	t.Parallel()
	l := newLinks(t, filepath.Join(t.TempDir(), "a.db"))
	token := l.token(Subscription{Version: 1, User: "u", Client: "c", Kind: "k"})
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_\n"
	last := len(token) - 1
	for _, c := range alphabet {
		bad := token[:last] + string(c)
		if _, err := l.parse(bad); (err == nil) != (bad == token) {
			t.Errorf("parse with the last character %q: %v", c, err)
		}
	}
	if _, err := l.parse(token + "\n"); !errors.Is(err, errSignature) {
		t.Errorf("parse with a line break: %v", err)
	}
}

// No token without a signature is accepted.
func FuzzParse(f *testing.F) {
	l := &Links{key: []byte("key"), base: "http://x/unsubscribe"}
	good := l.token(Subscription{Version: 1, User: "u", Client: "c", Kind: "k"})
	f.Add(good)
	f.Add("e30.AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		s, err := l.parse(token)
		if err == nil && l.token(s) != token {
			t.Errorf("%q is accepted as %+v, which has the token %q", token, s, l.token(s))
		}
	})
}

func TestPage(t *testing.T) {
	l := newLinks(t, filepath.Join(t.TempDir(), "a.db"))
	subs := &fakeSubscriptions{state: State{Source: "Shop <b>", Kind: "Offers & news", Subscribed: true}}
	p := NewPage(l, subs, slog.New(slog.DiscardHandler))
	path := "/unsubscribe/" + l.token(Subscription{Version: 1, User: "u", Client: "shop", Kind: "offers"})
	do := func(method, path, form, kind string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(form))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'self';") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s %s: policy %q", method, path, csp)
		}
		if body := w.Body.String(); strings.Contains(body, "<script") || strings.Contains(body, "style=") {
			t.Errorf("the page has inline code: %s", body)
		}
		return w
	}
	const urlencoded = "application/x-www-form-urlencoded"
	page := do("GET", path, "", "")
	if body := page.Body.String(); page.Code != 200 || !strings.Contains(body, "Offers &amp; news") || !strings.Contains(body, "Shop &lt;b&gt;") ||
		strings.Count(body, "<button") != 1 || !strings.Contains(body, `action="/notify`+path+`"`) || subs.last.User != "u" {
		t.Errorf("page = %d %s", page.Code, body)
	}
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	if err := errors.Join(m.WriteField("List-Unsubscribe", "One-Click"), m.Close()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		form, kind string
		status     int
		subscribed bool
	}{
		{"List-Unsubscribe=One-Click", urlencoded, 200, false},
		{"action=subscribe", urlencoded, 200, true},
		{form.String(), m.FormDataContentType(), 200, false},
		{"action=subscribe", urlencoded, 200, true},
		{"action=unsubscribe", urlencoded, 200, false},
		{"action=" + strings.Repeat("x", maxForm), urlencoded, 400, false},
		{"%zz", urlencoded, 400, false},
		{"", "", 400, false},
	} {
		if got := do("POST", path, tt.form, tt.kind); got.Code != tt.status || subs.state.Subscribed != tt.subscribed {
			t.Errorf("POST %.40q = %d, subscribed %t, want %d, %t", tt.form, got.Code, subs.state.Subscribed, tt.status, tt.subscribed)
		}
	}
	subs.state.Silent = true
	if body := do("GET", path, "", "").Body.String(); !strings.Contains(body, `id="silent"`) {
		t.Errorf("page of a silent user = %s", body)
	}
	for err, status := range map[error]int{ErrNotFound: 404, ErrCritical: 403, errors.New("disk"): 500} {
		subs.fails = err
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if got := do(method, path, "action=unsubscribe", urlencoded); got.Code != status || strings.Contains(got.Body.String(), "disk") {
				t.Errorf("%s with %v = %d %s", method, err, got.Code, got.Body)
			}
		}
	}
	for _, path := range []string{"/unsubscribe/x", "/unsubscribe/", "/unsubscribe"} {
		if got := do("GET", path, "", ""); got.Code != 404 || !strings.Contains(got.Body.String(), "link") {
			t.Errorf("GET %s = %d %s", path, got.Code, got.Body)
		}
	}
	if got := do("GET", "/unsubscribe/style.css", "", ""); got.Code != 200 || got.Header().Get("Content-Type") != "text/css; charset=utf-8" {
		t.Errorf("style = %d %v", got.Code, got.Header())
	}
}
