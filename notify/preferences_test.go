package notify

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/notify/delivery"
)

const nothingSent = `{"global_unsubscribe":false,"clients":{}}`

// sendBoth sends both kinds to a user and marks them as delivered.
func (w *httpWorld) sendBoth(user string) {
	w.t.Helper()
	for _, kind := range []string{"news", "alarm"} {
		m := shown(w.t, w.do(w.sender(), "POST", "/users/"+user, `{"kind_id":"`+kind+`","text":"t"}`))[0]
		settle(w.t, w.queue, time.Now(), delivery.Outcome{Message: m.ID, Status: delivery.Delivered, Client: "sender"})
	}
}

// A user can unsubscribe from a kind, from all kinds, and subscribe again, but cannot
// unsubscribe from critical kinds.
func TestPreferences(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	ann, token := w.user("ann")
	for _, path := range []string{"/user_preferences", "/user_preferences/" + ann} {
		who := token
		if path != "/user_preferences" {
			who = w.client("prefs", ScopePrefsAdmin)
		}
		shows := func(what, want string) {
			t.Helper()
			w.do(who, "GET", path, "").want(t, path+": "+what, 200, want)
		}
		patch := func(body string) {
			t.Helper()
			w.do(who, "PATCH", path, body).want(t, path+" "+body, 204, "")
		}
		news := func(silent, email string) string {
			return `{"global_unsubscribe":` + silent + `,"clients":{"sender":{"news":{"email":` + email +
				`,"kind_description":"All the news","source_description":"The Sender"}}}}`
		}
		if path == "/user_preferences" {
			shows("before anything was sent", nothingSent)
		}
		w.sendBoth(ann)
		shows("after both were sent", news("false", "true"))
		w.getsBoth(ann, 2)
		patch(`{"clients":{"sender":{"news":{"email":false}}}}`)
		shows("without news", news("false", "false"))
		w.getsOnlyAlarms(ann)
		patch(`{"clients":{"sender":{"news":{"email":true}}}}`)
		w.getsBoth(ann, 2)
		patch(`{"global_unsubscribe":true}`)
		shows("without anything", news("true", "true"))
		w.getsOnlyAlarms(ann)
		patch(`{"clients":{"sender":{"news":{"email":false,"kind_description":"x"}}}}`)
		shows("what is not said means false", news("false", "false"))
		patch(`{"clients":{"sender":{"news":{"email":true}}},"global_unsubscribe":false}`)
		patch(`{}`)
		shows("all again", news("false", "true"))
	}
	bob, _ := w.user("bob")
	w.do(w.client("prefs"), "GET", "/user_preferences/"+bob, "").want(t, "another user", 200, nothingSent)
	w.do(w.client("prefs"), "GET", "/user_preferences/ghost", "").want(t, "unknown user", 200, nothingSent)
}

// getsBoth checks that a user gets both kinds.
func (w *httpWorld) getsBoth(user string, least int) {
	w.t.Helper()
	if mails, problems := w.mails(user); len(problems) > 0 || len(mails) < least {
		w.t.Errorf("%d mails, %v", len(mails), problems)
	}
}

// getsOnlyAlarms checks that a user gets only critical notifications.
func (w *httpWorld) getsOnlyAlarms(user string) {
	w.t.Helper()
	mails, problems := w.mails(user)
	for _, m := range mails {
		if m.Kind != "alarm" {
			w.t.Errorf("a mail of kind %s", m.Kind)
		}
	}
	if len(mails) == 0 || len(problems) == 0 {
		w.t.Errorf("%d mails, %d problems, want some of both", len(mails), len(problems))
	}
	for _, p := range problems {
		if !errors.Is(p, delivery.ErrUnsubscribed) {
			w.t.Errorf("problem = %v", p)
		}
	}
}

// A kind that becomes critical reaches users who had unsubscribed from it.
func TestCriticalLater(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	ann, token := w.user("ann")
	w.do(token, "PATCH", "/user_preferences", `{"global_unsubscribe":true,"clients":{"sender":{"news":{"email":false}}}}`).want(t, "leave", 204, "")
	w.sendBoth(ann)
	w.getsOnlyAlarms(ann)
	w.do(w.sender(), "PUT", "/clients/sender/notifications/news", `{"description":"d","critical":true,"template":""}`).want(t, "critical", 204, "")
	w.getsBoth(ann, 2)
	w.do(token, "GET", "/user_preferences", "").want(t, "nothing to choose", 200, `{"global_unsubscribe":true,"clients":{}}`)
}

