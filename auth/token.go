package auth

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/dewrun/dew/store"
)

const (
	userAccessValidity   = 10 * time.Minute
	clientAccessValidity = 12 * time.Hour // cf cannot renew it, because it does not store the secret
	maxToken             = 16 << 10
	zone                 = "uaa"
)

// claims are the claims of a token. Those of a user include user_name, user_id and
// origin; the command line needs all or none of them.
type claims struct {
	JTI         string           `json:"jti"`
	Subject     string           `json:"sub"`
	Authorities []string         `json:"authorities,omitempty"`
	Scope       []string         `json:"scope"`
	ClientID    string           `json:"client_id"`
	CID         string           `json:"cid"`
	AZP         string           `json:"azp"`
	Revocable   bool             `json:"revocable"`
	Grant       string           `json:"grant_type"`
	UserID      string           `json:"user_id,omitempty"`
	Origin      string           `json:"origin,omitempty"`
	UserName    string           `json:"user_name,omitempty"`
	Email       string           `json:"email,omitempty"`
	AuthTime    int64            `json:"auth_time,omitempty"`
	Signature   string           `json:"rev_sig"`
	Session     string           `json:"sid,omitempty"`
	IssuedAt    *jwt.NumericDate `json:"iat"`
	Expires     *jwt.NumericDate `json:"exp"`
	Issuer      string           `json:"iss"`
	Zone        string           `json:"zid"`
	Audience    jwt.ClaimStrings `json:"aud"`
}

// GetExpirationTime implements jwt.Claims, like the methods below.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.Expires, nil }

// GetIssuedAt returns when the token was issued.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return c.IssuedAt, nil }

// GetNotBefore returns nothing: a token is valid as soon as it is issued.
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return nil, nil }

// GetIssuer returns the issuer of the token.
func (c *claims) GetIssuer() (string, error) { return c.Issuer, nil }

// GetSubject returns the user or client that the token is about.
func (c *claims) GetSubject() (string, error) { return c.Subject, nil }

// GetAudience returns the services that the token is for.
func (c *claims) GetAudience() (jwt.ClaimStrings, error) { return c.Audience, nil }

// principal returns the principal of the claims, in the state when the token was
// issued.
func (c *claims) principal() Principal {
	p := Principal{
		ID: c.ClientID, Name: c.ClientID, Client: c.ClientID, Scopes: c.Scope,
		JTI: c.JTI, Expires: c.Expires.Time, sig: c.Signature, session: c.Session,
	}
	if c.UserID != "" {
		p.ID, p.Name, p.IsUser = c.UserID, c.UserName, true
	}
	return p
}

// userClaims returns the claims of a user's token for a client.
func (s *tokens) userClaims(u User, c Client, ses session) *claims {
	out := s.newClaims(c, cmp.Or(c.AccessValidity, userAccessValidity))
	out.Subject, out.UserID, out.UserName, out.Origin, out.Email = u.GUID, u.GUID, u.Name, u.Origin, u.Email
	out.AuthTime = ses.CreatedAt.Unix()
	out.Signature, out.Session, out.Grant = ses.Signature, ses.ID, ses.Grant
	out.setScope(ses.Scopes)
	return out
}

// clientClaims returns the claims of a client's token in its own name.
func (s *tokens) clientClaims(c Client, scopes []string) *claims {
	out := s.newClaims(c, cmp.Or(c.AccessValidity, clientAccessValidity))
	out.Subject, out.Authorities = c.ID, slices.Clone(scopes)
	out.Signature, out.Grant = c.signature(), GrantClient
	out.setScope(scopes)
	return out
}

func (s *tokens) newClaims(c Client, life time.Duration) *claims {
	at := time.Now()
	return &claims{
		JTI: strings.ToLower(rand.Text()), ClientID: c.ID, CID: c.ID, AZP: c.ID, Revocable: true, Issuer: s.issuer, Zone: zone,
		IssuedAt: jwt.NewNumericDate(at), Expires: jwt.NewNumericDate(at.Add(max(life, minAccessValidity))),
	}
}

