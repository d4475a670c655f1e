package orgs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
)

// roleHandlers answers requests about roles.
type roleHandlers struct{ *Handlers }

func (h roleHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/roles", Needs: access.Authenticated,
			Handler: h.listRoles, Shape: rest.PageOf[v3.Role]("guids", "types", "user_guids", "organization_guids", "space_guids", "include").OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "POST /v3/roles", Needs: access.Authenticated, // the body names the org or space
			Handler: h.createRole, Shape: rest.Returns[v3.Role](201).Reads(rest.JSON[v3.CreateRole]()),
		},
		{Pattern: "GET /v3/roles/{guid}", Needs: access.Read, Resource: access.Role, Handler: h.getRole, Shape: rest.Returns[v3.Role](200).Query("include")},
		{Pattern: "DELETE /v3/roles/{guid}", Needs: access.Manage, Resource: access.Role, Handler: h.deleteRole, Shape: rest.StartsJob()},
	}
}

const noOrgRole = "Users cannot be assigned roles in a space if they do not have a role in that space's organization."

func (h roleHandlers) listRoles(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	with, err := q.Includes("user", "organization", "space")
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(r.Context())
	if err != nil {
		return nil, err
	}
	all, err := h.Platform.Roles.All()
	if err != nil {
		return nil, err
	}
	var found []auth.Role
	for _, role := range all {
		if !perms.SeesOrg(role.Org) && (role.Space == "" || !perms.SeesSpace(role.Space)) {
			continue
		}
		if q.Matches("guids", role.GUID) && q.Matches("types", string(role.Type)) && q.Matches("user_guids", role.User) &&
			q.Matches("organization_guids", role.Org) && q.Matches("space_guids", role.Space) {
			found = append(found, role)
		}
	}
	page := rest.List(h.Links, r, q, found, rest.View[auth.Role, v3.Role]{
		Key: func(role auth.Role) rest.Key {
			return rest.Key{Name: string(role.Type), Created: role.CreatedAt, Updated: role.UpdatedAt, GUID: role.GUID}
		},
		Present: h.presentRole,
	})
	page.Included, err = h.roleIncludes(with, page.Resources)
	return page, err
}

// roleIncludes returns the resources that a request includes with roles.
func (h roleHandlers) roleIncludes(with map[string]bool, roles []v3.Role) (map[string]any, error) {
	if len(with) == 0 {
		return nil, nil
	}
	var in rest.Include
	if with["user"] {
		in.Users = rest.Values(roles, func(r v3.Role) string { return r.Relationships.User.ID() })
	}
	if with["organization"] {
		in.Orgs = rest.Values(roles, func(r v3.Role) string { return r.Relationships.Organization.ID() })
	}
	if with["space"] {
		in.Spaces = rest.Values(roles, func(r v3.Role) string { return r.Relationships.Space.ID() })
	}
	return h.Present.Include(in)
}

func (h roleHandlers) getRole(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	with, err := q.Includes("user", "organization", "space")
	if err != nil {
		return nil, err
	}
	role, err := h.Platform.Roles.Get(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Role", err)
	}
	out := h.presentRole(role)
	out.Included, err = h.roleIncludes(with, []v3.Role{out})
	return out, err
}

func (h roleHandlers) createRole(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateRole](r)
	if err != nil {
		return nil, err
	}
	role := auth.Role{Type: auth.RoleType(body.Type), Org: body.Relationships.Organization.ID(), Space: body.Relationships.Space.ID()}
	if err := checkRole(role, body.Relationships.User.Data); err != nil {
		return nil, err
	}
	if err := h.mayGrant(r.Context(), role); err != nil {
		return nil, err
	}
	p, err := h.grantee(r.Context(), *body.Relationships.User.Data, role)
	if err != nil {
		return nil, err
	}
	role.User = p.GUID
	err = h.Platform.Change(r.Context(), func(w platform.Tx) (err error) {
		at, err := w.RoleTarget(role)
		if err != nil {
			return err
		}
		if role.Space != "" && !w.HasOrgRole(p.GUID, at.Org.GUID) {
			return rest.Unprocessable(noOrgRole)
		}
		if role, err = w.Roles.Put(role); errors.Is(err, auth.ErrTaken) {
			return rest.Unprocessable("User '%s' already has '%s' role in %s.", p.DisplayName(), role.Type, at)
		}
		if err != nil {
			return err
		}
		return w.RecordRole("add", role, p, at)
	})
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.presentRole(role)}, nil
}

// checkRole checks the fields of a role before the user is looked up.
func checkRole(role auth.Role, user *v3.UserName) error {
	switch {
	case !slices.Contains(auth.RoleTypes(), role.Type):
		return rest.Unprocessable("Role type must be one of the allowed types %q", auth.RoleTypes())
	case role.Org != "" && role.Space != "":
		return rest.Unprocessable("Cannot pass both 'organization' and 'space' in a create role request")
	case role.Type.OfOrg() && role.Org == "":
		return rest.Unprocessable("Role with type '%s' must be associated with an organization.", role.Type)
	case role.Type.OfSpace() && role.Space == "":
		return rest.Unprocessable("Role with type '%s' must be associated with a space.", role.Type)
	case user == nil || user.GUID == "" && user.Username == "":
		return rest.Unprocessable("User must have a guid, or a username and an origin")
	case user.GUID != "" && (user.Username != "" || user.Origin != ""):
		return rest.Unprocessable("Cannot specify both 'guid' and 'username' for a user")
	}
	return nil
}

