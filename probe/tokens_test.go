package probe

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const onTokens = "Tokens and logins"

func tokenAttacks() []attack {
	k := func(name, want string, run func(w *target) (string, error)) attack {
		return attack{Probe{Group: onTokens, Name: name, Want: want}, run}
	}
	const refused = "status 401"
	return []attack{
		k("use a token without a signature (alg none)", refused, func(w *target) (string, error) {
			return w.forged(func(t *jwt.Token) (any, error) {
				t.Method = jwt.SigningMethodNone
				t.Header["alg"] = "none"
				return jwt.UnsafeAllowNoneSignatureType, nil
			})
		}),
		k("sign a token with the public key as an HMAC secret", refused, func(w *target) (string, error) {
			return w.forged(func(t *jwt.Token) (any, error) {
				t.Method, t.Header["alg"] = jwt.SigningMethodHS256, "HS256"
				return w.publicKey()
			})
		}),
		k("sign a token with another key of the same id", refused, func(w *target) (string, error) {
			return w.forged(func(*jwt.Token) (any, error) { return rsa.GenerateKey(rand.Reader, 2048) })
		}),
		k("name another key with kid, jku and jwk", refused, func(w *target) (string, error) {
			return w.forged(func(t *jwt.Token) (any, error) {
				t.Header["kid"], t.Header["jku"], t.Header["jwk"] = "../../../dev/null", w.peer+"/keys", map[string]string{"kty": "RSA", "n": "AQAB", "e": "AQAB"}
				return rsa.GenerateKey(rand.Reader, 2048)
			})
		}),
		k("use an expired token with a valid signature", refused, expired),
		k("change the scopes of a token", refused, changedClaims),
		k("use a token of another issuer with a valid signature", refused, otherIssuer),
		k("use a refresh token as an access token", refused, refreshAsAccess),
		k("use the token of a deleted user", refused, deletedUser),
		k("use the token of a user after a change of the password", refused, changedPassword),
		k("use a token after its logout", refused, revoked),
		k("ask for the scope of an administrator", "no such scope, and status 403", escalate),
		k("get a client or a user with more permissions", "status 403", escalateAccount),
		k("use the token of a dashboard at the API", "status 403", dashboardToken),
		k("use a one-time code for SSH twice", "the second login is refused", codeTwice),
		k("use an access token or a password as a code for SSH", "the login is refused", tokenAsCode),
		k("send a token in the query or in a cookie", refused, tokenElsewhere),
		k("guess passwords", "dewd refuses attempts after a few", guess),
	}
}

// forged changes the token of a developer into one of an administrator, signs it, and
// wants it refused.
func (w *target) forged(sign func(t *jwt.Token) (key any, err error)) (string, error) {
	claims, header, err := parts(w.developer().token)
	if err != nil {
		return "", err
	}
	claims["scope"] = []string{"cloud_controller.admin", "openid"}
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	t.Header["kid"] = header["kid"]
	key, err := sign(t)
	if err != nil {
		return "", err
	}
	token, err := t.SignedString(key)
	if err != nil {
		return "", err
	}
	return w.refusedToken(token)
}

// parts returns the claims and the header of a token.
func parts(token string) (jwt.MapClaims, map[string]any, error) {
	claims := jwt.MapClaims{}
	t, _, err := jwt.NewParser().ParseUnverified(token, claims)
	if err != nil {
		return nil, nil, err
	}
	return claims, t.Header, nil
}

// refusedToken wants status 401 for a token at all services.
func (w *target) refusedToken(token string) (string, error) {
	for _, p := range []string{"/v3/apps", "/uaa/userinfo", "/notify/user_preferences", "/api/v1/meta", "/v3/feature_flags"} {
		a, err := w.ask(token, http.MethodGet, p, "")
		if err != nil {
			return "", err
		}
		if a.status != http.StatusUnauthorized {
			return a.String(), fmt.Errorf("%s accepts the token", p)
		}
	}
	return "401 at 5 services", nil
}

