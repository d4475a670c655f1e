package inbox

import (
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/dewrun/dew/notify/delivery"
)

// The page searches, counts, shows the source, leads to the next mail, and deletes.
func TestPageActions(t *testing.T) {
	w := newPageWorld(t)
	for id, subject := range map[string]string{"id-a": "Invoice 1", "id-b": "Password"} {
		m := delivery.Mail{ID: id, From: "dew@example.com", To: id + "@example.com", Subject: subject, Text: "t", Kind: "news", Client: "c"}
		if err := w.inbox.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	wants := func(method, path string, code int, parts ...string) {
		t.Helper()
		got, body := get(method, path)
		for _, part := range parts {
			if not, ok := strings.CutPrefix(part, "!"); ok == strings.Contains(body, not) && ok {
				t.Errorf("%s %s has %q", method, path, not)
			} else if !ok && !strings.Contains(body, part) {
				t.Errorf("%s %s lacks %q: %s", method, path, part, body)
			}
		}
		if got != code {
			t.Errorf("%s %s = %d, want %d", method, path, got, code)
		}
	}
	wants("POST", "/notify/inbox/id-a/delete", 401, "You need a link")
	get("GET", "/enter")
	wants("GET", "/notify/inbox", 200, "2 mails", "Invoice 1", "Password", `id="refresh"`)
	wants("GET", "/notify/inbox?q=inVOICE", 200, "1 mail<", "Invoice 1", "!Password", `value="inVOICE"`)
	wants("GET", "/notify/inbox?q=%3Cb%3E", 200, "0 mails", "No mail matches", "!<b>")
	all, err := w.inbox.List(Filter{}, 0)
	if err != nil || len(all) != 2 {
		t.Fatalf("mails = %d, %v", len(all), err)
	}
	newer, older := all[0].ID, all[1].ID
	wants("GET", "/notify/inbox/"+newer, 200, `id="older" href="/notify/inbox/`+older, `!id="newer"`)
	wants("GET", "/notify/inbox/"+older, 200, `id="newer" href="/notify/inbox/`+newer, `!id="older"`)
	wants("GET", "/notify/inbox/"+older+"/raw", 200, "Message-ID: <"+older+"@example.com>", "Subject: ")
	wants("GET", "/notify/inbox/none/raw", 404)
	wants("POST", "/notify/inbox/"+newer+"/delete", 200, "1 mail<")
	wants("POST", "/notify/inbox/"+newer+"/delete", 404)
	if err := w.inbox.Delete("none"); !errors.Is(err, ErrNoMail) {
		t.Errorf("Delete = %v, want ErrNoMail", err)
	}
	// Numbers are not used again, and the size is right after a deletion.
	if err := w.inbox.Send(t.Context(), delivery.Mail{ID: "id-c", To: "c@example.com", Text: "t"}); err != nil {
		t.Fatal(err)
	}
	if all, err = w.inbox.List(Filter{}, 0); err != nil || len(all) != 2 || all[0].Seq != 3 {
		t.Errorf("mails = %+v, %v; want number 3 first", all, err)
	}
	if w.inbox.size.mails != 2 {
		t.Errorf("counted mails = %d, want 2", w.inbox.size.mails)
	}
}
