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

// grantTypes are the grants that a client can be allowed. The last ones exist on Cloud
// Foundry and are only stored: the ssh proxy redeems its code itself.
var grantTypes = []string{
	GrantPassword, GrantClient, GrantRefresh, GrantCode, "implicit",
	"urn:ietf:params:oauth:grant-type:jwt-bearer", "user_token",
}

// Client is a program that can request tokens.
type Client struct {
	ID              string
	Name            string
	Hash            []byte   // bcrypt; nil means that no secret is needed
	GrantTypes      []string // grants that it can use
	Scopes          []string // scopes that it can request in the name of a user, "*" for any
	Authorities     []string // scopes in its own name
	RedirectURIs    []string
	AccessValidity  time.Duration // 0 means the default of the grant
	RefreshValidity time.Duration // 0 means the default
	CreatedAt       time.Time
	UpdatedAt       time.Time
	Epoch           int // tokens of another epoch are revoked
}

// signature changes when all tokens that the client has in its own name must become
// invalid.
func (c Client) signature() string {
	return fingerprint("client", c.ID, string(c.Hash), fmt.Sprint(c.Epoch))
}

// allows reports whether the client can request a scope in the name of a user.
func (c Client) allows(scope string) bool {
	return slices.Contains(c.Scopes, anyScope) || slices.Contains(c.Scopes, scope)
}

// NewClient holds the values of a client to create.
type NewClient struct {
	ID              string
	Name            string
	Secret          string // empty means that none is needed, or that Hash is given
	Hash            []byte // of the secret, from HashSecret
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

// CreateClient stores a new client. It returns ErrTaken if there is one with the id.
func (a *Accounts) CreateClient(n NewClient) (Client, error) {
	c := Client{
		ID: n.ID, Name: n.Name,
		GrantTypes: slices.Clone(n.GrantTypes), Scopes: slices.Clone(n.Scopes), Authorities: slices.Clone(n.Authorities),
		RedirectURIs: slices.Clone(n.RedirectURIs), AccessValidity: n.AccessValidity, RefreshValidity: n.RefreshValidity,
		Hash: n.Hash, CreatedAt: now(),
	}
	c.UpdatedAt = c.CreatedAt
	if n.Secret != "" {
		c.Hash = []byte{} // a placeholder for the check, because hashing takes a while
	}
	if err := c.check(); err != nil {
		return c, err
	}
	if n.Secret != "" {
		var err error
		if c.Hash, err = a.HashSecret(n.Secret); err != nil {
			return c, err
		}
	}
	return c, a.update(func(a *Accounts) error {
		if err := a.checkFree(c.ID); err != nil {
			return err
		}
		return a.storeClient(c)
	})
}

// UpdateClient changes a client in one transaction. fn cannot change id and times.
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
		c.ID, c.CreatedAt = old.ID, old.CreatedAt
		c.UpdatedAt = now()
		if err := c.check(); err != nil {
			return err
		}
		return a.storeClient(c)
	})
	return c, err
}

// HashSecret returns the hash of a secret. It takes a while: do not call it in a
// transaction.
func (a *Accounts) HashSecret(secret string) ([]byte, error) {
	return a.hasher.hash("client_secret", secret)
}

// SetSecret sets another secret for a client, which revokes the tokens of the client.
func (a *Accounts) SetSecret(id, secret string) error {
	hash, err := a.HashSecret(secret)
	if err == nil {
		_, err = a.UpdateClient(id, func(c *Client) error { c.Hash = hash; return nil })
	}
	return err
}

// CheckSecret returns the client with id and secret, or ErrBadPassword. It takes the
// same time for an unknown id. A client without a secret needs an empty one.
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

// DeleteClient removes a client and revokes the tokens that it was given.
func (a *Accounts) DeleteClient(id string) error {
	return a.update(func(a *Accounts) error {
		if _, err := a.Client(id); err != nil {
			return err
		}
		if err := a.clients.Delete(id); err != nil {
			return fmt.Errorf("cannot delete client %s: %w", id, err)
		}
		return a.deleteSessions("client", id)
	})
}

func (a *Accounts) storeClient(c Client) error {
	err := a.clients.Put(c.ID, c)
	if errors.Is(err, store.ErrTaken) {
		return fmt.Errorf("client id %q: %w", c.ID, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("cannot store client %s: %w", c.ID, err)
	}
	return nil
}

func (c Client) check() error {
	if checkGUID(c.ID) != nil {
		return &Invalid{Key: "client_id", Message: fmt.Sprintf("must have 1 to %d characters: letters, digits, -, _ and .", maxName)}
	}
	if err := checkText("name", c.Name); err != nil {
		return err
	}
	if len(c.GrantTypes) == 0 {
		return &Invalid{Key: "authorized_grant_types", Message: "a client must have at least one grant type"}
	}
	for _, g := range c.GrantTypes {
		if !slices.Contains(grantTypes, g) {
			return &Invalid{Key: "authorized_grant_types", Message: fmt.Sprintf("%q is not a valid grant type; valid grant types: %s", g, strings.Join(grantTypes, ", "))}
		}
	}
	if slices.Contains(c.GrantTypes, GrantClient) && c.Hash == nil {
		return &Invalid{Key: "client_secret", Message: "a client with the grant type client_credentials must have a secret"}
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

// checkScopes refuses scopes that cannot be part of a token or of a list separated by
// spaces.
func checkScopes(key string, scopes []string) error {
	if len(scopes) > maxScopes {
		return &Invalid{Key: key, Message: fmt.Sprintf("has more than %d entries", maxScopes)}
	}
	for _, s := range scopes {
		if s == "" || len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' || r == ',' }) {
			return &Invalid{Key: key, Message: fmt.Sprintf("%q is not a valid scope", s)}
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
			return &Invalid{Key: "redirect_uri", Message: fmt.Sprintf("%q is not a valid redirect URI", u)}
		}
	}
	return nil
}
