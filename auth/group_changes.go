package auth

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/store"
)

// storedGroup is a group that an administrator created: a scope that can be given to
// users. It exists even if no user has it.
type storedGroup struct {
	Name        string
	Description string
	CreatedAt   time.Time
}

// groupBody is the request body about a group. If members is nil, they do not change.
type groupBody struct {
	DisplayName string         `json:"displayName"`
	Description string         `json:"description"`
	Members     *[]groupMember `json:"members"`
}

// createGroup creates a scope that can be given to users.
func (s *groupHandlers) createGroup(r *http.Request) (reply, error) {
	return s.changeGroup(r, EventGroupCreate, func(b groupBody) (string, error) {
		if _, err := s.groupNamed(b.DisplayName); err == nil {
			return "", &problem{status: http.StatusConflict, code: "scim_resource_already_exists", description: "A group with displayName: " + printable(b.DisplayName) + " already exists."}
		}
		return b.DisplayName, nil
	})
}

// putGroup replaces the members of a group, and the description of a created group.
func (s *groupHandlers) putGroup(r *http.Request) (reply, error) {
	return s.changeGroup(r, EventGroupUpdate, func(b groupBody) (string, error) {
		id := r.PathValue("id")
		if b.DisplayName != "" && b.DisplayName != id {
			return "", &Invalid{Key: "displayName", Message: "cannot be changed, because it is the id of the group; create another group"}
		}
		_, err := s.groupNamed(id)
		return id, err
	})
}

// changeGroup is the common part of both. Only administrators can use it, because it
// can grant any scope.
func (s *groupHandlers) changeGroup(r *http.Request, kind string, name func(b groupBody) (string, error)) (reply, error) {
	p, err := s.permitted(r, "uaa.admin")
	if err != nil {
		return reply{}, err
	}
	var b groupBody
	if err := decode(r, &b); err != nil {
		return reply{}, err
	}
	id, err := name(b)
	if err == nil {
		err = errors.Join(checkText("displayName", id), checkText("description", b.Description), checkScopes("displayName", []string{id}))
	}
	if err == nil {
		err = s.cfg.DB.Update(func(tx *store.Tx) error { return s.storeGroup(tx, id, b) })
	}
	s.record(event{kind, p, id, id}, err)
	if err != nil {
		return reply{}, scimProblem(err)
	}
	g, err := s.groupNamed(id)
	status := http.StatusOK
	if kind == EventGroupCreate {
		status = http.StatusCreated
	}
	return reply{status: status, body: g}, err
}

func (s *groupHandlers) storeGroup(tx *store.Tx, id string, b groupBody) error {
	groups := s.groupRecords.With(tx)
	g, err := groups.Get(id)
	if errors.Is(err, store.ErrNotFound) {
		g, err = storedGroup{Name: id, CreatedAt: now()}, nil
	}
	if err != nil {
		return fmt.Errorf("cannot read group %s: %w", id, err)
	}
	g.Description = b.Description
	if err := groups.Put(id, g); err != nil {
		return fmt.Errorf("cannot store group %s: %w", id, err)
	}
	if b.Members == nil {
		return nil
	}
	return s.accounts.With(tx).setMembers(id, *b.Members)
}

