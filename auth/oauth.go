package auth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dewrun/dew/auth/throttle"
)

const lockedText = "Your account has been locked because of too many failed attempts to login."

// tokenReply is the answer of the token endpoint. The type is in lower case because the
// command line compares it so.
type tokenReply struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	RefreshToken string `json:"refresh_token,omitempty"`
	IDToken      string `json:"id_token,omitempty"`
	ExpiresIn    int64  `json:"expires_in"`
	Scope        string `json:"scope"`
	JTI          string `json:"jti"`
}

// grant is a request for a token from an authenticated client.
type grant struct {
	client Client
	form   url.Values
	origin string // origin that stores the user
	peer   string
}

// token issues tokens.
func (s *oauthHandlers) token(r *http.Request) (reply, error) {
	form, err := readForm(r)
	if err != nil {
		return reply{}, err
	}
	origin, err := loginHint(r.URL.RawQuery)
	if err != nil {
		return reply{}, err
	}
	c, err := s.client(r, form)
	if err != nil {
		return reply{}, err
	}
	if err := s.sweep(); err != nil {
		s.log.Warn("cannot delete expired sessions", "err", err)
	}
	g := grant{client: c, form: form, origin: origin, peer: peer(r)}
	kind := form.Get("grant_type")
	gives := map[string]func(ctx context.Context, g grant) (tokenReply, error){
		GrantPassword: s.grantPassword, GrantClient: s.grantClient, GrantRefresh: s.grantRefresh, GrantCode: s.grantCode,
	}[kind]
	switch {
	case kind == "":
		return reply{}, badRequest("Missing grant type")
	case gives == nil:
		return reply{}, &problem{status: http.StatusBadRequest, code: "unsupported_grant_type", description: "Unsupported grant type: " + printable(kind)}
	case !slices.Contains(c.GrantTypes, kind):
		return reply{}, invalidClient("Unauthorized grant type: " + kind)
	}
	out, err := gives(r.Context(), g)
	return reply{body: out}, err
}

// grantPassword is the login of a user, by password or by a one-time passcode.
func (s *oauthHandlers) grantPassword(ctx context.Context, g grant) (tokenReply, error) {
	var u User
	var err error
	allowed := g.client.allows
	if g.form.Has("passcode") {
		var p Principal
		u, p, err = s.passcodeUser(ctx, g.form.Get("passcode"), g.peer)
		// A passcode has no more scopes than the token that requested it.
		allowed = func(scope string) bool { return p.Has(scope) && g.client.allows(scope) }
	} else {
		u, err = s.login(ctx, login{name: g.form.Get("username"), origin: g.origin, password: g.form.Get("password"), peer: g.peer})
	}
	if err != nil {
		return tokenReply{}, err
	}
	scopes, err := selectScopes(intersect(u.Scopes(), allowed), g.form.Get("scope"))
	if err != nil {
		return tokenReply{}, err
	}
	return s.startLogin(u, g.client, scopes, GrantPassword)
}

// startLogin issues the first tokens of a login.
func (s *oauthHandlers) startLogin(u User, c Client, scopes []string, kind string) (tokenReply, error) {
	ses := session{
		User: u.GUID, Client: c.ID, Scopes: scopes, Grant: kind, Signature: u.signature(), CreatedAt: now(),
		Expires: now().Add(cmp.Or(c.RefreshValidity, refreshValidity)),
	}
	var refresh string
	if slices.Contains(c.GrantTypes, GrantRefresh) {
		var err error
		if ses, refresh, err = s.accounts.startSession(ses); err != nil {
			return tokenReply{}, err
		}
	}
	return s.issueTokens(s.userClaims(u, c, ses), refresh)
}

// login is a login attempt of a user.
type login struct{ name, origin, password, peer string }

