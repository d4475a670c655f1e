package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// Origin is the origin of users whose passwords the daemon stores.
const Origin = "uaa"

// RoleQuery selects roles. Empty fields do not restrict the selection.
type RoleQuery struct {
	Type, User, Org, Space string // guids
}

func (q RoleQuery) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"types": q.Type, "user_guids": q.User, "organization_guids": q.Org, "space_guids": q.Space} {
		if value != "" {
			v.Set(name, filter(value))
		}
	}
	return v
}

// Roles lists roles.
func (c Users) Roles(ctx context.Context, q RoleQuery) ([]v3.Role, error) {
	return list[v3.Role](ctx, c.transport, "/v3/roles", q.values())
}

// CreateRole gives a role to a user.
func (c Users) CreateRole(ctx context.Context, body v3.CreateRole) (v3.Role, error) {
	var r v3.Role
	_, err := c.call(ctx, http.MethodPost, "/v3/roles", body, &r)
	return r, err
}

// DeleteRole deletes a role and waits until it is gone.
func (c Users) DeleteRole(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/roles/"+escape(guid))
}

// List lists the users that the caller can see.
func (c Users) List(ctx context.Context) ([]v3.User, error) {
	return list[v3.User](ctx, c.transport, "/v3/users", nil)
}

// ByGUID reads users.
func (c Users) ByGUID(ctx context.Context, guids ...string) ([]v3.User, error) {
	return listByGUID[v3.User](ctx, c.transport, "/v3/users", guids)
}

// ByName finds a user, or fails with *Missing.
func (c Users) ByName(ctx context.Context, name string) (v3.User, error) {
	all, err := list[v3.User](ctx, c.transport, "/v3/users", url.Values{"usernames": {filter(name)}})
	return first(all, err, &Missing{Kind: "user", Name: name})
}

// Delete deletes all roles of a user. DeleteAccount deletes the account.
func (c Users) Delete(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/users/"+escape(guid))
}

// oauthPath is the path of the authorization server. The client uses it at the daemon's
// own address, whatever address the root document has for it.
const oauthPath = "/uaa"

// cfClient is the client that people log in with. It has no secret.
const cfClient = "cf"

// oauthError is the body of a response of the authorization server that is not a
// success.
type oauthError struct {
	Name        string `json:"error"`
	Description string `json:"error_description"`
}

// Grant holds the credentials for a token: a user's password, a client's secret, or the
// refresh token of an earlier response.
type Grant struct {
	User, Password string
	Client, Secret string
	Refresh        string
}

// Token is the response to a grant.
type Token struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"` // empty for clients
	Type    string `json:"token_type"`
}

// Login requests a token. A refusal is an *Error with status 400 or 401.
func (c Users) Login(ctx context.Context, g Grant) (Token, error) {
	form := url.Values{}
	h := http.Header{"Accept": {"application/json"}, "Content-Type": {"application/x-www-form-urlencoded"}}
	switch {
	case g.Client != "":
		form.Set("grant_type", "client_credentials")
		form.Set("client_id", g.Client)
		form.Set("client_secret", g.Secret)
	case g.Refresh != "":
		form.Set("grant_type", "refresh_token")
		form.Set("refresh_token", g.Refresh)
	default:
		form.Set("grant_type", "password")
		form.Set("username", g.User)
		form.Set("password", g.Password)
	}
	r := Request{Method: http.MethodPost, Path: oauthPath + "/oauth/token", Header: h, Body: strings.NewReader(form.Encode()), Anonymous: true}
	if g.Client == "" {
		req := http.Request{Header: h}
		req.SetBasicAuth(cfClient, "")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var t Token
	_, err := c.exchange(ctx, r, &t)
	return t, err
}

// Revoke revokes a token by its id. All users can revoke their own tokens.
func (c Users) Revoke(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodDelete, oauthPath+"/oauth/token/revoke/"+escape(id), nil, nil)
	return err
}

