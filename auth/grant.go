package auth

import "time"

// Grant is a user's principal as a session of another package stores it.
type Grant struct {
	ID        string // chosen by the session, for RevokeGrant
	User      string // guid
	Client    string
	Scopes    []string
	Signature string // signature of the user at login
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
