package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"

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
func (c *Client) Roles(ctx context.Context, q RoleQuery) ([]v3.Role, error) {
	return list[v3.Role](ctx, c, "/v3/roles", q.values())
}

// CreateRole gives somebody a role.
func (c *Client) CreateRole(ctx context.Context, body v3.CreateRole) (v3.Role, error) {
	var r v3.Role
	_, err := c.call(ctx, http.MethodPost, "/v3/roles", body, &r)
	return r, err
}

// DeleteRole takes a role away and waits until it is gone.
func (c *Client) DeleteRole(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/roles/"+escape(guid))
}

// Users lists the users that one may see.
func (c *Client) Users(ctx context.Context) ([]v3.User, error) {
	return list[v3.User](ctx, c, "/v3/users", nil)
}

// UsersByGUID reads users.
func (c *Client) UsersByGUID(ctx context.Context, guids ...string) ([]v3.User, error) {
	return listByGUID[v3.User](ctx, c, "/v3/users", guids)
}

// listByGUID lists those at a path that have one of the guids.
func listByGUID[T any](ctx context.Context, c *Client, path string, guids []string) ([]T, error) {
	var all []T
	for some := range slices.Chunk(guids, batch) {
		found, err := list[T](ctx, c, path, url.Values{"guids": {filter(some...)}})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// batch is how many guids one request names: an address has its limits.
const batch = 200

// UserByName finds a user, or fails with *Missing.
func (c *Client) UserByName(ctx context.Context, name string) (v3.User, error) {
	all, err := list[v3.User](ctx, c, "/v3/users", url.Values{"usernames": {filter(name)}})
	return first(all, err, &Missing{Kind: "user", Name: name})
}

// DeleteUser takes all roles of a user away; the account is another matter
// (DeleteAccount).
func (c *Client) DeleteUser(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/users/"+escape(guid))
}
