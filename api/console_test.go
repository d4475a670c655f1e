package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/console"
)

// browser is a browser with a session of the web console.
type browser struct {
	w      *testServer
	cookie string
	csrf   string
}

// browse opens a link to the console and returns the browser.
func (w *testServer) browse(link v3.ConsoleLink) *browser {
	w.t.Helper()
	_, code, _ := strings.Cut(link.URL, "#")
	b := &browser{w: w}
	got := b.send("POST", "/console/login", `{"code":"`+code+`"}`, map[string]string{"Content-Type": "application/json"})
	var login v3.ConsoleLogin
	if err := json.Unmarshal(got.Body.Bytes(), &login); got.Code != 200 || err != nil {
		w.t.Fatalf("login = %d %s", got.Code, got.Body)
	}
	for _, c := range got.Result().Cookies() {
		b.cookie = c.Name + "=" + c.Value
	}
	b.csrf = login.CSRFToken
	return b
}

// send sends a request as the page does. An empty value in header removes one.
func (b *browser) send(method, path, body string, header map[string]string) *httptest.ResponseRecorder {
	b.w.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8484"
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if b.cookie != "" {
		r.Header.Set("Cookie", b.cookie)
	}
	if method != "GET" {
		r.Header.Set("Origin", publicURL)
	}
	if b.csrf != "" {
		r.Header.Set(console.CSRFHeader, b.csrf)
	}
	for name, value := range header {
		if r.Header.Del(name); value != "" {
			r.Header.Set(name, value)
		}
	}
	got := httptest.NewRecorder()
	b.w.listener.ServeHTTP(got, r)
	return got
}

func (w *testServer) consoleLink(token string) v3.ConsoleLink {
	w.t.Helper()
	var link v3.ConsoleLink
	got := w.as(token, "POST", "/dew/v1/console/link", "")
	if err := json.Unmarshal(got.Body.Bytes(), &link); err != nil || got.Code != 201 {
		w.t.Fatalf("link = %d %s", got.Code, got.Body)
	}
	return link
}

// The page of an administrator has the administrator's permissions, and only for
// requests that the page itself makes.
func TestConsoleSession(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	var link v3.ConsoleLink
	w.want(201, "POST", "/dew/v1/console/link", "", &link)
	if !strings.HasPrefix(link.URL, publicURL+"/console/login#") || link.ExpiresAt.IsZero() {
		t.Errorf("link = %+v", link)
	}
	b := w.browse(link)
	var info v3.ConsoleInfo
	got := b.send("GET", "/dew/v1/console/session", "", nil)
	if err := json.Unmarshal(got.Body.Bytes(), &info); err != nil || info.User.Name != "admin" || !info.Admin || info.Version != "1.2.3" || info.API != publicURL {
		t.Errorf("session = %+v %v", info, err)
	}
	a := w.createApp("shop")
	const evil = "http://evil.example.com"
	path := "/v3/apps/" + a.GUID
	for _, tt := range []struct {
		name, method, path, body string
		header                   map[string]string
		want                     int
		text                     string
	}{
		{"read", "GET", path, "", nil, 200, "shop"},
		{"change", "PATCH", path, `{"name":"shop2"}`, nil, 200, "shop2"},
		{"no CSRF token", "PATCH", path, `{"name":"x"}`, map[string]string{console.CSRFHeader: ""}, 401, "X-CSRF-Token"},
		{"wrong CSRF token", "PATCH", path, `{"name":"x"}`, map[string]string{console.CSRFHeader: "x"}, 401, "X-CSRF-Token"},
		{"other site", "PATCH", path, `{"name":"x"}`, map[string]string{"Origin": evil, "Sec-Fetch-Site": "cross-site"}, 403, "origin"},
		{"other site without an origin", "GET", path, "", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403, "Only pages of the console"},
		{"app on another port", "GET", path, "", map[string]string{"Sec-Fetch-Site": "same-site"}, 403, "Only pages of the console"},
		{"no origin", "PATCH", path, `{"name":"x"}`, map[string]string{"Origin": "", "Sec-Fetch-Site": ""}, 403, "Only pages of the console"},
		{"forged cookie", "GET", path, "", map[string]string{"Cookie": b.cookie + "x"}, 401, "dew console"},
		{"a wrong token beside the cookie", "GET", path, "", map[string]string{"Authorization": "bearer x"}, 401, "Invalid Auth Token"},
		{"endpoint of the socket", "GET", "/dew/v1/credentials", "", nil, 404, "Unknown request"},
		{"public", "GET", "/healthz", "", map[string]string{"Cookie": b.cookie + "x", "Sec-Fetch-Site": "cross-site"}, 200, "ok"},
	} {
		if got := b.send(tt.method, tt.path, tt.body, tt.header); got.Code != tt.want || !strings.Contains(got.Body.String(), tt.text) {
			t.Errorf("%s: %d %s, want %d with %q", tt.name, got.Code, got.Body, tt.want, tt.text)
		}
	}
	r := httptest.NewRequest("GET", path, nil)
	r.Host = "evil.example.com"
	r.Header.Set("Cookie", b.cookie)
	refused := httptest.NewRecorder()
	if w.listener.ServeHTTP(refused, r); refused.Code != 421 {
		t.Errorf("another host name = %d, want 421", refused.Code)
	}
	var actor struct{ Resources []v3.Event }
	w.want(200, "GET", "/v3/audit_events?types=audit.app.update&target_guids="+a.GUID, "", &actor)
	if len(actor.Resources) == 0 || actor.Resources[0].Actor.Name != "admin" {
		t.Errorf("events = %+v, want the user admin", actor.Resources)
	}
}