// login checks a password. It waits if earlier attempts failed.
func (s *core) login(ctx context.Context, l login) (User, error) {
	origin := cmp.Or(l.origin, OriginUAA)
	known, err := s.accounts.UserByName(l.name, origin)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return User{}, err
	}
	// No one could unlock the administrators.
	runs := slices.Contains(known.Groups, ScopeAdmin) || slices.Contains(known.Groups, "uaa.admin")
	var u User
	err = s.throttle.Try(ctx, throttle.Attempt{Name: origin + "\x00" + l.name, Peer: l.peer, Lockable: !runs}, func() (err error) {
		u, err = s.accounts.checkPassword(l.name, origin, l.password)
		return err
	})
	return u, loginProblem(err)
}

// loginProblem converts a failed login into a UAA error.
func loginProblem(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrBadPassword), errors.Is(err, ErrBadCode):
		return unauthorized("Bad credentials")
	case errors.Is(err, throttle.ErrLocked):
		return unauthorized(lockedText)
	case errors.Is(err, throttle.ErrTooMany), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{status: http.StatusTooManyRequests, code: "too_many_requests", description: "Too many failed login attempts. Try again in a few seconds"}
	}
	return err
}

func unauthorized(description string) *problem {
	return &problem{status: http.StatusUnauthorized, code: "unauthorized", description: description}
}

func invalidClient(description string) *problem {
	return &problem{status: http.StatusUnauthorized, code: "invalid_client", description: description, challenge: `Basic realm="UAA/client"`}
}

// passcodeUser redeems a passcode, and returns the user that it was given to.
func (s *core) passcodeUser(ctx context.Context, code, peer string) (u User, p Principal, err error) {
	err = s.throttle.Try(ctx, throttle.Attempt{Name: "passcode\x00", Peer: peer}, func() (err error) {
		if p, err = s.passcodes.redeem(code); err != nil {
			return ErrBadPassword // it counts like a wrong password
		}
		if p, err = s.recheck(p); err != nil {
			return err
		}
		u, err = s.accounts.User(p.ID)
		if errors.Is(err, ErrNotFound) {
			return ErrBadCode
		}
		return err
	})
	return u, p, loginProblem(err)
}

// grantClient gives a client a token in its own name. There is no refresh token: a
// client that still has its secret can request another token.
func (s *oauthHandlers) grantClient(_ context.Context, g grant) (tokenReply, error) {
	scopes, err := selectScopes(g.client.Authorities, g.form.Get("scope"))
	if err != nil {
		return tokenReply{}, err
	}
	return s.issueTokens(s.clientClaims(g.client, scopes), "")
}

// grantRefresh renews a login. The refresh token stays the same, so that parallel
// commands do not revoke each other's session. It is in every answer, because the
// command line stores the token that it finds there.
func (s *oauthHandlers) grantRefresh(_ context.Context, g grant) (tokenReply, error) {
	token := g.form.Get("refresh_token")
	if token == "" {
		return tokenReply{}, badRequest("Missing refresh token")
	}
	bad := &problem{status: http.StatusUnauthorized, code: "invalid_token", description: "The refresh token has expired or was revoked. Log in again"}
	ses, err := s.accounts.resumeSession(token)
	if errors.Is(err, ErrRevoked) || errors.Is(err, ErrExpired) {
		return tokenReply{}, bad
	}
	if err != nil {
		return tokenReply{}, err
	}
	u, err := s.accounts.User(ses.User)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return tokenReply{}, err
	}
	if err != nil || !u.Active || u.signature() != ses.Signature || ses.Client != g.client.ID {
		return tokenReply{}, bad
	}
	ses.Scopes, err = selectScopes(intersect(ses.Scopes, allowedTo(u, g.client)), g.form.Get("scope"))
	if err != nil {
		return tokenReply{}, err
	}
	return s.issueTokens(s.userClaims(u, g.client, ses), token)
}

func (s *oauthHandlers) issueTokens(c *claims, refresh string) (tokenReply, error) {
	signed, err := s.sign(c)
	if err != nil {
		return tokenReply{}, err
	}
	return tokenReply{
		AccessToken: signed, TokenType: "bearer", RefreshToken: refresh,
		ExpiresIn: int64(c.Expires.Sub(c.IssuedAt.Time) / time.Second), Scope: strings.Join(c.Scope, " "), JTI: c.JTI,
	}, nil
}

