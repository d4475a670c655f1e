package notify

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/notify/directory"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

const (
	authURL    = "http://127.0.0.1:8484"
	serviceURL = authURL + "/notify"
	secret     = "open sesame"
)

// httpWorld is the service with a real authorization server and a real directory.
type httpWorld struct {
	t      testing.TB
	db     *store.DB
	auth   *auth.Server
	roles  *auth.Roles
	places *registry.Registry
	space  app.Space
	queue  *delivery.Queue
	s      *Server
	logged *bytes.Buffer
	tokens map[string]string // of clients, by id
}

// initialFiles has the files that a first start leaves. All tests start with a copy,
// because generating a key and hashing a password take longer than most tests.
var initialFiles = sync.OnceValue(func() map[string][]byte {
	dir, err := os.MkdirTemp("", "dew-notify-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := store.Open(filepath.Join(dir, "dew.db"), store.Options{NoSync: true})
	if err != nil {
		panic(err)
	}
	_, err = registry.New(db).EnsureDefaults("dew.localhost")
	if err == nil {
		_, err = auth.Open(authConfig(db, dir))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		panic(err)
	}
	files := map[string][]byte{}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		files[rel], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		panic(err)
	}
	return files
})

func authConfig(db *store.DB, dir string) auth.Config {
	return auth.Config{
		DB: db, Keys: filepath.Join(dir, "keys"), AdminPassword: filepath.Join(dir, "admin-password"), Domain: "dew.localhost",
		PublicURL: authURL, Logger: slog.New(slog.DiscardHandler), Cost: bcrypt.MinCost,
	}
}

