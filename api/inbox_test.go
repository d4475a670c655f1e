package api

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/daemon"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/crashmail"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/directory"
	"github.com/dewrun/dew/notify/inbox"
)

// newMailServer returns a test server with an inbox.
func newMailServer(t *testing.T) (*testServer, *inbox.Inbox) {
	t.Helper()
	w := newTestServer(t)
	inbox := inbox.New(w.c.DB)
	w.s.daemon.Mails = &daemon.Mails{Inbox: inbox, Link: func() (string, error) { return "http://x/notify/inbox?code=1", nil }}
	w.s.daemon.CrashMails = crashmail.New(w.c.DB, w.c.Registry, directory.NewAccounts(w.c.Auth.Accounts(), w.c.Roles, w.c.Registry), delivery.NewQueue(w.c.DB), slog.New(slog.DiscardHandler))
	for _, m := range []delivery.Mail{
		{ID: "m-1", From: "dew@example.com", To: "ann@example.com", Subject: "One", Kind: "news", Text: "text", Sent: time.Unix(1, 0).UTC()},
		{ID: "m-2", From: "dew@example.com", To: "bob@example.com", Subject: "Two", Kind: "alarm", HTML: "<p>", Sent: time.Unix(2, 0).UTC()},
	} {
		if err := inbox.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return w, inbox
}

func TestInbox(t *testing.T) {
	w, inbox := newMailServer(t)
	var in v3.Inbox
	w.want(200, "GET", "/dew/v1/inbox", "", &in)
	if len(in.Mails) != 2 || in.Total != 2 || in.Mails[0].ID != "m-2" || in.Mails[0].HTML != "" {
		t.Errorf("inbox = %+v", in)
	}
	w.want(200, "GET", "/dew/v1/inbox?limit=1", "", &in)
	if len(in.Mails) != 1 || in.Total != 2 {
		t.Errorf("inbox = %+v, want one of two", in)
	}
	w.want(200, "GET", "/dew/v1/inbox?to=ANN@example.com&kind=news&subject=On&after=0", "", &in)
	if len(in.Mails) != 1 || in.Mails[0].ID != "m-1" {
		t.Errorf("inbox = %+v, want ann's", in)
	}
	var m v3.Mail
	w.want(200, "GET", "/dew/v1/inbox/m-1", "", &m)
	if m.Text != "text" || m.Seq != 1 {
		t.Errorf("mail = %+v", m)
	}
	w.want(200, "GET", "/dew/v1/inbox/wait?to=bob@example.com", "", &in)
	if len(in.Mails) != 1 || in.Mails[0].HTML != "<p>" {
		t.Errorf("wait = %+v, want the whole mail", in)
	}
	w.want(200, "GET", "/dew/v1/inbox/wait?kind=none&timeout=1ms", "", &in)
	if len(in.Mails) != 0 {
		t.Errorf("wait = %+v, want nothing", in)
	}
	sent := make(chan error, 1)
	time.AfterFunc(20*time.Millisecond, func() {
		sent <- inbox.Send(t.Context(), delivery.Mail{ID: "m-3", To: "cat@example.com"})
	})
	w.want(200, "GET", "/dew/v1/inbox/wait?to=cat@example.com&timeout=1m", "", &in)
	if len(in.Mails) != 1 || in.Mails[0].ID != "m-3" {
		t.Errorf("wait = %+v, want what came", in)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	var link v3.InboxLink
	w.want(201, "POST", "/dew/v1/inbox/link", "", &link)
	if !strings.Contains(link.URL, "code=") {
		t.Errorf("link = %+v", link)
	}
}

func TestInboxRefusals(t *testing.T) {
	w, _ := newMailServer(t)
	for _, tt := range []struct{ path, want string }{
		{"/dew/v1/inbox?limit=0", "limit"},
		{"/dew/v1/inbox?limit=x", "limit"},
		{"/dew/v1/inbox?after=-1", "after"},
		{"/dew/v1/inbox/wait?timeout=soon", "timeout"},
	} {
		if got := w.request("GET", tt.path, ""); got.Code != 422 || !strings.Contains(got.Body.String(), tt.want) {
			t.Errorf("%s = %d %s, want 422 with %s", tt.path, got.Code, got.Body, tt.want)
		}
	}
	w.want(404, "GET", "/dew/v1/inbox/none", "", nil)
	w.s.daemon.Mails = nil
	for _, path := range []string{"/dew/v1/inbox", "/dew/v1/inbox/m-1", "/dew/v1/inbox/wait"} {
		if got := w.request("GET", path, ""); got.Code != 422 || !strings.Contains(got.Body.String(), "--smtp") {
			t.Errorf("%s = %d %s, want 422", path, got.Code, got.Body)
		}
	}
	w.want(422, "POST", "/dew/v1/inbox/link", "", nil)
}

func TestMailQueue(t *testing.T) {
	w := newTestServer(t)
	w.want(422, "GET", "/dew/v1/mails", "", nil)
	w.want(422, "POST", "/dew/v1/mails/retry", "{}", nil)
	q := delivery.NewQueue(w.c.DB)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w.s.daemon.Queue = &daemon.MailQueue{Queue: q, StalledSince: func() time.Time { return since }}
	ms, err := q.Enqueue(t.Context(), delivery.Notice{Client: "shop", Kind: "news", Subject: "Hello"},
		[]delivery.Person{{Email: "a@example.com"}, {GUID: "b"}, {Email: "c@example.com"}, {Email: "d@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Settle([]delivery.Outcome{
		{Message: ms[0].ID, Status: delivery.Failed, Problem: errors.New("550 no such user")},
		{Message: ms[1].ID, Status: delivery.Retry, Problem: errors.New("421 busy")},
		{Message: ms[2].ID, Status: delivery.Delivered},
	}, time.Now()); err != nil {
		t.Fatal(err)
	}
	var out v3.QueuedMails
	w.want(200, "GET", "/dew/v1/mails", "", &out)
	if len(out.Mails) != 3 || out.Total != 3 {
		t.Fatalf("mails = %+v, want 3", out)
	}
	failed, queued, retrying := out.Mails[0], out.Mails[1], out.Mails[2]
	if failed.State != "failed" || failed.LastAnswer != "550 no such user" || failed.To != "a@example.com" || failed.Client != "shop" || failed.Kind != "news" || !failed.NextAttempt.IsZero() {
		t.Errorf("failed = %+v", failed)
	}
	if retrying.State != "retrying" || retrying.Attempts != 1 || retrying.User != "b" || retrying.NextAttempt.Before(time.Now()) || queued.State != "queued" {
		t.Errorf("waiting = %+v, %+v", queued, retrying)
	}
	w.want(200, "GET", "/dew/v1/mails?state=failed&limit=1", "", &out)
	if len(out.Mails) != 1 || out.Mails[0].ID != ms[0].ID {
		t.Errorf("failed mails = %+v", out)
	}
	var st v3.Status
	w.want(200, "GET", "/dew/v1/status", "", &st)
	if diff := cmp.Diff(&v3.MailQueue{Queued: 1, Retrying: 1, Failed: 1, StalledSince: since}, st.Mails); diff != "" {
		t.Errorf("the status differs (-want +got):\n%s", diff)
	}
	for _, body := range []string{`{"ids":["` + ms[2].ID + `"]}`, `{"ids":["none"]}`, `{"state":"late"}`, `{"ids":["x"],"state":"failed"}`, `{"ids":[` + strings.Repeat(`"x",`, 1000) + `"x"]}`} {
		w.want(422, "POST", "/dew/v1/mails/retry", body, nil)
	}
	w.want(422, "GET", "/dew/v1/mails?state=late", "", nil)
	var done v3.RetriedMails
	w.want(200, "POST", "/dew/v1/mails/retry", `{"ids":["`+ms[0].ID+`"]}`, &done)
	w.want(200, "GET", "/dew/v1/mails?state=failed", "", &out)
	if done.Retried != 1 || len(out.Mails) != 0 {
		t.Errorf("retried = %d, still failed %+v", done.Retried, out)
	}
	w.want(200, "POST", "/dew/v1/mails/retry", `{"state":"waiting"}`, &done)
	if done.Retried != 3 {
		t.Errorf("retried = %d, want all three", done.Retried)
	}
}

func TestPreviewTemplate(t *testing.T) {
	w := newTestServer(t)
	const path = "/dew/v1/mail-templates/preview"
	w.want(422, "POST", path, "{}", nil)
	w.s.daemon.Preview = func(p notify.Preview) (delivery.Mail, error) {
		m := delivery.Mail{From: "f", To: "t", Subject: p.ID + p.Client + p.Kind + string(p.Data)}
		if p.Template != nil {
			m.Text, m.HTML = p.Template.Text, p.Template.HTML
		}
		return m, nil
	}
	var out v3.PreviewedMail
	w.want(200, "POST", path, `{"template":"a","client":"b","kind":"c","data":{"Space":"dev"}}`, &out)
	if out.Subject != `abc{"Space":"dev"}` {
		t.Errorf("preview = %+v", out)
	}
	w.want(200, "POST", path, `{"inline":{"text":"t","html":"h"}}`, &out)
	if out.Text != "t" || out.HTML != "h" {
		t.Errorf("preview = %+v", out)
	}
	for _, body := range []string{`{"template":"a","inline":{}}`, `{"client":"a"}`, `{"kind":"a"}`} {
		w.want(422, "POST", path, body, nil)
	}
}

func TestCrashMails(t *testing.T) {
	w, _ := newMailServer(t)
	a := w.createApp("shop")
	path := "/dew/v1/apps/" + a.GUID + "/crash-mails"
	var m v3.CrashMails
	for _, tt := range []struct {
		method, body string
		want         bool
	}{{"GET", "", false}, {"PUT", `{"enabled":true}`, true}, {"GET", "", true}, {"PUT", `{"enabled":false}`, false}, {"GET", "", false}} {
		if w.want(200, tt.method, path, tt.body, &m); m.Enabled != tt.want {
			t.Errorf("%s %s = %+v, want %t", tt.method, tt.body, m, tt.want)
		}
	}
	w.s.daemon.CrashMails = nil
	w.want(422, "PUT", path, `{"enabled":true}`, nil)
}

// The notification service answers under /notify, on the socket and the listener. Of
// cross-origin requests, only those that change preferences are allowed.
func TestNotifyMount(t *testing.T) {
	w := newTestServer(t)
	w.s.daemon.Notify = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = rw.Write([]byte(r.URL.Path + " " + r.Header.Get("X-Vcap-Request-Id")))
	})
	for _, tt := range []struct {
		path, origin, want string
		code               int
	}{
		{"/notify/info", "", "/info ", 200},
		{"/notify/info", "http://evil.example.com", "", 403},
		{"/notify/user_preferences", "http://evil.example.com", "/user_preferences ", 200},
		{"/notify/user_preferences/guid", "http://evil.example.com", "/user_preferences/guid ", 200},
		{"/notify/user_preferencesx", "http://evil.example.com", "", 403},
		{"/v3/user_preferences", "http://evil.example.com", "", 403},
		{"/notifyx", "", "", 401},
	} {
		r := httptest.NewRequest("GET", "http://127.0.0.1"+tt.path, nil)
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		out := httptest.NewRecorder()
		w.listener.ServeHTTP(out, r)
		if out.Code != tt.code || !strings.HasPrefix(out.Body.String(), tt.want) || tt.code == 200 && len(out.Body.String()) < len(tt.want)+36 {
			t.Errorf("%s from %q = %d %s, want %d %s and a request id", tt.path, tt.origin, out.Code, out.Body, tt.code, tt.want)
		}
	}
	if got := w.request("GET", "/notify/info", ""); got.Code != 200 {
		t.Errorf("on the socket = %d %s", got.Code, got.Body)
	}
}
