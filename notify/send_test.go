package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/testkit"
)

const (
	unknownKind = `Notification with ID "none" belonging to client "sender" could not be found`
	badRole     = `"role" must be "OrgManager", "OrgAuditor", "BillingManager" or unset`
)

// Invalid requests to send are refused with the exact message, and nothing is queued.
func TestSendRefuses(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	toPeople := []string{"/users/u", "/spaces/" + w.space.GUID, "/organizations/" + w.space.Org, "/everyone", "/uaa_scopes/scim.read"}
	everywhere := append(slices.Clone(toPeople), "/emails")
	for _, tt := range []struct {
		name    string
		paths   []string
		body    string
		code    int
		message string
	}{
		{"broken", everywhere, `{"kind_id":`, 400, notParsed},
		{"array", everywhere, `[]`, 400, notParsed},
		{"kind_id is a number", everywhere, `{"kind_id":1}`, 400, notParsed},
		{"text is a list", everywhere, `{"text":[]}`, 400, notParsed},
		{"html is an object", everywhere, `{"html":{}}`, 400, notParsed},
		{"subject is a number", everywhere, `{"subject":1}`, 400, notParsed},
		{"reply_to is a list", everywhere, `{"reply_to":["a@b"]}`, 400, notParsed},
		{"10 MB", []string{"/everyone", "/emails"}, `{"text":"` + strings.Repeat("x", 10<<20) + `"}`, 413, "Request body has more than 1048576 bytes"},
		{"empty", toPeople, ``, 422, `"kind_id" is a required field,"text" or "html" fields must be supplied`},
		{"null", toPeople, `null`, 422, `"kind_id" is a required field,"text" or "html" fields must be supplied`},
		{"no kind", toPeople, `{"text":"t"}`, 422, `"kind_id" is a required field`},
		{"bad kind", toPeople, `{"kind_id":"a b","text":"t"}`, 422, `"kind_id" is improperly formatted`},
		{"no body", toPeople, `{"kind_id":"news"}`, 422, noParts},
		{"blank html", toPeople, `{"kind_id":"news","html":"<head><title>x</title></head>"}`, 422, noParts},
		{"bad role", toPeople, `{"kind_id":"news","text":"t","role":"Boss"}`, 422, badRole},
		{"all of it", toPeople, `{"role":"Boss"}`, 422, `"kind_id" is a required field,` + noParts + `,` + badRole},
		{"deep html", everywhere, `{"kind_id":"news","to":"a@b","html":"` + strings.Repeat("<b>", 5000) + `"}`, 422, `"html" is improperly formatted`},
		{"reply_to in two lines", everywhere, `{"kind_id":"news","to":"a@b","text":"t","reply_to":"a@b\r\nBcc: c@d"}`, 422, `"reply_to" is improperly formatted`},
		{"reply_to is no address", everywhere, `{"kind_id":"news","to":"a@b","text":"t","reply_to":"nobody"}`, 422, `"reply_to" is improperly formatted`},
		{"long subject", everywhere, `{"kind_id":"news","to":"a@b","text":"t","subject":"` + tooLongText + `"}`, 422, `"subject" has more than 255 characters`},
		{"unregistered kind", everywhere, `{"kind_id":"none","to":"a@b","text":"t"}`, 404, unknownKind},
		{"e-mail: empty", []string{"/emails"}, ``, 422, `"to" is a required field,` + noParts},
		{"e-mail: no to", []string{"/emails"}, `{"text":"t"}`, 422, `"to" is a required field`},
		{"e-mail: bad to", []string{"/emails"}, `{"text":"t","to":"nobody"}`, 422, `"to" is improperly formatted: it must be exactly one address`},
		{"e-mail: open bracket", []string{"/emails"}, `{"text":"t","to":"Foo <bar"}`, 422, `"to" is improperly formatted: it must be exactly one address`},
		{"e-mail: to in two lines", []string{"/emails"}, `{"text":"t","to":"a@b\r\nBcc: c@d"}`, 422, `"to" is improperly formatted: it must be exactly one address`},
		{"e-mail: to is a list", []string{"/emails"}, `{"text":"t","to":["a@b"]}`, 400, notParsed},
		{"unknown space", []string{"/spaces/x"}, `{"kind_id":"news","text":"t"}`, 404, `CloudController Failure: Space "x" could not be found`},
		{"unknown org", []string{"/organizations/x"}, `{"kind_id":"news","text":"t"}`, 404, `CloudController Failure: Organization "x" could not be found`},
		{"default scope", []string{"/uaa_scopes/openid"}, `{"kind_id":"news","text":"t"}`, 406, "You cannot send a notification to a default scope"},
		{"long guid", []string{"/users/" + strings.Repeat("x", 256)}, `{"kind_id":"news","text":"t"}`, 422, `"guid" has more than 255 characters`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range tt.paths {
				w.do(w.sender(), "POST", path, tt.body).want(t, path, tt.code, errorJSON(tt.message))
			}
		})
	}
	limited := w.client("meek", ScopeManage, ScopeCritical)
	w.do(limited, "PUT", "/notifications", `{"source_name":"m","notifications":{"alarm":{"description":"d","critical":true}}}`).want(t, "register", 204, "")
	testkit.Must(w.auth.Accounts().UpdateClient("meek", func(c *auth.Client) error {
		c.Authorities = []string{ScopeWrite, ScopeEmails}
		return nil
	}))(t)
	delete(w.tokens, "meek")
	for _, path := range everywhere {
		w.do(w.newToken("meek"), "POST", path, `{"kind_id":"alarm","to":"a@b","text":"t"}`).
			want(t, "critical without its scope: "+path, 422, errorJSON("Insufficient privileges to send notification alarm"))
		w.do(w.newToken("meek"), "POST", path, `{"kind_id":"news","to":"a@b","text":"t"}`).
			want(t, "the kind of another client: "+path, 404, errorJSON(`Notification with ID "news" belonging to client "meek" could not be found`))
	}
	if n := testkit.Must(w.queue.Waiting())(t); n != 0 {
		t.Errorf("%d messages were queued", n)
	}
}