func newHTTPWorld(t testing.TB, change ...func(c *Config)) *httpWorld {
	t.Helper()
	dir := t.TempDir()
	for name, data := range initialFiles() {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	w := &httpWorld{t: t, db: openDB(t, filepath.Join(dir, "dew.db")), logged: &bytes.Buffer{}, tokens: map[string]string{}}
	w.roles, w.places = auth.NewRoles(w.db), registry.New(w.db)
	w.space = testkit.Must(w.places.EnsureDefaults("dew.localhost"))(t)
	w.auth = testkit.Must(auth.Open(authConfig(w.db, dir)))(t)
	w.queue = delivery.NewQueue(w.db)
	c := Config{
		DB: w.db, Auth: w.auth, Directory: directory.NewAccounts(w.auth.Accounts(), w.roles, w.places), Queue: w.queue,
		PublicURL: serviceURL, From: "no-reply@dew.localhost", Logger: slog.New(slog.NewTextHandler(w.logged, nil)),
	}
	for _, fn := range change {
		fn(&c)
	}
	w.s = testkit.Must(New(c))(t)
	return w
}

// client creates a client with authorities once, and returns a token for it.
func (w *httpWorld) client(id string, authorities ...string) string {
	w.t.Helper()
	if token, ok := w.tokens[id]; ok {
		return token
	}
	testkit.Must(w.auth.Accounts().CreateClient(auth.NewClient{
		ID: id, Secret: secret, GrantTypes: []string{auth.GrantClient}, Authorities: authorities,
	}))(w.t)
	w.tokens[id] = w.grant(id)
	return w.tokens[id]
}

// grant requests a token as a client does.
func (w *httpWorld) grant(id string) string {
	w.t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {id}, "client_secret": {secret}}
	r := httptest.NewRequest(http.MethodPost, "/uaa/oauth/token", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	got := httptest.NewRecorder()
	w.auth.Handler().ServeHTTP(got, r)
	var out struct {
		Token string `json:"access_token"`
	}
	if err := json.Unmarshal(got.Body.Bytes(), &out); err != nil || out.Token == "" {
		w.t.Fatalf("no token: %d %s", got.Code, got.Body)
	}
	return out.Token
}

// clientWith returns the token of a client that has only these scopes from now on.
// Changing a client is faster than creating one.
func (w *httpWorld) clientWith(id string, scopes ...string) string {
	w.t.Helper()
	token := w.client(id, append(slices.Clone(allScopes), scopeEverything)...)
	testkit.Must(w.auth.Accounts().UpdateClient(id, func(c *auth.Client) error {
		c.Authorities = scopes
		return nil
	}))(w.t)
	return token
}

// allScopes is all scopes of the service.
var allScopes = []string{
	ScopeWrite, ScopeManage, ScopeAdmin, ScopeCritical, ScopeEmails, ScopeTemplatesRead, ScopeTemplatesWrite,
	ScopePrefsRead, ScopePrefsWrite, ScopePrefsAdmin,
}

// sender returns the token of a client with all scopes except those of administrators.
func (w *httpWorld) sender() string {
	var scopes []string
	for _, s := range allScopes {
		if s != ScopeAdmin {
			scopes = append(scopes, s)
		}
	}
	return w.client("sender", scopes...)
}

// user creates an account without a password, which is fast, and returns its guid and a
// token.
func (w *httpWorld) user(name string, groups ...string) (guid, token string) {
	w.t.Helper()
	u := testkit.Must(w.auth.Accounts().CreateUser(auth.NewUser{Name: name, Email: name + "@example.com", Origin: "nowhere", Groups: groups}))(w.t)
	testkit.Must(w.auth.Accounts().UpdateUser(u.GUID, func(u *auth.User) error { u.Origin = auth.OriginUAA; return nil }))(w.t)
	return u.GUID, testkit.Must(w.auth.UserToken(name))(w.t)
}

// signWith returns a token with other claims or another header and a valid signature.
func (w *httpWorld) signWith(token string, change func(t *jwt.Token, c jwt.MapClaims)) string {
	w.t.Helper()
	claims := jwt.MapClaims{}
	parsed, _, err := jwt.NewParser().ParseUnverified(token, claims)
	if err != nil {
		w.t.Fatal(err)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	t.Header["kid"] = parsed.Header["kid"]
	change(t, claims)
	return testkit.Must(t.SignedString(signingKey(w.t)))(w.t)
}

func signingKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	for name, data := range initialFiles() {
		if strings.HasPrefix(name, "keys/token-") {
			return testkit.Must(jwt.ParseRSAPrivateKeyFromPEM(data))(t)
		}
	}
	t.Fatal("the first start made no key")
	return nil
}

// got is a response.
type got struct {
	code   int
	body   string
	header http.Header
}

type option func(r *http.Request)

func with(key, value string) option {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

var version2 = with(VersionHeader, "2")

// do sends a request; token can be empty.
func (w *httpWorld) do(token, method, path, body string, opts ...option) got {
	w.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, path, content)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, o := range opts {
		o(r)
	}
	rec := httptest.NewRecorder()
	w.s.Handler().ServeHTTP(rec, r)
	return got{rec.Code, rec.Body.String(), rec.Header()}
}

// want checks the status and the exact body, except for the newline after errors.
func (g got) want(t testing.TB, what string, code int, body string) {
	t.Helper()
	if g.code != code || strings.TrimSuffix(g.body, "\n") != body {
		t.Errorf("%s: %d %s\nwant %d %s", what, g.code, g.body, code, body)
	}
	kind := g.header.Get("Content-Type")
	if body != "" && kind != "application/json" || body == "" && kind != "" {
		t.Errorf("%s: content type %q", what, kind)
	}
}

// errorJSON returns the body of an error.
func errorJSON(messages ...string) string {
	raw, err := json.Marshal(errorBody{Errors: messages})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// id returns one member of a response.
func (g got) id(t testing.TB, member string) string {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(g.body), &out); err != nil {
		t.Fatalf("no JSON object: %d %s", g.code, g.body)
	}
	id, _ := out[member].(string)
	if id == "" {
		t.Fatalf("no %s in %d %s", member, g.code, g.body)
	}
	return id
}

// register registers two kinds of the sender.
func (w *httpWorld) register() {
	w.t.Helper()
	g := w.do(w.sender(), "PUT", "/notifications", `{"source_name":"The Sender","notifications":{
		"news":{"description":"All the news"},"alarm":{"description":"Alarms","critical":true}}}`)
	g.want(w.t, "register", http.StatusNoContent, "")
}

// mails composes the queued messages of a recipient, as the Courier would.
func (w *httpWorld) mails(to string) (mails []delivery.Mail, problems []error) {
	w.t.Helper()
	all := testkit.Must(messages(w.db).All())(w.t)
	for _, m := range all {
		if m.Recipient() != to {
			continue
		}
		if m.Email == "" {
			m.Email = testkit.Must(w.s.c.Directory.User(w.t.Context(), m.User))(w.t).Email
		}
		mail, err := w.s.Compose(w.t.Context(), m, testkit.Must(notices(w.db).Get(m.Notice))(w.t))
		if err != nil {
			problems = append(problems, err)
			continue
		}
		mails = append(mails, mail)
	}
	return mails, problems
}

// newToken gets a new token for an existing client.
func (w *httpWorld) newToken(id string) string {
	w.t.Helper()
	if token, ok := w.tokens[id]; ok {
		return token
	}
	w.tokens[id] = w.grant(id)
	return w.tokens[id]
}

// failingDirectory cannot list the users of a space, and fails in the middle of other
// lists.
type failingDirectory struct{ delivery.Directory }

func (failingDirectory) InSpace(context.Context, string) (delivery.Audience, error) {
	return delivery.Audience{}, fmt.Errorf("%w: status 500", delivery.ErrPlatform)
}

func (failingDirectory) Everyone(context.Context) (delivery.Audience, error) {
	return delivery.Audience{People: func(yield func(delivery.Person, error) bool) {
		_ = yield(delivery.Person{GUID: "first"}, nil) && yield(delivery.Person{}, errBroken)
	}}, nil
}
