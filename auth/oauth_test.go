package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/auth/throttle"
)

func TestTokenEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("bob", "s:ecret ä")
	w.user("away", "secret")
	if _, err := w.s.Accounts().UpdateUser(must(w.s.Accounts().UserByName("away", "")).GUID, func(u *User) error { u.Active = false; return nil }); err != nil {
		t.Fatal(err)
	}
	w.client("sender", "c:lient", "emails.write", "notifications.write")
	login := []string{"grant_type", "password", "username", "bob", "password", "s:ecret ä"}
	credentials := []string{"grant_type", "client_credentials", "client_id", "sender", "client_secret", "c:lient"}
	for name, tc := range map[string]struct {
		opts    []option
		pairs   []string
		code    int
		problem string
	}{
		"password":                {cf, login, 200, ""},
		"capitals":                {cf, []string{"grant_type", "password", "username", "BOB", "password", "s:ecret ä"}, 200, ""},
		"client in the body":      {nil, append([]string{"client_id", "cf"}, login...), 200, ""},
		"client in both":          {cf, append([]string{"client_id", "cf", "client_secret", ""}, login...), 200, ""},
		"clients contradict":      {cf, append([]string{"client_id", "sender"}, login...), 400, "invalid_request"},
		"secrets contradict":      {cf, append([]string{"client_secret", "x"}, login...), 400, "invalid_request"},
		"no client":               {nil, login, 401, "invalid_client"},
		"unknown client":          {[]option{basicAuth("nobody", "")}, login, 401, "invalid_client"},
		"cf with a secret":        {[]option{basicAuth("cf", "x")}, login, 401, "invalid_client"},
		"header no base64":        {[]option{header("Authorization", "Basic %%%")}, login, 401, "invalid_client"},
		"header without a colon":  {[]option{header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("cf")))}, login, 401, "invalid_client"},
		"header of another kind":  {[]option{header("Authorization", "Bearer x")}, login, 401, "invalid_client"},
		"wrong password":          {cf, []string{"grant_type", "password", "username", "bob", "password", "x"}, 401, "unauthorized"},
		"unknown user":            {cf, []string{"grant_type", "password", "username", "eve", "password", "x"}, 401, "unauthorized"},
		"no password":             {cf, []string{"grant_type", "password", "username", "bob"}, 401, "unauthorized"},
		"nothing":                 {cf, []string{"grant_type", "password"}, 401, "unauthorized"},
		"password too long":       {cf, []string{"grant_type", "password", "username", "bob", "password", strings.Repeat("x", 5000)}, 401, "unauthorized"},
		"not active":              {cf, []string{"grant_type", "password", "username", "away", "password", "secret"}, 401, "unauthorized"},
		"bad passcode":            {cf, []string{"grant_type", "password", "passcode", "x"}, 401, "unauthorized"},
		"no grant type":           {cf, []string{"username", "bob"}, 400, "invalid_request"},
		"unknown grant type":      {cf, []string{"grant_type", "x"}, 400, "unsupported_grant_type"},
		"jwt bearer":              {cf, []string{"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion", "a.b.c"}, 400, "unsupported_grant_type"},
		"cf in its own name":      {cf, []string{"grant_type", "client_credentials"}, 401, "invalid_client"},
		"client":                  {nil, credentials, 200, ""},
		"client by header":        {[]option{basicAuth("sender", "c:lient")}, []string{"grant_type", "client_credentials"}, 200, ""},
		"client, wrong secret":    {nil, []string{"grant_type", "client_credentials", "client_id", "sender", "client_secret", "x"}, 401, "invalid_client"},
		"client, empty secret":    {nil, []string{"grant_type", "client_credentials", "client_id", "sender", "client_secret", ""}, 401, "invalid_client"},
		"client as a user":        {nil, append([]string{"client_id", "sender", "client_secret", "c:lient"}, login...), 401, "invalid_client"},
		"narrowed":                {cf, append([]string{"scope", "cloud_controller.read uaa.admin"}, login...), 200, ""},
		"narrowed to nothing":     {cf, append([]string{"scope", "uaa.admin"}, login...), 400, "invalid_scope"},
		"client narrowed":         {nil, append([]string{"scope", "emails.write"}, credentials...), 200, ""},
		"client, foreign scope":   {nil, append([]string{"scope", "uaa.admin"}, credentials...), 400, "invalid_scope"},
		"refresh without a token": {cf, []string{"grant_type", "refresh_token"}, 400, "invalid_request"},
		"refresh, unknown token":  {cf, []string{"grant_type", "refresh_token", "refresh_token", "x"}, 401, "invalid_token"},
	} {
		t.Run(name, func(t *testing.T) {
			w.s.throttle = throttle.New() // these cases do not test the delay
			a := w.form(tc.opts, tc.pairs...)
			a.want(t, name, tc.code, tc.problem)
			if tc.code != 200 {
				return
			}
			if a.text("token_type") != "bearer" {
				t.Errorf("token_type = %q", a.text("token_type"))
			}
			if a.header.Get("Cache-Control") != "no-store" {
				t.Error("the answer may be kept")
			}
			p, err := w.s.Verify(a.text("access_token"))
			if err != nil || strings.Join(p.Scopes, " ") != a.text("scope") {
				t.Errorf("Verify = %+v, %v; scope %q", p, err, a.text("scope"))
			}
			if strings.Contains(name, "narrowed") && len(p.Scopes) != 1 {
				t.Errorf("scopes = %v", p.Scopes)
			}
			if hasRefresh := a.text("refresh_token") != ""; hasRefresh != p.IsUser {
				t.Errorf("refresh token: %t, user: %t", hasRefresh, p.IsUser)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestTokenEndpointRefusesForms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, tc := range map[string]struct {
		body string
		opts []option
		code int
	}{
		"twice":       {"grant_type=password&grant_type=password", []option{isForm}, 400},
		"bad escape":  {"grant_type=%zz", []option{isForm}, 400},
		"semicolons":  {"grant_type=password;x=1", []option{isForm}, 400},
		"not UTF-8":   {"grant_type=%ff", []option{isForm}, 400},
		"JSON":        {`{"grant_type":"password"}`, nil, 415},
		"no type":     {"grant_type=password", []option{header("Content-Type", "")}, 415},
		"large":       {"x=" + strings.Repeat("a", maxBody), []option{isForm}, 413},
		"many fields": {strings.Repeat("a=1&", maxBody/8), []option{isForm}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			w.do("POST", "/uaa/oauth/token", tc.body, append(cf, tc.opts...)...).want(t, name, tc.code, "invalid_request")
		})
	}
	// Credentials in the URL would be written to logs, so they are ignored.
	w.do("POST", "/uaa/oauth/token?grant_type=password&username=admin&password="+adminPassword, "", append(cf, isForm)...).
		want(t, "in the address", 400, "invalid_request")
}

func TestLoginHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	form := url.Values{"grant_type": {"password"}, "username": {"admin"}, "password": {adminPassword}}.Encode()
	for hint, code := range map[string]int{
		`{"origin":"uaa"}`: 200, `{"origin":""}`: 200, `{"origin":"ldap"}`: 401, `{}`: 200, `nonsense`: 400, `{"origin":7}`: 400,
	} {
		a := w.do("POST", "/uaa/oauth/token?login_hint="+url.QueryEscape(hint), form, append(cf, isForm)...)
		if a.code != code {
			t.Errorf("%s: %d, want %d: %s", hint, a.code, code, a.raw)
		}
	}
}

// Every answer has the refresh token. The token survives a restart and expires.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.user("bob", "secret")
		_, refresh := w.tokens("bob", "secret")
		for range 3 {
			time.Sleep(refreshValidity / 4)
			w.open()
			a := w.form(cf, "grant_type", "refresh_token", "refresh_token", refresh)
			if a.code != 200 || a.text("refresh_token") != refresh || a.text("token_type") != "bearer" {
				t.Fatalf("refresh: %d %s", a.code, a.raw)
			}
			if p, err := w.s.Verify(a.text("access_token")); err != nil || p.Name != "bob" {
				t.Errorf("Verify = %+v, %v", p, err)
			}
		}
		a := w.form(cf, "grant_type", "refresh_token", "refresh_token", refresh, "scope", "openid")
		if a.text("scope") != "openid" {
			t.Errorf("narrowed: %s", a.raw)
		}
		time.Sleep(refreshValidity/4 + time.Second)
		w.form(cf, "grant_type", "refresh_token", "refresh_token", refresh).want(t, "at the end", 401, "invalid_token")
	})
}

func TestRefreshBelongsToItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.s.Accounts().CreateClient(NewClient{ID: "other", Secret: "s", GrantTypes: []string{GrantPassword, GrantRefresh}, Scopes: []string{"openid"}})
	if err != nil {
		t.Fatal(err)
	}
	_, refresh := w.tokens("admin", adminPassword)
	w.form([]option{basicAuth("other", "s")}, "grant_type", "refresh_token", "refresh_token", refresh).want(t, "foreign", 401, "invalid_token")
	a := w.form([]option{basicAuth("other", "s")}, "grant_type", "password", "username", "admin", "password", adminPassword)
	if a.text("scope") != "openid" {
		t.Errorf("a client gets more than its scopes: %s", a.raw)
	}
}

// Refresh tokens are stored as hashes. Their number per user is limited, and all of
// them expire.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		u := w.user("bob", "secret")
		_, first := w.tokens("bob", "secret")
		for range maxSessions + 5 {
			time.Sleep(time.Second)
			_, _, err := w.s.accounts.startSession(session{User: u.GUID, Client: ClientCF, Expires: now().Add(refreshValidity)})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		_, last := w.tokens("bob", "secret")
		all := must(w.s.accounts.sessions.All())
		if len(all) != maxSessions {
			t.Errorf("%d sessions are kept", len(all))
		}
		if strings.Contains(fmt.Sprint(all), last) {
			t.Error("a refresh token is kept as it is")
		}
		w.form(cf, "grant_type", "refresh_token", "refresh_token", first).want(t, "the oldest", 401, "invalid_token")
		w.form(cf, "grant_type", "refresh_token", "refresh_token", last).want(t, "the newest", 200, "")
		time.Sleep(refreshValidity + time.Hour)
		w.tokens("admin", adminPassword)
		if all := must(w.s.accounts.sessions.All()); len(all) != 1 {
			t.Errorf("%d sessions are kept after their end", len(all))
		}
	})
}

