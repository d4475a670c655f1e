package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
			w.s.throttle = newThrottle() // the cases are not about waiting
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
	// Credentials in the address would stand in logs: they do not count.
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

// A refresh token comes back with every answer, lives on after a restart, and ends
// after its time.
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

// Refresh tokens are kept as hashes, not too many of a user, and none for ever.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		u := w.user("bob", "secret")
		_, first := w.tokens("bob", "secret")
		for range maxSessions + 5 {
			time.Sleep(time.Second)
			_, _, err := w.s.accounts.begin(session{User: u.GUID, Client: ClientCF, Expires: now().Add(refreshValidity)})
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

// Five failures lock a name for a while, also one that nobody has; not the ones who
// could unlock it.
func TestLockout(t *testing.T) {
	for name, tc := range map[string]struct {
		password string
		locks    bool
	}{
		"bob": {"secret", true}, "nobody": {"", true}, "admin": {adminPassword, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.user("bob", "secret")
				try := func(password string) answer {
					return w.form(cf, "grant_type", "password", "username", name, "password", password)
				}
				for range lockAfter {
					if a := try("wrong"); a.text("error_description") != "Bad credentials" {
						t.Errorf("failure: %s", a.raw)
					}
				}
				a := try(tc.password)
				if locked := a.text("error_description") == lockedText; locked != tc.locks {
					t.Errorf("locked = %t: %s", locked, a.raw)
				}
				if tc.locks {
					a.want(t, "locked", 401, "unauthorized")
				}
				time.Sleep(lockWindow)
				if a := try(tc.password); (a.code == 200) != (tc.password != "") {
					t.Errorf("afterwards: %d %s", a.code, a.raw)
				}
			})
		})
	}
}

// Failures make the next attempt wait, each longer, and success ends that; another
// peer or name does not wait.
func TestThrottleDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle()
		took := func(a attempt, result error) time.Duration {
			start := time.Now()
			if err := th.try(t.Context(), a, func() error { return result }); !errors.Is(err, result) {
				t.Errorf("try = %v, want %v", err, result)
			}
			return time.Since(start)
		}
		bob := attempt{name: "bob", peer: "p1"}
		for i, want := range []time.Duration{0, firstDelay, 2 * firstDelay, 4 * firstDelay, 8 * firstDelay, 16 * firstDelay, 16 * firstDelay} {
			if got := took(bob, ErrBadPassword); got != want {
				t.Errorf("attempt %d waited for %v, want %v", i, got, want)
			}
		}
		if got := took(attempt{name: "bob", peer: "p2"}, nil); got != 0 {
			t.Errorf("another peer waited for %v", got)
		}
		took(bob, nil)
		if got := took(bob, ErrBadPassword); got != 0 {
			t.Errorf("after a success: %v", got)
		}
	})
}

// A crowd of guesses is not quicker than a queue of them, and the queue is short.
func TestThrottleCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle()
		var mu sync.Mutex
		results := map[string]int{}
		start := time.Now()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				err := th.try(t.Context(), attempt{name: "admin", peer: "p"}, func() error {
					time.Sleep(50 * time.Millisecond) // what a hash takes
					return ErrBadPassword
				})
				mu.Lock()
				defer mu.Unlock()
				results[map[bool]string{true: "checked", false: "refused"}[errors.Is(err, ErrBadPassword)]]++
			})
		}
		wg.Wait()
		if took := time.Since(start); results["checked"] > maxChecking+int(took/firstDelay) || results["refused"] == 0 {
			t.Errorf("%v in %v", results, took)
		}
	})
}

