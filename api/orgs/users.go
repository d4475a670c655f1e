package orgs

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/platform"
)

// userHandlers answers requests about users.
type userHandlers struct{ *Handlers }

func (h userHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/organizations/{guid}/users", Needs: access.Read, Resource: access.Org,
			Handler: h.listOrgUsers, Shape: rest.PageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/spaces/{guid}/users", Needs: access.Read, Resource: access.Space,
			Handler: h.listSpaceUsers, Shape: rest.PageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/users", Needs: access.Authenticated,
			Handler: h.listUsers, Shape: rest.PageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{Pattern: "POST /v3/users", Needs: access.Administer, Handler: h.createUser, Shape: rest.Returns[v3.User](201).Reads(rest.JSON[v3.CreateUser]())},
		{
			Pattern: "GET /v3/users/{guid}", Needs: access.Authenticated, // visible to users who share an org
			Handler: h.getUser, Shape: rest.Returns[v3.User](200),
		},
		{
			Pattern: "PATCH /v3/users/{guid}", Needs: access.Administer, Resource: h.userResource(),
			Handler: h.updateUser, Shape: rest.Returns[v3.User](200).Reads(rest.JSON[v3.UpdateUser]()),
		},
		{Pattern: "DELETE /v3/users/{guid}", Needs: access.Administer, Resource: h.userResource(), Handler: h.deleteUser, Shape: rest.StartsJob()},
	}
}

// inSight returns the users that the caller can see. Those are all users, or only the
// caller and the users with a role in the same orgs.
func (h userHandlers) inSight(ctx context.Context) ([]platform.Person, error) {
	all, err := h.Present.People()
	if err != nil {
		return nil, err
	}
	perms, err := h.Access.Permissions(ctx)
	if err != nil {
		return nil, err
	}
	if perms.All {
		return all.Sorted, nil
	}
	roles, err := h.Platform.Roles.All()
	if err != nil {
		return nil, err
	}
	near := map[string]bool{access.Principal(ctx).ID: true}
	for _, role := range roles {
		if perms.Orgs[role.Org] || role.Space != "" && perms.Orgs[perms.OrgOf[role.Space]] {
			near[role.User] = true
		}
	}
	var out []platform.Person
	for _, p := range all.Sorted {
		if near[p.GUID] {
			out = append(out, p)
		}
	}
	return out, nil
}

func (h userHandlers) listUsers(r *http.Request) (any, error) {
	all, err := h.inSight(r.Context())
	if err != nil {
		return nil, err
	}
	return h.pageOfUsers(r, all)
}

func (h userHandlers) listOrgUsers(r *http.Request) (any, error) {
	o, err := h.Present.Org(r)
	if err != nil {
		return nil, err
	}
	roles, err := h.Platform.Roles.InOrg(o.GUID)
	if err != nil {
		return nil, err
	}
	spaces, err := h.Platform.Registry.SpacesOf(o.GUID)
	if err != nil {
		return nil, err
	}
	for _, sp := range spaces {
		more, err := h.Platform.Roles.InSpace(sp.GUID)
		if err != nil {
			return nil, err
		}
		roles = append(roles, more...)
	}
	return h.holders(r, roles)
}

func (h userHandlers) listSpaceUsers(r *http.Request) (any, error) {
	sp, err := h.Present.Space(r)
	if err != nil {
		return nil, err
	}
	roles, err := h.Platform.Roles.InSpace(sp.GUID)
	if err != nil {
		return nil, err
	}
	return h.holders(r, roles)
}

// holders returns the page of the users who have the roles.
func (h userHandlers) holders(r *http.Request, roles []auth.Role) (any, error) {
	all, err := h.Present.People()
	if err != nil {
		return nil, err
	}
	var found []platform.Person
	seen := map[string]bool{}
	for _, role := range roles {
		if p, ok := all.ByGUID[role.User]; ok && !seen[role.User] {
			found = append(found, p)
			seen[role.User] = true
		}
	}
	return h.pageOfUsers(r, found)
}