// mayGrant checks whether the caller manages the org or space of a role.
func (h roleHandlers) mayGrant(ctx context.Context, role auth.Role) error {
	if role.Space != "" {
		return platform.InvalidSpace(h.Access.Require(ctx, access.Manage, role.Space))
	}
	err := h.Access.RequireOrg(ctx, role.Org)
	if errors.Is(err, app.ErrNotFound) {
		return rest.Unprocessable("Invalid organization. Ensure that the organization exists and you have access to it.")
	}
	return err
}

// grantee returns the user who gets a role. Any user with an account can get a role in
// an org. In a space, the user must have a role in its org.
func (h roleHandlers) grantee(ctx context.Context, name v3.UserName, role auth.Role) (platform.Person, error) {
	if name.GUID == "" {
		return h.granteeByName(ctx, name, role)
	}
	all, err := h.Present.People()
	if err != nil {
		return platform.Person{}, err
	}
	if p, ok := all.ByGUID[name.GUID]; ok {
		return p, nil
	}
	accounts := h.Platform.Auth.Accounts()
	u, err := accounts.User(name.GUID) // a user who was deleted here but has an account
	if err == nil {
		return platform.Person{GUID: u.GUID, Name: u.Name, Origin: u.Origin}, nil
	}
	c, err := accounts.Client(name.GUID)
	switch {
	case err == nil:
		return platform.Person{GUID: c.ID}, nil
	case !errors.Is(err, auth.ErrNotFound):
		return platform.Person{}, err
	case role.Space != "":
		return platform.Person{}, rest.Unprocessable(noOrgRole)
	}
	return platform.Person{}, rest.Unprocessable("Invalid user. Ensure that the user exists and you have access to it.")
}

func (h roleHandlers) granteeByName(ctx context.Context, name v3.UserName, role auth.Role) (platform.Person, error) {
	if err := h.Present.Feature(ctx, app.FlagSetRoles); err != nil {
		return platform.Person{}, err
	}
	found, err := h.Platform.Auth.Accounts().UsersNamed(name.Username)
	if err != nil {
		return platform.Person{}, err
	}
	var origins []string
	for _, u := range found {
		origins = append(origins, u.Origin)
	}
	if name.Origin != "" {
		found = slices.DeleteFunc(found, func(u auth.User) bool { return !strings.EqualFold(u.Origin, name.Origin) })
	}
	switch {
	case len(found) == 1:
		return platform.Person{GUID: found[0].GUID, Name: found[0].Name, Origin: found[0].Origin}, nil
	case len(found) > 1:
		slices.Sort(origins)
		return platform.Person{}, rest.Unprocessable("Ambiguous user. User with username '%s' exists in the following origins: %s. Specify an origin to disambiguate.",
			name.Username, strings.Join(origins, ", "))
	case role.Space != "":
		return platform.Person{}, rest.Unprocessable(noOrgRole)
	case name.Origin != "":
		return platform.Person{}, rest.Unprocessable("No user exists with the username '%s' and origin '%s'.", name.Username, name.Origin)
	}
	return platform.Person{}, rest.Unprocessable("No user exists with the username '%s'.", name.Username)
}

func (h roleHandlers) deleteRole(r *http.Request) (any, error) {
	role, err := h.Platform.Roles.Get(r.PathValue("guid"))
	if err != nil {
		return nil, rest.Missing("Role", err)
	}
	all, err := h.Present.People()
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		at, err := w.RoleTarget(role)
		if err != nil {
			return err
		}
		if role.Type == auth.OrgUser {
			if err := w.CheckLeaveOrg(role); err != nil {
				return err
			}
		}
		p, ok := all.ByGUID[role.User]
		if !ok {
			p = platform.Person{GUID: role.User}
		}
		// The role is deleted here. The job only reports that to clients that wait for
		// a job.
		if err := w.Roles.Delete(role.GUID); err != nil {
			return rest.Missing("Role", err)
		}
		return w.RecordRole("remove", role, p, at)
	})
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteRole, platform.Removal{GUID: role.GUID})
}

func (h roleHandlers) presentRole(role auth.Role) v3.Role {
	links := v3.Links{
		"self": {Href: h.Links.Href("v3", "roles", role.GUID)},
		"user": {Href: h.Links.Href("v3", "users", role.User)},
	}
	if role.Org != "" {
		links["organization"] = v3.Link{Href: h.Links.Href("v3", "organizations", role.Org)}
	} else {
		links["space"] = v3.Link{Href: h.Links.Href("v3", "spaces", role.Space)}
	}
	return v3.Role{
		GUID: role.GUID, CreatedAt: v3.At(role.CreatedAt), UpdatedAt: v3.At(role.UpdatedAt), Type: string(role.Type),
		Relationships: v3.RoleRelationships{User: v3.To(role.User), Organization: v3.To(role.Org), Space: v3.To(role.Space)},
		Links:         links,
	}
}