func (w *target) publicKey() ([]byte, error) {
	a, err := w.ask("", http.MethodGet, "/uaa/token_key", "")
	if err != nil {
		return nil, err
	}
	found := regexp.MustCompile(`"value":"([^"]+)"`).FindStringSubmatch(a.body)
	if found == nil {
		return nil, fmt.Errorf("no key: %s", a)
	}
	return []byte(strings.ReplaceAll(found[1], `\n`, "\n")), nil
}

// signed signs claims with the key of dewd, which only this test can read.
func (w *target) signed(change func(c jwt.MapClaims)) (string, error) {
	claims, header, err := parts(w.developer().token)
	if err != nil {
		return "", err
	}
	change(claims)
	files, err := filepath.Glob(filepath.Join(w.Root, "keys", "token-*.pem"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("keys %v: %w", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return "", errors.New("the key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", err
	}
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	t.Header["kid"] = header["kid"]
	return t.SignedString(key)
}

// accepted checks that the own signature is valid, so that a refusal has another cause.
func (w *target) accepted() error {
	token, err := w.signed(func(jwt.MapClaims) {})
	if err != nil {
		return err
	}
	a, err := w.ask(token, http.MethodGet, "/v3/apps", "")
	if err != nil || a.status != http.StatusOK {
		return fmt.Errorf("the unchanged token is refused, so the probe proves nothing: %s %w", a, err)
	}
	return nil
}

func expired(w *target) (string, error) {
	token, err := w.signed(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Minute).Unix() })
	if err == nil {
		err = w.accepted()
	}
	if err != nil {
		return "", err
	}
	return w.refusedToken(token)
}

func otherIssuer(w *target) (string, error) {
	token, err := w.signed(func(c jwt.MapClaims) { c["iss"] = "http://login.example.com/oauth/token" })
	if err == nil {
		err = w.accepted()
	}
	if err != nil {
		return "", err
	}
	return w.refusedToken(token)
}

// changedClaims replaces the middle of a signed token.
func changedClaims(w *target) (string, error) {
	claims, _, err := parts(w.developer().token)
	if err != nil {
		return "", err
	}
	claims["scope"] = []string{"cloud_controller.admin"}
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodRS256, claims).SigningString()
	if err != nil {
		return "", err
	}
	own := strings.Split(w.developer().token, ".")
	return w.refusedToken(own[0] + "." + strings.Split(unsigned, ".")[1] + "." + own[2])
}

func refreshAsAccess(w *target) (string, error) {
	_, refresh, err := w.tokens(url.Values{"grant_type": {"password"}, "username": {"nobody"}, "password": {password}})
	if err != nil {
		return "", err
	}
	return w.refusedToken(refresh)
}

// temporary creates a user and logs in.
func (w *target) temporary(name string) (caller, error) {
	if _, all, err := w.runDew(password, w.victimHome, "create-user", name, "--password-stdin"); err != nil {
		return caller{}, fmt.Errorf("%w: %s", err, all)
	}
	c := caller{name: name, token: w.login(name)}
	a, err := w.ask(c.token, http.MethodGet, "/v3/apps", "")
	if err != nil || a.status != http.StatusOK {
		return c, fmt.Errorf("the token is refused before: %s %w", a, err)
	}
	return c, nil
}

func deletedUser(w *target) (string, error) {
	c, err := w.temporary("deleted")
	if err != nil {
		return "", err
	}
	code, err := w.sshCode(c)
	if err != nil {
		return "", err
	}
	if _, all, err := w.runDew("", w.victimHome, "delete-user", "deleted", "-f"); err != nil {
		return all, err
	}
	if w.shell("cf:"+w.attacker.process+"/0", code) == nil {
		return "logged in", errors.New("the code for SSH outlives the user")
	}
	return w.refusedToken(c.token)
}

func changedPassword(w *target) (string, error) {
	c, err := w.temporary("renewed")
	if err != nil {
		return "", err
	}
	claims, _, err := parts(c.token)
	if err != nil {
		return "", err
	}
	a, err := w.ask(c.token, http.MethodPut, fmt.Sprintf("/uaa/Users/%s/password", claims["user_id"]), `{"oldPassword":"`+password+`","password":"`+password+`2"}`)
	if err != nil || a.status != http.StatusOK {
		return a.String(), fmt.Errorf("cannot change the password: %w", err)
	}
	return w.refusedToken(c.token)
}