// A user's page never has more permissions than the user, and loses them at once.
func TestConsolePermissions(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	a := w.createApp("shop")
	ann := w.user("ann")
	if got := w.as(w.login("ann"), "POST", "/dew/v1/console/link", ""); got.Code != 422 || !strings.Contains(got.Body.String(), "no role") {
		t.Errorf("a link without roles = %d %s", got.Code, got.Body)
	}
	w.grant(ann, auth.OrgUser, w.space.Org)
	developer := w.grant(ann, auth.SpaceDeveloper, w.space.GUID)
	w.grant(ann, auth.SpaceAuditor, w.space.GUID)
	token := w.login("ann")
	link := w.consoleLink(token)
	b := w.browse(link)
	other := w.browse(w.consoleLink(token))
	change := func() int { return b.send("PATCH", "/v3/apps/"+a.GUID, `{"name":"shop"}`, nil).Code }
	read := func() int { return b.send("GET", "/v3/apps/"+a.GUID, "", nil).Code }
	if change() != 200 || read() != 200 || b.send("GET", "/dew/v1/status", "", nil).Code != 403 {
		t.Errorf("as developer: change %d, read %d", change(), read())
	}
	if err := w.c.Roles.Delete(developer.GUID); err != nil {
		t.Fatal(err)
	}
	if change() != 403 || read() != 200 {
		t.Errorf("as auditor: change %d, read %d", change(), read())
	}
	var list v3.ConsoleSessions
	if got := b.send("GET", "/dew/v1/console/sessions", "", nil); json.Unmarshal(got.Body.Bytes(), &list) != nil || len(list.Resources) != 2 {
		t.Fatalf("sessions = %d %s, want two", got.Code, got.Body)
	}
	admins := w.browse(func() (l v3.ConsoleLink) { w.want(201, "POST", "/dew/v1/console/link", "", &l); return l }())
	var all v3.ConsoleSessions
	w.want(200, "GET", "/dew/v1/console/sessions", "", &all)
	if len(all.Resources) != 3 {
		t.Errorf("sessions of all = %+v, want three", all.Resources)
	}
	for _, s := range all.Resources {
		want := 204
		if s.User.Name == "admin" {
			want = 404 // of another user
		}
		if s.User.GUID == ann && s.ID == sessionOf(list, true) {
			continue // her own, needed below
		}
		if got := b.send("DELETE", "/dew/v1/console/sessions/"+s.ID, "", nil); got.Code != want {
			t.Errorf("end %s's session = %d %s, want %d", s.User.Name, got.Code, got.Body, want)
		}
	}
	if got := other.send("GET", "/v3/apps", "", nil); got.Code != 401 {
		t.Errorf("an ended session = %d", got.Code)
	}
	if got := admins.send("GET", "/v3/apps", "", nil); got.Code != 200 {
		t.Errorf("the administrator's session = %d", got.Code)
	}
	if err := w.c.Roles.DeleteUser(ann); err != nil {
		t.Fatal(err)
	}
	if got := b.send("GET", "/v3/apps", "", nil); got.Code != 401 || !strings.Contains(got.Body.String(), "dew console") {
		t.Errorf("without a role = %d %s, want 401", got.Code, got.Body)
	}
}

