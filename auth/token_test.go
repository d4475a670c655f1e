package auth

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
)

// claimsOf reads a token as the command line does, without verifying the signature.
func claimsOf(t testing.TB, token string) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("token has %d parts", len(parts))
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUserTokenClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("Bob", "secret")
	a := w.form(cf, "grant_type", "password", "username", "bob", "password", "secret")
	c := claimsOf(t, a.text("access_token"))
	for key, want := range map[string]any{
		"user_name": "Bob", "user_id": u.GUID, "sub": u.GUID, "origin": "uaa", "email": "Bob@example.com",
		"client_id": "cf", "cid": "cf", "azp": "cf", "grant_type": "password", "zid": "uaa", "revocable": true,
		"iss": publicURL + "/uaa/oauth/token", "jti": a.text("jti"),
	} {
		if c[key] != want {
			t.Errorf("claim %s = %v, want %v", key, c[key], want)
		}
	}
	exp, _ := c["exp"].(float64)
	iat, _ := c["iat"].(float64)
	if exp-iat != userAccessValidity.Seconds() || a.body["expires_in"] != userAccessValidity.Seconds() {
		t.Errorf("the token lives for %v s, expires_in %v", exp-iat, a.body["expires_in"])
	}
	for _, key := range []string{"rev_sig", "auth_time", "aud", "scope"} {
		if c[key] == nil {
			t.Errorf("claim %s is missing", key)
		}
	}
	if got := c["aud"]; !slices.Contains(got.([]any), any("cloud_controller")) || !slices.Contains(got.([]any), any("cf")) {
		t.Errorf("aud = %v", got)
	}
	if a.text("token_type") != "bearer" || a.text("refresh_token") == "" {
		t.Errorf("answer = %s", a.raw)
	}
	p, err := w.s.Verify(a.text("access_token"))
	if err != nil || p.ID != u.GUID || p.Name != "Bob" || !p.IsUser || p.Client != "cf" || p.Admin() || p.GlobalReader() || !p.Has(ScopeRead) {
		t.Errorf("Verify = %+v, %v", p, err)
	}
}

func TestClientTokenClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.client("sender", "s3cret", "notifications.write", "emails.write")
	c := claimsOf(t, token)
	if _, ok := c["user_name"]; ok || c["client_id"] != "sender" || c["sub"] != "sender" || c["grant_type"] != "client_credentials" {
		t.Errorf("claims = %v", c)
	}
	if life := c["exp"].(float64) - c["iat"].(float64); life != clientAccessValidity.Seconds() {
		t.Errorf("the token lives for %v s", life)
	}
	p, err := w.s.Verify(token)
	want := Principal{ID: "sender", Name: "sender", Client: "sender", Scopes: []string{"notifications.write", "emails.write"}}
	p.JTI, p.Expires, p.sig = "", time.Time{}, ""
	if diff := cmp.Diff(want, p, cmp.AllowUnexported(Principal{})); err != nil || diff != "" {
		t.Errorf("Verify: %v\n%s", err, diff)
	}
}

func TestAdminToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.s.Verify(w.admin())
	if err != nil || !p.Admin() || !p.GlobalReader() || !p.Has("uaa.admin") || !p.Has("clients.admin") {
		t.Errorf("Verify = %+v, %v", p, err)
	}
}

