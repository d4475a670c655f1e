package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/store"
)

// The first start creates a key, a user and two clients. The second start creates
// nothing.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	w := &world{t: t, dir: t.TempDir()}
	w.open()
	t.Cleanup(func() { w.db.Close() })
	for name, mode := range map[string]os.FileMode{"keys": 0o700, "admin-password": 0o600} {
		if info := must(os.Stat(filepath.Join(w.dir, name))); info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	files := must(keyFiles(filepath.Join(w.dir, "keys")))
	if len(files) != 1 {
		t.Fatalf("keys: %v", files)
	}
	if info := must(os.Stat(filepath.Join(w.dir, "keys", files[0]))); info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v", info.Mode())
	}
	raw := must(os.ReadFile(filepath.Join(w.dir, "admin-password")))
	password := strings.TrimSpace(string(raw))
	if len(password) < 20 {
		t.Errorf("the password of admin has %d characters", len(password))
	}
	admin := must(w.s.Accounts().UserByName("admin", ""))
	if admin.Email != "admin@dew.localhost" {
		t.Errorf("mail of admin: %s", admin.Email)
	}
	token, _ := w.tokens("admin", password)
	w.open()
	if _, err := w.s.Verify(token); err != nil {
		t.Errorf("a token after a restart: %v", err)
	}
	if got := must(w.s.Accounts().UserByName("admin", "")); got.GUID != admin.GUID || got.Version != admin.Version {
		t.Errorf("the second start changed admin: %+v", got)
	}
	cf := must(w.s.Accounts().Client(ClientCF))
	if cf.Hash != nil || strings.Join(cf.GrantTypes, " ") != "password refresh_token" {
		t.Errorf("client cf: %+v", cf)
	}
	must(w.s.Accounts().Client(ClientSSH))
}

func TestAdminPasswordFile(t *testing.T) {
	t.Parallel()
	w := &world{t: t, dir: t.TempDir()}
	w.file("keys/token-0.pem", keyPEM(testKeys()[0]))
	w.file("admin-password", []byte(adminPassword+"\r\n"))
	w.open()
	t.Cleanup(func() { w.db.Close() })
	w.tokens("admin", adminPassword)
	admin := must(w.s.Accounts().UserByName("admin", ""))
	if err := w.s.Accounts().SetPassword(admin.GUID, "my own"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(w.dir, "admin-password")); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.tokens("admin", "my own")
	if _, err := os.Stat(filepath.Join(w.dir, "admin-password")); !os.IsNotExist(err) {
		t.Errorf("a password file was made for a user that is there: %v", err)
	}
}

// If admin was renamed or deleted and another administrator exists, the next start does
// not create admin again. Others could know its password.
func TestAdminIsNotCreatedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := must(w.s.Accounts().UserByName(AdminName, ""))
	must(w.s.Accounts().UpdateUser(admin.GUID, func(u *User) error { u.Name = "boss"; return nil }))
	w.open()
	if _, err := w.s.Accounts().UserByName(AdminName, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("admin after it was renamed: %v", err)
	}
	if _, err := w.s.UserToken(AdminName); !errors.Is(err, ErrNotFound) {
		t.Errorf("a token of admin who is gone: %v", err)
	}
	if err := w.s.Accounts().DeleteUser(admin.GUID); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.tokens(AdminName, adminPassword) // no administrator was left, so it was created again
}

