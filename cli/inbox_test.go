package cli

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// mailDaemon answers requests about mails on a socket.
type mailDaemon struct {
	run string

	mu      sync.Mutex
	mails   []v3.Mail
	queries []string
	on      bool
}

func newMailDaemon(t *testing.T) *mailDaemon {
	t.Helper()
	d := &mailDaemon{run: t.TempDir()}
	d.mails = []v3.Mail{
		{Seq: 2, ID: "m-2", From: "dew@example.com", To: "jo@example.com", Subject: "Reset \x1b[31m", Kind: "reset", Client: "shop", Text: "line 1\nline \x1b]0;x\a2\n", HTML: "<p>", Sent: time.Unix(1, 0)},
		{Seq: 1, ID: "m-1", To: "al@example.com", Subject: "Old", HTML: "<b>only html", Sent: time.Unix(0, 0)},
	}
	l, err := net.Listen("unix", filepath.Join(d.run, client.Socket))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(pattern string, fn func(r *http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			d.mu.Lock()
			d.queries = append(d.queries, r.Method+" "+r.URL.RequestURI())
			v := fn(r)
			d.mu.Unlock()
			if v == nil {
				w.WriteHeader(http.StatusNotFound)
				v = v3.Errors{Errors: []v3.Error{{Code: v3.CodeNotFound, Title: v3.TitleNotFound, Detail: "Mail not found"}}}
			}
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	answer("GET /dew/v1/inbox", func(*http.Request) any { return v3.Inbox{Mails: d.mails, Total: 7} })
	answer("GET /dew/v1/inbox/{id}", func(r *http.Request) any {
		for _, m := range d.mails {
			if m.ID == r.PathValue("id") {
				return m
			}
		}
		return nil
	})
	answer("GET /dew/v1/inbox/wait", func(r *http.Request) any {
		for _, m := range d.mails {
			if r.FormValue("kind") == m.Kind {
				return v3.Inbox{Mails: []v3.Mail{m}}
			}
		}
		return v3.Inbox{Mails: []v3.Mail{}}
	})
	answer("POST /dew/v1/inbox/link", func(*http.Request) any { return v3.InboxLink{URL: "http://x/notify/inbox?code=1"} })
	answer("GET /dew/v1/mails", func(r *http.Request) any {
		waiting := v3.QueuedMail{ID: "q-1", User: "guid-1", Kind: "news", Client: "shop", State: "retrying", Attempts: 2, NextAttempt: time.Unix(90, 0), LastAnswer: "421 \x1b[31mbusy"}
		failed := v3.QueuedMail{ID: "q-2", To: "jo@example.com", Kind: "news", Client: "shop", State: "failed", LastAnswer: "550 no such user"}
		switch r.FormValue("state") {
		case "waiting":
			return v3.QueuedMails{Mails: []v3.QueuedMail{waiting}, Total: 1}
		case "failed":
			return v3.QueuedMails{Total: 0}
		}
		return v3.QueuedMails{Mails: []v3.QueuedMail{failed, waiting}, Total: 3}
	})
	answer("POST /dew/v1/mails/retry", func(r *http.Request) any {
		var body v3.RetryMails
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if body.State == "failed" {
			return v3.RetriedMails{Retried: 12}
		}
		return v3.RetriedMails{Retried: len(body.IDs)}
	})
	answer("POST /dew/v1/mail-templates/preview", func(r *http.Request) any {
		var body v3.PreviewTemplate
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if body.Inline == nil {
			body.Inline = &v3.InlineTemplate{Subject: "stored " + body.Template, Text: "for " + body.Client + " and " + body.Kind + string(body.Data)}
		}
		return v3.PreviewedMail{To: "ada@example.com", Subject: body.Inline.Subject, Text: body.Inline.Text, HTML: body.Inline.HTML}
	})
	answer("GET /dew/v1/status", func(*http.Request) any {
		return v3.Status{Mails: &v3.MailQueue{Queued: 4, Retrying: 3, Failed: 2, StalledSince: time.Unix(0, 0)}}
	})
	answer("GET /v3/organizations", func(*http.Request) any {
		return v3.List[v3.Organization]{Resources: []v3.Organization{{GUID: "org-1", Name: "local"}}}
	})
	answer("GET /v3/spaces", func(*http.Request) any {
		return v3.List[v3.Space]{Resources: []v3.Space{{GUID: "space-1", Name: "dev"}}}
	})
	answer("GET /v3/apps", func(*http.Request) any {
		return v3.List[v3.App]{Resources: []v3.App{{GUID: "app-1", Name: "shop"}}}
	})
	answer("GET /dew/v1/apps/app-1/crash-mails", func(*http.Request) any { return v3.CrashMails{Enabled: d.on} })
	answer("PUT /dew/v1/apps/app-1/crash-mails", func(r *http.Request) any {
		var m v3.CrashMails
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		d.on = m.Enabled
		return m
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return d
}

func (d *mailDaemon) dew(t *testing.T, args ...string) result {
	t.Helper()
	return runDew(t.Context(), append([]string{"--run", d.run}, args...)...)
}

// mailRun is a run of dew with its expected result.
type mailRun struct {
	name   string
	args   []string
	status int
	out    []string // expected in stdout
	talk   string   // expected in the messages or the error
}

func (d *mailDaemon) check(t *testing.T, runs []mailRun) {
	t.Helper()
	for _, tt := range runs {
		t.Run(tt.name, func(t *testing.T) {
			got := d.dew(t, tt.args...)
			output := got.talk
			if got.err != nil {
				output += got.err.Error()
			}
			if got.status != tt.status || !strings.Contains(output, tt.talk) {
				t.Errorf("status %d, said %q; want %d, %q", got.status, output, tt.status, tt.talk)
			}
			for _, want := range tt.out {
				if !strings.Contains(got.out, want) {
					t.Errorf("printed %q, want %q in it", got.out, want)
				}
			}
			if strings.ContainsAny(got.out, "\x1b\a") {
				t.Errorf("a mail speaks to the terminal: %q", got.out)
			}
		})
	}
}

func TestMailsCommand(t *testing.T) {
	t.Parallel()
	d := newMailDaemon(t)
	d.check(t, []mailRun{
		{"list", []string{"mails"}, 0, []string{"jo@example.com", "550 no such user", "user guid-1", "retrying", time.Unix(90, 0).Format(time.DateTime)}, "Not shown: 1 mail."},
		{"waiting", []string{"mails", "--waiting", "--limit", "0"}, 0, []string{"q-1"}, ""},
		{"no failed ones", []string{"mails", "--failed"}, 0, nil, "No mail failed within the last day"},
		{"as JSON", []string{"mails", "--json"}, 0, []string{`"state": "failed"`, `"last_answer": "550 no such user"`}, ""},
		{"none as JSON", []string{"mails", "--failed", "--json"}, 0, []string{"[]"}, ""},
		{"retry one", []string{"mails", "--retry", "q-1"}, 0, nil, "dewd tries 1 mail now"},
		{"retry failed ones", []string{"mails", "--failed", "--retry"}, 0, nil, "dewd tries 12 mails now"},
		{"retry as JSON", []string{"mails", "--failed", "--retry", "--json"}, 0, []string{`"retried": 12`}, ""},
		{"an ID alone", []string{"mails", "q-1"}, 2, nil, "an ID needs --retry"},
		{"an ID and a state", []string{"mails", "--failed", "--retry", "q-1"}, 2, nil, "cannot be used with an ID"},
		{"no limit", []string{"mails", "--limit", "-1"}, 2, nil, "--limit"},
		{"status", []string{"status"}, 0, []string{"4 waiting, 3 retrying, 2 failed within the last day; none was delivered since " + time.Unix(0, 0).Format(time.DateTime)}, ""},
		{"status as JSON", []string{"status", "--json"}, 0, []string{`"retrying": 3`, `"stalled_since"`}, ""},
	})
}

func TestTemplateCommand(t *testing.T) {
	d := newMailDaemon(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("BROWSER", "true")
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	page, whole, data, bad := file("a.html", "{{.HTML}}<p>\x1b[31m"), file("a.json", `{"name":"n","subject":"{{.Subject}}","text":"T","html":"<b>"}`), file("d.json", `{"Space":"dev"}`), file("bad", "{")
	d.check(t, []mailRun{
		{"stored", []string{"template", "preview", "t-1", "--kind", "shop/news", "--data", data}, 0, []string{"subject: stored t-1", `for shop and news{"Space":"dev"}`, "ada@example.com"}, ""},
		{"a page", []string{"template", "preview", "--file", page, "--html"}, 0, []string{"{{.HTML}}<p>"}, ""},
		{"a template", []string{"template", "preview", "--file", whole, "--text"}, 0, []string{"T\n"}, ""},
		{"all parts", []string{"template", "preview", "--file", whole}, 0, []string{"subject: {{.Subject}}", "T\n", "HTML:\n<b>"}, ""},
		{"as JSON", []string{"template", "preview", "--file", whole, "--json"}, 0, []string{`"html": "<b>"`}, ""},
		{"in a browser", []string{"template", "preview", "--file", whole, "--open"}, 0, []string{filepath.Join(dir, "dew-preview-")}, "in this file"},
		{"nothing to open", []string{"template", "preview", "t-1", "--open"}, 1, nil, "no HTML part"},
		{"another action", []string{"template", "delete"}, 2, nil, `"delete" is not an action`},
		{"a file and an ID", []string{"template", "preview", "t-1", "--file", whole}, 2, nil, "cannot be used with the ID"},
		{"a bad kind", []string{"template", "preview", "--kind", "news"}, 2, nil, "client/kind"},
		{"bad data", []string{"template", "preview", "--data", bad}, 1, nil, "not valid JSON"},
		{"a bad file", []string{"template", "preview", "--file", bad}, 1, nil, "cannot read the template in"},
		{"no file", []string{"template", "preview", "--file", bad + "x"}, 1, nil, "cannot read the template"},
	})
	opened, err := filepath.Glob(filepath.Join(dir, "dew-preview-*", "mail.html"))
	if err != nil || len(opened) != 1 {
		t.Fatalf("files = %v, %v, want one", opened, err)
	}
	if raw, err := os.ReadFile(opened[0]); err != nil || !strings.HasPrefix(string(raw), "<meta http-equiv=\"Content-Security-Policy\"") || !strings.HasSuffix(string(raw), "<b>") {
		t.Errorf("file = %q, %v", raw, err)
	}
}

func TestInboxCommand(t *testing.T) {
	t.Parallel()
	d := newMailDaemon(t)
	d.check(t, []mailRun{
		{"list", []string{"inbox"}, 0, []string{"m-2", "jo@example.com", "Old"}, "5 older mails"},
		{"list by name", []string{"inbox", "list", "--json"}, 0, []string{`"id": "m-1"`}, ""},
		{"show", []string{"inbox", "show", "m-2"}, 0, []string{"subject:", "line 1\nline ", "kind:     reset"}, ""},
		{"show by number", []string{"inbox", "show", "2"}, 0, []string{"subject:", "kind:     reset"}, ""},
		{"show a number that is not there", []string{"inbox", "show", "99"}, 1, nil, "the inbox has no mail 99"},
		{"show html", []string{"inbox", "show", "m-2", "--html"}, 0, []string{"<p>"}, ""},
		{"show what has no text", []string{"inbox", "show", "m-1"}, 0, []string{"<b>only html"}, ""},
		{"show as JSON", []string{"inbox", "show", "m-2", "--json"}, 0, []string{`"text": "line 1`}, ""},
		{"show nothing", []string{"inbox", "show"}, 2, nil, "needs the number or the ID"},
		{"show what is not there", []string{"inbox", "show", "m-9"}, 1, nil, "the inbox has no mail m-9"},
		{"wait", []string{"inbox", "wait", "--kind", "reset", "--to", "jo@example.com", "--subject", "Re"}, 0, []string{"m-2"}, ""},
		{"wait for nothing", []string{"inbox", "wait", "--kind", "none", "--timeout", "30ms"}, 5, nil, "no matching mail arrived within 30ms"},
		{"wait no time", []string{"inbox", "wait", "--timeout", "0s"}, 2, nil, "--timeout"},
		{"open", []string{"inbox", "--open"}, 0, []string{"http://x/notify/inbox?code=1\n"}, "works once"},
		{"open as JSON", []string{"inbox", "--open", "--json"}, 0, []string{`"url"`}, ""},
		{"open with more", []string{"inbox", "--open", "list"}, 2, nil, "--open cannot be used with an action"},
		{"unknown action", []string{"inbox", "delete"}, 2, nil, `"delete" is not an action`},
		{"list with an ID", []string{"inbox", "list", "m-1"}, 2, nil, "takes no ID"},
	})
}

func TestInboxQuery(t *testing.T) {
	t.Parallel()
	d := newMailDaemon(t)
	d.dew(t, "inbox", "--to", "a@b", "--kind", "k", "--subject", "s s", "--after", "7", "-n", "3")
	if got, want := d.queries[0], "GET /dew/v1/inbox?after=7&kind=k&limit=3&subject=s+s&to=a%40b"; got != want {
		t.Errorf("asked = %s, want %s", got, want)
	}
}

func TestNotifyOnCrash(t *testing.T) {
	t.Parallel()
	d := newMailDaemon(t)
	for _, tt := range []struct {
		args []string
		on   bool
		talk string
	}{
		{[]string{"notify-on-crash", "shop"}, true, "dew will email the users of the space when shop crashes"},
		{[]string{"notify-on-crash", "shop", "--show"}, true, "dew will email the users of the space when shop crashes"},
		{[]string{"notify-on-crash", "shop", "--off"}, false, "dew will not send emails when shop crashes"},
		{[]string{"notify-on-crash", "shop", "--show"}, false, "dew will not send emails when shop crashes"},
	} {
		got := d.dew(t, tt.args...)
		if got.status != 0 || d.on != tt.on || !strings.Contains(got.talk, tt.talk) {
			t.Errorf("%v: status %d, on %t, said %q %v", tt.args, got.status, d.on, got.talk, got.err)
		}
	}
	if got := d.dew(t, "notify-on-crash", "shop", "--off", "--show"); got.status != console.StatusUsage {
		t.Errorf("status = %d, want usage", got.status)
	}
}