// An invalid change is refused with a message, and nothing is stored.
func TestPreferencesRefuse(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	ann, token := w.user("ann")
	for _, tt := range []struct{ name, body, message string }{
		{"empty", "", "EOF"},
		{"cut", `{"clients":`, "unexpected EOF"},
		{"array", `[]`, "json: cannot unmarshal array into Go value of type notify.fields"},
		{"null", `null`, "the preferences must be an object, not null"},
		{"two documents", `{}{}`, "invalid character '{' after top-level value"},
		{"wrong type", `{"global_unsubscribe":"yes"}`, "json: cannot unmarshal string into Go struct field .global_unsubscribe of type bool"},
		{"unknown key", `{"global_unsubscribe":true,"x":1}`, `Extra field "x" is not valid`},
		{"capitals count", `{"Clients":{}}`, `Extra field "Clients" is not valid`},
		{"no kinds", `{"global_unsubscribe":true,"clients":{"sender":{}}}`, "Missing kinds"},
		{"no kinds at all", `{"clients":{"sender":null}}`, "Missing kinds"},
		{"no email", `{"global_unsubscribe":true,"clients":{"sender":{"news":{}}}}`, "Missing the email field"},
		{"kind is null", `{"clients":{"sender":{"news":null}}}`, "Missing the email field"},
		{"email is null", `{"clients":{"sender":{"news":{"email":null}}}}`, "Missing the email field"},
		{"unknown kind", `{"global_unsubscribe":true,"clients":{"sender":{"none":{"email":false}}}}`, "The kind 'none' cannot be found for client 'sender'"},
		{"unknown client", `{"clients":{"nobody":{"news":{"email":false}}}}`, "The kind 'news' cannot be found for client 'nobody'"},
		{
			"critical, beside one that is not", `{"global_unsubscribe":true,"clients":{"sender":{"news":{"email":false},"alarm":{"email":true}}}}`,
			"The kind 'alarm' for the 'sender' client is critical and cannot be unsubscribed from",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.do(token, "PATCH", "/user_preferences", tt.body).want(t, "own", 422, errorJSON(tt.message))
			w.do(w.client("prefs", ScopePrefsAdmin), "PATCH", "/user_preferences/"+ann, tt.body).want(t, "admin", 422, errorJSON(tt.message))
		})
	}
	w.do(token, "PATCH", "/user_preferences", `{"clients":{"`+strings.Repeat("x", 10<<20)+`":{}}}`).want(t, "10 MB", 413, errorJSON("Request body has more than 1048576 bytes"))
	w.do(w.client("prefs"), "PATCH", "/user_preferences/"+strings.Repeat("x", 256), `{}`).want(t, "long guid", 422, errorJSON("the user's guid has more than 255 characters"))
	w.do(w.sender(), "GET", "/user_preferences", "").want(t, "no user", 422, errorJSON("Missing user_id from token claims."))
	w.do(w.sender(), "PATCH", "/user_preferences", "{}").want(t, "no user", 422, errorJSON("Missing user_id from token claims."))
	w.sendBoth(ann)
	w.getsBoth(ann, 2)
}

// Pages of other origins can request preferences, and nothing else.
func TestCORS(t *testing.T) {
	for origin, change := range map[string]func(c *Config){
		"*": func(*Config) {}, "https://people.example.com": func(c *Config) { c.CORSOrigin = "https://people.example.com" },
	} {
		w := newHTTPWorld(t, change)
		for _, method := range []string{"OPTIONS", "GET", "PATCH"} {
			for _, path := range []string{"/user_preferences", "/user_preferences/u"} {
				g := w.do("", method, path, "")
				if want := map[bool]int{true: http.StatusNoContent, false: http.StatusUnauthorized}[method == "OPTIONS"]; g.code != want {
					t.Errorf("%s %s: %d, want %d", method, path, g.code, want)
				}
				for key, want := range map[string]string{
					"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Methods": "GET, PATCH",
					"Access-Control-Allow-Headers": "Accept, Authorization, Content-Type",
				} {
					if got := g.header.Get(key); got != want {
						t.Errorf("%s %s: %s = %q, want %q", method, path, key, got, want)
					}
				}
			}
		}
		if g := w.do(w.sender(), "GET", "/templates", ""); g.header.Get("Access-Control-Allow-Origin") != "" {
			t.Error("templates are open to pages")
		}
		if g := w.do(w.sender(), "OPTIONS", "/templates", ""); g.code != 404 {
			t.Errorf("OPTIONS /templates: %d", g.code)
		}
	}
}

// Any body is refused with a reason, or it has a setting for every kind.
func FuzzPreferenceChange(f *testing.F) {
	for _, seed := range []string{`{}`, `{"clients":{"c":{"k":{"email":true}}}}`, `{"clients":{"c":null}}`, `null`, `{"global_unsubscribe":null}`, `{"clients":{"c":{"k":{"Email":false}}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, err := readPreferenceChange(raw)
		if p, ok := errors.AsType[*problem](err); err != nil && (!ok || p.status != http.StatusUnprocessableEntity || p.message == "") {
			t.Errorf("readPreferenceChange = %v", err)
		}
	})
}
