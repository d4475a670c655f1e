package auth

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// authorize gives a one-time code for the ssh proxy to any caller with a token. Codes
// exist only for the ssh proxy, so there is nothing to approve.
func (s *oauthHandlers) authorize(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return reply{}, badRequest("The query string of the URL is not valid")
	}
	if id := query.Get("client_id"); id != ClientSSH {
		return reply{}, invalidClient("Authorization codes are available only for the client " + ClientSSH)
	}
	if kind := query.Get("response_type"); kind != "code" {
		return reply{}, &problem{status: http.StatusBadRequest, code: "unsupported_response_type", description: "Unsupported response type: " + printable(kind)}
	}
	to, err := s.redirect(s.baseURL(r)+"/login", query.Get("redirect_uri"))
	if err != nil {
		return reply{}, err
	}
	code, err := s.Code(p)
	if err != nil {
		return reply{}, err
	}
	answer := to.Query()
	answer.Set("code", code)
	if state := query.Get("state"); state != "" {
		answer.Set("state", state)
	}
	to.RawQuery = answer.Encode()
	return reply{status: http.StatusFound, location: to.String()}, nil
}

// redirect returns the URL that a code is sent to: the server's own, or one that the
// client has registered.
func (s *oauthHandlers) redirect(to, asked string) (*url.URL, error) {
	c, err := s.accounts.Client(ClientSSH)
	if err != nil {
		return nil, err
	}
	if asked != "" && asked != to && !slices.Contains(c.RedirectURIs, asked) {
		return nil, badRequest("The redirect_uri is not registered for this client")
	}
	if asked != "" {
		to = asked
	}
	u, err := url.Parse(to)
	if err != nil {
		return nil, badRequest("The redirect_uri is not a valid URL")
	}
	return u, nil
}

// revokeToken revokes the caller's own token and the session that it came from.
// Administrators can revoke any token by its id.
func (s *oauthHandlers) revokeToken(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	jti := r.PathValue("jti")
	if jti == p.JTI {
		return reply{body: struct{}{}}, s.revoke(revocation{JTI: jti, Expires: p.Expires.UTC()}, p.session)
	}
	if err := requireScope(p, "uaa.admin", "tokens.revoke"); err != nil {
		return reply{}, err
	}
	if err := checkGUID(jti); err != nil {
		return reply{}, badRequest("The token id is not valid")
	}
	return reply{body: struct{}{}}, s.revoke(revocation{JTI: jti, Expires: now().Add(maxValidity)}, "")
}

// revokeUser revokes all tokens of a user.
func (s *oauthHandlers) revokeUser(r *http.Request) (reply, error) {
	id := r.PathValue("id")
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	if !p.IsUser || p.ID != id || !p.Has("uaa.user") {
		err = requireScope(p, "uaa.admin", "tokens.revoke")
	}
	var u User
	if err == nil {
		u, err = s.accounts.revokeUser(id)
	}
	s.record(event{EventUserRevoke, p, id, u.Name}, err)
	return reply{body: struct{}{}}, scimProblem(err)
}

// revokeClient revokes all tokens that a client has in its own name.
func (s *oauthHandlers) revokeClient(r *http.Request) (reply, error) {
	id := r.PathValue("id")
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	if err = requireScope(p, "uaa.admin", "tokens.revoke"); err == nil {
		_, err = s.accounts.UpdateClient(id, func(c *Client) error { c.Epoch++; return nil })
	}
	s.record(event{EventClientRevoke, p, id, id}, err)
	return reply{body: struct{}{}}, clientProblem(err)
}

// revokeUser increments the user's epoch, so that all earlier tokens are revoked, and
// deletes the user's sessions.
func (a *Accounts) revokeUser(guid string) (u User, err error) {
	err = a.update(func(a *Accounts) error {
		if u, err = a.UpdateUser(guid, func(u *User) error { u.Epoch++; return nil }); err != nil {
			return err
		}
		return a.deleteSessions("user", guid)
	})
	return u, err
}

// checkToken returns the claims of a token to a service.
func (s *oauthHandlers) checkToken(r *http.Request) (reply, error) {
	form, err := readForm(r)
	if err != nil {
		return reply{}, err
	}
	if err := s.authorizeInspection(r); err != nil {
		return reply{}, err
	}
	c, err := s.parse(form.Get("token"))
	var p Principal
	if err == nil {
		p, err = s.current(c.principal())
	}
	if errors.Is(err, ErrInvalidToken) || errors.Is(err, ErrExpired) || errors.Is(err, ErrRevoked) {
		return reply{}, &problem{status: http.StatusBadRequest, code: "invalid_token", description: toProblem(err).description}
	}
	if err != nil {
		return reply{}, err
	}
	c.Scope = p.Scopes
	for _, wanted := range strings.FieldsFunc(form.Get("scopes"), func(r rune) bool { return r == ',' || r == ' ' }) {
		if !p.Has(wanted) {
			return reply{}, &problem{status: http.StatusBadRequest, code: "invalid_scope", description: "Some requested scopes are missing: " + printable(wanted)}
		}
	}
	return reply{body: c}, nil
}

