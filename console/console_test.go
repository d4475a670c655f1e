package console

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/store"
)

const (
	host     = "127.0.0.1:8484"
	password = "secret"
)

// world is a console with real accounts.
type world struct {
	t     *testing.T
	dir   string
	db    *store.DB
	auth  *auth.Server
	roles *auth.Roles
	c     *Console
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.open()
	t.Cleanup(func() { _ = w.db.Close() })
	return w
}

// signingKeys is a folder with a signing key for all tests, because creating one takes
// longer than most tests.
var signingKeys string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "dew-console-")
	if err != nil {
		panic(err)
	}
	signingKeys = filepath.Join(dir, "keys")
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// open opens everything, as a start of dewd does.
func (w *world) open() {
	w.t.Helper()
	var err error
	if w.db, err = store.Open(filepath.Join(w.dir, "dew.db"), store.Options{NoSync: true}); err != nil {
		w.t.Fatal(err)
	}
	w.auth, err = auth.Open(auth.Config{
		DB: w.db, Keys: signingKeys, AdminPassword: filepath.Join(w.dir, "admin"), Domain: "dew.localhost",
		PublicURL: "http://" + host, Cost: bcrypt.MinCost,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.roles = auth.NewRoles(w.db)
	w.c, err = New(Config{
		DB: w.db, Auth: w.auth, Roles: w.roles, Public: &url.URL{Scheme: "http", Host: host}, Version: "1.2.3", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) restart() {
	w.t.Helper()
	if err := w.db.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.open()
}

// admin is the caller of the socket, which gets sessions of the user admin.
func admin() auth.Principal {
	return auth.Principal{ID: "uid-0", Name: "root", IsUser: true, Scopes: []string{auth.ScopeAdmin}}
}

// user creates a user with a role.
func (w *world) user(name string) (auth.User, auth.Role, auth.Principal) {
	w.t.Helper()
	u, err := w.auth.Accounts().CreateUser(auth.NewUser{Name: name, Password: password})
	if err != nil {
		w.t.Fatal(err)
	}
	role, err := w.roles.Put(auth.Role{User: u.GUID, Type: auth.SpaceDeveloper, Space: "space"})
	if err != nil {
		w.t.Fatal(err)
	}
	token, err := w.auth.UserToken(name)
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := w.auth.Verify(token)
	if err != nil {
		w.t.Fatal(err)
	}
	return u, role, p
}

func (w *world) code(p auth.Principal) string {
	w.t.Helper()
	link, _, err := w.c.Link(p)
	if err != nil {
		w.t.Fatal(err)
	}
	before, code, ok := strings.Cut(link, "#")
	if !ok || before != "http://"+host+"/console/login" || len(code) < 43 {
		w.t.Fatalf("link = %s, want the code of 256 bits in the fragment", link)
	}
	return code
}

// login opens a session and returns its token.
func (w *world) login(p auth.Principal) string {
	w.t.Helper()
	token, _, err := w.c.login(w.code(p), "Browser/1")
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// page returns the token of the page of a session.
func (w *world) page(token string) string {
	w.t.Helper()
	s, err := w.c.Session(sessionID(token))
	if err != nil {
		w.t.Fatal(err)
	}
	return pageToken(s, token)
}

// wantSession fails if the session of a token is not as wanted.
func (w *world) wantSession(what, token string, want error) {
	w.t.Helper()
	if _, _, err := w.c.resumeSession(token); !errors.Is(err, want) {
		w.t.Errorf("%s: session = %v, want %v", what, err, want)
	}
}

// request sends a request of a page with a cookie.
func (w *world) request(method, path, body string, header map[string]string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = host
	for name, value := range header {
		r.Header.Set(name, value)
	}
	got := httptest.NewRecorder()
	w.c.ServeHTTP(got, r)
	return got
}

func TestLinkWorksOnce(t *testing.T) {
	w := newWorld(t)
	code := w.code(admin())
	if _, _, err := w.c.login(code, ""); err != nil {
		t.Fatal(err)
	}
	for _, used := range []string{code, "", "x", code + "x"} {
		if _, _, err := w.c.login(used, ""); !errors.Is(err, ErrBadLink) {
			t.Errorf("login with %q = %v, want ErrBadLink", used, err)
		}
	}
}

func TestLinkExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, _, ann := w.user("ann")
		early, late := w.code(ann), w.code(ann)
		time.Sleep(59 * time.Second)
		if _, _, err := w.c.login(early, ""); err != nil {
			t.Errorf("after 59 s: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, _, err := w.c.login(late, ""); !errors.Is(err, ErrBadLink) {
			t.Errorf("after 61 s: %v, want ErrBadLink", err)
		}
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A session ends after 12 h without use, and after 7 days in any case.
func TestSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		idle, used := w.login(admin()), w.login(admin())
		began := time.Now()
		for time.Since(began) < SessionLifetime-time.Hour {
			w.wantSession("in use", used, nil)
			if time.Since(began) == 11*time.Hour {
				w.wantSession("after 11 h without use", idle, nil)
			}
			if time.Since(began) == 24*time.Hour {
				w.wantSession("after 13 h without use", idle, ErrEnded)
			}
			time.Sleep(time.Hour)
		}
		w.wantSession("before the end", used, nil)
		time.Sleep(time.Hour)
		w.wantSession("after 7 days", used, ErrEnded)
		if all, err := w.c.sessions.All(); err != nil || len(all) != 0 {
			t.Errorf("stored = %v %v, want that ended sessions are deleted", all, err)
		}
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The last use is stored at most once a minute.
func TestLastUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		token := w.login(admin())
		stored := func() time.Time {
			s, err := w.c.Session(sessionID(token))
			if err != nil {
				t.Fatal(err)
			}
			return s.UsedAt
		}
		began := stored()
		time.Sleep(59 * time.Second)
		w.wantSession("used", token, nil)
		if got := stored(); !got.Equal(began) {
			t.Errorf("last use = %s, want no change within a minute", got.Sub(began))
		}
		time.Sleep(time.Second)
		w.wantSession("used", token, nil)
		if got := stored(); got.Sub(began) != time.Minute {
			t.Errorf("last use = %s after the start, want 1 minute", got.Sub(began))
		}
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSessionSurvivesRestart(t *testing.T) {
	w := newWorld(t)
	token := w.login(admin())
	code := w.code(admin())
	w.restart()
	w.wantSession("after a restart", token, nil)
	if _, _, err := w.c.login(code, ""); !errors.Is(err, ErrBadLink) {
		t.Errorf("a link after a restart = %v, want ErrBadLink", err)
	}
}

// The store has no token, code or CSRF token, only hashes.
func TestStoredSession(t *testing.T) {
	w := newWorld(t)
	token := w.login(admin())
	s, err := w.c.Session(sessionID(token))
	if err != nil || s.Name != "admin" || s.Origin != "uaa" || s.Agent != "Browser/1" || s.User == "" {
		t.Errorf("session = %+v, %v", s, err)
	}
	if strings.Contains(fmt.Sprintf("%+v", s), token) || strings.Contains(fmt.Sprintf("%+v", s), pageToken(s, token)) {
		t.Error("the session contains its token")
	}
}

func TestSessionEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *world, u auth.User, role auth.Role, token string) error{
		"new password": func(_ *testing.T, w *world, u auth.User, _ auth.Role, _ string) error {
			return w.auth.Accounts().SetPassword(u.GUID, "another")
		},
		"deleted user": func(_ *testing.T, w *world, u auth.User, _ auth.Role, _ string) error {
			return w.auth.Accounts().DeleteUser(u.GUID)
		},
		"inactive user": func(_ *testing.T, w *world, u auth.User, _ auth.Role, _ string) error {
			_, err := w.auth.Accounts().UpdateUser(u.GUID, func(u *auth.User) error { u.Active = false; return nil })
			return err
		},
		"no role": func(_ *testing.T, w *world, _ auth.User, role auth.Role, _ string) error {
			return w.roles.Delete(role.GUID)
		},
		"ended by the user": func(_ *testing.T, w *world, u auth.User, _ auth.Role, token string) error {
			return w.c.End(sessionID(token), u.GUID)
		},
		"ended by an administrator": func(_ *testing.T, w *world, _ auth.User, _ auth.Role, token string) error {
			return w.c.End(sessionID(token), "")
		},
		"logout": func(t *testing.T, w *world, _ auth.User, _ auth.Role, token string) error {
			got := w.request("POST", "/console/logout", "", map[string]string{
				"Cookie": CookieName + "=" + token, CSRFHeader: w.page(token), "Origin": "http://" + host,
			})
			if got.Code != 204 || !strings.Contains(got.Header().Get("Set-Cookie"), "Max-Age=0") {
				t.Errorf("logout = %d %v", got.Code, got.Header())
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			u, role, p := w.user("ann")
			token, bystander := w.login(p), w.login(admin())
			s, open, err := w.c.resumeSession(token)
			if err != nil || open.ID != u.GUID || s.User != u.GUID {
				t.Fatalf("session = %+v %+v %v, want ann's", s, open, err)
			}
			if err := end(t, w, u, role, token); err != nil {
				t.Fatal(err)
			}
			w.wantSession(name, token, ErrEnded)
			w.wantSession("after "+name, token, ErrEnded)
			w.wantSession("of another user", bystander, nil)
			// An open stream checks its principal from time to time.
			if _, err := w.auth.Current(open); err == nil {
				t.Error("the principal of an open stream is still valid")
			}
			if all, err := w.c.Sessions(""); err != nil || len(all) != 1 || all[0].Name != "admin" {
				t.Errorf("sessions = %+v %v, want only admin's", all, err)
			}
		})
	}
}

// A link stops working if its user loses the account or all roles after it was created.
func TestLinkOfLostUser(t *testing.T) {
	w := newWorld(t)
	u, role, p := w.user("ann")
	code := w.code(p)
	if err := w.roles.Delete(role.GUID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.c.login(code, ""); !errors.Is(err, ErrNoRoles) {
		t.Errorf("login without roles = %v", err)
	}
	if _, _, err := w.c.Link(p); !errors.Is(err, ErrNoRoles) {
		t.Errorf("link without roles = %v", err)
	}
	if _, err := w.roles.Put(auth.Role{User: u.GUID, Type: auth.OrgUser, Org: "org"}); err != nil {
		t.Fatal(err)
	}
	code = w.code(p)
	if err := w.auth.Accounts().SetPassword(u.GUID, "another"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.c.login(code, ""); !errors.Is(err, ErrBadLink) {
		t.Errorf("login after a new password = %v", err)
	}
}

// A session has the scopes of the token that created its link, and never more.
func TestSessionScopes(t *testing.T) {
	w := newWorld(t)
	_, _, p := w.user("ann")
	p.Scopes = []string{auth.ScopeRead}
	_, got, err := w.c.resumeSession(w.login(p))
	if err != nil || len(got.Scopes) != 1 || got.Scopes[0] != auth.ScopeRead || got.Admin() {
		t.Errorf("scopes = %v %v, want only read", got.Scopes, err)
	}
}

func TestEndNeedsOwner(t *testing.T) {
	w := newWorld(t)
	u, _, p := w.user("ann")
	token, other := w.login(p), w.login(admin())
	if err := w.c.End(sessionID(other), u.GUID); !errors.Is(err, ErrEnded) {
		t.Errorf("end another user's session = %v, want ErrEnded", err)
	}
	w.wantSession("of admin", other, nil)
	if own, err := w.c.Sessions(u.GUID); err != nil || len(own) != 1 || own[0].ID != sessionID(token) {
		t.Errorf("sessions of ann = %+v %v", own, err)
	}
}

func TestSessionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.login(admin())
		for range maxSessions {
			time.Sleep(time.Second)
			w.login(admin())
		}
		w.wantSession("the oldest above the limit", first, ErrEnded)
		if all, err := w.c.Sessions(""); err != nil || len(all) != maxSessions {
			t.Errorf("%d sessions %v, want %d", len(all), err, maxSessions)
		}
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// overTLS marks the requests of TestAuthenticate that come over TLS.
const overTLS = "X-Over-Tls"

func TestAuthenticate(t *testing.T) {
	w := newWorld(t)
	token := w.login(admin())
	const own, evil = "http://" + host, "http://evil.example.com"
	csrf := w.page(token)
	for _, tt := range []struct {
		name, method string
		header       map[string]string
		want         error
	}{
		{"read", "GET", map[string]string{CSRFHeader: csrf}, nil},
		{"read by the page", "GET", map[string]string{"Sec-Fetch-Site": "same-origin", CSRFHeader: csrf}, nil},
		{"only the cookie", "GET", map[string]string{"Sec-Fetch-Site": "same-origin"}, ErrCSRF},
		{"the token twice", "GET", map[string]string{CSRFHeader: token}, ErrCSRF},
		{"read by another site", "GET", map[string]string{"Sec-Fetch-Site": "cross-site"}, ErrForeign},
		{"read by another port", "GET", map[string]string{"Sec-Fetch-Site": "same-site"}, ErrForeign},
		{"typed address", "GET", map[string]string{"Sec-Fetch-Site": "none"}, ErrForeign},
		{"read with a foreign origin", "GET", map[string]string{"Origin": evil}, ErrForeign},
		{"read with another port's origin", "GET", map[string]string{"Origin": "http://127.0.0.1:8080"}, ErrForeign},
		{"sandboxed page", "GET", map[string]string{"Origin": "null"}, ErrForeign},
		{"change", "POST", map[string]string{"Origin": own, CSRFHeader: csrf}, nil},
		{"change over TLS", "POST", map[string]string{overTLS: "", "Origin": "https://" + host, CSRFHeader: csrf}, nil},
		{"TLS origin without TLS", "POST", map[string]string{"Origin": "https://" + host, CSRFHeader: csrf}, ErrForeign},
		{"another site over TLS", "POST", map[string]string{overTLS: "", "Origin": "https://evil.example.com", CSRFHeader: csrf}, ErrForeign},
		{"change by the page", "DELETE", map[string]string{"Sec-Fetch-Site": "same-origin", CSRFHeader: csrf}, nil},
		{"no CSRF token", "POST", map[string]string{"Origin": own}, ErrCSRF},
		{"wrong CSRF token", "PATCH", map[string]string{"Origin": own, CSRFHeader: pageToken(Session{Salt: "x"}, token)}, ErrCSRF},
		{"the token as CSRF token", "PUT", map[string]string{"Origin": own, CSRFHeader: token}, ErrCSRF},
		{"OPTIONS is no read", "OPTIONS", map[string]string{"Origin": own}, ErrCSRF},
		{"change without an origin", "POST", map[string]string{CSRFHeader: csrf}, ErrForeign},
		{"change by another site", "POST", map[string]string{"Origin": evil, CSRFHeader: csrf}, ErrForeign},
		{"own origin, other site", "POST", map[string]string{"Origin": own, "Sec-Fetch-Site": "cross-site", CSRFHeader: csrf}, ErrForeign},
		{"WebSocket", "GET", map[string]string{"Origin": own, "Upgrade": "websocket", "Sec-WebSocket-Protocol": "dew.console, dew.token." + csrf}, nil},
		{"WebSocket without the page's token", "GET", map[string]string{"Origin": own, "Upgrade": "websocket", "Sec-WebSocket-Protocol": "dew.console"}, ErrCSRF},
		{"WebSocket with the header", "GET", map[string]string{"Origin": own, "Upgrade": "websocket", CSRFHeader: csrf}, ErrCSRF},
		{"WebSocket of another site", "GET", map[string]string{"Origin": evil, "Upgrade": "websocket"}, ErrForeign},
		{"WebSocket without an origin", "GET", map[string]string{"Upgrade": "websocket"}, ErrForeign},
	} {
		r := httptest.NewRequest(tt.method, "/v3/apps", nil)
		r.Host = host
		r.Header.Set("Cookie", CookieName+"="+token)
		for name, value := range tt.header {
			r.Header.Set(name, value)
		}
		if _, secure := tt.header[overTLS]; secure {
			r.TLS = &tls.ConnectionState{}
		}
		if _, p, err := w.c.Authenticate(r); !errors.Is(err, tt.want) || (err != nil) != (tt.want != nil) || err != nil && p.ID != "" {
			t.Errorf("%s: %v %q, want %v", tt.name, err, p.ID, tt.want)
		}
	}
	for _, forged := range []string{"", "x", token + "x", sessionID(token), csrf} {
		r := httptest.NewRequest("GET", "/v3/apps", nil)
		r.Header.Set("Cookie", CookieName+"="+forged)
		if _, _, err := w.c.Authenticate(r); !errors.Is(err, ErrEnded) {
			t.Errorf("forged cookie %q = %v, want ErrEnded", forged, err)
		}
	}
}

func TestHasCookie(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	if HasCookie(r) {
		t.Error("a request without a cookie has one")
	}
	r.Header.Set("Cookie", CookieName+"=x")
	if !HasCookie(r) {
		t.Error("the cookie is not seen")
	}
	r.Header.Set("Authorization", "")
	if HasCookie(r) {
		t.Error("the cookie counts beside an Authorization header")
	}
}

func TestLoginRequest(t *testing.T) {
	w := newWorld(t)
	const kind = "application/json"
	for _, tt := range []struct {
		name, body string
		header     map[string]string
		want       int
	}{
		{"foreign", `{"code":"CODE"}`, map[string]string{"Content-Type": kind, "Origin": "http://evil.example.com"}, 403},
		{"no origin", `{"code":"CODE"}`, map[string]string{"Content-Type": kind}, 403},
		{"a form", `code=CODE`, map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://" + host}, 415},
		{"no JSON", `{`, map[string]string{"Content-Type": kind, "Origin": "http://" + host}, 400},
		{"no code", `{}`, map[string]string{"Content-Type": kind, "Origin": "http://" + host}, 400},
		{"too long", `{"code":"` + strings.Repeat("x", maxLogin) + `"}`, map[string]string{"Content-Type": kind, "Origin": "http://" + host}, 400},
		{"wrong code", `{"code":"x"}`, map[string]string{"Content-Type": kind, "Origin": "http://" + host}, 401},
		{"right", `{"code":"CODE"}`, map[string]string{"Content-Type": kind + "; charset=utf-8", "Sec-Fetch-Site": "same-origin"}, 200},
	} {
		code := w.code(admin())
		got := w.request("POST", "/console/login", strings.Replace(tt.body, "CODE", code, 1), tt.header)
		if got.Code != tt.want || (got.Header().Get("Set-Cookie") != "") != (tt.want == 200) {
			t.Errorf("%s: %d %s %v, want %d", tt.name, got.Code, got.Body, got.Header(), tt.want)
		}
		if tt.want == 200 {
			var login v3.ConsoleLogin
			if err := json.Unmarshal(got.Body.Bytes(), &login); err != nil || len(login.CSRFToken) != 64 {
				t.Errorf("login = %s, want the page's token", got.Body)
			}
			cookie := got.Header().Get("Set-Cookie")
			for _, part := range []string{"dew_console=", "Path=/;", "HttpOnly", "SameSite=Strict", "Max-Age=604800"} {
				if !strings.Contains(cookie, part) {
					t.Errorf("cookie = %s, want %s", cookie, part)
				}
			}
			if strings.Contains(cookie, "Secure") {
				t.Errorf("cookie = %s, want that plain HTTP works", cookie)
			}
		}
	}
	w.c.c.Public = &url.URL{Scheme: "https", Host: "dew.example.com"}
	got := w.request("POST", "/console/login", `{"code":"`+w.codeOnly()+`"}`, map[string]string{"Content-Type": kind, "Origin": "https://dew.example.com"})
	if cookie := got.Header().Get("Set-Cookie"); !strings.Contains(cookie, "Secure") {
		t.Errorf("cookie over TLS = %s, want Secure", cookie)
	}
}

func (w *world) codeOnly() string {
	w.t.Helper()
	link, _, err := w.c.Link(admin())
	if err != nil {
		w.t.Fatal(err)
	}
	_, code, _ := strings.Cut(link, "#")
	return code
}

// A new login in a browser ends the session that it replaces.
func TestLoginReplacesSession(t *testing.T) {
	w := newWorld(t)
	old := w.login(admin())
	got := w.request("POST", "/console/login", `{"code":"`+w.code(admin())+`"}`, map[string]string{
		"Content-Type": "application/json", "Origin": "http://" + host, "Cookie": CookieName + "=" + old,
	})
	if got.Code != 200 {
		t.Fatalf("login = %d %s", got.Code, got.Body)
	}
	w.wantSession("replaced", old, ErrEnded)
	if all, err := w.c.Sessions(""); err != nil || len(all) != 1 {
		t.Errorf("sessions = %+v %v, want one", all, err)
	}
}

func TestLogoutNeedsToken(t *testing.T) {
	w := newWorld(t)
	token := w.login(admin())
	cookie := CookieName + "=" + token
	if got := w.request("POST", "/console/logout", "", map[string]string{"Cookie": cookie, "Origin": "http://" + host}); got.Code != 401 {
		t.Errorf("logout without a CSRF token = %d", got.Code)
	}
	w.wantSession("after a refused logout", token, nil)
	if got := w.request("POST", "/console/logout", "", map[string]string{"Origin": "http://" + host}); got.Code != 204 {
		t.Errorf("logout without a session = %d, want 204", got.Code)
	}
}

func TestCleanAgent(t *testing.T) {
	if got := cleanAgent("a\x1b[31m\n\xffé" + strings.Repeat("x", 500)); len(got) != maxAgent || !strings.HasPrefix(got, "a[31mx") {
		t.Errorf("agent = %q", got)
	}
}

// The page and its files need no session.
func TestPage(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		method, path string
		want         int
		body         string
	}{
		{"GET", "/console", 303, ""},
		{"GET", "/console/", 200, "dew console"},
		{"GET", "/console/login", 200, "1.2.3"},
		{"GET", "/console/apps/0123", 200, "1.2.3"},
		{"GET", "/console/../../etc/passwd", 200, "1.2.3"},
		{"GET", "/console/index.html", 200, "1.2.3"},
		{"HEAD", "/console/", 200, ""},
		{"POST", "/console/", 405, "GET and HEAD"},
		{"DELETE", "/console/login", 405, "GET and HEAD"},
	} {
		got := w.request(tt.method, tt.path, "", nil)
		if got.Code != tt.want || !strings.Contains(got.Body.String(), tt.body) {
			t.Errorf("%s %s = %d %s, want %d", tt.method, tt.path, got.Code, got.Body, tt.want)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
		} {
			if h := got.Header().Get(name); h != want {
				t.Errorf("%s %s: %s = %q", tt.method, tt.path, name, h)
			}
		}
	}
	if !IsPage(&http.Request{URL: &url.URL{Path: "/console/x"}}) || IsPage(&http.Request{URL: &url.URL{Path: "/consolex"}}) {
		t.Error("IsPage is wrong")
	}
}
