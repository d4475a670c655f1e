package sso

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/crypto/bcrypt"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/store"
)

const redirect = "https://dash.example.com/callback"

// world is a server with a user, and a dashboard that is a client of it.
type world struct {
	base   string // URL of the API for the browser
	t      *testing.T
	auth   *auth.Server
	sso    *Server
	server http.Handler
	jar    http.CookieJar
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(filepath.Join(dir, "dew.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	codes := NewCodes()
	a, err := auth.Open(auth.Config{
		DB: db, Keys: filepath.Join(dir, "keys"), AdminPassword: filepath.Join(dir, "admin"), Domain: "dew.localhost",
		PublicURL: "http://dew.test", Cost: bcrypt.MinCost, Codes: codes,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, base: "http://dew.test", auth: a, sso: New(a, codes, slog.New(slog.DiscardHandler))}
	w.server = w.sso.Wrap(a.Handler())
	if w.jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Accounts().CreateUser(auth.NewUser{Name: "dora", Email: "dora@example.com", Password: "secret"}); err != nil {
		t.Fatal(err)
	}
	w.client("dash", redirect)
	return w
}

func (w *world) client(id string, uris ...string) {
	w.t.Helper()
	_, err := w.auth.Accounts().CreateClient(auth.NewClient{
		ID: id, Name: "The <b>database</b>", Secret: "hush", GrantTypes: []string{auth.GrantCode}, Authorities: []string{"uaa.none"},
		Scopes: []string{"openid", "cloud_controller_service_permissions.read", "cloud_controller.read"}, RedirectURIs: uris,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// send sends a request with the cookies of the browser.
func (w *world) send(r *http.Request) *httptest.ResponseRecorder {
	w.t.Helper()
	for _, c := range w.jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	got := httptest.NewRecorder()
	w.server.ServeHTTP(got, r)
	w.jar.SetCookies(r.URL, got.Result().Cookies())
	return got
}

func (w *world) get(path string, values ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodGet, w.base+"/uaa"+path+query(values), http.NoBody)
	r.Header.Set("Accept", "text/html,*/*")
	return w.send(r)
}

func (w *world) post(path string, values ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodPost, w.base+"/uaa"+path, strings.NewReader(strings.TrimPrefix(query(values), "?")))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return w.send(r)
}

func query(values []string) string {
	all := url.Values{}
	for i := 0; i < len(values); i += 2 {
		all.Add(values[i], values[i+1])
	}
	return "?" + all.Encode()
}

var hidden = regexp.MustCompile(`name="X-Uaa-Csrf" value="([^"]+)"`)

// logIn fills in the form of a page.
func (w *world) logIn(page *httptest.ResponseRecorder, request, password string) *httptest.ResponseRecorder {
	w.t.Helper()
	found := hidden.FindStringSubmatch(page.Body.String())
	if found == nil {
		w.t.Fatalf("no form: %d %s", page.Code, page.Body)
	}
	return w.post("/login.do", csrfField, found[1], "request", request, "username", "dora", "password", password)
}

// code gets a code for the dashboard from a browser that is logged in.
func (w *world) code(more ...string) string {
	w.t.Helper()
	to, err := url.Parse(w.get("/oauth/authorize", append([]string{"client_id", "dash", "response_type", "code", "state", "s1"}, more...)...).Header().Get("Location"))
	if err != nil || to.Query().Get("state") != "s1" {
		w.t.Fatalf("answer = %v, %v", to, err)
	}
	return to.Query().Get("code")
}

// redeem exchanges a code as the dashboard does.
func (w *world) redeem(values ...string) (int, map[string]any) {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://dew.test/uaa/oauth/token", strings.NewReader(strings.TrimPrefix(query(append([]string{"grant_type", "authorization_code"}, values...)), "?")))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("dash", "hush")
	got := httptest.NewRecorder()
	w.server.ServeHTTP(got, r)
	var body map[string]any
	if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil {
		w.t.Fatal(err)
	}
	return got.Code, body
}

// A user logs in once; then every dashboard gets a code without a form, until logout.
// The token has the scopes of dashboards and no others.
func TestLogin(t *testing.T) {
	w := newWorld(t)
	ask := []string{"client_id", "dash", "response_type", "code", "redirect_uri", redirect + "/in?x=1", "state", "s1"}
	page := w.get("/oauth/authorize", ask...)
	if page.Code != 200 || !strings.Contains(page.Body.String(), "The &lt;b&gt;database&lt;/b&gt;") || strings.Contains(page.Body.String(), "<script") {
		t.Fatalf("the form: %d %s", page.Code, page.Body)
	}
	if csp := page.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.HasSuffix(csp, "form-action 'self'") {
		t.Errorf("policy = %q", csp)
	}
	request := strings.TrimPrefix(query(ask), "?")
	if got := w.logIn(page, request, "wrong"); got.Code != 401 || !strings.Contains(got.Body.String(), "The user name or the password is wrong") || !strings.Contains(got.Body.String(), `value="dora"`) {
		t.Errorf("a wrong password: %d %s", got.Code, got.Body)
	}
	got := w.logIn(page, request, "secret")
	if to := got.Header().Get("Location"); got.Code != 303 || to != "http://dew.test/uaa/oauth/authorize?"+request {
		t.Fatalf("after the login: %d %s", got.Code, to)
	}
	for _, c := range got.Result().Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" {
			t.Errorf("cookie = %+v", c)
		}
	}
	to, err := url.Parse(w.get("/oauth/authorize", ask...).Header().Get("Location"))
	if err != nil || to.Host != "dash.example.com" || to.Path != "/callback/in" || to.Query().Get("x") != "1" || to.Query().Get("state") != "s1" {
		t.Fatalf("answer = %v, %v", to, err)
	}
	status, body := w.redeem("code", to.Query().Get("code"), "redirect_uri", redirect+"/in?x=1")
	if status != 200 || body["scope"] != "openid cloud_controller_service_permissions.read" || body["refresh_token"] != nil {
		t.Fatalf("token = %d %v", status, body)
	}
	p, err := w.auth.Verify(body["access_token"].(string))
	if err != nil || p.Name != "dora" || p.Client != "dash" {
		t.Errorf("principal = %+v, %v", p, err)
	}
	if status, body := w.redeem("code", to.Query().Get("code"), "redirect_uri", redirect+"/in?x=1"); status != 400 || body["error"] != "invalid_grant" {
		t.Errorf("a used code: %d %v", status, body)
	}
	w.client("other", "https://other.example.com/")
	if got := w.get("/oauth/authorize", "client_id", "other", "response_type", "code"); !strings.HasPrefix(got.Header().Get("Location"), "https://other.example.com/?code=") {
		t.Errorf("the second dashboard: %d %v", got.Code, got.Header())
	}
	if got := w.get("/login"); !strings.Contains(got.Body.String(), "logged in as <strong>dora") {
		t.Errorf("the page of a user: %s", got.Body)
	}
	late := w.code()
	if got := w.get("/logout.do", "client_id", "dash", "redirect", redirect); got.Code != 302 || got.Header().Get("Location") != redirect {
		t.Errorf("logout: %d %v", got.Code, got.Header())
	}
	if status, body := w.redeem("code", late); status != 400 || body["error"] != "invalid_grant" {
		t.Errorf("a code after logout: %d %v", status, body)
	}
	if got := w.get("/oauth/authorize", ask...); !hidden.MatchString(got.Body.String()) {
		t.Errorf("after logout: %d %s", got.Code, got.Body)
	}
}

// With https, even if a proxy ends TLS, the cookies are Secure and only this host can set
// them. Without https, browsers would refuse them.
func TestCookies(t *testing.T) {
	w := newWorld(t)
	for base, want := range map[string]struct {
		prefix string
		secure bool
	}{
		"http://dew.test":       {"", false},
		"https://dew.test":      {"__Host-", true},
		"https://dew.test:8443": {"__Host-", true},
	} {
		plain := w.sso.Wrap(w.auth.Handler())
		w.base = base
		w.server = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			r.TLS = nil // a proxy ended it
			plain.ServeHTTP(rw, r.WithContext(auth.WithURL(r.Context(), base)))
		})
		page := w.get("/login")
		found := append(page.Result().Cookies(), w.logIn(page, "", "secret").Result().Cookies()...)
		found = append(found, w.get("/logout.do").Result().Cookies()...)
		var names []string
		for _, c := range found {
			names = append(names, strings.TrimPrefix(c.Name, want.prefix))
			if !strings.HasPrefix(c.Name, want.prefix) || c.Secure != want.secure || c.Path != "/" || c.Domain != "" || !c.HttpOnly {
				t.Errorf("%s: cookie %+v", base, c)
			}
		}
		if got := strings.Join(names, " "); got != "dew_login_form dew_login dew_login" || found[2].MaxAge >= 0 {
			t.Errorf("%s: cookies %s, and the last one has the age %d", base, got, found[2].MaxAge)
		}
		w.jar, _ = cookiejar.New(nil)
	}
	// A cookie that another host could have set is not used with https.
	page := w.get("/login")
	session := w.logIn(page, "", "secret").Result().Cookies()[0]
	r := httptest.NewRequest(http.MethodGet, "http://dew.test/uaa/login", http.NoBody)
	r.Header.Set("Accept", "text/html")
	r.AddCookie(&http.Cookie{Name: sessionCookie, Value: session.Value})
	got := httptest.NewRecorder()
	w.sso.Wrap(w.auth.Handler()).ServeHTTP(got, r.WithContext(auth.WithURL(r.Context(), "https://dew.test")))
	if !hidden.MatchString(got.Body.String()) {
		t.Errorf("a cookie without the prefix: %s", got.Body)
	}
}