func sessionOf(list v3.ConsoleSessions, current bool) string {
	for _, s := range list.Resources {
		if s.Current == current {
			return s.ID
		}
	}
	return ""
}

// Clients have no sessions, and a used link opens nothing.
func TestConsoleRefusals(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	robot := w.client("robot", auth.ScopeAdmin, auth.ScopeWrite)
	if got := w.as(robot, "POST", "/dew/v1/console/link", ""); got.Code != 422 || !strings.Contains(got.Body.String(), "log in as a user") {
		t.Errorf("a client's link = %d %s", got.Code, got.Body)
	}
	var info v3.ConsoleInfo
	if got := w.as(robot, "GET", "/dew/v1/console/session", ""); json.Unmarshal(got.Body.Bytes(), &info) != nil || info.User.GUID != "robot" {
		t.Errorf("a client = %d %s", got.Code, got.Body)
	}
	var link v3.ConsoleLink
	w.want(201, "POST", "/dew/v1/console/link", "", &link)
	b := w.browse(link)
	_, code, _ := strings.Cut(link.URL, "#")
	again := (&browser{w: w}).send("POST", "/console/login", `{"code":"`+code+`"}`, map[string]string{"Content-Type": "application/json"})
	if again.Code != 401 || !strings.Contains(again.Body.String(), "already used") || again.Header().Get("Set-Cookie") != "" {
		t.Errorf("a used link = %d %s", again.Code, again.Body)
	}
	// The cookie of a browser does not count on the socket, which has its own callers.
	r := httptest.NewRequest("GET", "/v3/apps", nil)
	r.Header.Set("Cookie", b.cookie+"x")
	if got := w.send(r); got.Code != 200 {
		t.Errorf("socket = %d", got.Code)
	}
	if got := b.send("POST", "/console/logout", "", nil); got.Code != 204 {
		t.Errorf("logout = %d %s", got.Code, got.Body)
	}
	if got := b.send("GET", "/v3/apps", "", nil); got.Code != 401 {
		t.Errorf("after the logout = %d", got.Code)
	}
	if err := w.c.Auth.Accounts().DeleteUser(must(w.c.Auth.Accounts().UserByName("admin", ""))(t).GUID); err != nil {
		t.Fatal(err)
	}
	if got := w.request("POST", "/dew/v1/console/link", ""); got.Code != 422 || !strings.Contains(got.Body.String(), "'admin' does not exist") {
		t.Errorf("a link without the user admin = %d %s", got.Code, got.Body)
	}
	if got := w.as("", http.MethodGet, "/console/", ""); got.Code != 200 || !strings.Contains(got.Body.String(), "dew console") {
		t.Errorf("the page without a session = %d %s", got.Code, got.Body)
	}
}

// The checks of this machine run once for requests that arrive together.
func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	if got := w.request("GET", "/dew/v1/doctor", ""); got.Code != 422 || !strings.Contains(got.Body.String(), "dew doctor") {
		t.Errorf("without checks = %d %s, want 422", got.Code, got.Body)
	}
	runs := 0
	w.s.daemon.Doctor = func(context.Context) []v3.Finding {
		runs++
		return []v3.Finding{{Level: "warn", Name: "disk", What: "900 MiB free", Do: "free disk space"}}
	}
	var first, second v3.Doctor
	w.want(200, "GET", "/dew/v1/doctor", "", &first)
	w.want(200, "GET", "/dew/v1/doctor", "", &second)
	if len(first.Findings) != 1 || first.Findings[0].Do != "free disk space" || first.CheckedAt.IsZero() || !second.CheckedAt.Equal(first.CheckedAt) || runs != 1 {
		t.Errorf("doctor = %+v, %+v after %d runs", first, second, runs)
	}
}
