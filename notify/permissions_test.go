package notify

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/testkit"
)

// pathOf returns a request path for a pattern.
func pathOf(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	for _, r := range []struct{ from, to string }{
		{"{$}", ""}, {"{client}", "sender"}, {"{kind}", "news"}, {"{id}", "none"}, {"{guid}", "none"}, {"{scope}", "some.scope"}, {"{user}", "none"},
	} {
		path = strings.ReplaceAll(path, r.from, r.to)
	}
	return method, path
}

// forbiddenJSON is the body of a response with status 403.
func forbiddenJSON(detail string) string {
	return errorJSON("You are not authorized to perform the requested action", detail)
}

// For every endpoint of both versions, no token gives 401, and scopes that are not
// listed give 403. Each listed scope is accepted.
func TestPermissions(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	for version, table := range map[string]map[string]permission{"1": permissions, "2": permissions2} {
		for _, pattern := range slices.Sorted(maps.Keys(table)) {
			t.Run(version+" "+pattern, func(t *testing.T) { tryPermissions(t, w, version, pattern, table[pattern]) })
		}
	}
}

func tryPermissions(t *testing.T, w *httpWorld, version, pattern string, needs permission) {
	method, path := pathOf(pattern)
	try := func(token string) got { return w.do(token, method, path, "", with(VersionHeader, version)) }
	if needs.open {
		if g := try(""); g.code >= 400 {
			t.Errorf("without a token: %d %s", g.code, g.body)
		}
		return
	}
	refused := forbiddenJSON(missingScope(needs.oneOf...).detail)
	if needs.self {
		refused = forbiddenJSON("The token needs the scope notification_preferences.admin")
	}
	try("").want(t, "without a token", http.StatusUnauthorized, errorJSON("Authorization header is invalid: missing"))
	try(w.clientWith("somebody")).want(t, "no scope", http.StatusForbidden, refused)
	for _, scope := range allScopes {
		// The client of the path is "sender"; an administrator has the same permission.
		scopes := []string{scope}
		if needs.owner {
			scopes = append(scopes, ScopeAdmin)
		}
		g := try(w.clientWith("somebody", scopes...))
		allowed := slices.Contains(needs.oneOf, scope)
		if needs.self {
			allowed = scope == ScopePrefsAdmin
		}
		switch {
		case !allowed:
			g.want(t, "with "+scope, http.StatusForbidden, refused)
		case g.code == http.StatusForbidden || g.code == http.StatusUnauthorized:
			t.Errorf("with %s: %d %s", scope, g.code, g.body)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(allScopes), func(s string) bool { return slices.Contains(needs.oneOf, s) })
	try(w.clientWith("somebody", rest...)).want(t, "with all others", http.StatusForbidden, refused)
}

// The server starts only if the table and the endpoints have the same patterns.
func TestCheckPermissions(t *testing.T) {
	table := map[string]permission{"GET /a": {}}
	for _, tt := range []struct {
		endpoints []string
		want      string
	}{
		{[]string{"GET /a"}, ""},
		{[]string{"GET /a", "GET /b"}, `endpoint "GET /b" has no permission`},
		{nil, `endpoint "GET /a" has a permission, but no handler`},
	} {
		err := checkPermissions(table, tt.endpoints)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("checkPermissions(%v) = %v, want %q", tt.endpoints, err, tt.want)
		}
	}
}

// The spellings with underscores are the same permissions.
func TestScopeAliases(t *testing.T) {
	w := newHTTPWorld(t)
	token := w.client("spelled", "notifications_write", "notifications_templates.read", "notifications_templates.write", ScopeManage)
	w.do(token, "PUT", "/notifications", `{"source_name":"s","notifications":{"k":{"description":"d"}}}`).want(t, "register", 204, "")
	w.do(token, "GET", "/templates", "").want(t, "list", 200, "{}")
	if g := w.do(token, "POST", "/templates", `{"name":"n","html":"h"}`); g.code != 201 {
		t.Errorf("create: %d %s", g.code, g.body)
	}
	if g := w.do(token, "POST", "/everyone", `{"kind_id":"k","text":"t"}`); g.code != 200 {
		t.Errorf("send: %d %s", g.code, g.body)
	}
	for _, other := range []string{"notifications_manage", "notification.write", "Notifications.write"} {
		if hasScope(auth.Principal{Scopes: []string{other}}, ScopeManage) || hasScope(auth.Principal{Scopes: []string{other}}, ScopeWrite) {
			t.Errorf("%s is taken for a scope that it is not", other)
		}
	}
}