// sign creates a token as another issuer would.
func sign(t testing.TB, method jwt.SigningMethod, key any, kid any, c jwt.MapClaims) string {
	t.Helper()
	tok := jwt.NewWithClaims(method, c)
	if kid != nil {
		tok.Header["kid"] = kid
	}
	signed, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// Verify accepts only tokens that this server signed for itself with its one algorithm.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := w.admin()
	base := jwt.MapClaims(claimsOf(t, good))
	own, foreign := testKeys()[0], testKeys()[1]
	kid := w.s.keys.signer().id
	der, err := x509.MarshalPKIXPublicKey(&own.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	with := func(change map[string]any) jwt.MapClaims {
		c := maps.Clone(base)
		for k, v := range change {
			if v == nil {
				delete(c, k)
			} else {
				c[k] = v
			}
		}
		return c
	}
	rs := func(key *rsa.PrivateKey, kid any, c jwt.MapClaims) string {
		return sign(t, jwt.SigningMethodRS256, key, kid, c)
	}
	parts := strings.Split(good, ".")
	for name, tc := range map[string]struct {
		token string
		want  error
	}{
		"empty":             {"", ErrInvalidToken},
		"words":             {"not a token", ErrInvalidToken},
		"two parts":         {parts[0] + "." + parts[1], ErrInvalidToken},
		"no signature":      {parts[0] + "." + parts[1] + ".", ErrInvalidToken},
		"other payload":     {parts[0] + "." + strings.Split(w.client("c1", "s", "uaa.none"), ".")[1] + "." + parts[2], ErrInvalidToken},
		"huge":              {good + strings.Repeat("A", maxToken), ErrInvalidToken},
		"none":              {sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, kid, base), ErrInvalidToken},
		"HS256, public key": {sign(t, jwt.SigningMethodHS256, public, kid, base), ErrInvalidToken},
		"RS384":             {sign(t, jwt.SigningMethodRS384, own, kid, base), ErrInvalidToken},
		"foreign key":       {rs(foreign, kid, base), ErrInvalidToken},
		"unknown kid":       {rs(own, "key-2", base), ErrInvalidToken},
		"no kid":            {rs(own, nil, base), ErrInvalidToken},
		"kid a number":      {rs(own, 7, base), ErrInvalidToken},
		"expired":           {rs(own, kid, with(map[string]any{"exp": time.Now().Unix() - 1})), ErrExpired},
		"forged, expired":   {rs(foreign, kid, with(map[string]any{"exp": time.Now().Unix() - 1})), ErrInvalidToken},
		"no exp":            {rs(own, kid, with(map[string]any{"exp": nil})), ErrInvalidToken},
		"other issuer":      {rs(own, kid, with(map[string]any{"iss": "http://elsewhere/oauth/token"})), ErrInvalidToken},
		"no issuer":         {rs(own, kid, with(map[string]any{"iss": nil})), ErrInvalidToken},
		"other zone":        {rs(own, kid, with(map[string]any{"zid": "x"})), ErrInvalidToken},
		"other audience":    {rs(own, kid, with(map[string]any{"aud": []string{"x"}})), ErrInvalidToken},
		"no jti":            {rs(own, kid, with(map[string]any{"jti": nil})), ErrInvalidToken},
		"no client":         {rs(own, kid, with(map[string]any{"client_id": nil})), ErrInvalidToken},
		"unknown client":    {rs(own, kid, with(map[string]any{"client_id": "x", "aud": []string{"x"}})), ErrRevoked},
		"unknown user":      {rs(own, kid, with(map[string]any{"user_id": "x"})), ErrRevoked},
		"old signature":     {rs(own, kid, with(map[string]any{"rev_sig": "x"})), ErrRevoked},
		"scope a string":    {rs(own, kid, with(map[string]any{"scope": "cloud_controller.admin"})), ErrInvalidToken},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := w.s.Verify(tc.token)
			if !errors.Is(err, tc.want) {
				t.Errorf("Verify = %+v, %v, want %v", p, err, tc.want)
			}
			w.do("GET", "/uaa/Users", nil, as(tc.token)).want(t, "list with it", 401, map[bool]string{true: "unauthorized", false: "invalid_token"}[tc.token == ""])
		})
	}
	if _, err := w.s.Verify(rs(own, kid, base)); err != nil {
		t.Errorf("the claims that the cases are made of: %v", err)
	}
	extra := rs(own, kid, with(map[string]any{"scope": []string{ScopeRead, "made.up"}}))
	if p, err := w.s.Verify(extra); err != nil || p.Has("made.up") || !p.Has(ScopeRead) {
		t.Errorf("scopes that the user does not have: %+v, %v", p, err)
	}
}

func TestTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		token := w.admin()
		time.Sleep(userAccessValidity - time.Second)
		if _, err := w.s.Verify(token); err != nil {
			t.Errorf("before the end: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := w.s.Verify(token); !errors.Is(err, ErrExpired) {
			t.Errorf("after the end: %v", err)
		}
		w.do("GET", "/uaa/oauth/clients/cf", nil, as(token)).want(t, "expired", 401, "invalid_token")
	})
}

