package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/auth/throttle"
	"github.com/dewrun/dew/store"
)

const schemaClients = "http://cloudfoundry.org/schema/scim/oauth-clients-1.0"

// shownClient is a client as the API returns it, without its secret.
type shownClient struct {
	ID              string   `json:"client_id"`
	Name            string   `json:"name,omitempty"`
	GrantTypes      []string `json:"authorized_grant_types"`
	Scopes          []string `json:"scope"`
	Authorities     []string `json:"authorities"`
	RedirectURIs    []string `json:"redirect_uri"`
	ResourceIDs     []string `json:"resource_ids"`
	AutoApprove     []string `json:"autoapprove"`
	AccessValidity  int64    `json:"access_token_validity,omitempty"`
	RefreshValidity int64    `json:"refresh_token_validity,omitempty"`
	LastModified    int64    `json:"lastModified"`
}

func showClient(c Client) shownClient {
	return shownClient{
		ID: c.ID, Name: c.Name, GrantTypes: list(c.GrantTypes), Scopes: list(c.Scopes), Authorities: list(c.Authorities),
		RedirectURIs: list(c.RedirectURIs), ResourceIDs: []string{"none"}, AutoApprove: []string{},
		AccessValidity: int64(c.AccessValidity / time.Second), RefreshValidity: int64(c.RefreshValidity / time.Second),
		LastModified: c.UpdatedAt.UnixMilli(),
	}
}

// list returns in, or an empty list instead of null.
func list(in []string) []string {
	if in == nil {
		return []string{}
	}
	return in
}

// clientBody is the request body about a client.
type clientBody struct {
	ID              string     `json:"client_id"`
	Secret          string     `json:"client_secret"`
	Name            string     `json:"name"`
	GrantTypes      stringList `json:"authorized_grant_types"`
	Scopes          stringList `json:"scope"`
	Authorities     stringList `json:"authorities"`
	RedirectURIs    stringList `json:"redirect_uri"`
	AccessValidity  int64      `json:"access_token_validity"`
	RefreshValidity int64      `json:"refresh_token_validity"`
}

// apply sets the fields of c from the body, except for id and secret.
func (b clientBody) apply(c *Client) error {
	access, err := seconds("access_token_validity", b.AccessValidity)
	if err != nil {
		return err
	}
	refresh, err := seconds("refresh_token_validity", b.RefreshValidity)
	if err != nil {
		return err
	}
	c.Name, c.GrantTypes, c.Scopes, c.Authorities = b.Name, b.GrantTypes, b.Scopes, b.Authorities
	c.RedirectURIs, c.AccessValidity, c.RefreshValidity = b.RedirectURIs, access, refresh
	return nil
}

// seconds checks the range of n before it is multiplied.
func seconds(key string, n int64) (time.Duration, error) {
	if n < 0 || n > int64(maxValidity/time.Second) {
		return 0, &Invalid{Key: key, Message: fmt.Sprintf("must be between 0 and %d seconds", maxValidity/time.Second)}
	}
	return time.Duration(n) * time.Second, nil
}

// stringList is a list, or one string separated by commas or spaces.
type stringList []string

// UnmarshalJSON reads both forms.
func (l *stringList) UnmarshalJSON(raw []byte) error {
	var many []string
	if err := json.Unmarshal(raw, &many); err == nil {
		*l = many
		return nil
	}
	var one string
	if err := json.Unmarshal(raw, &one); err != nil {
		return errors.New("scope, authorities, authorized_grant_types and redirect_uri must be lists of strings")
	}
	*l = strings.FieldsFunc(one, func(r rune) bool { return r == ',' || r == ' ' })
	return nil
}

// clientProblem converts an error about a client into a UAA error.
func clientProblem(err error) error {
	if invalid, ok := errors.AsType[*Invalid](err); ok {
		return &problem{status: http.StatusBadRequest, code: "invalid_client", description: invalid.Error()}
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return &problem{status: http.StatusNotFound, code: "not_found", description: "No client with requested id"}
	case errors.Is(err, ErrTaken):
		return &problem{status: http.StatusConflict, code: "invalid_client", description: "Client already exists"}
	}
	return err
}

func (s *clientHandlers) listClients(r *http.Request) (reply, error) {
	if _, err := s.permitted(r, "clients.read", "clients.admin", "uaa.admin"); err != nil {
		return reply{}, err
	}
	all, err := s.accounts.Clients()
	if err != nil {
		return reply{}, err
	}
	return listing[Client]{
		schema: schemaClients, attrs: []string{"client_id", "name", "authorized_grant_types", "scope", "authorities"},
		get: clientAttr, show: func(c Client) any { return showClient(c) },
	}.page(r, all)
}

func clientAttr(c Client, attr string) []string {
	switch attr {
	case "client_id":
		return []string{c.ID}
	case "name":
		return []string{c.Name}
	case "authorized_grant_types":
		return c.GrantTypes
	case "scope":
		return c.Scopes
	}
	return c.Authorities
}

