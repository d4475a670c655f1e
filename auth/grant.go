package auth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Grant is a user's principal as a session of another package stores it.
type Grant struct {
	ID        string // chosen by the session, for RevokeGrant
	User      string // guid
	Client    string
	Scopes    []string
	Signature string // signature of the user at login
	Nonce     string // of the client's request, for the id_token
}

// Grant returns the grant of a user without an id. A principal that a listener
// authenticated has no account, so it gets the grant of the user admin.
func (s *Server) Grant(p Principal) (Grant, error) {
	if p.sig == "" {
		token, err := s.UserToken(AdminName)
		if err != nil {
			return Grant{}, err
		}
		if p, err = s.Verify(token); err != nil {
			return Grant{}, err
		}
	}
	if !p.IsUser {
		return Grant{}, &Invalid{Key: "client", Message: "a client has no session; log in as a user"}
	}
	return Grant{User: p.ID, Client: p.Client, Scopes: p.Scopes, Signature: p.sig}, nil
}

// ResumeGrant returns the principal of a grant, with the scopes that it still has. It
// returns ErrRevoked if the grant is not valid any more.
func (s *tokens) ResumeGrant(g Grant) (Principal, error) {
	return s.current(Principal{ID: g.User, Client: g.Client, IsUser: true, Scopes: g.Scopes, JTI: g.ID, sig: g.Signature})
}

// RevokeGrant revokes a grant. The revocation is stored until no principal can have it.
func (s *tokens) RevokeGrant(g Grant, until time.Time) error {
	return s.revoke(revocation{JTI: g.ID, Expires: until}, "")
}

// Codes redeems the authorization codes that a browser got for a client. The error says
// what is wrong with the code or the request.
type Codes interface {
	Redeem(client string, form url.Values) (Grant, error)
	// IDClaims returns the claims of an id_token for the user of a grant.
	IDClaims(g Grant, u User, issuer string) jwt.MapClaims
}

// grantCode exchanges an authorization code of the login page for a token of its user.
func (s *oauthHandlers) grantCode(_ context.Context, g grant) (tokenReply, error) {
	refused := func(description string) error {
		return &problem{status: http.StatusBadRequest, code: "invalid_grant", description: description}
	}
	if s.cfg.Codes == nil {
		return tokenReply{}, refused("This server issues no authorization codes for browsers")
	}
	of, err := s.cfg.Codes.Redeem(g.client.ID, g.form)
	if err != nil {
		return tokenReply{}, refused(err.Error())
	}
	p, err := s.ResumeGrant(of)
	if errors.Is(err, ErrRevoked) {
		return tokenReply{}, refused("The user of the authorization code has logged out or cannot log in any more")
	}
	if err != nil {
		return tokenReply{}, err
	}
	u, err := s.accounts.User(p.ID)
	if err != nil {
		return tokenReply{}, err
	}
	out, err := s.startLogin(u, g.client, p.Scopes, GrantCode)
	if err == nil && p.Has("openid") {
		out.IDToken, err = s.sign(s.cfg.Codes.IDClaims(of, u, s.issuer))
	}
	return out, err
}

// Login returns the grant of a user with a name and a password, for a login page. A
// wrong password makes the next attempt from this peer wait: see LoginProblem.
func (s *Server) Login(r *http.Request, name, password string) (Grant, error) {
	u, err := s.login(r.Context(), login{name: name, password: password, peer: peer(r)})
	return Grant{User: u.GUID, Client: ClientCF, Scopes: u.Scopes(), Signature: u.signature()}, err
}

// LoginProblem returns the status and the text of a refused login.
func LoginProblem(err error) (status int, text string) {
	p := toProblem(err)
	return p.status, p.description
}

// BaseURL returns the URL of the authorization server for the client of a request.
func (s *Server) BaseURL(r *http.Request) string { return s.baseURL(r) }