// setMembers gives a scope to exactly these users, in addition to those who have it by
// default.
func (a *Accounts) setMembers(scope string, members []groupMember) error {
	want := map[string]bool{}
	for _, m := range members {
		if _, err := a.User(m.Value); err != nil {
			return err
		}
		want[m.Value] = true
	}
	users, err := a.Users()
	if err != nil {
		return err
	}
	for _, u := range users {
		if slices.Contains(u.Groups, scope) == want[u.GUID] || slices.Contains(defaultScopes, scope) {
			continue
		}
		_, err := a.UpdateUser(u.GUID, func(u *User) error {
			u.Groups = slices.DeleteFunc(u.Groups, func(g string) bool { return g == scope })
			if want[u.GUID] {
				u.Groups = append(u.Groups, scope)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteGroup removes a scope from all users. It refuses scopes that dew itself checks.
func (s *groupHandlers) deleteGroup(r *http.Request) (reply, error) {
	p, err := s.permitted(r, "uaa.admin")
	if err != nil {
		return reply{}, err
	}
	g, err := s.groupNamed(r.PathValue("id"))
	if err == nil && slices.Contains(ownScopes(), g.ID) {
		err = &Invalid{Key: "displayName", Message: "the group is built in and cannot be deleted"}
	}
	if err == nil {
		err = s.cfg.DB.Update(func(tx *store.Tx) error {
			return errors.Join(s.accounts.With(tx).setMembers(g.ID, nil), s.groupRecords.With(tx).Delete(g.ID))
		})
	}
	s.record(event{EventGroupDelete, p, g.ID, g.DisplayName}, err)
	if err != nil {
		return reply{}, scimProblem(err)
	}
	return reply{body: g}, nil
}

// listMembers returns the users that have a scope.
func (s *groupHandlers) listMembers(r *http.Request) (reply, error) {
	if _, err := s.permitted(r, "scim.read", "uaa.admin"); err != nil {
		return reply{}, err
	}
	g, err := s.groupNamed(r.PathValue("id"))
	return reply{body: g.Members}, err
}

// groupPatch is the request body of a PATCH of a group. Missing keys do not change.
type groupPatch struct {
	DisplayName *string       `json:"displayName"`
	Description *string       `json:"description"`
	Members     []memberPatch `json:"members"`
	Meta        struct {
		Attributes []string `json:"attributes"` // attributes to clear
	} `json:"meta"`
}

// memberPatch is a user to add to a group or to remove from it.
type memberPatch struct {
	groupMember
	Operation string `json:"operation"` // "delete" removes the user
}

// patchGroup adds and removes members, and changes the description of a group. A group
// has no version, so any If-Match value is accepted, but the header is required.
func (s *groupHandlers) patchGroup(r *http.Request) (reply, error) {
	p, err := s.permitted(r, "uaa.admin")
	if err != nil {
		return reply{}, err
	}
	if r.Header.Get("If-Match") == "" {
		return reply{}, &problem{status: http.StatusBadRequest, code: "scim", description: "Missing If-Match for PATCH"}
	}
	var b groupPatch
	if err := decode(r, &b); err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	g, err := s.groupNamed(id)
	if err == nil {
		err = b.check(id)
	}
	if err == nil {
		err = s.cfg.DB.Update(func(tx *store.Tx) error { return s.applyPatch(tx, g, b) })
	}
	s.record(event{EventGroupUpdate, p, id, id}, err)
	if err != nil {
		return reply{}, scimProblem(err)
	}
	g, err = s.groupNamed(id)
	return reply{body: g}, err
}

// check refuses changes that a group does not allow.
func (b groupPatch) check(id string) error {
	if b.DisplayName != nil && *b.DisplayName != id {
		return &Invalid{Key: "displayName", Message: "cannot be changed, because it is the id of the group; create another group"}
	}
	for _, a := range b.Meta.Attributes {
		if name := strings.ToLower(a); name != "members" && name != "description" {
			return &Invalid{Key: "meta.attributes", Message: fmt.Sprintf("Attribute %s cannot be removed using \"Meta.attributes\"", printable(a))}
		}
	}
	if b.Description == nil {
		return nil
	}
	return checkText("description", *b.Description)
}

// applyPatch first clears attributes and then changes values, as UAA does.
func (s *groupHandlers) applyPatch(tx *store.Tx, g group, b groupPatch) error {
	body := groupBody{Description: g.Description}
	members, err := s.accounts.With(tx).members(g.ID)
	if err != nil {
		return err
	}
	for _, a := range b.Meta.Attributes {
		switch strings.ToLower(a) {
		case "members":
			members = nil
		case "description":
			body.Description = ""
		}
	}
	if b.Description != nil {
		body.Description = *b.Description
	}
	for _, m := range b.Members {
		members = slices.DeleteFunc(members, func(old groupMember) bool { return old.Value == m.Value })
		if !strings.EqualFold(m.Operation, "delete") {
			members = append(members, m.groupMember)
		}
	}
	body.Members = &members
	return s.storeGroup(tx, g.ID, body)
}

// members returns the users who were given a scope.
func (a *Accounts) members(scope string) ([]groupMember, error) {
	users, err := a.Users()
	if err != nil {
		return nil, err
	}
	out := []groupMember{}
	for _, u := range users {
		if slices.Contains(u.Groups, scope) {
			out = append(out, groupMember{Value: u.GUID, Type: "USER", Origin: u.Origin})
		}
	}
	return out, nil
}