// A code belongs to one client, one redirect URI, one verifier, and five minutes.
func TestCodes(t *testing.T) {
	w := newWorld(t)
	w.logIn(w.get("/login"), "", "secret")
	verifier := strings.Repeat("v", 43)
	sum := sha256.Sum256([]byte(verifier))
	challenge := []string{"code_challenge", base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method", "S256"}
	for name, tc := range map[string]struct {
		ask, redeem []string
		status      int
	}{
		"plain":              {nil, nil, 200},
		"redirect URI":       {[]string{"redirect_uri", redirect}, []string{"redirect_uri", redirect}, 200},
		"no redirect URI":    {[]string{"redirect_uri", redirect}, nil, 400},
		"other redirect URI": {[]string{"redirect_uri", redirect}, []string{"redirect_uri", redirect + "/x"}, 400},
		"verifier":           {challenge, []string{"code_verifier", verifier}, 200},
		"no verifier":        {challenge, nil, 400},
		"wrong verifier":     {challenge, []string{"code_verifier", strings.Repeat("w", 43)}, 400},
		"short verifier":     {challenge, []string{"code_verifier", "v"}, 400},
		"needless verifier":  {nil, []string{"code_verifier", verifier}, 400},
	} {
		if status, body := w.redeem(append([]string{"code", w.code(tc.ask...)}, tc.redeem...)...); status != tc.status {
			t.Errorf("%s: %d %v, want %d", name, status, body, tc.status)
		}
	}
	w.client("other", "https://other.example.com/")
	to, _ := url.Parse(w.get("/oauth/authorize", "client_id", "other", "response_type", "code").Header().Get("Location"))
	if status, body := w.redeem("code", to.Query().Get("code")); status != 400 {
		t.Errorf("the code of another client: %d %v", status, body)
	}
	if _, err := w.auth.Accounts().UpdateUser(w.userGUID("dora"), func(u *auth.User) error { u.Active = false; return nil }); err != nil {
		t.Fatal(err)
	}
	if got := w.get("/oauth/authorize", "client_id", "dash", "response_type", "code"); !hidden.MatchString(got.Body.String()) {
		t.Errorf("a user who is not active: %d %v", got.Code, got.Header())
	}
}

// A client without a secret gets a code only with a challenge, and redeems it only with
// the verifier.
func TestPKCEWithoutSecret(t *testing.T) {
	w := newWorld(t)
	if _, err := w.auth.Accounts().CreateClient(auth.NewClient{
		ID: "public", GrantTypes: []string{auth.GrantCode}, Scopes: []string{"openid"}, RedirectURIs: []string{redirect},
	}); err != nil {
		t.Fatal(err)
	}
	w.logIn(w.get("/login"), "", "secret")
	ask := func(more ...string) url.Values {
		t.Helper()
		to, err := url.Parse(w.get("/oauth/authorize", append([]string{"client_id", "public", "response_type", "code"}, more...)...).Header().Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		return to.Query()
	}
	redeem := func(values ...string) int {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "http://dew.test/uaa/oauth/token",
			strings.NewReader(strings.TrimPrefix(query(append([]string{"grant_type", "authorization_code", "client_id", "public"}, values...)), "?")))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		got := httptest.NewRecorder()
		w.server.ServeHTTP(got, r)
		return got.Code
	}
	if got := ask(); got.Get("error") != "invalid_request" || got.Get("code") != "" {
		t.Errorf("without a challenge: %v", got)
	}
	verifier := strings.Repeat("v", 43)
	sum := sha256.Sum256([]byte(verifier))
	challenge := []string{"code_challenge", base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method", "S256"}
	for name, tc := range map[string]struct {
		more []string
		want int
	}{
		"verifier":         {[]string{"code_verifier", verifier}, 200},
		"no verifier":      {nil, 400},
		"another verifier": {[]string{"code_verifier", strings.Repeat("w", 43)}, 400},
		"a secret":         {[]string{"code_verifier", verifier, "client_secret", "guess"}, 401},
	} {
		if got := redeem(append([]string{"code", ask(challenge...).Get("code")}, tc.more...)...); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// With the scope openid, the client gets an id_token that the keys of the server verify.
// It is not an access token.
func TestIDToken(t *testing.T) {
	w := newWorld(t)
	w.logIn(w.get("/login"), "", "secret")
	status, body := w.redeem("code", w.code("nonce", "n-1"))
	if status != 200 {
		t.Fatalf("%d %v", status, body)
	}
	id, _ := body["id_token"].(string)
	keys := httptest.NewRecorder()
	w.server.ServeHTTP(keys, httptest.NewRequest(http.MethodGet, "http://dew.test/uaa/token_keys", http.NoBody))
	var set struct {
		Keys []struct{ Kid, Value string }
	}
	if err := json.Unmarshal(keys.Body.Bytes(), &set); err != nil || len(set.Keys) == 0 {
		t.Fatalf("%v: %s", err, keys.Body)
	}
	parsed, err := jwt.Parse(id, func(token *jwt.Token) (any, error) {
		if token.Header["kid"] != set.Keys[0].Kid {
			return nil, fmt.Errorf("kid = %v", token.Header["kid"])
		}
		return jwt.ParseRSAPublicKeyFromPEM([]byte(set.Keys[0].Value))
	}, jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer("http://dew.test/uaa/oauth/token"), jwt.WithAudience("dash"), jwt.WithExpirationRequired(), jwt.WithSubject(w.userGUID("dora")))
	if err != nil {
		t.Fatalf("%v: %s", err, id)
	}
	claims := parsed.Claims.(jwt.MapClaims)
	if claims["nonce"] != "n-1" || claims["user_name"] != "dora" || claims["email"] != "dora@example.com" || claims["scope"] != nil {
		t.Errorf("claims = %v", claims)
	}
	if p, err := w.auth.Verify(id); err == nil {
		t.Errorf("the id_token is the access token of %+v", p)
	}
	if _, body := w.redeem("code", w.code("scope", "cloud_controller_service_permissions.read")); body["id_token"] != nil || body["access_token"] == nil {
		t.Errorf("without openid: %v", body)
	}
	to, err := url.Parse(w.get("/oauth/authorize", "client_id", "dash", "response_type", "code", "nonce", strings.Repeat("n", maxNonce+1)).Header().Get("Location"))
	if err != nil || to.Query().Get("error") != "invalid_request" {
		t.Errorf("a long nonce: %v, %v", to, err)
	}
}

func (w *world) userGUID(name string) string {
	w.t.Helper()
	u, err := w.auth.Accounts().UserByName(name, auth.OriginUAA)
	if err != nil {
		w.t.Fatal(err)
	}
	return u.GUID
}

func TestCodesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCodes()
		fresh := c.codes.Issue("u", code{grant: auth.Grant{Client: "dash"}}, codeLifetime)
		if _, err := c.Redeem("dash", url.Values{"code": {fresh}}); err != nil {
			t.Error(err)
		}
		old := c.codes.Issue("u", code{grant: auth.Grant{Client: "dash"}}, codeLifetime)
		time.Sleep(codeLifetime)
		if _, err := c.Redeem("dash", url.Values{"code": {old}}); err == nil {
			t.Error("an expired code is valid")
		}
	})
}

// A request that names no known client and URI sends the browser nowhere. Other errors
// go to the client.
func TestWrongRequests(t *testing.T) {
	w := newWorld(t)
	for name, ask := range map[string][]string{
		"no client":      {"response_type", "code"},
		"unknown client": {"response_type", "code", "client_id", "nobody"},
		"another host":   {"response_type", "code", "client_id", "dash", "redirect_uri", "https://evil.example.com/callback"},
		"two URIs":       {"response_type", "code", "client_id", "dash", "redirect_uri", redirect, "redirect_uri", "https://evil.example.com"},
		"command line":   {"response_type", "code", "client_id", "cf"},
	} {
		if got := w.get("/oauth/authorize", ask...); got.Code != 400 || got.Header().Get("Location") != "" || !strings.Contains(got.Body.String(), "Cannot log in") {
			t.Errorf("%s: %d %v", name, got.Code, got.Header())
		}
	}
	for want, ask := range map[string][]string{
		"unsupported_response_type": {"response_type", "token"},
		"invalid_scope":             {"response_type", "code", "scope", "cloud_controller.read"},
		"invalid_request":           {"response_type", "code", "code_challenge", strings.Repeat("c", 43), "code_challenge_method", "plain"},
		"login_required":            {"response_type", "code", "prompt", "none"},
	} {
		to, err := url.Parse(w.get("/oauth/authorize", append(ask, "client_id", "dash", "state", "s2")...).Header().Get("Location"))
		if err != nil || to.Query().Get("error") != want || to.Query().Get("state") != "s2" {
			t.Errorf("%s: %v, %v", want, to, err)
		}
	}
	if got := w.get("/logout.do", "client_id", "dash", "redirect", "https://evil.example.com"); got.Code != 200 {
		t.Errorf("logout to another host: %d %v", got.Code, got.Header())
	}
}

// Another page cannot submit the form, and programs get what they got before.
func TestForeignForms(t *testing.T) {
	w := newWorld(t)
	page := w.get("/login")
	token := hidden.FindStringSubmatch(page.Body.String())[1]
	if got := w.post("/login.do", "username", "dora", "password", "secret"); got.Code != 403 {
		t.Errorf("without the token: %d", got.Code)
	}
	if got := w.post("/login.do", csrfField, strings.Repeat("x", len(token)), "username", "dora", "password", "secret"); got.Code != 403 {
		t.Errorf("with another token: %d", got.Code)
	}
	r := httptest.NewRequest(http.MethodPost, "http://dew.test/uaa/login.do", strings.NewReader(strings.TrimPrefix(query([]string{csrfField, token, "username", "dora", "password", "secret"}), "?")))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if got := w.send(r); got.Code != 403 {
		t.Errorf("from another site: %d", got.Code)
	}
	r = httptest.NewRequest(http.MethodGet, "http://dew.test/uaa/login", http.NoBody)
	r.Header.Set("Accept", "application/json")
	if got := w.send(r); got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("the login of programs: %v", got.Header())
	}
	for range 5 {
		w.logIn(w.get("/login"), "", "wrong")
	}
	if got := w.logIn(w.get("/login"), "", "secret"); got.Code != 401 || !strings.Contains(got.Body.String(), "locked") {
		t.Errorf("after five wrong passwords: %d %s", got.Code, got.Body)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		registered, asked string
		want              bool
	}{
		{"https://a.example/cb", "https://a.example/cb", true},
		{"https://a.example/cb", "https://a.example/cb/", true},
		{"https://a.example/cb", "https://a.example/cb/x?y=1", true},
		{"https://a.example/cb", "https://A.example/cb", true},
		{"https://a.example", "https://a.example/any", true},
		{"https://a.example/**", "https://a.example/any", true},
		{"http://127.0.0.1:9000/cb", "http://127.0.0.1:9000/cb", true},
		{"https://a.example/cb", "https://a.example/cbx", false},
		{"https://a.example/cb", "https://a.example/", false},
		{"https://a.example/cb", "http://a.example/cb", false},
		{"https://a.example/cb", "https://a.example:444/cb", false},
		{"https://a.example/cb", "https://a.example.evil/cb", false},
		{"https://a.example/cb", "https://a.example@evil/cb", false},
		{"https://a.example/cb", "https://evil\\@a.example/cb", false},
		{"https://a.example/cb", "https://a.example/cb/../x", false},
		{"https://a.example/cb", "https://a.example/cb/%2e%2e/x", false},
		{"https://a.example/cb", "https://a.example/cb/..%2fx", false},
		{"https://a.example/cb", "https://a.example/cb#f", false},
		{"https://a.example/cb?k=1", "https://a.example/cb?k=1", true},
		{"https://a.example/cb?k=1", "https://a.example/cb?k=2", false},
		{"javascript:alert(1)", "javascript:alert(1)", false},
		{"https://a.example/cb", "", false},
		{"https://a.example/cb", "/cb", false},
	} {
		if got := redirectAllowed([]string{tc.registered}, tc.asked); got != tc.want {
			t.Errorf("%s for %s: %v", tc.asked, tc.registered, got)
		}
	}
}

// A URI that is allowed has the host of the registered one, however strange it is.
func FuzzRedirect(f *testing.F) {
	f.Add("https://a.example/cb/x")
	f.Add("https://a.example\\@evil/cb")
	f.Add("https://a.example/cb/..;/x")
	f.Fuzz(func(t *testing.T, asked string) {
		if !redirectAllowed([]string{"https://a.example/cb"}, asked) {
			return
		}
		to, err := url.Parse(asked)
		if err != nil || !strings.EqualFold(to.Host, "a.example") || !strings.HasPrefix(to.Path, "/cb") {
			t.Errorf("%q is allowed: %v, %v", asked, to, err)
		}
	})
}