// Changes of an account affect its tokens at once.
func TestTokenEndsWithItsAccount(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(w *world, u User) error
		refresh int // status of a refresh afterwards
	}{
		"password":   {func(w *world, u User) error { return w.s.Accounts().SetPassword(u.GUID, "other") }, 401},
		"same again": {func(w *world, u User) error { return w.s.Accounts().SetPassword(u.GUID, "secret") }, 401},
		"deleted":    {func(w *world, u User) error { return w.s.Accounts().DeleteUser(u.GUID) }, 401},
		"inactive": {func(w *world, u User) error {
			_, err := w.s.Accounts().UpdateUser(u.GUID, func(u *User) error { u.Active = false; return nil })
			return err
		}, 401},
		"client deleted": {func(w *world, _ User) error { return w.s.Accounts().DeleteClient(ClientCF) }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			u := w.user("bob", "secret")
			access, refresh := w.tokens("bob", "secret")
			if err := tc.change(w, u); err != nil {
				t.Fatal(err)
			}
			if _, err := w.s.Verify(access); !errors.Is(err, ErrRevoked) {
				t.Errorf("access token: %v", err)
			}
			if a := w.form(cf, "grant_type", "refresh_token", "refresh_token", refresh); a.code != tc.refresh {
				t.Errorf("refresh: %d %s", a.code, a.raw)
			}
		})
	}
}

func TestClientTokenEndsWithItsAccount(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(a *Accounts) error{
		"secret":  func(a *Accounts) error { return a.SetSecret("sender", "other") },
		"deleted": func(a *Accounts) error { return a.DeleteClient("sender") },
		"made anew": func(a *Accounts) error {
			if err := a.DeleteClient("sender"); err != nil {
				return err
			}
			_, err := a.CreateClient(NewClient{ID: "sender", Secret: "s", GrantTypes: []string{GrantClient}, Authorities: []string{"emails.write"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			token := w.client("sender", "s", "emails.write")
			if err := change(w.s.Accounts()); err != nil {
				t.Fatal(err)
			}
			if _, err := w.s.Verify(token); !errors.Is(err, ErrRevoked) {
				t.Errorf("Verify: %v", err)
			}
		})
	}
}

// A revoked scope is removed at once from tokens that were issued earlier.
func TestScopesShrinkAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("bob", "secret", ScopeAdmin)
	access, refresh := w.tokens("bob", "secret")
	client := w.client("sender", "s", "emails.write", "uaa.resource")
	if _, err := w.s.Accounts().UpdateUser(u.GUID, func(u *User) error { u.Groups = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := w.s.Accounts().UpdateClient("sender", func(c *Client) error { c.Authorities = []string{"emails.write"}; return nil }); err != nil {
		t.Fatal(err)
	}
	if p, err := w.s.Verify(access); err != nil || p.Admin() {
		t.Errorf("user: %+v, %v", p, err)
	}
	if p, err := w.s.Verify(client); err != nil || !cmp.Equal(p.Scopes, []string{"emails.write"}) {
		t.Errorf("client: %+v, %v", p, err)
	}
	a := w.form(cf, "grant_type", "refresh_token", "refresh_token", refresh)
	if a.code != 200 || strings.Contains(a.text("scope"), ScopeAdmin) {
		t.Errorf("refresh: %s", a.raw)
	}
}

func FuzzVerify(f *testing.F) {
	w := newWorld(f)
	good := w.admin()
	f.Add(good)
	f.Add("")
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := w.s.Verify(token)
		if err == nil && claimsOf(t, token)["jti"] != p.JTI {
			t.Errorf("%q is believed to be %+v", token, p)
		}
		if err == nil && token != good && strings.Split(token, ".")[1] != strings.Split(good, ".")[1] {
			t.Errorf("a token that was not given is believed: %q", token)
		}
		if err != nil && !errors.Is(err, ErrInvalidToken) && !errors.Is(err, ErrExpired) {
			t.Errorf("%q: %v", token, err)
		}
	})
}