// FirstPassword returns the password in the file only as long as it is right.
func TestFirstPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := must(w.s.FirstPassword()); got != adminPassword {
		t.Errorf("first password = %q", got)
	}
	if err := w.s.Accounts().SetPassword("admin-guid", "another"); err != nil {
		t.Fatal(err)
	}
	if got, err := w.s.FirstPassword(); !errors.Is(err, ErrNotFound) || got != "" {
		t.Errorf("first password after a change = %q, %v", got, err)
	}
	p := must(w.s.Verify(must(w.s.UserToken(AdminName))))
	if p.Name != AdminName || !p.Admin() || !p.Has("uaa.admin") {
		t.Errorf("who the token is of: %+v", p)
	}
	must(w.s.Accounts().UpdateUser("admin-guid", func(u *User) error { u.Active = false; return nil }))
	if _, err := w.s.UserToken(AdminName); !errors.Is(err, ErrNotFound) {
		t.Errorf("a token of admin who is shut out: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	ec := must(x509.MarshalPKCS8PrivateKey(must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))))
	for name, tc := range map[string]struct {
		file string
		data []byte
		mode os.FileMode
		want string
	}{
		"empty password": {"admin-password", []byte("\n"), 0o600, "the file is empty"},
		"long password":  {"admin-password", []byte(strings.Repeat("x", 73)), 0o600, "the limit is 72 bytes"},
		"no key":         {"keys/token-1.pem", []byte("hello"), 0o600, "not in PEM format"},
		"no RSA key":     {"keys/token-1.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: ec}), 0o600, "not an RSA key"},
		"broken key":     {"keys/token-1.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), 0o600, "cannot use token key"},
		"open key":       {"keys/token-1.pem", keyPEM(testKeys()[0]), 0o644, "other users can read the file"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, dir: t.TempDir()}
			w.file("keys/token-0.pem", keyPEM(testKeys()[1]))
			w.file(tc.file, tc.data)
			if err := os.Chmod(filepath.Join(w.dir, tc.file), tc.mode); err != nil {
				t.Fatal(err)
			}
			w.db = must(store.Open(filepath.Join(w.dir, "dew.db"), store.Options{NoSync: true}))
			defer w.db.Close()
			if _, err := Open(w.config()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Open: %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := parseKey(keyPEM(must(rsa.GenerateKey(rand.Reader, 1024)))); err == nil {
		t.Error("a key of 1024 bits is used")
	}
}

// The newest key signs and all keys verify. Tokens of a removed key are refused.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.admin()
	w.file("keys/token-20210101T000000Z.pem", keyPEM(testKeys()[1]))
	w.file("keys/host.pem", []byte("somebody else's"))
	w.open()
	fresh := w.admin()
	for _, token := range []string{old, fresh} {
		if _, err := w.s.Verify(token); err != nil {
			t.Errorf("Verify: %v", err)
		}
	}
	keys := w.do("GET", "/uaa/token_keys", nil).body["keys"].([]any)
	newest := w.do("GET", "/uaa/token_key", nil)
	if len(keys) != 2 || keys[1].(map[string]any)["kid"] != newest.text("kid") {
		t.Errorf("keys = %v", keys)
	}
	if err := os.Remove(filepath.Join(w.dir, "keys/token-20200101T000000Z.pem")); err != nil {
		t.Fatal(err)
	}
	w.open()
	if _, err := w.s.Verify(old); err == nil {
		t.Error("a token of a removed key is believed")
	}
	if _, err := w.s.Verify(fresh); err != nil {
		t.Errorf("a token of the other key: %v", err)
	}
}

// The published key is the one that signs.
func TestPublishedKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.do("GET", "/uaa/token_key", nil)
	if a.text("alg") != "RS256" || a.text("kty") != "RSA" || a.text("use") != "sig" {
		t.Errorf("token_key = %s", a.raw)
	}
	block, _ := pem.Decode([]byte(a.text("value")))
	if block == nil {
		t.Fatalf("no PEM: %s", a.raw)
	}
	if key := must(x509.ParsePKIXPublicKey(block.Bytes)); !testKeys()[0].PublicKey.Equal(key) {
		t.Error("another key")
	}
	n := new(big.Int).SetBytes(must(base64.RawURLEncoding.DecodeString(a.text("n"))))
	e := new(big.Int).SetBytes(must(base64.RawURLEncoding.DecodeString(a.text("e"))))
	if key := (&rsa.PublicKey{N: n, E: int(e.Int64())}); !testKeys()[0].PublicKey.Equal(key) {
		t.Error("n and e are of another key")
	}
	if strings.Contains(a.raw, "PRIVATE") {
		t.Error("the private key is published")
	}
}

func TestLoginPrompts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/uaa/login", "/uaa/info"} {
		a := w.do("GET", path, nil, header("Authorization", ""))
		prompts, _ := a.body["prompts"].(map[string]any)
		if a.code != 200 || len(prompts) != 3 {
			t.Errorf("%s: %d %s", path, a.code, a.raw)
		}
		for name, kind := range map[string]string{"username": "text", "password": "password", "passcode": "password"} {
			if p, ok := prompts[name].([]any); !ok || len(p) != 2 || p[0] != kind {
				t.Errorf("prompt %s = %v", name, prompts[name])
			}
		}
		if v := a.body["app"].(map[string]any)["version"]; v != uaaVersion {
			t.Errorf("version = %v", v)
		}
	}
}

func TestDiscoveryAndHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.do("GET", "/uaa/.well-known/openid-configuration", nil)
	if a.text("issuer") != publicURL+"/uaa/oauth/token" || a.text("jwks_uri") != publicURL+"/uaa/token_keys" {
		t.Errorf("discovery: %s", a.raw)
	}
	if a := w.do("GET", "/uaa/healthz", nil); a.code != 200 {
		t.Errorf("healthz: %d", a.code)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tc := range []struct {
		method, path string
		code         int
		problem      string
	}{
		{"GET", "/uaa/nothing", 404, "not_found"},
		{"GET", "/uaa/", 404, "not_found"},
		{"GET", "/uaa/Users/", 404, "not_found"},
		{"GET", "/uaa/Users/a/b/c", 404, "not_found"},
		{"POST", "/elsewhere", 404, "not_found"},
		{"GET", "/uaa/oauth/token", 405, "method_not_allowed"},
		{"POST", "/uaa/login", 405, "method_not_allowed"},
		{"PATCH", "/uaa/Users", 405, "method_not_allowed"},
		{"BREW", "/uaa/Users", 405, "method_not_allowed"},
	} {
		w.do(tc.method, tc.path, nil).want(t, tc.method+" "+tc.path, tc.code, tc.problem)
	}
	if a := w.do("GET", "/uaa/oauth/token", nil); a.header.Get("Allow") != "POST" {
		t.Errorf("Allow = %q", a.header.Get("Allow"))
	}
}

// Bad input never causes a server error.
func TestBadInputIsNeverAServerError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.client("sender", "s", "emails.write")
	u := w.user("bob", "secret")
	for _, target := range []string{
		"POST /uaa/Users", "PUT /uaa/Users/" + u.GUID, "PATCH /uaa/Users/" + u.GUID, "PUT /uaa/Users/" + u.GUID + "/password",
		"POST /uaa/Groups/x.y/members", "POST /uaa/Groups/x%20y/members", "POST /uaa/oauth/clients", "PUT /uaa/oauth/clients/sender",
		"PUT /uaa/oauth/clients/sender/secret", "PUT /uaa/Users/%00", "PUT /uaa/Users/" + strings.Repeat("x", 5000), "DELETE /uaa/Users/%FF",
		"DELETE /uaa/oauth/token/revoke/%00", "DELETE /uaa/oauth/token/revoke/" + strings.Repeat("x", 70000),
		"GET /uaa/Users?filter=%22", "GET /uaa/Users?count=x", "GET /uaa/Users?startIndex=-1", "GET /uaa/Users?sortBy=x", "GET /uaa/Users?sortOrder=x",
		"GET /uaa/Users?%zz", "GET /uaa/Groups?filter=x", "GET /uaa/oauth/clients?filter=x", "GET /uaa/oauth/authorize?%zz",
	} {
		method, path, _ := strings.Cut(target, " ")
		for _, body := range []string{
			"", "null", "[]", "7", `"x"`, "{", "{}x", `{"userName":7}`, `{"userName":""}`, `{"userName":"a b"}`, `{"userName":"a\u0000b"}`,
			`{"userName":"` + strings.Repeat("x", 300) + `"}`, `{"userName":"x","password":"` + strings.Repeat("p", 73) + `"}`,
			`{"userName":"x","emails":7}`, `{"userName":"x","emails":[{"value":"a b"}]}`, `{"value":7}`, `{"value":"none"}`,
			`{"password":""}`, `{"secret":""}`, `{"secret":"` + strings.Repeat("p", 73) + `"}`, `{"client_id":"a b","authorized_grant_types":["password"]}`,
			`{"client_id":"c","authorized_grant_types":7}`, `{"client_id":"c","authorized_grant_types":["x"]}`, `{"client_id":"c"}`,
			`{"authorized_grant_types":["password"],"scope":["a b"]}`, `{"authorized_grant_types":["password"],"access_token_validity":-1}`,
			`{"authorized_grant_types":["password"],"access_token_validity":9223372036854775807}`, `{"authorized_grant_types":["password"],"access_token_validity":60}`,
			`{"authorized_grant_types":["password"],"access_token_validity":1.5}`, `{"authorized_grant_types":["password"],"redirect_uri":["\n"]}`,
			strings.Repeat("{", maxBody+1),
		} {
			a := w.do(method, path, body, local)
			told := a.text("error") != "" && a.text("error_description") != ""
			if a.code >= 500 || (a.code >= 400) != told || (method != "PATCH" && method != "GET" && method != "DELETE" && a.code < 300) {
				t.Errorf("%s %.60s with %.60s: %d %.200s", method, path, body, a.code, a.raw)
			}
		}
	}
}

// local sends a request through a listener that identifies its peer.
func local(r *http.Request) {
	*r = *r.WithContext(NewContext(r.Context(), Principal{ID: "uid-0", Name: "root", IsUser: true, Scopes: []string{"uaa.admin"}}))
}

// A listener that identifies its peer needs no token.
func TestPrincipalOfAListener(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("POST", "/uaa/Users", map[string]string{"userName": "bob", "password": "secret"}, local).want(t, "create", 201, "")
	if w.events[0] != "audit.user.create root bob" {
		t.Errorf("events = %v", w.events)
	}
	w.do("GET", "/uaa/passcode", nil, local).want(t, "passcode without an account", 403, "insufficient_scope")
	if _, ok := FromContext(context.Background()); ok {
		t.Error("a principal out of nothing")
	}
}
