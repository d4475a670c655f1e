package auth

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/dewrun/dew/store"
)

// The grants of the token endpoint.
const (
	GrantPassword     = "password"
	GrantClient       = "client_credentials"
	GrantRefresh      = "refresh_token"
	GrantCode         = "authorization_code"
	anyScope          = "*"
	maxScopes         = 200
	minAccessValidity = 2 * time.Minute
	maxValidity       = 90 * 24 * time.Hour
)

// grantTypes is what a client may be allowed. The last ones are of the platform
// and only remembered: ssh-proxy's code is redeemed by the ssh door itself.
var grantTypes = []string{
	GrantPassword, GrantClient, GrantRefresh, GrantCode, "implicit",
	"urn:ietf:params:oauth:grant-type:jwt-bearer", "user_token",
}

// Client is a program that may ask for tokens.
type Client struct {
	ID              string
	Name            string
	Hash            []byte   // bcrypt; nil: no secret is needed
	GrantTypes      []string // how it may ask
	Scopes          []string // what it may ask for in the name of a user; "*": anything
	Authorities     []string // what it may do in its own name
	RedirectURIs    []string
	AccessValidity  time.Duration // 0: the default of the grant
	RefreshValidity time.Duration // 0: the default
	CreatedAt       time.Time
	UpdatedAt       time.Time
	Epoch           int // tokens of another epoch are revoked
}

// signature changes when every token that the client has in its own name must end.
func (c Client) signature() string {
	return fingerprint("client", c.ID, string(c.Hash), fmt.Sprint(c.Epoch))
}

// allows tells whether the client may ask for a scope in the name of a user.
func (c Client) allows(scope string) bool {
	return slices.Contains(c.Scopes, anyScope) || slices.Contains(c.Scopes, scope)
}

// NewClient is what a client is made of.
type NewClient struct {
	ID              string
	Name            string
	Secret          string // empty: none is needed
	GrantTypes      []string
	Scopes          []string
	Authorities     []string
	RedirectURIs    []string
	AccessValidity  time.Duration
	RefreshValidity time.Duration
}

// Client returns the client with id.
func (a *Accounts) Client(id string) (Client, error) { return get(a.clients, "client", id) }

// Clients returns all clients by id.
func (a *Accounts) Clients() ([]Client, error) {
	all, err := a.clients.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list clients: %w", err)
	}
	slices.SortStableFunc(all, func(x, y Client) int { return cmp.Compare(x.ID, y.ID) })
	return all, nil
}

// CreateClient keeps a new client. It returns ErrTaken when there is one with the id.
func (a *Accounts) CreateClient(n NewClient) (Client, error) {
	c := Client{
		ID: n.ID, Name: n.Name,
		GrantTypes: slices.Clone(n.GrantTypes), Scopes: slices.Clone(n.Scopes), Authorities: slices.Clone(n.Authorities),
		RedirectURIs: slices.Clone(n.RedirectURIs), AccessValidity: n.AccessValidity, RefreshValidity: n.RefreshValidity,
		CreatedAt: now(),
	}
	c.UpdatedAt = c.CreatedAt
	if n.Secret != "" {
		c.Hash = []byte{} // as far as the check is concerned: hashing takes a while
	}
	if err := c.check(); err != nil {
		return c, err
	}
	if n.Secret != "" {
		hash, err := a.hasher.hash("client_secret", n.Secret)
		if err != nil {
			return c, err
		}
		c.Hash = hash
	}
	return c, a.update(func(a *Accounts) error {
		if err := a.isFree(c.ID); err != nil {
			return err
		}
		return a.keepClient(c)
	})
}

// UpdateClient changes a client in one transaction. Id, secret and times are not
// fn's to change.
func (a *Accounts) UpdateClient(id string, fn func(c *Client) error) (c Client, err error) {
	err = a.update(func(a *Accounts) error {
		old, err := a.Client(id)
		if err != nil {
			return err
		}
		c = old
		if err := fn(&c); err != nil {
			return err
		}
		c.ID, c.Hash, c.CreatedAt = old.ID, old.Hash, old.CreatedAt
		c.UpdatedAt = now()
		if err := c.check(); err != nil {
			return err
		}
		return a.keepClient(c)
	})
	return c, err
}