func TestThrottleIsBounded(t *testing.T) {
	t.Parallel()
	th := newThrottle()
	for i := range maxWatched + 10 {
		th.note(attempt{name: fmt.Sprint(i)}, ErrBadPassword)
	}
	if n := len(th.watched); n > maxWatched {
		t.Errorf("%d names are watched", n)
	}
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

func TestCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		u := w.user("bob", "secret")
		access, _ := w.tokens("bob", "secret")
		p := must(w.s.Verify(access))
		fresh := func() string { return must(w.s.Code(p)) }
		old := fresh()
		time.Sleep(codeValidity - time.Second)
		if _, err := w.s.Redeem(old); err != nil {
			t.Errorf("just in time: %v", err)
		}
		old = fresh()
		time.Sleep(codeValidity)
		for name, code := range map[string]string{"too old": old, "empty": "", "made up": "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
			if _, err := w.s.Redeem(code); !errors.Is(err, ErrBadCode) {
				t.Errorf("%s: %v", name, err)
			}
		}
		first := fresh()
		for range maxCodes {
			time.Sleep(time.Millisecond)
			fresh()
		}
		if _, err := w.s.Redeem(first); !errors.Is(err, ErrBadCode) {
			t.Errorf("the oldest of too many: %v", err)
		}
		code := fresh()
		if err := w.s.Accounts().SetPassword(u.GUID, "other"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.s.Redeem(code); !errors.Is(err, ErrBadCode) {
			t.Errorf("after a change of the password: %v", err)
		}
		local := Principal{ID: "uid-0", Name: "root", IsUser: true, Scopes: []string{ScopeAdmin}}
		if got, err := w.s.Redeem(must(w.s.Code(local))); err != nil || got.Name != "root" || !got.Admin() {
			t.Errorf("a principal of a local door: %+v, %v", got, err)
		}
	})
}

func TestCodeEndsWithLogout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	access := w.admin()
	code := must(w.s.Code(must(w.s.Verify(access))))
	w.do("DELETE", "/uaa/oauth/token/revoke/"+claimsOf(t, access)["jti"].(string), nil, as(access)).want(t, "logout", 200, "")
	if _, err := w.s.Redeem(code); !errors.Is(err, ErrBadCode) {
		t.Errorf("Redeem: %v", err)
	}
}

func TestCodeBoxIsBounded(t *testing.T) {
	t.Parallel()
	b := newCodeBox()
	for i := range maxAllCodes {
		b.codes[[32]byte{byte(i), byte(i >> 8), 1}] = issued{p: Principal{ID: fmt.Sprint(i)}, expires: time.Now().Add(time.Minute)}
	}
	if _, err := b.put(Principal{ID: "bob"}); err == nil {
		t.Error("a full box takes one more")
	}
}

func TestPasscode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("bob", "secret")
	access, _ := w.tokens("bob", "secret")
	client := w.client("sender", "s", "uaa.user")
	for name, tc := range map[string]struct {
		opts []option
		code int
	}{
		"token": {[]option{as(access)}, 200}, "browser": {[]option{basicAuth("bob", "secret")}, 200},
		"nobody": {nil, 401}, "wrong password": {[]option{basicAuth("bob", "x")}, 401}, "client": {[]option{as(client)}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			w.s.throttle = newThrottle()
			a := w.do("GET", "/uaa/passcode", nil, tc.opts...)
			if a.code != tc.code {
				t.Fatalf("passcode: %d %s", a.code, a.raw)
			}
			if a.code == 401 && !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Basic") {
				t.Errorf("a browser does not ask: %v", a.header)
			}
			if a.code != 200 {
				return
			}
			grant := func() answer { return w.form(cf, "grant_type", "password", "passcode", a.text("passcode")) }
			if b := grant(); b.code != 200 || claimsOf(t, b.text("access_token"))["user_name"] != "bob" {
				t.Errorf("login with it: %s", b.raw)
			}
			grant().want(t, "again", 401, "unauthorized")
			// A passcode is none of the ssh door's codes.
			if _, err := w.s.Redeem(must(w.s.passcodes.put(must(w.s.Verify(access))))); !errors.Is(err, ErrBadCode) {
				t.Errorf("Redeem of a passcode: %v", err)
			}
		})
	}
}

// Who has a token with few scopes does not get more with a passcode.
func TestPasscodeKeepsScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("bob", "secret", "cloud_controller.admin")
	few := w.form(cf, "grant_type", "password", "username", "bob", "password", "secret", "scope", "uaa.user openid")
	a := w.do("GET", "/uaa/passcode", nil, as(few.text("access_token")))
	if b := w.form(cf, "grant_type", "password", "passcode", a.text("passcode")); b.text("scope") != "openid uaa.user" {
		t.Errorf("scopes of the login: %s", b.raw)
	}
	a = w.do("GET", "/uaa/passcode", nil, basicAuth("bob", "secret"))
	if b := w.form(cf, "grant_type", "password", "passcode", a.text("passcode")); !strings.Contains(b.text("scope"), "cloud_controller.admin") {
		t.Errorf("scopes of a login from a browser: %s", b.raw)
	}
}

func TestCheckToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // failures make the next attempt wait
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
