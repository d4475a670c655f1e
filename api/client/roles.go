package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Origin of the users that the daemon keeps itself.
const Origin = "uaa"

// RoleQuery says which roles are meant; what is empty does not matter.
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
func (c *Client) Roles(ctx context.Context, q RoleQuery) ([]Role, error) {
	return list[Role](ctx, c, "/v3/roles", q.values())
}

// Holder is who gets a role: a user by name, or a user or client by guid.
type Holder struct {
	GUID     string `json:"guid,omitempty"`
	Username string `json:"username,omitempty"`
	Origin   string `json:"origin,omitempty"`
}

// NewRole is a role to be, in an organization or in a space.
type NewRole struct {
	Type       string
	Holder     Holder
	Org, Space string // guids, one of them
}

// CreateRole gives somebody a role.
func (c *Client) CreateRole(ctx context.Context, n NewRole) (Role, error) {
	relationships := map[string]any{"user": map[string]Holder{"data": n.Holder}}
	if n.Org != "" {
		relationships["organization"] = v3.To(n.Org)
	}
	if n.Space != "" {
		relationships["space"] = v3.To(n.Space)
	}
	var r Role
	_, err := c.call(ctx, http.MethodPost, "/v3/roles", map[string]any{"type": n.Type, "relationships": relationships}, &r)
	return r, err
}

// DeleteRole takes a role away and waits until it is gone.
func (c *Client) DeleteRole(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/roles/"+escape(guid))
}

// Users lists the users that one may see.
func (c *Client) Users(ctx context.Context) ([]User, error) {
	return list[User](ctx, c, "/v3/users", nil)
}

// UsersByGUID reads users.
func (c *Client) UsersByGUID(ctx context.Context, guids ...string) ([]User, error) {
	var all []User
	for len(guids) > 0 {
		n := min(len(guids), batch)
		some, err := list[User](ctx, c, "/v3/users", url.Values{"guids": {filter(guids[:n]...)}})
		if err != nil {
			return nil, err
		}
		all, guids = append(all, some...), guids[n:]
	}
	return all, nil
}

// batch is how many guids one request names: an address has its limits.
const batch = 200

// UserByName finds a user, or fails with *Missing.
func (c *Client) UserByName(ctx context.Context, name string) (User, error) {
	all, err := list[User](ctx, c, "/v3/users", url.Values{"usernames": {filter(name)}})
	return first(all, err, &Missing{Kind: "user", Name: name})
}

// DeleteUser takes all roles of a user away; the account is another matter
// (DeleteAccount).
func (c *Client) DeleteUser(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/users/"+escape(guid))
}
