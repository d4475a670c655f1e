package sso

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/url"
	"regexp"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/ticket"
)

const (
	codeLifetime = 5 * time.Minute
	idLifetime   = 10 * time.Minute // of an id_token
	maxCodes     = 100              // of one user
	challengeS   = "S256"
)

// verifierForm is the form of a code verifier: RFC 7636, section 4.1.
var verifierForm = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`)

// code is an authorization code that a client has not redeemed yet.
type code struct {
	grant     auth.Grant
	redirect  string // redirect_uri of the request; empty if it had none
	challenge string // SHA-256 of the verifier in base64; empty: the client has none
}

// Codes holds the unused authorization codes. It implements auth.Codes.
type Codes struct{ codes *ticket.Store[code] }

// NewCodes returns an empty store.
func NewCodes() *Codes { return &Codes{codes: ticket.New[code](maxCodes)} }

// Redeem returns the grant of a code, which is then no longer valid, even if the request
// is wrong: someone else could have the code.
func (c *Codes) Redeem(client string, form url.Values) (auth.Grant, error) {
	found, ok := c.codes.Take(form.Get("code"))
	switch {
	case form.Get("code") == "":
		return auth.Grant{}, errors.New("An authorization code must be supplied.") //nolint:staticcheck // UAA's words
	case !ok || found.grant.Client != client:
		return auth.Grant{}, errors.New("Invalid authorization code: it is wrong, used or expired") //nolint:staticcheck // UAA's words
	case form.Get("redirect_uri") != found.redirect:
		return auth.Grant{}, errors.New("Redirect URI mismatch.") //nolint:staticcheck // UAA's words
	case !verified(found.challenge, form):
		return auth.Grant{}, errors.New("Invalid code verifier") //nolint:staticcheck // UAA's words
	}
	return found.grant, nil
}

// verified reports whether the client that redeems a code is the one that requested it.
func verified(challenge string, form url.Values) bool {
	verifier := form.Get("code_verifier")
	if challenge == "" {
		return verifier == ""
	}
	sum := sha256.Sum256([]byte(verifier))
	got := base64.RawURLEncoding.EncodeToString(sum[:])
	return verifierForm.MatchString(verifier) && subtle.ConstantTimeCompare([]byte(got), []byte(challenge)) == 1
}

// IDClaims returns the claims of an id_token, which tells a client who logged in. It has
// no client_id and no scopes, so that no one can use it as an access token.
func (c *Codes) IDClaims(g auth.Grant, u auth.User, issuer string) jwt.MapClaims {
	at := time.Now()
	out := jwt.MapClaims{
		"iss": issuer, "sub": u.GUID, "aud": []string{g.Client}, "azp": g.Client, "iat": at.Unix(), "exp": at.Add(idLifetime).Unix(),
		"user_name": u.Name, "email": u.Email, "origin": u.Origin,
	}
	if g.Nonce != "" {
		out["nonce"] = g.Nonce
	}
	return out
}