// selectScopes returns the requested scopes, or all allowed ones if none are requested.
func selectScopes(allowed []string, asked string) ([]string, error) {
	wanted := strings.Fields(asked)
	if len(wanted) == 0 {
		return slices.Clone(allowed), nil
	}
	out := intersect(allowed, func(s string) bool { return slices.Contains(wanted, s) })
	if len(out) == 0 {
		return nil, &problem{
			status: http.StatusBadRequest, code: "invalid_scope",
			description: fmt.Sprintf("[%s] is invalid. None of the requested scopes is allowed.", printable(strings.Join(wanted, ", "))),
		}
	}
	return out, nil
}

// client returns the client that requests a token.
func (s *oauthHandlers) client(r *http.Request, form url.Values) (Client, error) {
	id, secret, err := clientCredentials(r.Header.Get("Authorization"), form)
	if err != nil {
		return Client{}, err
	}
	c, err := s.accounts.Client(id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Client{}, err
	}
	if err == nil && c.Hash == nil && secret == "" {
		return c, nil
	}
	if err == nil && secret == "" {
		return Client{}, invalidClient("The client secret is missing. Log in again with the client secret")
	}
	// A client is slowed down but never locked, because a locked client would be a
	// service outage.
	err = s.throttle.Try(r.Context(), throttle.Attempt{Name: "client\x00" + id, Peer: peer(r)}, func() error {
		c, err = s.accounts.CheckSecret(id, secret)
		return err
	})
	if errors.Is(err, ErrBadPassword) {
		return Client{}, invalidClient("Bad credentials")
	}
	return c, loginProblem(err)
}

// clientCredentials finds id and secret of a client, in the header or in the form. If
// both have them, they must match.
func clientCredentials(header string, form url.Values) (id, secret string, err error) {
	if strings.TrimSpace(header) == "" {
		if form.Get("client_id") == "" {
			return "", "", invalidClient("Client credentials are missing")
		}
		return form.Get("client_id"), form.Get("client_secret"), nil
	}
	id, secret, ok := basic(header)
	if !ok || id == "" {
		return "", "", invalidClient("The Authorization header is not valid")
	}
	if other := form.Get("client_id"); other != "" && other != id {
		return "", "", badRequest("The client id in the Authorization header differs from client_id in the request body")
	}
	if other := form.Get("client_secret"); other != "" && other != secret {
		return "", "", badRequest("The client secret in the Authorization header differs from client_secret in the request body")
	}
	return id, secret, nil
}

// basic parses a header of the Basic scheme.
func basic(header string) (user, password string, ok bool) {
	scheme, encoded, found := strings.Cut(strings.TrimSpace(header), " ")
	if !found || !strings.EqualFold(scheme, "basic") {
		return "", "", false
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil || !utf8.Valid(raw) {
		return "", "", false
	}
	return strings.Cut(string(raw), ":")
}

// readForm reads the parameters from the body. It ignores those in the URL, because
// URLs are written to logs.
func readForm(r *http.Request) (url.Values, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, &problem{status: http.StatusUnsupportedMediaType, code: "invalid_request", description: "The Content-Type must be application/x-www-form-urlencoded"}
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, asRequest(err)
	}
	return parseForm(string(raw))
}

// parseForm refuses forms that two parsers could read differently.
func parseForm(body string) (url.Values, error) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return nil, badRequest("The form data in the request body is not valid")
	}
	for k, vs := range form {
		if len(vs) > 1 {
			return nil, badRequest("A form parameter is given more than once: " + printable(k))
		}
		if !utf8.ValidString(k) || !utf8.ValidString(vs[0]) {
			return nil, badRequest("The form data in the request body is not valid UTF-8")
		}
	}
	return form, nil
}

// loginHint returns the origin that a login names, or "".
func loginHint(query string) (string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", badRequest("The query string of the URL is not valid")
	}
	hint := values.Get("login_hint")
	if hint == "" {
		return "", nil
	}
	var v struct{ Origin string }
	if err := json.Unmarshal([]byte(hint), &v); err != nil {
		return "", badRequest("login_hint must be JSON such as {\"origin\":\"uaa\"}")
	}
	return v.Origin, nil
}
