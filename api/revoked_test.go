package api

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/dewrun/dew/auth"
)

// passwordLogin requests a token with a password.
func (w *testServer) passwordLogin(name, secret string) *httptest.ResponseRecorder {
	w.t.Helper()
	form := url.Values{"grant_type": {"password"}, "username": {name}, "password": {secret}}
	r := httptest.NewRequest(http.MethodPost, "/uaa/oauth/token", strings.NewReader(form.Encode()))
	r.Host = "127.0.0.1:8484"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("cf", "")
	got := httptest.NewRecorder()
	w.listener.ServeHTTP(got, r)
	return got
}

// A revocation or a new password also invalidates a token for the API.
func TestRevokedTokens(t *testing.T) {
	t.Parallel()
	w := newTestServer(t)
	u := must(w.c.Auth.Accounts().CreateUser(auth.NewUser{Name: "ann", Password: password}))(t)
	tokens := func() (mine, other string) { return w.login("ann"), w.login("ann") }
	wantBoth := func(what string, mine, other int, a, b string) {
		t.Helper()
		for token, want := range map[string]int{a: mine, b: other} {
			if got := w.as(token, "GET", "/v3/apps", ""); got.Code != want {
				t.Errorf("%s: GET /v3/apps = %d %s, want %d", what, got.Code, got.Body, want)
			}
		}
	}
	a, b := tokens()
	wantBoth("before", 200, 200, a, b)
	jti := must(w.c.Auth.Verify(a))(t).JTI
	if got := w.as(a, "DELETE", "/uaa/oauth/token/revoke/"+jti, ""); got.Code != 200 {
		t.Fatalf("revoke = %d %s", got.Code, got.Body)
	}
	wantBoth("one token revoked", 401, 200, a, b)
	w.want(200, "DELETE", "/uaa/oauth/token/revoke/user/"+u.GUID, "", nil)
	wantBoth("the user's revoked", 401, 401, a, b)

	a, b = tokens()
	change := func(old, fresh string) *httptest.ResponseRecorder {
		return w.as(a, "PUT", "/uaa/Users/"+u.GUID+"/password", `{"oldPassword":"`+old+`","password":"`+fresh+`"}`)
	}
	if got := change(password, "new secret"); got.Code != 200 {
		t.Fatalf("change = %d %s", got.Code, got.Body)
	}
	wantBoth("a new password", 401, 401, a, b)
	if got := w.passwordLogin("ann", "new secret"); got.Code != 200 {
		t.Errorf("login with the new password = %d %s", got.Code, got.Body)
	}
	if got := w.passwordLogin("ann", password); got.Code != 401 {
		t.Errorf("login with the old password = %d %s, want 401", got.Code, got.Body)
	}

	client := w.client("robot", auth.ScopeRead)
	if got := w.as(client, "GET", "/v3/apps", ""); got.Code != 200 {
		t.Fatalf("client = %d %s", got.Code, got.Body)
	}
	w.want(200, "DELETE", "/uaa/oauth/token/revoke/client/robot", "", nil)
	if got := w.as(client, "GET", "/v3/apps", ""); got.Code != 401 {
		t.Errorf("a revoked client = %d %s, want 401", got.Code, got.Body)
	}
}