// introspection is the answer of introspect. It has the claims only of a valid token.
type introspection struct {
	Active bool `json:"active"`
	*claims
}

// introspect is checkToken as defined in RFC 7662: an invalid token is not an error.
func (s *oauthHandlers) introspect(r *http.Request) (reply, error) {
	form, err := readForm(r)
	if err != nil {
		return reply{}, err
	}
	if err := s.authorizeInspection(r); err != nil {
		return reply{}, err
	}
	if form.Get("token") == "" {
		return reply{}, &problem{status: http.StatusBadRequest, code: "invalid_request", description: "The form parameter token is missing"}
	}
	c, err := s.parse(form.Get("token"))
	var p Principal
	if err == nil {
		p, err = s.current(c.principal())
	}
	if errors.Is(err, ErrInvalidToken) || errors.Is(err, ErrExpired) || errors.Is(err, ErrRevoked) {
		return reply{body: introspection{}}, nil
	}
	if err != nil {
		return reply{}, err
	}
	c.Scope = p.Scopes
	return reply{body: introspection{true, c}}, nil
}

// authorizeInspection allows services and administrators to inspect tokens.
func (s *oauthHandlers) authorizeInspection(r *http.Request) error {
	_, trusted := FromContext(r.Context())
	if _, ok := bearer(r.Header.Get("Authorization")); ok || trusted {
		_, err := s.permitted(r, "uaa.resource", "uaa.admin")
		return err
	}
	c, err := s.client(r, url.Values{})
	if err != nil {
		return err
	}
	return requireScope(Principal{Scopes: c.Authorities}, "uaa.resource", "uaa.admin")
}

// userinfo returns users their own account.
func (s *oauthHandlers) userinfo(r *http.Request) (reply, error) {
	p, err := s.permitted(r, "openid")
	if err != nil {
		return reply{}, err
	}
	u, err := s.accounts.User(p.ID)
	if errors.Is(err, ErrNotFound) || !p.IsUser {
		return reply{}, requireScope(Principal{}, "openid")
	}
	if err != nil {
		return reply{}, err
	}
	return reply{body: map[string]any{
		"user_id": u.GUID, "sub": u.GUID, "user_name": u.Name, "origin": u.Origin,
		"name": strings.TrimSpace(u.GivenName + " " + u.FamilyName), "given_name": u.GivenName, "family_name": u.FamilyName,
		"email": u.Email, "email_verified": u.Verified,
	}}, nil
}

// passcode gives a user a code to log in with from another program. A browser has no
// token, so name and password are accepted as well.
func (s *oauthHandlers) passcode(r *http.Request) (reply, error) {
	p, err := s.passcodeCaller(r)
	if err != nil {
		return reply{}, err
	}
	if _, err := s.accounts.User(p.ID); errors.Is(err, ErrNotFound) || !p.IsUser {
		return reply{}, requireScope(Principal{}, "uaa.user")
	}
	code, err := s.passcodes.put(p)
	if err != nil {
		return reply{}, err
	}
	return reply{body: map[string]any{"passcode": code, "expires_in": int(codeValidity / time.Second)}}, nil
}

func (s *oauthHandlers) passcodeCaller(r *http.Request) (Principal, error) {
	name, password, ok := basic(r.Header.Get("Authorization"))
	if ok {
		u, err := s.login(r.Context(), login{name: name, password: password, peer: peer(r)})
		return Principal{ID: u.GUID, Name: u.Name, Client: ClientCF, IsUser: true, Scopes: u.Scopes(), sig: u.signature()}, asBasic(err)
	}
	p, err := s.permitted(r, "uaa.user")
	if r.Header.Get("Authorization") == "" {
		err = asBasic(err)
	}
	return p, err
}

// asBasic makes a browser prompt for name and password.
func asBasic(err error) error {
	if p, ok := errors.AsType[*problem](err); ok && p.status == http.StatusUnauthorized {
		again := *p
		again.challenge = `Basic realm="UAA", charset="UTF-8"`
		return &again
	}
	return err
}