// shown returns the parsed response to a request to send.
func shown(t testing.TB, g got) (out []sent) {
	t.Helper()
	if err := json.Unmarshal([]byte(g.body), &out); err != nil || g.code != 200 {
		t.Fatalf("%d %s", g.code, g.body)
	}
	return out
}

// Each kind of recipient reaches the right users once, with the reason.
func TestSend(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	org := w.space.Org
	ann, _ := w.user("ann", "special.scope")
	bob, _ := w.user("bob")
	cat, _ := w.user("cat")
	admin := testkit.Must(w.auth.Accounts().UserByName("admin", ""))(t).GUID
	for _, r := range []auth.Role{
		{User: ann, Type: auth.SpaceDeveloper, Space: w.space.GUID},
		{User: ann, Type: auth.SpaceManager, Space: w.space.GUID},
		{User: ann, Type: auth.OrgUser, Org: org},
		{User: bob, Type: auth.OrgUser, Org: org},
		{User: bob, Type: auth.OrgManager, Org: org},
	} {
		testkit.Must(w.roles.Put(r))(t)
	}
	const body = `"kind_id":"news","text":"hello","html":"<b>hello</b>","subject":"Sub","reply_to":"Re <re@example.com>","unknown":1`
	for _, tt := range []struct {
		path, more  string
		want        []string
		endorsement string
	}{
		{"/users/" + ann, "", []string{ann}, "This message was sent directly to you."},
		{"/users/ghost", "", []string{"ghost"}, ""},
		{"/spaces/" + w.space.GUID, "", []string{ann}, `You received this message because you belong to the "dev" space in the "local" organization.`},
		{"/organizations/" + org, "", []string{ann, bob}, `You received this message because you belong to the "local" organization.`},
		{"/organizations/" + org, `,"role":"OrgManager"`, []string{bob}, `You received this message because you are an OrgManager in the "local" organization.`},
		{"/organizations/" + org, `,"role":"BillingManager"`, nil, ""},
		{"/everyone", "", []string{ann, bob, cat, admin}, "This message was sent to everyone."},
		{"/uaa_scopes/special.scope", "", []string{ann}, "You received this message because you have the special.scope scope."},
		{"/uaa_scopes/nobody.has.it", "", nil, ""},
		{"/emails", `,"to":"X <x@example.com>"`, []string{"x@example.com"}, "This message was sent directly to your email address."},
	} {
		t.Run(tt.path+tt.more, func(t *testing.T) {
			before := testkit.Must(w.queue.Waiting())(t)
			g := w.do(w.sender(), "POST", tt.path, "{"+body+tt.more+"}", with("X-Vcap-Request-Id", "req"))
			if tt.want == nil {
				g.want(t, "nobody", 200, "null")
			}
			var who []string
			for _, m := range shown(t, g) {
				who = append(who, m.Recipient)
				if m.Status != delivery.Queued || m.Request != "req" {
					t.Errorf("message = %+v", m)
				}
				w.do(w.sender(), "GET", "/messages/"+m.ID, "").want(t, "status", 200, `{"status":"queued"}`)
			}
			slices.Sort(who)
			want := slices.Sorted(slices.Values(tt.want))
			if !slices.Equal(who, want) {
				t.Errorf("recipients = %v, want %v", who, want)
			}
			if after := testkit.Must(w.queue.Waiting())(t); after-before != len(want) {
				t.Errorf("%d messages were queued, want %d", after-before, len(want))
			}
			if tt.endorsement == "" {
				return
			}
			mails, _ := w.mails(want[0])
			if !slices.ContainsFunc(mails, func(m delivery.Mail) bool { return m.Text == tt.endorsement+"\nhello" }) {
				t.Errorf("mails = %+v, want one with %q", mails, tt.endorsement)
			}
		})
	}
	g := w.do(w.sender(), "POST", "/users/"+ann, `{"kind_id":"alarm","html":"<b>x</b>"}`)
	ms := shown(t, g)
	g.want(t, "exactly", 200, fmt.Sprintf(`[{"status":"queued","recipient":%q,"notification_id":%q,"vcap_request_id":"UNKNOWN"}]`, ann, ms[0].ID))
	if n := testkit.Must(notices(w.db).Get(testkit.Must(w.queue.Message(ms[0].ID))(t).Notice))(t); n.Subject != noSubject || n.SourceDescription != "The Sender" || n.KindDescription != "Alarms" {
		t.Errorf("notice = %+v", n)
	}
}