func TestLogout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("bob", "secret")
	access, refresh := w.tokens("bob", "secret")
	second, _ := w.tokens("bob", "secret")
	jti := claimsOf(t, access)["jti"].(string)
	w.do("DELETE", "/uaa/oauth/token/revoke/"+jti, nil, as(second)).want(t, "of another session", 403, "insufficient_scope")
	w.do("DELETE", "/uaa/oauth/token/revoke/"+jti, nil).want(t, "without a token", 401, "unauthorized")
	w.do("DELETE", "/uaa/oauth/token/revoke/"+jti, nil, header("Authorization", "Bearer "+access)).want(t, "own", 200, "")
	if _, err := w.s.Verify(access); !errors.Is(err, ErrRevoked) {
		t.Errorf("Verify: %v", err)
	}
	w.open()
	if _, err := w.s.Verify(access); !errors.Is(err, ErrRevoked) {
		t.Errorf("Verify after a restart: %v", err)
	}
	w.form(cf, "grant_type", "refresh_token", "refresh_token", refresh).want(t, "refresh", 401, "invalid_token")
	if _, err := w.s.Verify(second); err != nil {
		t.Errorf("the other session: %v", err)
	}
	admin := w.admin()
	w.do("DELETE", "/uaa/oauth/token/revoke/"+claimsOf(t, second)["jti"].(string), nil, as(admin)).want(t, "by an administrator", 200, "")
	if _, err := w.s.Verify(second); !errors.Is(err, ErrRevoked) {
		t.Errorf("revoked by an administrator: %v", err)
	}
}

func TestRevokeAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("bob", "secret")
	access, refresh := w.tokens("bob", "secret")
	client := w.client("sender", "s", "emails.write")
	w.do("DELETE", "/uaa/oauth/token/revoke/client/sender", nil, as(access)).want(t, "not allowed", 403, "insufficient_scope")
	admin := w.admin()
	w.do("DELETE", "/uaa/oauth/token/revoke/client/sender", nil, as(admin)).want(t, "client", 200, "")
	w.do("DELETE", "/uaa/oauth/token/revoke/client/none", nil, as(admin)).want(t, "unknown client", 404, "not_found")
	w.do("DELETE", "/uaa/oauth/token/revoke/user/none", nil, as(admin)).want(t, "unknown user", 404, "scim_resource_not_found")
	narrow := w.form(cf, "grant_type", "password", "username", "bob", "password", "secret", "scope", "openid").text("access_token")
	w.do("DELETE", "/uaa/oauth/token/revoke/user/"+u.GUID, nil, as(narrow)).want(t, "own without uaa.user", 403, "insufficient_scope")
	w.do("GET", "/uaa/Users/"+u.GUID, nil, as(narrow)).want(t, "own record without uaa.user", 403, "insufficient_scope")
	w.do("DELETE", "/uaa/oauth/token/revoke/user/"+u.GUID, nil, as(access)).want(t, "own", 200, "")
	for _, token := range []string{access, client} {
		if _, err := w.s.Verify(token); !errors.Is(err, ErrRevoked) {
			t.Errorf("Verify: %v", err)
		}
	}
	w.form(cf, "grant_type", "refresh_token", "refresh_token", refresh).want(t, "refresh", 401, "invalid_token")
	w.tokens("bob", "secret")
	w.clientToken("sender", "s")
}

func TestRevocationsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		access := w.admin()
		w.do("DELETE", "/uaa/oauth/token/revoke/"+claimsOf(t, access)["jti"].(string), nil, as(access)).want(t, "revoke", 200, "")
		w.user("bob", "secret")
		time.Sleep(2 * sweepEvery)
		w.tokens("bob", "secret")
		if left := must(w.s.revoked.All()); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("bob", "secret")
	access, _ := w.tokens("bob", "secret")
	const path = "/uaa/oauth/authorize?client_id=ssh-proxy&response_type=code"
	for name, tc := range map[string]struct {
		path, token string
		code        int
		problem     string
	}{
		"no token":       {path, "", 401, "unauthorized"},
		"bad token":      {path, "x", 401, "invalid_token"},
		"other client":   {"/uaa/oauth/authorize?client_id=cf&response_type=code", access, 401, "invalid_client"},
		"no client":      {"/uaa/oauth/authorize?response_type=code", access, 401, "invalid_client"},
		"other response": {"/uaa/oauth/authorize?client_id=ssh-proxy&response_type=token", access, 400, "unsupported_response_type"},
		"elsewhere":      {path + "&redirect_uri=http://evil.example", access, 400, "invalid_request"},
		"bad query":      {path + "&%zz", access, 400, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []option
			if tc.token != "" {
				opts = append(opts, as(tc.token))
			}
			w.do("GET", tc.path, nil, opts...).want(t, name, tc.code, tc.problem)
		})
	}
	a := w.do("GET", path+"&state=a%26b&redirect_uri="+url.QueryEscape(publicURL+"/uaa/login"), nil, as(access))
	to, err := url.Parse(a.header.Get("Location"))
	if err != nil || a.code != http.StatusFound || to.Query().Get("state") != "a&b" || !strings.HasPrefix(to.String(), publicURL+"/uaa/login?") {
		t.Fatalf("authorize: %d %v %v", a.code, a.header, err)
	}
	p, err := w.s.Redeem(to.Query().Get("code"))
	if err != nil || p.ID != u.GUID || !p.IsUser || !p.Has(ScopeWrite) {
		t.Errorf("Redeem = %+v, %v", p, err)
	}
	if _, err := w.s.Redeem(to.Query().Get("code")); !errors.Is(err, ErrBadCode) {
		t.Errorf("the code can be used twice: %v", err)
	}
}

func TestCheckToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // failures delay the next attempt
		w := newWorld(t)
		admin := w.admin()
		w.client("service", "s", "uaa.resource")
		w.client("sender", "s", "emails.write")
		check := func(form string, opts ...option) answer {
			return w.do("POST", "/uaa/check_token", form, append([]option{isForm}, opts...)...)
		}
		a := check("token="+admin, basicAuth("service", "s"))
		if a.code != 200 || a.text("user_name") != "admin" || a.text("client_id") != "cf" {
			t.Errorf("check_token: %d %s", a.code, a.raw)
		}
		check("token="+admin, as(admin)).want(t, "by an administrator", 200, "")
		check("token="+admin+"&scopes=uaa.admin,openid", as(admin)).want(t, "scopes", 200, "")
		check("token="+admin+"&scopes=x.y", as(admin)).want(t, "missing scope", 400, "invalid_scope")
		check("token=x", as(admin)).want(t, "bad token", 400, "invalid_token")
		check("", as(admin)).want(t, "no token", 400, "invalid_token")
		check("token="+admin).want(t, "nobody", 401, "invalid_client")
		check("token="+admin, basicAuth("service", "x")).want(t, "wrong secret", 401, "invalid_client")
		check("token="+admin, basicAuth("sender", "s")).want(t, "not a service", 403, "insufficient_scope")
		check("token="+admin, basicAuth("cf", "")).want(t, "cf", 403, "insufficient_scope")
	})
}

func TestUserinfo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("bob", "secret")
	access, _ := w.tokens("bob", "secret")
	a := w.do("GET", "/uaa/userinfo", nil, as(access))
	if a.code != 200 || a.text("user_id") != u.GUID || a.text("user_name") != "bob" || a.text("email") != "bob@example.com" {
		t.Errorf("userinfo: %d %s", a.code, a.raw)
	}
	w.do("GET", "/uaa/userinfo", nil).want(t, "nobody", 401, "unauthorized")
	w.do("GET", "/uaa/userinfo", nil, as(w.client("c", "s", "openid"))).want(t, "client", 403, "insufficient_scope")
}

func FuzzClientCredentials(f *testing.F) {
	f.Add("Basic Y2Y6", "grant_type=password&username=a&password=b")
	f.Add("", "client_id=a&client_secret=b&grant_type=client_credentials")
	f.Add("basic  Y2Y6", "client_id=cf")
	f.Add("Bearer x", "a=1&a=2")
	f.Fuzz(func(t *testing.T, head, body string) {
		form, err := parseForm(body)
		if err != nil {
			if form != nil {
				t.Errorf("%q: a form beside the error", body)
			}
			return
		}
		for k, vs := range form {
			if len(vs) != 1 {
				t.Errorf("%q has %d values", k, len(vs))
			}
		}
		id, secret, err := clientCredentials(head, form)
		if err != nil {
			if p := toProblem(err); p.status != 400 && p.status != 401 {
				t.Errorf("%q: %v", head, err)
			}
			return
		}
		if id == "" {
			t.Errorf("%q, %q: a client without a name", head, body)
		}
		if user, password, ok := basic(head); ok && (user != id || password != secret) {
			t.Errorf("%q: %q and %q, want %q and %q", head, id, secret, user, password)
		}
	})
}