func revoked(w *target) (string, error) {
	c, err := w.temporary("left")
	if err != nil {
		return "", err
	}
	claims, _, err := parts(c.token)
	if err != nil {
		return "", err
	}
	a, err := w.ask(c.token, http.MethodDelete, fmt.Sprintf("/uaa/oauth/token/revoke/%s", claims["jti"]), "")
	if err != nil || a.status != http.StatusOK {
		return a.String(), fmt.Errorf("cannot revoke the token: %w", err)
	}
	return w.refusedToken(c.token)
}

// escalate asks for a scope that the user does not have.
func escalate(w *target) (string, error) {
	token, _, err := w.tokens(url.Values{"grant_type": {"password"}, "username": {"nobody"}, "password": {password}, "scope": {"cloud_controller.admin openid"}})
	if err != nil {
		return "no token", nil //nolint:nilerr // that is as good
	}
	claims, _, err := parts(token)
	if err != nil {
		return "", err
	}
	if strings.Contains(fmt.Sprint(claims["scope"]), "admin") {
		return fmt.Sprint(claims["scope"]), errors.New("the token has the scope")
	}
	a, err := w.ask(token, http.MethodGet, "/dew/v1/status", "")
	if err != nil || a.status != http.StatusForbidden {
		return a.String(), fmt.Errorf("want 403: %w", err)
	}
	return "not in the token; 403", nil
}

func escalateAccount(w *target) (string, error) {
	var codes []int
	for _, r := range [][3]string{
		{"POST", "/uaa/oauth/clients", `{"client_id":"mine","client_secret":"x","authorized_grant_types":["client_credentials"],"authorities":["cloud_controller.admin"]}`},
		{"PUT", "/uaa/oauth/clients/cf/secret", `{"secret":"x"}`},
		{"GET", "/uaa/oauth/clients", ""},
		{"GET", "/uaa/Users", ""},
		{"POST", "/uaa/Users", `{"userName":"x","password":"x","emails":[{"value":"x@example.com"}]}`},
		{"POST", "/uaa/Groups/cloud_controller.admin/members", `{"value":"x","type":"USER"}`},
		{"POST", "/uaa/Groups", `{"displayName":"x"}`},
		{"POST", "/v3/users", `{"guid":"x"}`},
	} {
		a, err := w.ask(w.developer().token, r[0], r[1], r[2])
		if err != nil {
			return "", err
		}
		codes = append(codes, a.status)
		if a.status != http.StatusForbidden {
			return a.String(), fmt.Errorf("%s %s", r[0], r[1])
		}
	}
	return statuses(codes), nil
}

// dashboardToken logs in to a dashboard of the broker, as a browser does.
func dashboardToken(w *target) (string, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	browser := &http.Client{Jar: jar, Transport: client.Transport, CheckRedirect: client.CheckRedirect}
	const scope, callback = "openid cloud_controller_service_permissions.read", "http://127.0.0.1:1/cb"
	query := url.Values{"response_type": {"code"}, "client_id": {"vault-dashboard"}, "redirect_uri": {callback}, "scope": {scope}, "state": {"x"}}
	at := "http://" + w.API + "/uaa/oauth/authorize?" + query.Encode()
	code := ""
	form := url.Values{"username": {w.insiders["SpaceDeveloper"].name}, "password": {password}}
	for range 6 {
		var resp *http.Response
		if len(form["request"]) > 0 {
			resp, err = browser.PostForm("http://"+w.API+"/uaa/login.do", form)
		} else {
			resp, err = browser.Get(at)
		}
		if err != nil {
			return "", err
		}
		page, err := readAll(resp)
		if err != nil {
			return "", err
		}
		if to := resp.Header.Get("Location"); to != "" {
			u, err := resp.Request.URL.Parse(to)
			if err != nil {
				return "", err
			}
			if code = u.Query().Get("code"); code != "" {
				break
			}
			at = u.String()
			form.Del("request")
			continue
		}
		for _, name := range []string{"X-Uaa-Csrf", "request"} {
			if found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page); found != nil {
				form.Set(name, html.UnescapeString(found[1]))
			}
		}
	}
	if code == "" {
		return "", errors.New("the dashboard got no code")
	}
	return w.dashboardCalls(code, callback)
}