// SetSecret gives a client another secret, which ends the tokens of the client.
func (a *Accounts) SetSecret(id, secret string) error {
	hash, err := a.hasher.hash("secret", secret)
	if err != nil {
		return err
	}
	return a.update(func(a *Accounts) error {
		c, err := a.Client(id)
		if err != nil {
			return err
		}
		c.Hash, c.UpdatedAt = hash, now()
		return a.keepClient(c)
	})
}

// CheckSecret returns the client with id and secret, or ErrBadPassword, which takes
// as long for an id that nobody has. A client without a secret gives none.
func (a *Accounts) CheckSecret(id, secret string) (Client, error) {
	c, err := a.Client(id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Client{}, err
	}
	if err == nil && c.Hash == nil && secret == "" {
		return c, nil
	}
	if !a.hasher.matches(c.Hash, secret) {
		return Client{}, ErrBadPassword
	}
	return c, nil
}

// DeleteClient removes a client, and the tokens that it was given end with it.
func (a *Accounts) DeleteClient(id string) error {
	return a.update(func(a *Accounts) error {
		if _, err := a.Client(id); err != nil {
			return err
		}
		if err := a.clients.Delete(id); err != nil {
			return fmt.Errorf("cannot delete client %s: %w", id, err)
		}
		return a.endSessions("client", id)
	})
}

func (a *Accounts) keepClient(c Client) error {
	err := a.clients.Put(c.ID, c)
	if errors.Is(err, store.ErrTaken) {
		return fmt.Errorf("client id %q: %w", c.ID, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("cannot keep client %s: %w", c.ID, err)
	}
	return nil
}

func (c Client) check() error {
	if checkGUID(c.ID) != nil {
		return &Invalid{Key: "client_id", Message: fmt.Sprintf("has 1 to %d letters, digits, -, _ and .", maxName)}
	}
	if err := checkText("name", c.Name); err != nil {
		return err
	}
	if len(c.GrantTypes) == 0 {
		return &Invalid{Key: "authorized_grant_types", Message: "a client needs at least one grant type"}
	}
	for _, g := range c.GrantTypes {
		if !slices.Contains(grantTypes, g) {
			return &Invalid{Key: "authorized_grant_types", Message: fmt.Sprintf("%q is no grant type; these are: %s", g, strings.Join(grantTypes, ", "))}
		}
	}
	if slices.Contains(c.GrantTypes, GrantClient) && c.Hash == nil {
		return &Invalid{Key: "client_secret", Message: "a client with the grant type client_credentials needs a secret"}
	}
	for _, v := range []struct {
		key   string
		value time.Duration
		least time.Duration
	}{
		{"access_token_validity", c.AccessValidity, minAccessValidity},
		{"refresh_token_validity", c.RefreshValidity, minAccessValidity},
	} {
		if v.value != 0 && (v.value < v.least || v.value > maxValidity) {
			return &Invalid{Key: v.key, Message: fmt.Sprintf("must be between %d and %d seconds", v.least/time.Second, maxValidity/time.Second)}
		}
	}
	return errors.Join(checkScopes("scope", c.Scopes), checkScopes("authorities", c.Authorities), checkURIs(c.RedirectURIs))
}

// checkScopes lets in what can stand in a token and in a list with blanks.
func checkScopes(key string, scopes []string) error {
	if len(scopes) > maxScopes {
		return &Invalid{Key: key, Message: fmt.Sprintf("has more than %d entries", maxScopes)}
	}
	for _, s := range scopes {
		if s == "" || len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' || r == ',' }) {
			return &Invalid{Key: key, Message: fmt.Sprintf("%q is no scope", s)}
		}
	}
	return nil
}

func checkURIs(uris []string) error {
	if len(uris) > maxScopes {
		return &Invalid{Key: "redirect_uri", Message: fmt.Sprintf("has more than %d entries", maxScopes)}
	}
	for _, u := range uris {
		if u == "" || len(u) > 2048 || strings.ContainsFunc(u, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
			return &Invalid{Key: "redirect_uri", Message: fmt.Sprintf("%q is no address", u)}
		}
	}
	return nil
}
