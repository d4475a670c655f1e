package api

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

// usersEndpoints are the endpoints of this file.
func (s *Server) usersEndpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/organizations/{guid}/users", Needs: access.Read, Resource: access.Org,
			Handler: s.listOrgUsers, Shape: rest.PageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/spaces/{guid}/users", Needs: access.Read, Resource: access.Space,
			Handler: s.listSpaceUsers, Shape: rest.PageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{
			Pattern: "GET /v3/users", Needs: access.Authenticated,
			Handler: s.listUsers, Shape: rest.PageOf[v3.User]("guids", "usernames", "partial_usernames", "origins", rest.ParamSelector).OrderedBy(rest.ByTime...),
		},
		{Pattern: "POST /v3/users", Needs: access.Administer, Handler: s.createUser, Shape: rest.Returns[v3.User](201).Reads(rest.JSON[v3.CreateUser]())},
		{
			Pattern: "GET /v3/users/{guid}", Needs: access.Authenticated, // who shares an org is seen
			Handler: s.getUser, Shape: rest.Returns[v3.User](200),
		},
		{
			Pattern: "PATCH /v3/users/{guid}", Needs: access.Administer, Resource: s.userResource(),
			Handler: s.updateUser, Shape: rest.Returns[v3.User](200).Reads(rest.JSON[v3.UpdateUser]()),
		},
		{Pattern: "DELETE /v3/users/{guid}", Needs: access.Administer, Resource: s.userResource(), Handler: s.deleteUser, Shape: rest.StartsJob()},
	}
}

// people are all whom the platform knows, by guid: users that were not deleted
// here, and clients that were made known or that have a role.
func (s *Server) people() (map[string]platform.Person, error) {
	records, err := s.c.Registry.Users()
	if err != nil {
		return nil, err
	}
	out, gone := map[string]platform.Person{}, map[string]bool{}
	for _, u := range records {
		if gone[u.GUID] = u.Gone; !u.Gone {
			out[u.GUID] = platform.Person{GUID: u.GUID, Metadata: u.Metadata, Created: u.CreatedAt, Updated: u.UpdatedAt}
		}
	}
	roles, err := s.c.Roles.All()
	if err != nil {
		return nil, err
	}
	for _, role := range roles {
		if _, known := out[role.User]; !known {
			out[role.User] = platform.Person{GUID: role.User, Created: role.CreatedAt, Updated: role.UpdatedAt}
		}
	}
	users, err := s.c.Auth.Accounts().Users()
	if err != nil {
		return nil, err
	}
	for _, u := range users {
		p, known := out[u.GUID]
		if !known && gone[u.GUID] {
			continue
		}
		if !known {
			p = platform.Person{GUID: u.GUID, Updated: u.UpdatedAt}
		}
		p.Name, p.Origin, p.Created = u.Name, u.Origin, u.CreatedAt
		out[u.GUID] = p
	}
	return out, nil
}

// inSight are those whom the request's principal sees: everybody, or themselves
// and who has a role in the same orgs.
func (s *Server) inSight(ctx context.Context) ([]platform.Person, error) {
	all, err := s.people()
	if err != nil {
		return nil, err
	}
	perms, err := s.access.Permissions(ctx)
	if err != nil {
		return nil, err
	}
	roles, err := s.c.Roles.All()
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
	for guid, p := range all {
		if perms.All || near[guid] {
			out = append(out, p)
		}
	}
	return out, nil
}

func (s *Server) listUsers(r *http.Request) (any, error) {
	all, err := s.inSight(r.Context())
	if err != nil {
		return nil, err
	}
	return s.pageOfUsers(r, all)
}

func (s *Server) listOrgUsers(r *http.Request) (any, error) {
	o, err := s.orgOf(r)
	if err != nil {
		return nil, err
	}
	roles, err := s.c.Roles.InOrg(o.GUID)
	if err != nil {
		return nil, err
	}
	spaces, err := s.c.Registry.SpacesOf(o.GUID)
	if err != nil {
		return nil, err
	}
	for _, sp := range spaces {
		more, err := s.c.Roles.InSpace(sp.GUID)
		if err != nil {
			return nil, err
		}
		roles = append(roles, more...)
	}
	return s.holders(r, roles)
}