// NewAccount holds the values of a user to create.
type NewAccount struct {
	Name, Password, Email string
}

// Account is a user of the authorization server.
type Account struct {
	ID       string  `json:"id,omitempty"`
	UserName string  `json:"userName"`
	Password string  `json:"password,omitempty"`
	Origin   string  `json:"origin,omitempty"`
	Name     Name    `json:"name,omitzero"`
	Emails   []Email `json:"emails,omitempty"`
}

// Name is the name of an account.
type Name struct {
	Family string `json:"familyName,omitempty"`
	Given  string `json:"givenName,omitempty"`
}

// Email is a mail address of an account.
type Email struct {
	Value   string `json:"value"`
	Primary bool   `json:"primary"`
}

// CreateAccount creates a user.
func (c Users) CreateAccount(ctx context.Context, n NewAccount) (Account, error) {
	body := Account{
		UserName: n.Name, Password: n.Password, Origin: Origin,
		Name: Name{Family: n.Name, Given: n.Name}, Emails: []Email{{Value: n.Email, Primary: true}},
	}
	var a Account
	_, err := c.call(ctx, http.MethodPost, oauthPath+"/Users", body, &a)
	return a, err
}

// DeleteAccount deletes a user from the authorization server. Delete deletes the user's
// roles.
func (c Users) DeleteAccount(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodDelete, oauthPath+"/Users/"+escape(guid), nil, nil)
	return err
}

// SetPassword sets another password for a user. An administrator does not need the old
// one.
func (c Users) SetPassword(ctx context.Context, guid, old, password string) error {
	body := map[string]string{"password": password}
	if old != "" {
		body["oldPassword"] = old
	}
	_, err := c.call(ctx, http.MethodPut, oauthPath+"/Users/"+escape(guid)+"/password", body, nil)
	return err
}

// OAuthClient is a program that gets its own tokens.
type OAuthClient struct {
	ID          string   `json:"client_id"`
	Secret      string   `json:"client_secret,omitempty"`
	Name        string   `json:"name,omitempty"`
	GrantTypes  []string `json:"authorized_grant_types"`
	Scopes      []string `json:"scope,omitempty"`
	Authorities []string `json:"authorities"`
	Validity    int      `json:"access_token_validity,omitempty"` // in seconds, 0 for the server's default
	Modified    int64    `json:"lastModified,omitempty"`          // in milliseconds
}

// ModifiedAt is when the client was last changed.
func (o OAuthClient) ModifiedAt() time.Time { return time.UnixMilli(o.Modified) }

// CreateOAuthClient creates a client.
func (c Users) CreateOAuthClient(ctx context.Context, o OAuthClient) (OAuthClient, error) {
	var made OAuthClient
	_, err := c.call(ctx, http.MethodPost, oauthPath+"/oauth/clients", o, &made)
	return made, err
}

// DeleteOAuthClient deletes a client.
func (c Users) DeleteOAuthClient(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodDelete, oauthPath+"/oauth/clients/"+escape(id), nil, nil)
	return err
}

// OAuthClients lists the clients.
func (c Users) OAuthClients(ctx context.Context) ([]OAuthClient, error) {
	var all []OAuthClient
	for {
		var page struct {
			Resources []OAuthClient `json:"resources"`
			Total     int           `json:"totalResults"`
		}
		q := url.Values{"startIndex": {strconv.Itoa(len(all) + 1)}, "count": {"100"}}
		if _, err := c.call(ctx, http.MethodGet, oauthPath+"/oauth/clients?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Resources...)
		if len(page.Resources) == 0 || len(all) >= page.Total {
			return all, nil
		}
	}
}

// SSHCode gets a one-time password for the SSH server, and its address.
func (c Users) SSHCode(ctx context.Context) (v3.SSHCode, error) {
	var code v3.SSHCode
	_, err := c.call(ctx, http.MethodPost, "/dew/v1/ssh-code", nil, &code)
	return code, err
}
