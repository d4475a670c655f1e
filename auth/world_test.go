package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/store"
)

const (
	publicURL     = "http://127.0.0.1:8484"
	adminPassword = "first-password"
)

// testKeys are created once, because creating one takes longer than most tests.
var testKeys = sync.OnceValue(func() (keys [2]*rsa.PrivateKey) {
	for i := range keys {
		k, err := rsa.GenerateKey(rand.Reader, keyBits)
		if err != nil {
			panic(err)
		}
		keys[i] = k
	}
	return keys
})

func keyPEM(k *rsa.PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)})
}

// world is a server with its files and the events it recorded.
type world struct {
	t      testing.TB
	dir    string
	db     *store.DB
	s      *Server
	events []string
}

// hashed hashes each password once, because a hash is slow with the race detector.
var hashed = func() func(password string) []byte {
	var known sync.Map
	return func(password string) []byte {
		if hash, ok := known.Load(password); ok {
			return hash.([]byte)
		}
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			panic(err)
		}
		known.Store(password, hash)
		return hash
	}
}()

// newWorld returns a server that was started before, so that admin exists.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.file("keys/token-20200101T000000Z.pem", keyPEM(testKeys()[0]))
	w.file("admin-password", []byte(adminPassword+"\n"))
	db, err := store.Open(filepath.Join(w.dir, "dew.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	w.db = db
	admin := User{
		GUID: "admin-guid", Name: "admin", Origin: OriginUAA, Email: "admin@dew.localhost", Hash: hashed(adminPassword),
		Groups: adminGroups, Active: true, Verified: true, CreatedAt: now(), UpdatedAt: now(), PasswordAt: now(),
	}
	if err := NewAccounts(db, bcrypt.MinCost).storeUser(admin); err != nil {
		t.Fatal(err)
	}
	w.open()
	t.Cleanup(func() { w.db.Close() })
	return w
}

func (w *world) file(name string, data []byte) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) config() Config {
	return Config{
		DB: w.db, Keys: filepath.Join(w.dir, "keys"), AdminPassword: filepath.Join(w.dir, "admin-password"),
		Domain: "dew.localhost", PublicURL: publicURL, Cost: bcrypt.MinCost,
		Record: func(kind string, who Principal, _, name string) {
			w.events = append(w.events, strings.Join([]string{kind, who.Name, name}, " "))
		},
	}
}

// open starts or restarts the server.
func (w *world) open() {
	w.t.Helper()
	if w.db != nil {
		w.db.Close()
	}
	db, err := store.Open(filepath.Join(w.dir, "dew.db"), store.Options{NoSync: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.db = db
	if w.s, err = Open(w.config()); err != nil {
		w.t.Fatal(err)
	}
}

// answer is a response.
type answer struct {
	code   int
	header http.Header
	raw    string
	body   map[string]any
}

func (a answer) text(key string) string {
	s, _ := a.body[key].(string)
	return s
}

type option func(r *http.Request)

func as(token string) option {
	return func(r *http.Request) { r.Header.Set("Authorization", "bearer "+token) }
}

func header(key, value string) option {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

func basicAuth(user, password string) option {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

// do sends a request. It sends a string body unchanged, and any other body as JSON.
func (w *world) do(method, path string, body any, opts ...option) answer {
	w.t.Helper()
	var raw []byte
	switch b := body.(type) {
	case nil:
	case string:
		raw = []byte(b)
	default:
		var err error
		if raw, err = json.Marshal(b); err != nil {
			w.t.Fatal(err)
		}
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(raw)).WithContext(w.t.Context())
	r.Header.Set("Content-Type", "application/json")
	for _, o := range opts {
		o(r)
	}
	rec := httptest.NewRecorder()
	w.s.Handler().ServeHTTP(rec, r)
	if err := checkExchange(r, raw, rec); err != nil {
		w.t.Errorf("%s %s is not as described: %v\n%.2000s", method, path, err, rec.Body)
	}
	a := answer{code: rec.Code, header: rec.Header(), raw: rec.Body.String()}
	list := strings.HasPrefix(a.raw, "[") && json.Valid(rec.Body.Bytes())
	if strings.HasPrefix(rec.Header().Get("Content-Type"), "application/json") && !list {
		if err := json.Unmarshal(rec.Body.Bytes(), &a.body); err != nil {
			w.t.Errorf("%s %s: the body is no JSON object: %s", method, path, a.raw)
		}
	}
	return a
}

var isForm = header("Content-Type", "application/x-www-form-urlencoded")

// form sends a request to the token endpoint. pairs are keys and values.
func (w *world) form(opts []option, pairs ...string) answer {
	w.t.Helper()
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return w.do("POST", "/uaa/oauth/token", v.Encode(), append([]option{isForm}, opts...)...)
}

// cf is how the command line authenticates itself.
var cf = []option{basicAuth("cf", "")}

// tokens logs in and returns the tokens.
func (w *world) tokens(name, password string) (access, refresh string) {
	w.t.Helper()
	a := w.form(cf, "grant_type", "password", "username", name, "password", password)
	if a.code != http.StatusOK {
		w.t.Fatalf("login of %s: %d %s", name, a.code, a.raw)
	}
	return a.text("access_token"), a.text("refresh_token")
}

// admin returns an administrator's token without a login.
func (w *world) admin() string {
	w.t.Helper()
	token, err := w.s.UserToken(AdminName)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

func (w *world) signed(c *claims) string {
	w.t.Helper()
	token, err := w.s.sign(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

func (w *world) user(name, password string, groups ...string) User {
	w.t.Helper()
	u, err := w.s.Accounts().CreateUser(NewUser{Name: name, Email: name + "@example.com", Origin: "none", Groups: groups})
	if err != nil {
		w.t.Fatal(err)
	}
	u.Origin, u.Hash = OriginUAA, hashed(password)
	if err := w.s.accounts.storeUser(u); err != nil {
		w.t.Fatal(err)
	}
	return u
}

// client creates a client and returns one of its tokens.
func (w *world) client(id, secret string, authorities ...string) string {
	w.t.Helper()
	c := Client{ID: id, Hash: hashed(secret), GrantTypes: []string{GrantClient}, Authorities: authorities, CreatedAt: now(), UpdatedAt: now()}
	if err := errors.Join(c.check(), w.s.accounts.storeClient(c)); err != nil {
		w.t.Fatal(err)
	}
	return w.signed(w.s.clientClaims(c, authorities))
}

func (w *world) clientToken(id, secret string) string {
	w.t.Helper()
	a := w.form(nil, "grant_type", "client_credentials", "client_id", id, "client_secret", secret)
	if a.code != http.StatusOK {
		w.t.Fatalf("token of client %s: %d %s", id, a.code, a.raw)
	}
	return a.text("access_token")
}

// want checks status and error of an answer.
func (a answer) want(t testing.TB, what string, code int, problem string) {
	t.Helper()
	if a.code != code || a.text("error") != problem {
		t.Errorf("%s: %d %q, want %d %q: %s", what, a.code, a.text("error"), code, problem, a.raw)
	}
	if code == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("%s: 401 without WWW-Authenticate", what)
	}
	if code >= 400 && problem != "" && a.text("error_description") == "" {
		t.Errorf("%s: an error without a description: %s", what, a.raw)
	}
}