// Only the client of the path or an administrator can change its resources.
func TestOwnership(t *testing.T) {
	w := newHTTPWorld(t)
	w.register()
	bodies := map[string]string{
		"/clients/sender/template":                    `{"template":"default"}`,
		"/clients/sender/notifications/news/template": `{"template":"default"}`,
		"/clients/sender/notifications/news":          `{"description":"d","critical":false,"template":""}`,
	}
	for path, body := range bodies {
		w.do(w.sender(), "PUT", path, body).want(t, "owner "+path, 204, "")
		w.do(w.clientWith("other", ScopeManage), "PUT", path, body).want(t, "other "+path, 403, forbiddenJSON(`The token belongs to another client. Use a token of client "sender", or one with the scope notifications.admin`))
		w.do(w.clientWith("other", ScopeManage, ScopeAdmin), "PUT", path, body).want(t, "admin "+path, 204, "")
		w.do(w.clientWith("other", ScopeManage, "uaa.admin"), "PUT", path, body).want(t, "uaa.admin "+path, 204, "")
		w.do(w.clientWith("other", ScopeAdmin), "PUT", path, body).want(t, "admin without manage "+path, 403, forbiddenJSON("The token needs the scope notifications.manage"))
	}
}

// An invalid or expired token gives 401 with the reason.
func TestBadTokens(t *testing.T) {
	w := newHTTPWorld(t)
	good := w.sender()
	gone := w.client("gone", allScopes...)
	if err := w.auth.Accounts().DeleteClient("gone"); err != nil {
		t.Fatal(err)
	}
	stranger := testkit.Must(rsa.GenerateKey(rand.Reader, 2048))(t)
	claims := jwt.MapClaims{}
	parsed, _, err := jwt.NewParser().ParseUnverified(good, claims)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(method jwt.SigningMethod, key any) string {
		t := jwt.NewWithClaims(method, claims)
		t.Header["kid"] = parsed.Header["kid"]
		return testkit.Must(t.SignedString(key))(w.t)
	}
	parts := strings.Split(good, ".")
	bare := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + parts[1] + "." + parts[2]
	for _, tt := range []struct{ name, header, reason, reason2 string }{
		{"none", "", "missing", "missing"},
		{"no scheme", good, "missing", "missing"},
		{"other scheme", "Basic " + good, "missing", "missing"},
		{"two blanks", "Bearer  " + good, "missing", "missing"},
		{"no token", "Bearer ", "missing", "missing"},
		{"expired", "Bearer " + w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { c["exp"] = 1 }), "token is expired", "token is expired"},
		{"revoked", "Bearer " + gone, "token is revoked", "token is revoked"},
		{"two segments", "Bearer " + parts[0] + "." + parts[1], "token contains an invalid number of segments", "corrupt"},
		{"bad base64", "Bearer " + parts[0] + ".%%%." + parts[2], "illegal base64 data at input byte 0", "corrupt"},
		{"forged", "Bearer " + signed(jwt.SigningMethodRS256, stranger), "crypto/rsa: verification error", "corrupt"},
		{"symmetric", "Bearer " + signed(jwt.SigningMethodHS256, []byte("x")), "Unsupported signing method HS256", "corrupt"},
		{"unsigned", "Bearer " + signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), "Unsupported signing method none", "corrupt"},
		{"no kid", "Bearer " + bare, "Unable to lookup key id for the token", "corrupt"},
		{"unknown kid", "Bearer " + w.signWith(good, func(t *jwt.Token, _ jwt.MapClaims) { t.Header["kid"] = "zzz" }), "unknown key with id zzz", "corrupt"},
		{"changed claims", "Bearer " + parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"scope":["notifications.admin"]}`)) + "." + parts[2], "crypto/rsa: verification error", "corrupt"},
		{"header is no JSON", "Bearer " + base64.RawURLEncoding.EncodeToString([]byte(`x`)) + "." + parts[1] + "." + parts[2], "token is invalid", "corrupt"},
		{"other issuer", "Bearer " + w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { c["iss"] = "http://elsewhere" }), "token is invalid", "corrupt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := w.do("", "GET", "/templates", "", with("Authorization", tt.header))
			g.want(t, "version 1", 401, errorJSON("Authorization header is invalid: "+tt.reason))
			if strings.HasSuffix(g.body, "\n") || g.header.Get("WWW-Authenticate") == "" {
				t.Errorf("body %q, challenge %q", g.body, g.header.Get("WWW-Authenticate"))
			}
			g = w.do("", "GET", "/senders", "", with("Authorization", tt.header), version2)
			g.want(t, "version 2", 401, errorJSON("Authorization header is invalid: "+tt.reason2))
		})
	}
	w.do("", "GET", "/templates", "", with("Authorization", "bEaReR "+good)).want(t, "scheme in any case", 200, "{}")
}

// An error of the store is not reported as an invalid token, and clients do not see it.
func TestVerifierFails(t *testing.T) {
	w := newHTTPWorld(t, func(c *Config) { c.Auth = brokenVerifier{} })
	w.do("a.b.c", "GET", "/templates", "").want(t, "broken", 500, errorJSON("Internal Server Error"))
	if !strings.Contains(w.logged.String(), "http: Server closed") {
		t.Errorf("log = %s", w.logged)
	}
}

type brokenVerifier struct{}

func (brokenVerifier) Verify(string) (auth.Principal, error) {
	return auth.Principal{}, http.ErrServerClosed
}