func (h userHandlers) pageOfUsers(r *http.Request, all []platform.Person) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	_, whole := q.Filters["usernames"]
	_, partial := q.Filters["partial_usernames"]
	if _, origins := q.Filters["origins"]; origins && !whole && !partial {
		return nil, rest.BadQuery("Origins filter cannot be provided without usernames or partial_usernames filter.")
	}
	if whole && partial {
		return nil, rest.BadQuery("Usernames and partial_usernames cannot be provided together.")
	}
	found := make([]platform.Person, 0, len(all))
	for _, p := range all {
		if q.Matches("guids", p.GUID) && q.MatchesFold("usernames", p.Name) && q.MatchesPart("partial_usernames", p.Name) && q.MatchesFold("origins", p.Origin) {
			found = append(found, p)
		}
	}
	return rest.List(h.Links, r, q, found, rest.View[platform.Person, v3.User]{
		Key: func(p platform.Person) rest.Key {
			return rest.Key{Name: p.Name, Created: p.Created, Updated: p.Updated, GUID: p.GUID}
		},
		Present: h.Present.ShowUser,
		Labels:  func(p platform.Person) map[string]string { return p.Metadata.Labels },
	}), nil
}

func (h userHandlers) getUser(r *http.Request) (any, error) {
	p, err := h.userOf(r)
	if err != nil {
		return nil, err
	}
	return h.Present.ShowUser(p), nil
}

// userOf returns the user that the path names, if the caller can see them.
func (h userHandlers) userOf(r *http.Request) (platform.Person, error) {
	all, err := h.inSight(r.Context())
	if err != nil {
		return platform.Person{}, err
	}
	for _, p := range all {
		if p.GUID == r.PathValue("guid") {
			return p, nil
		}
	}
	return platform.Person{}, rest.NotFound("User")
}

// createUser adds an account to the platform: an existing one by its GUID, or one of
// another origin by its name.
func (h userHandlers) createUser(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateUser](r)
	if err != nil {
		return nil, err
	}
	metadata := app.Metadata{}.Merge(platform.MetadataChange(body.Metadata))
	if err := metadata.Validate(); err != nil { // checked first, because a new account is not removed after an error
		return nil, err
	}
	guid, err := h.accountFor(body)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		old, err := w.Registry.User(guid)
		if err == nil && !old.Gone {
			return rest.Unprocessable("User with guid '%s' already exists.", guid)
		}
		if err != nil && !errors.Is(err, app.ErrNotFound) {
			return err
		}
		_, err = w.Registry.PutUser(app.User{GUID: guid, Metadata: metadata})
		return err
	})
	if err != nil {
		return nil, err
	}
	all, err := h.Present.People()
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: h.Present.ShowUser(all.ByGUID[guid])}, nil
}

// accountFor returns the GUID of the account that a body names. It creates a missing
// account of another origin, which checks the password.
func (h userHandlers) accountFor(body v3.CreateUser) (string, error) {
	switch {
	case body.GUID != "" && (body.Username != "" || body.Origin != ""):
		return "", rest.Unprocessable("Cannot specify 'username' or 'origin' when 'guid' is given.")
	case body.GUID != "":
		return body.GUID, nil
	case body.Username == "" || body.Origin == "":
		return "", rest.Unprocessable("Either 'guid', or 'username' and 'origin' must be given.")
	case strings.EqualFold(body.Origin, auth.OriginUAA):
		return "", rest.Unprocessable("Origin cannot be 'uaa' when creating a user by username")
	}
	accounts := h.Platform.Auth.Accounts()
	u, err := accounts.UserByName(body.Username, body.Origin)
	if errors.Is(err, auth.ErrNotFound) {
		u, err = accounts.CreateUser(auth.NewUser{Name: body.Username, Origin: body.Origin})
	}
	return u.GUID, err
}

func (h userHandlers) updateUser(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateUser](r)
	if err != nil {
		return nil, err
	}
	p, err := h.userOf(r)
	if err != nil {
		return nil, err
	}
	err = h.Platform.Change(r.Context(), func(w platform.Tx) error {
		u, err := w.Registry.User(p.GUID)
		if err != nil && !errors.Is(err, app.ErrNotFound) {
			return err
		}
		u, err = w.Registry.PutUser(app.User{GUID: p.GUID, Metadata: u.Metadata.Merge(platform.MetadataChange(body.Metadata))})
		p.Metadata, p.Updated = u.Metadata, u.UpdatedAt
		return err
	})
	if err != nil {
		return nil, err
	}
	return h.Present.ShowUser(p), nil
}

func (h userHandlers) deleteUser(r *http.Request) (any, error) {
	p, err := h.userOf(r)
	if err != nil {
		return nil, err
	}
	return h.Present.StartJob(r.Context(), platform.OpDeleteUser, platform.Removal{GUID: p.GUID})
}

// userResource is the access resource for a user in the path. It has no org or space: a
// caller can see the user or not.
func (h userHandlers) userResource() access.Resource {
	return access.Resource{Name: "User", Look: func(r *http.Request) error {
		_, err := h.userOf(r)
		return err
	}}
}