// setScope also sets the audience of the token: the client, and every service that one
// of the scopes names.
func (c *claims) setScope(scopes []string) {
	c.Scope = slices.Clone(scopes)
	if c.Scope == nil {
		c.Scope = []string{}
	}
	aud := []string{c.ClientID}
	for _, scope := range scopes {
		if i := strings.LastIndexByte(scope, '.'); i > 0 {
			scope = scope[:i]
		}
		aud = append(aud, scope)
	}
	slices.Sort(aud)
	c.Audience = slices.Compact(aud)
}

func (s *tokens) sign(c jwt.Claims) (string, error) {
	k := s.keys.signer()
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	t.Header["kid"] = k.id
	t.Header["jku"] = s.cfg.PublicURL + "/uaa/token_keys"
	signed, err := t.SignedString(k.private)
	if err != nil {
		return "", fmt.Errorf("cannot sign a token: %w", err)
	}
	return signed, nil
}

// Verify returns the principal of a token, with the scopes that it still has. It
// returns ErrExpired, ErrRevoked or ErrInvalidToken if the token is not valid.
func (s *tokens) Verify(token string) (Principal, error) {
	c, err := s.parse(token)
	if err != nil {
		return Principal{}, err
	}
	return s.current(c.principal())
}

// parse checks the token itself, without the store.
func (s *tokens) parse(token string) (*claims, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("%w: the token has more than %d bytes", ErrInvalidToken, maxToken)
	}
	c := &claims{}
	_, err := jwt.ParseWithClaims(token, c, s.keyOf,
		jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg()}), jwt.WithIssuer(s.issuer), jwt.WithExpirationRequired())
	if errors.Is(err, jwt.ErrTokenExpired) {
		return nil, ErrExpired
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidToken, err)
	}
	if c.JTI == "" || c.ClientID == "" || c.Zone != zone || !slices.Contains(c.Audience, c.ClientID) {
		return nil, fmt.Errorf("%w: a required claim is missing", ErrInvalidToken)
	}
	return c, nil
}

func (s *tokens) keyOf(t *jwt.Token) (any, error) {
	id, _ := t.Header["kid"].(string)
	k, ok := s.keys.find(id)
	if !ok {
		return nil, fmt.Errorf("no token key has the id %q", id)
	}
	return &k.private.PublicKey, nil
}

// current checks the state in the store, and returns p in its present state.
func (s *tokens) current(p Principal) (Principal, error) {
	_, err := s.revoked.Get(p.JTI)
	if err == nil {
		return Principal{}, ErrRevoked
	}
	if !errors.Is(err, store.ErrNotFound) {
		return Principal{}, fmt.Errorf("cannot check whether a token was revoked: %w", err)
	}
	return s.account(p)
}

// account returns p in the present state of its user and client, without lost scopes.
// It returns ErrRevoked if one of them was deleted or has a new password.
func (s *tokens) account(p Principal) (Principal, error) {
	c, err := s.accounts.Client(p.Client)
	if errors.Is(err, ErrNotFound) {
		return Principal{}, fmt.Errorf("%w: the client of the token was deleted", ErrRevoked)
	}
	if err != nil {
		return Principal{}, err
	}
	if !p.IsUser {
		if c.signature() != p.sig {
			return Principal{}, fmt.Errorf("%w: the client of the token has a new secret", ErrRevoked)
		}
		p.Scopes = intersect(p.Scopes, func(scope string) bool { return slices.Contains(c.Authorities, scope) })
		return p, nil
	}
	u, err := s.accounts.User(p.ID)
	if errors.Is(err, ErrNotFound) {
		return Principal{}, fmt.Errorf("%w: the user of the token was deleted", ErrRevoked)
	}
	if err != nil {
		return Principal{}, err
	}
	if !u.Active || u.signature() != p.sig {
		return Principal{}, fmt.Errorf("%w: the user of the token has a new password or is not active", ErrRevoked)
	}
	p.Name = u.Name
	p.Scopes = intersect(p.Scopes, allowedTo(u, c))
	return p, nil
}

// allowedTo returns a function that reports whether a client can have a scope in the
// name of a user.
func allowedTo(u User, c Client) func(scope string) bool {
	own := u.Scopes()
	return func(scope string) bool { return slices.Contains(own, scope) && c.allows(scope) }
}

// intersect returns the scopes that are allowed.
func intersect(scopes []string, allowed func(scope string) bool) []string {
	out := []string{}
	for _, s := range scopes {
		if allowed(s) {
			out = append(out, s)
		}
	}
	return out
}