// A mail can be sent to an address without any registration.
func TestEmailWithoutKind(t *testing.T) {
	w := newHTTPWorld(t)
	token := w.client("fresh", ScopeEmails)
	ms := shown(t, w.do(token, "POST", "/emails", `{"to":"Name <a@b>","text":"t","subject":"a\r\nBcc: c@d"}`))
	if len(ms) != 1 || ms[0].Recipient != "a@b" {
		t.Errorf("messages = %+v", ms)
	}
	mails, problems := w.mails("a@b")
	if len(problems) > 0 || len(mails) != 1 || mails[0].Subject != "CF Notification: a Bcc: c@d" {
		t.Errorf("mails = %+v, %v", mails, problems)
	}
	if all := testkit.Must(w.s.buckets.clients.All())(t); len(all) != 0 {
		t.Errorf("clients = %+v, want none", all)
	}
}

func TestMessageStatus(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	w.do(w.sender(), "GET", "/messages/none", "").want(t, "unknown", 404, errorJSON(`Message with ID "none" could not be found`))
	id := shown(t, w.do(w.sender(), "POST", "/users/u", `{"kind_id":"news","text":"t"}`))[0].ID
	for status, want := range map[delivery.Status]delivery.Status{
		delivery.Retry: "retrying", delivery.Delivered: delivery.Delivered, delivery.Failed: delivery.Failed,
		delivery.Undeliverable: delivery.Undeliverable, delivery.Unsubscribed: "unsubscribed",
	} {
		testkit.Must(messages(w.db).Update(id, func(m *delivery.Message) error {
			m.Status, m.Attempts, m.Problem, m.Due = status, 2, "451 busy", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			return nil
		}))(t)
		w.do(w.client("mailer", ScopeEmails), "GET", "/messages/"+id, "").want(t, string(status), 200, fmt.Sprintf(`{"status":%q}`, want))
		details := `,"failed_attempts":2,"last_answer":"451 busy"}`
		if status == delivery.Retry {
			details = `,"failed_attempts":2,"next_attempt":"2026-01-02T03:04:05Z","last_answer":"451 busy"}`
		}
		w.do(w.sender(), "GET", "/messages/"+id, "").want(t, "for its sender", 200, fmt.Sprintf(`{"status":%q`, want)+details)
	}
}

