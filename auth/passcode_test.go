package auth

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/auth/throttle"
)

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

func TestCodeStoreIsBounded(t *testing.T) {
	t.Parallel()
	b := newCodeStore()
	for i := range maxAllCodes {
		b.codes[[32]byte{byte(i), byte(i >> 8), 1}] = issuedCode{p: Principal{ID: fmt.Sprint(i)}, expires: time.Now().Add(time.Minute)}
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
			w.s.throttle = throttle.New()
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
			// A passcode is not a code for the ssh proxy.
			if _, err := w.s.Redeem(must(w.s.passcodes.put(must(w.s.Verify(access))))); !errors.Is(err, ErrBadCode) {
				t.Errorf("Redeem of a passcode: %v", err)
			}
		})
	}
}

// A user with a restricted token does not get more scopes through a passcode.
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