func (s *Server) listSpaceUsers(r *http.Request) (any, error) {
	sp, err := s.spaceOf(r)
	if err != nil {
		return nil, err
	}
	roles, err := s.c.Roles.InSpace(sp.GUID)
	if err != nil {
		return nil, err
	}
	return s.holders(r, roles)
}

// holders is the page of those who have the roles.
func (s *Server) holders(r *http.Request, roles []auth.Role) (any, error) {
	all, err := s.people()
	if err != nil {
		return nil, err
	}
	var found []platform.Person
	for _, role := range roles {
		if p, ok := all[role.User]; ok {
			found = append(found, p)
			delete(all, role.User)
		}
	}
	return s.pageOfUsers(r, found)
}

func (s *Server) pageOfUsers(r *http.Request, all []platform.Person) (any, error) {
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
	var found []platform.Person
	for _, p := range all {
		if q.Matches("guids", p.GUID) && q.MatchesFold("usernames", p.Name) && q.MatchesPart("partial_usernames", p.Name) && q.MatchesFold("origins", p.Origin) {
			found = append(found, p)
		}
	}
	return rest.List(s.links, r, q, found, rest.View[platform.Person, v3.User]{
		Key: func(p platform.Person) rest.Key {
			return rest.Key{Name: p.Name, Created: p.Created, Updated: p.Updated, GUID: p.GUID}
		},
		Present: s.presentUser,
		Labels:  func(p platform.Person) map[string]string { return p.Metadata.Labels },
	}), nil
}

func (s *Server) getUser(r *http.Request) (any, error) {
	p, err := s.userOf(r)
	if err != nil {
		return nil, err
	}
	return s.presentUser(p), nil
}

// userOf is the person that the path names, if the principal sees them.
func (s *Server) userOf(r *http.Request) (platform.Person, error) {
	all, err := s.inSight(r.Context())
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

// createUser makes an account known to the platform: one that there is, by its
// guid, or one of another origin, by its name.
func (s *Server) createUser(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.CreateUser](r)
	if err != nil {
		return nil, err
	}
	metadata := app.Metadata{}.Merge(platform.MetadataChange(body.Metadata))
	if err := metadata.Validate(); err != nil { // an account that is made stays
		return nil, err
	}
	guid, err := s.accountFor(body)
	if err != nil {
		return nil, err
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
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
	all, err := s.people()
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusCreated, Body: s.presentUser(all[guid])}, nil
}

// accountFor is the guid of the account that a body names. An account of another
// origin is made when there is none: its password is known there.
func (s *Server) accountFor(body v3.CreateUser) (string, error) {
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
	accounts := s.c.Auth.Accounts()
	u, err := accounts.UserByName(body.Username, body.Origin)
	if errors.Is(err, auth.ErrNotFound) {
		u, err = accounts.CreateUser(auth.NewUser{Name: body.Username, Origin: body.Origin})
	}
	return u.GUID, err
}

func (s *Server) updateUser(r *http.Request) (any, error) {
	body, err := rest.Decode[v3.UpdateUser](r)
	if err != nil {
		return nil, err
	}
	p, err := s.userOf(r)
	if err != nil {
		return nil, err
	}
	err = s.platform.Change(r.Context(), func(w platform.Tx) error {
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
	return s.presentUser(p), nil
}

func (s *Server) deleteUser(r *http.Request) (any, error) {
	p, err := s.userOf(r)
	if err != nil {
		return nil, err
	}
	return s.begin(r.Context(), platform.OpDeleteUser, platform.Removal{GUID: p.GUID})
}

func (s *Server) presentUser(p platform.Person) v3.User {
	out := v3.User{
		GUID: p.GUID, CreatedAt: v3.At(p.Created), UpdatedAt: v3.At(p.Updated), PresentationName: p.Called(),
		Metadata: rest.PresentMetadata(p.Metadata), Links: v3.Links{"self": {Href: s.links.Href("v3", "users", p.GUID)}},
	}
	if p.Name != "" {
		out.Username, out.Origin = &p.Name, &p.Origin
	}
	return out
}

// userResource is what the path of a user names. It has no place: a caller can see it or not.
func (s *Server) userResource() access.Resource {
	return access.Resource{Name: "User", Look: func(r *http.Request) error {
		_, err := s.userOf(r)
		return err
	}}
}
