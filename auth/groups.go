package auth

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

// group is a scope that users can have, with its members. Every scope is a group whose
// id is its name.
type group struct {
	ID          string        `json:"id"`
	DisplayName string        `json:"displayName"`
	Description string        `json:"description,omitempty"`
	Members     []groupMember `json:"members"`
	ZoneID      string        `json:"zoneId"`
	Schemas     []string      `json:"schemas"`
}

type groupMember struct {
	Value  string `json:"value"`
	Type   string `json:"type"`
	Origin string `json:"origin"`
}

// groups returns every scope that a user has or could be given by name.
func (s *groupHandlers) groups() ([]group, error) {
	users, err := s.accounts.Users()
	if err != nil {
		return nil, err
	}
	members := map[string][]groupMember{}
	for _, scope := range ownScopes() {
		members[scope] = []groupMember{}
	}
	about := map[string]string{}
	stored, err := s.groupRecords.All()
	if err != nil {
		return nil, err
	}
	for _, g := range stored {
		members[g.Name], about[g.Name] = []groupMember{}, g.Description
	}
	for _, u := range users {
		for _, scope := range u.Scopes() {
			members[scope] = append(members[scope], groupMember{Value: u.GUID, Type: "USER", Origin: u.Origin})
		}
	}
	var out []group
	for scope, m := range members {
		out = append(out, group{ID: scope, DisplayName: scope, Description: about[scope], Members: m, ZoneID: zone, Schemas: []string{schemaUsers}})
	}
	slices.SortFunc(out, func(a, b group) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// ownScopes returns the scopes that dew itself checks.
func ownScopes() []string {
	return slices.Concat(defaultScopes, adminGroups, []string{ScopeAdminReadOnly, ScopeGlobalAuditor})
}

// groupNamed returns the group with an id.
func (s *groupHandlers) groupNamed(id string) (group, error) {
	all, err := s.groups()
	if err != nil {
		return group{}, err
	}
	i := slices.IndexFunc(all, func(g group) bool { return g.ID == id })
	if i < 0 {
		return group{}, &problem{status: http.StatusNotFound, code: "scim_resource_not_found", description: "The group does not exist"}
	}
	return all[i], nil
}

func (s *groupHandlers) listGroups(r *http.Request) (reply, error) {
	if _, err := s.permitted(r, "scim.read", "uaa.admin"); err != nil {
		return reply{}, err
	}
	all, err := s.groups()
	if err != nil {
		return reply{}, err
	}
	return listing[group]{
		schema: schemaUsers, attrs: []string{"displayname", "id"},
		get:  func(g group, _ string) []string { return []string{g.ID} },
		show: func(g group) any { return g },
	}.page(r, all)
}

func (s *groupHandlers) getGroup(r *http.Request) (reply, error) {
	if _, err := s.permitted(r, "scim.read", "uaa.admin"); err != nil {
		return reply{}, err
	}
	g, err := s.groupNamed(r.PathValue("id"))
	return reply{body: g}, err
}

// addMember gives a user a scope.
func (s *groupHandlers) addMember(r *http.Request) (reply, error) {
	var b groupMember
	scope := r.PathValue("id")
	_, err := s.changeGroups(r, func() (string, error) {
		err := decode(r, &b)
		if err == nil && b.Value == "" {
			err = &Invalid{Key: "value", Message: "the guid of a user must be provided"}
		}
		if err == nil {
			_, err = s.groupNamed(scope)
		}
		return b.Value, err
	}, func(u *User) error {
		if slices.Contains(u.Scopes(), scope) {
			return errMember
		}
		u.Groups = append(u.Groups, scope)
		return nil
	})
	if errors.Is(err, errMember) {
		return reply{}, &problem{status: http.StatusConflict, code: "member_already_exists", description: "The user is already a member of the group"}
	}
	return reply{status: http.StatusCreated, body: groupMember{Value: b.Value, Type: "USER", Origin: OriginUAA}}, err
}

// errMember says that a user already is, or is not, in a group.
var errMember = errors.New("the membership of the user does not change")

// removeMember removes a scope from a user.
func (s *groupHandlers) removeMember(r *http.Request) (reply, error) {
	scope := r.PathValue("id")
	u, err := s.changeGroups(r, func() (string, error) { return r.PathValue("member"), nil }, func(u *User) error {
		before := len(u.Groups)
		u.Groups = slices.DeleteFunc(u.Groups, func(g string) bool { return g == scope })
		if len(u.Groups) == before {
			return errMember
		}
		return nil
	})
	if errors.Is(err, errMember) {
		return reply{}, &problem{status: http.StatusNotFound, code: "member_not_found", description: "The user is not a member of the group, or the group always contains all users"}
	}
	return reply{body: groupMember{Value: u.GUID, Type: "USER", Origin: u.Origin}}, err
}

// changeGroups changes the scopes of a user. Only administrators can use it, because it
// can grant any scope.
func (s *groupHandlers) changeGroups(r *http.Request, member func() (string, error), change func(u *User) error) (User, error) {
	p, err := s.caller(r)
	if err != nil {
		return User{}, err
	}
	var id string
	var u User
	if err = requireScope(p, "uaa.admin"); err == nil {
		id, err = member()
	}
	if err == nil {
		u, err = s.accounts.UpdateUser(id, change)
	}
	s.record(event{EventUserUpdate, p, id, u.Name}, err)
	return u, scimProblem(err)
}