// An error of the platform is distinguished from a space that does not exist.
func TestPlatformFails(t *testing.T) {
	w := newHTTPWorld(t, func(c *Config) { c.Directory = &failingDirectory{Directory: c.Directory} })
	w.register()
	w.do(w.sender(), "POST", "/spaces/x", `{"kind_id":"news","text":"t"}`).
		want(t, "loading the space", 502, errorJSON("CloudController Failure: unexpected response from the platform: status 500"))
	w.do(w.sender(), "POST", "/everyone", `{"kind_id":"news","text":"t"}`).want(t, "listing", 500, errorJSON("Internal Server Error"))
	if n := testkit.Must(w.queue.Waiting())(t); n != 0 {
		t.Errorf("%d messages were queued", n)
	}
}

func TestBareAddress(t *testing.T) {
	for in, want := range map[string]string{
		"a@b": "a@b", "Name <a@b>": "a@b", "a@b@c": "", "x a@b y": "", "a b@c.d": "", "a@b.c, d@e.f": "", "a@b.c d@e.f": "", " a@b ": "a@b", "a;b@c": "", "Foo <bar": "", "Foo <bar>": "", "": "", "@": "", "a@": "",
		"a@b\nc@d": "", "a@b\x00": "", "<a@b>,<c@d>": "", "mailto:a@b": "", `"Doe, Jane" <a@b>`: "a@b", "Doe, Jane <a@b>": "", "a@b (comment)": "a@b", `"a b"@c`: "", "ü@ö": "ü@ö",
	} {
		if got := bareAddress(in); got != want {
			t.Errorf("bareAddress(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzBareAddress(f *testing.F) {
	for _, seed := range []string{"a@b", "Name <a@b>", "a@b\r\nBcc: c@d", "<<a@b>>", "\u2028a@b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got := bareAddress(in)
		if got != "" && (strings.ContainsAny(got, "\r\n\x00 <>,;") || strings.Count(got, "@") != 1 || !strings.Contains(in, got)) {
			t.Errorf("bareAddress(%q) = %q", in, got)
		}
	})
}

var errBroken = errors.New("the list ends in the middle")

// While the disk is nearly full, messages are refused, in both versions.
func TestSendNoRoom(t *testing.T) {
	w := newHTTPWorld(t, func(c *Config) { c.CheckDisk = func() error { return errors.New("only 3 MB are free") } })
	w.register()
	g := w.do(w.sender(), "POST", "/everyone", `{"kind_id":"news","text":"hello"}`)
	g.want(t, "no room", 503, `{"errors":["The disk is too full to store more messages. Try again later"]}`)
	if n := testkit.Must(w.queue.Waiting())(t); n != 0 {
		t.Errorf("%d messages were queued", n)
	}
	if err := w.s.storeCampaign(campaign{ID: "c"}, nil); err == nil {
		t.Error("a campaign was launched")
	}
}