func (s *clientHandlers) getClient(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	if p.IsUser || p.ID != id {
		if err := requireScope(p, "clients.read", "clients.admin", "uaa.admin"); err != nil {
			return reply{}, err
		}
	}
	c, err := s.accounts.Client(id)
	if err != nil {
		return reply{}, clientProblem(err)
	}
	return reply{body: showClient(c)}, nil
}

func (s *clientHandlers) createClient(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	var c Client
	b, err := clientRequest(r, p)
	if err == nil {
		err = b.apply(&c)
	}
	if err == nil {
		c, err = s.accounts.CreateClient(NewClient{
			ID: b.ID, Name: c.Name, Secret: b.Secret, GrantTypes: c.GrantTypes, Scopes: c.Scopes, Authorities: c.Authorities,
			RedirectURIs: c.RedirectURIs, AccessValidity: c.AccessValidity, RefreshValidity: c.RefreshValidity,
		})
	}
	s.record(event{EventClientCreate, p, b.ID, b.ID}, err)
	if err != nil {
		return reply{}, clientProblem(err)
	}
	return reply{status: http.StatusCreated, body: showClient(c)}, nil
}

// clientRequest reads the client that p wants to create or change. A caller who has
// only clients.write can grant only its own scopes.
func clientRequest(r *http.Request, p Principal) (b clientBody, err error) {
	if err := requireScope(p, "clients.write", "clients.admin", "uaa.admin"); err != nil {
		return b, err
	}
	if err := decode(r, &b); err != nil {
		return b, err
	}
	return b, checkGrantable(p, slices.Concat(b.Scopes, b.Authorities), "clients.admin", "uaa.admin")
}

// putClient replaces all fields of a client except its secret.
func (s *clientHandlers) putClient(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	var c Client
	b, err := clientRequest(r, p)
	if err == nil && b.ID != "" && b.ID != id {
		err = &Invalid{Key: "client_id", Message: "must be the client id in the path"}
	}
	if err == nil {
		c, err = s.accounts.UpdateClient(id, func(c *Client) error {
			// The caller could use the client afterwards.
			if err := checkGrantable(p, slices.Concat(c.Scopes, c.Authorities), "clients.admin", "uaa.admin"); err != nil {
				return err
			}
			return b.apply(c)
		})
	}
	s.record(event{EventClientUpdate, p, id, id}, err)
	if err != nil {
		return reply{}, clientProblem(err)
	}
	return reply{body: showClient(c)}, nil
}

// deleteClient removes a client and returns it.
func (s *clientHandlers) deleteClient(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	var c Client
	err = requireScope(p, "clients.write", "clients.admin", "uaa.admin")
	if err == nil {
		err = refuseBuiltIn(id)
	}
	if err == nil {
		err = s.cfg.DB.Update(func(tx *store.Tx) error {
			a := s.accounts.With(tx)
			if c, err = a.Client(id); err != nil {
				return err
			}
			return errors.Join(a.DeleteClient(id), s.roles.With(tx).DeleteUser(id))
		})
	}
	s.record(event{EventClientDelete, p, id, id}, err)
	if err != nil {
		return reply{}, clientProblem(err)
	}
	return reply{body: showClient(c)}, nil
}

// refuseBuiltIn refuses to delete a client without which no one could log in.
func refuseBuiltIn(client string) error {
	if !builtIn(client) {
		return nil
	}
	return &problem{status: http.StatusForbidden, code: "access_denied", description: "The client " + client + " is built in. It cannot be deleted and cannot have a secret"}
}

// newSecret is the request body about a secret.
type newSecret struct {
	Secret    string `json:"secret"`
	OldSecret string `json:"oldSecret,omitempty"`
}

// putSecret changes a secret. A client needs its old secret; an administrator can set
// any.
func (s *clientHandlers) putSecret(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	var b newSecret
	own := !p.IsUser && p.ID == id
	if !own {
		err = requireScope(p, "clients.admin", "uaa.admin")
	}
	if err == nil {
		err = refuseBuiltIn(id)
	}
	if err == nil {
		err = decode(r, &b)
	}
	if err == nil && (own || b.OldSecret != "") {
		err = s.checkOldSecret(r, id, b.OldSecret)
	}
	if err == nil {
		err = s.accounts.SetSecret(id, b.Secret)
	}
	s.record(event{EventClientSecret, p, id, id}, err)
	if err != nil {
		return reply{}, clientProblem(err)
	}
	return reply{body: map[string]string{"status": "ok", "message": "secret updated"}}, nil
}

func (s *clientHandlers) checkOldSecret(r *http.Request, id, secret string) error {
	err := s.throttle.Try(r.Context(), throttle.Attempt{Name: "client\x00" + id, Peer: peer(r)}, func() error {
		_, err := s.accounts.CheckSecret(id, secret)
		return err
	})
	return loginProblem(err)
}
