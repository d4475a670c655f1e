package notify

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/testkit"
)

// browse requests a link without a token, and returns the status and the page.
func (w *httpWorld) browse(method, link, form string) (int, string) {
	w.t.Helper()
	r := httptest.NewRequest(method, strings.TrimPrefix(link, serviceURL), strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	got := httptest.NewRecorder()
	w.s.Handler().ServeHTTP(got, r)
	return got.Code, got.Body.String()
}

// wantPage requests a link and compares the status and a text of the page.
func (w *httpWorld) wantPage(method, link, form string, status int, text string) {
	w.t.Helper()
	if code, page := w.browse(method, link, form); code != status || !strings.Contains(page, text) {
		w.t.Errorf("%s %s = %d %s, want %d and %q", method, form, code, page, status, text)
	}
}

const oneClick = "List-Unsubscribe=One-Click"

// The link in a mail unsubscribes its recipient from its kind, without a login.
func TestUnsubscribeLink(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	m := delivery.Message{ID: "m", User: "u", Email: "u@example.com"}
	n := delivery.Notice{Version: delivery.V1, Client: "sender", Kind: "news", Subject: "S", Text: "T"}
	link := testkit.Must(w.s.Compose(t.Context(), m, n))(t).Unsubscribe
	w.wantPage(http.MethodGet, link, "", 200, `<button name="action" value="unsubscribe">`)
	w.wantPage(http.MethodGet, link, "", 200, `<button name="action" value="unsubscribe">`) // GET changes nothing
	for range 2 {
		w.wantPage(http.MethodPost, link, oneClick, 200, "You are unsubscribed.")
		if _, err := w.s.Compose(t.Context(), m, n); !errors.Is(err, delivery.ErrUnsubscribed) {
			t.Errorf("after the click: %v, want that the user unsubscribed", err)
		}
	}
	other := m
	other.User = "other"
	testkit.Must(w.s.Compose(t.Context(), other, n))(t)
	w.wantPage(http.MethodGet, link, "", 200, "You are already unsubscribed")
	for range 2 {
		w.wantPage(http.MethodPost, link, "action=subscribe", 200, "You are subscribed again.")
		testkit.Must(w.s.Compose(t.Context(), m, n))(t)
	}
	w.wantPage(http.MethodPost, link, "action=delete", 400, "does not say what to do")
	w.wantPage(http.MethodPost, link[:len(link)-2]+"AA", oneClick, 404, "This link is not valid")
	w.wantPage(http.MethodDelete, link, "", 404, "")

	// The same link, after a restart with the same store.
	again := testkit.Must(New(w.s.c))(t)
	if got := testkit.Must(again.Compose(t.Context(), m, n))(t).Unsubscribe; got != link {
		t.Errorf("link = %s, want %s", got, link)
	}
	// A kind that became critical, or that was deleted.
	w.do(w.sender(), "PUT", "/notifications", `{"source_name":"Sender","notifications":{"news":{"description":"News","critical":true}}}`).want(t, "critical", 204, "")
	w.wantPage(http.MethodGet, link, "", 403, "You cannot unsubscribe")
	w.wantPage(http.MethodPost, link, oneClick, 403, "You cannot unsubscribe")
	if got := testkit.Must(w.s.Compose(t.Context(), m, n))(t).Unsubscribe; got != "" {
		t.Errorf("link of a critical kind = %q", got)
	}
	w.do(w.sender(), "PUT", "/notifications", `{"source_name":"Sender","notifications":{"other":{"description":"Other"}}}`).want(t, "deleted", 204, "")
	w.wantPage(http.MethodPost, link, oneClick, 404, "does not exist any more")
}

// Mails to a plain address, and those without a registered kind, have no link.
func TestNoUnsubscribeLink(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	for _, tt := range []struct {
		m delivery.Message
		n delivery.Notice
	}{
		{delivery.Message{Email: "a@example.com"}, delivery.Notice{Client: "sender", Kind: "news"}},
		{delivery.Message{User: "u", Email: "a@example.com"}, delivery.Notice{Client: "sender"}},
		{delivery.Message{User: "u", Email: "a@example.com"}, delivery.Notice{Client: "sender", Kind: "gone"}},
		{delivery.Message{User: strings.Repeat("u", 800), Email: "a@example.com"}, delivery.Notice{Client: "sender", Kind: "news"}},
	} {
		tt.n.Version, tt.n.Text = delivery.V1, "T"
		if got := testkit.Must(w.s.Compose(t.Context(), tt.m, tt.n))(t).Unsubscribe; got != "" {
			t.Errorf("%+v: link = %s", tt, got)
		}
	}
}

// Links in campaigns unsubscribe from the campaign type.
func TestUnsubscribeLinkV2(t *testing.T) {
	w := newHTTPWorld(t)
	testkit.Must(struct{}{}, w.s.buckets.types.Put("type-1", campaignType{ID: "type-1", Name: "Offers"}))(t)
	m := delivery.Message{ID: "m", User: "u", Email: "u@example.com"}
	n := delivery.Notice{Version: delivery.V2, Client: "sender", Kind: "type-1", Subject: "S", Text: "T", Template: defaultTemplate}
	link := testkit.Must(w.s.Compose(t.Context(), m, n))(t).Unsubscribe
	w.wantPage(http.MethodGet, link, "", 200, "<h1>Offers</h1>")
	w.wantPage(http.MethodPost, link, oneClick, 200, "You are unsubscribed.")
	if _, err := w.s.Compose(t.Context(), m, n); !errors.Is(err, delivery.ErrUnsubscribed) {
		t.Errorf("after the click: %v, want that the user unsubscribed", err)
	}
	w.wantPage(http.MethodPost, link, "action=subscribe", 200, "You are subscribed again.")
	testkit.Must(w.s.Compose(t.Context(), m, n))(t)
}