// dashboardCalls exchanges a code and uses the token.
func (w *target) dashboardCalls(code, callback string) (string, error) {
	body := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {callback}}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.API+"/uaa/oauth/token", strings.NewReader(body.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("vault-dashboard", "hush")
	a, err := send(r)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`"access_token":"([^"]+)"`).FindStringSubmatch(a.body)
	if found == nil {
		return a.String(), errors.New("the dashboard got no token")
	}
	if a, err := w.ask(found[1], http.MethodGet, "/v3/service_instances/"+w.victim.service+"/permissions", ""); err != nil || a.status != http.StatusOK {
		return a.String(), fmt.Errorf("the dashboard cannot read the permissions: %w", err)
	}
	for _, path := range []string{"/v3/apps", "/v3/apps/" + w.victim.app + "/env", "/v3/service_instances/" + w.victim.service, "/api/v1/read/" + w.victim.app, "/dew/v1/live"} {
		a, err := w.ask(found[1], http.MethodGet, path, "")
		if err != nil {
			return "", err
		}
		if a.status != http.StatusForbidden {
			return a.String(), fmt.Errorf("%s accepts the token", path)
		}
	}
	if a, err := w.ask(found[1], http.MethodPost, "/dew/v1/ssh-code", ""); err != nil || a.status != http.StatusForbidden {
		return a.String(), fmt.Errorf("a code for SSH: %w", err)
	}
	return "403 for 6 paths", nil
}

func codeTwice(w *target) (string, error) {
	code, err := w.sshCode(w.developer())
	if err != nil {
		return "", err
	}
	user := "cf:" + w.attacker.process + "/0"
	if err := w.shell(user, code); err != nil {
		return "", fmt.Errorf("the first login: %w", err)
	}
	if w.shell(user, code) == nil {
		return "logged in twice", errors.New("the code is valid twice")
	}
	return "the second login is refused", nil
}

func tokenAsCode(w *target) (string, error) {
	for _, secret := range []string{w.developer().token, password, "", w.admin} {
		if w.shell("cf:"+w.attacker.process+"/0", secret) == nil {
			return "logged in", errors.New("it is no code")
		}
	}
	return "4 logins are refused", nil
}

func tokenElsewhere(w *target) (string, error) {
	token := w.developer().token
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.API+"/v3/apps", http.NoBody)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"token", "access_token", "dew_login", "dew_console", "JSESSIONID"} {
		r.AddCookie(&http.Cookie{Name: name, Value: token})
	}
	a, err := send(r)
	if err != nil || a.status != http.StatusUnauthorized {
		return a.String(), fmt.Errorf("a cookie: %w", err)
	}
	for _, query := range []string{"access_token", "token", "authorization"} {
		if a, err := w.ask("", http.MethodGet, "/v3/apps?"+query+"="+token, ""); err != nil || a.status != http.StatusUnauthorized {
			return a.String(), fmt.Errorf("the parameter %s: %w", query, err)
		}
	}
	return "401", nil
}

// guess guesses until it is refused, even with the right password.
func guess(w *target) (string, error) {
	if _, err := w.temporary("guessed"); err != nil {
		return "", err
	}
	wrong := url.Values{"grant_type": {"password"}, "username": {"guessed"}, "password": {"wrong"}}
	const most = 20
	for range most {
		_, _, err := w.tokens(wrong)
		if err == nil {
			return "logged in", errors.New("a wrong password is accepted")
		}
		right := url.Values{"grant_type": {"password"}, "username": {"guessed"}, "password": {password}}
		if strings.Contains(err.Error(), "locked") || strings.Contains(err.Error(), "too many") || strings.Contains(err.Error(), "Too many") {
			if _, _, err := w.tokens(right); err == nil {
				return "logged in", errors.New("the right password is accepted while the account is locked")
			}
			return "locked", nil
		}
	}
	return "never refused", fmt.Errorf("%d wrong passwords", most)
}
