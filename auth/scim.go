package auth

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/store"
)

const (
	schemaUsers = "urn:scim:schemas:core:1.0"
	timeFormat  = "2006-01-02T15:04:05.000Z"
)

// scimUser is a user as the API returns it.
type scimUser struct {
	ID                   string      `json:"id"`
	Meta                 scimMeta    `json:"meta"`
	UserName             string      `json:"userName"`
	Name                 scimName    `json:"name"`
	Emails               []scimEmail `json:"emails"`
	Groups               []scimGroup `json:"groups"`
	Active               bool        `json:"active"`
	Verified             bool        `json:"verified"`
	Origin               string      `json:"origin"`
	ZoneID               string      `json:"zoneId"`
	PasswordLastModified string      `json:"passwordLastModified"`
	Schemas              []string    `json:"schemas"`
}

type scimMeta struct {
	Version      int    `json:"version"`
	Created      string `json:"created"`
	LastModified string `json:"lastModified"`
}

type scimName struct {
	FamilyName string `json:"familyName"`
	GivenName  string `json:"givenName"`
}

type scimEmail struct {
	Value   string `json:"value"`
	Primary bool   `json:"primary"`
}

type scimGroup struct {
	Value   string `json:"value"`
	Display string `json:"display"`
	Type    string `json:"type"`
}

func showUser(u User) scimUser {
	out := scimUser{
		ID: u.GUID, UserName: u.Name, Name: scimName{FamilyName: u.FamilyName, GivenName: u.GivenName},
		Meta:   scimMeta{Version: u.Version, Created: stamp(u.CreatedAt), LastModified: stamp(u.UpdatedAt)},
		Emails: []scimEmail{}, Groups: []scimGroup{}, Active: u.Active, Verified: u.Verified, Origin: u.Origin, ZoneID: zone,
		PasswordLastModified: stamp(u.PasswordAt), Schemas: []string{schemaUsers},
	}
	if u.Email != "" {
		out.Emails = append(out.Emails, scimEmail{Value: u.Email, Primary: true})
	}
	for _, g := range u.Scopes() {
		out.Groups = append(out.Groups, scimGroup{Value: g, Display: g, Type: "DIRECT"})
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format(timeFormat) }

// userAttrs are the attributes to filter and sort by. Lists are sorted by the first one
// by default.
var userAttrs = []string{
	"username", "id", "origin", "email", "emails", "emails.value", "active", "verified",
	"familyname", "name.familyname", "givenname", "name.givenname", "created", "meta.created", "lastmodified", "meta.lastmodified",
}

func userAttr(u User, attr string) []string {
	switch attr {
	case "username":
		return []string{u.Name}
	case "id":
		return []string{u.GUID}
	case "origin":
		return []string{u.Origin}
	case "email", "emails", "emails.value":
		return []string{u.Email}
	case "active":
		return []string{strconv.FormatBool(u.Active)}
	case "verified":
		return []string{strconv.FormatBool(u.Verified)}
	case "familyname", "name.familyname":
		return []string{u.FamilyName}
	case "givenname", "name.givenname":
		return []string{u.GivenName}
	case "created", "meta.created":
		return []string{stamp(u.CreatedAt)}
	case "lastmodified", "meta.lastmodified":
		return []string{stamp(u.UpdatedAt)}
	}
	return nil
}

// userBody is the request body about a user. Nil means that the key is missing.
type userBody struct {
	ID       string  `json:"id"`
	UserName *string `json:"userName"`
	Password string  `json:"password"`
	Origin   *string `json:"origin"`
	Name     *struct {
		FamilyName *string `json:"familyName"`
		GivenName  *string `json:"givenName"`
	} `json:"name"`
	Emails   *[]scimEmail `json:"emails"`
	Active   *bool        `json:"active"`
	Verified *bool        `json:"verified"`
	Meta     struct {
		Attributes []string `json:"attributes"` // attributes to clear
	} `json:"meta"`
}

// apply changes u according to the body.
func (b userBody) apply(u *User) {
	set(&u.Name, b.UserName)
	set(&u.Active, b.Active)
	set(&u.Verified, b.Verified)
	if b.Origin != nil {
		u.Origin = cmp.Or(*b.Origin, u.Origin, OriginUAA)
	}
	if b.Name != nil {
		set(&u.FamilyName, b.Name.FamilyName)
		set(&u.GivenName, b.Name.GivenName)
	}
	if b.Emails != nil {
		u.Email = primary(*b.Emails)
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func primary(emails []scimEmail) string {
	if len(emails) == 0 {
		return ""
	}
	i := max(slices.IndexFunc(emails, func(e scimEmail) bool { return e.Primary }), 0)
	return emails[i].Value
}

// scimProblem converts an error about a user into a UAA error.
func scimProblem(err error) error {
	if invalid, ok := errors.AsType[*Invalid](err); ok {
		return &problem{status: http.StatusBadRequest, code: "invalid_scim_resource", description: invalid.text("userName")}
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return &problem{status: http.StatusNotFound, code: "scim_resource_not_found", description: "The user does not exist"}
	case errors.Is(err, ErrTaken):
		return &problem{status: http.StatusConflict, code: "scim_resource_already_exists", description: "Username already in use"}
	}
	return err
}

// text leaves out the key if the message already names it.
func (e *Invalid) text(known string) string {
	if e.Key == known {
		return e.Message
	}
	return e.Error()
}

func (s *userHandlers) listUsers(r *http.Request) (reply, error) {
	if _, err := s.permitted(r, "scim.read", "uaa.admin"); err != nil {
		return reply{}, err
	}
	all, err := s.accounts.Users()
	if err != nil {
		return reply{}, err
	}
	return listing[User]{
		schema: schemaUsers, attrs: userAttrs, get: userAttr,
		show: func(u User) any { return showUser(u) },
	}.page(r, all)
}

func userReply(status int, u User) reply {
	return reply{status: status, etag: strconv.Quote(strconv.Itoa(u.Version)), body: showUser(u)}
}

func (s *userHandlers) getUser(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	if !p.IsUser || p.ID != id || !p.Has("uaa.user") {
		if err := requireScope(p, "scim.read", "uaa.admin"); err != nil {
			return reply{}, err
		}
	}
	u, err := s.accounts.User(id)
	if err != nil {
		return reply{}, scimProblem(err)
	}
	return userReply(http.StatusOK, u), nil
}

func (s *userHandlers) createUser(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	var b userBody
	var u User
	if err = requireScope(p, "scim.write", "uaa.admin"); err == nil {
		err = decode(r, &b)
	}
	if err == nil {
		b.apply(&u)
		u, err = s.accounts.CreateUser(NewUser{
			Name: u.Name, Origin: u.Origin, Email: u.Email, GivenName: u.GivenName, FamilyName: u.FamilyName,
			Password: b.Password, Inactive: b.Active != nil && !*b.Active,
		})
	}
	if err != nil {
		u.GUID = "" // no user has this guid
	}
	s.record(event{EventUserCreate, p, u.GUID, u.Name}, err)
	if err != nil {
		return reply{}, scimProblem(err)
	}
	return userReply(http.StatusCreated, u), nil
}

func (s *userHandlers) putUser(r *http.Request) (reply, error) {
	return s.changeUser(r, func(b userBody, u *User) error {
		if b.UserName == nil {
			return &Invalid{Key: "userName", Message: "A username must be provided."}
		}
		*u = User{Name: u.Name, Origin: u.Origin, Groups: u.Groups, Active: true, Verified: u.Verified, Epoch: u.Epoch}
		b.apply(u)
		return nil
	})
}

func (s *userHandlers) patchUser(r *http.Request) (reply, error) {
	return s.changeUser(r, func(b userBody, u *User) error {
		for _, a := range b.Meta.Attributes {
			switch strings.ToLower(a) {
			case "name":
				u.FamilyName, u.GivenName = "", ""
			case "emails":
				u.Email = ""
			}
		}
		b.apply(u)
		return nil
	})
}

// changeUser is the common part of PUT and PATCH.
func (s *userHandlers) changeUser(r *http.Request, change func(b userBody, u *User) error) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	var b userBody
	var u User
	if err = requireScope(p, "scim.write", "uaa.admin"); err == nil {
		err = decode(r, &b)
	}
	if err == nil {
		u, err = s.accounts.UpdateUser(id, func(u *User) error {
			if b.Password != "" {
				return &Invalid{Key: "password", Message: "can be changed only at /Users/" + id + "/password"}
			}
			if err := matches(r.Header.Get("If-Match"), u.Version); err != nil {
				return err
			}
			return change(b, u)
		})
	}
	s.record(event{EventUserUpdate, p, id, u.Name}, err)
	if err != nil {
		return reply{}, scimProblem(err)
	}
	return userReply(http.StatusOK, u), nil
}

// matches refuses to change a resource that has changed since the client read it.
func matches(header string, version int) error {
	tag := strings.Trim(strings.TrimPrefix(header, "W/"), `"`)
	if tag == "" || tag == "*" || tag == strconv.Itoa(version) {
		return nil
	}
	return &problem{
		status: http.StatusConflict, code: "scim_resource_conflict",
		description: "The user was changed after version " + printable(tag) + ". Read the user again and repeat the request",
	}
}

// deleteUser removes a user with all its roles.
func (s *userHandlers) deleteUser(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	var u User
	if err = requireScope(p, "scim.write", "uaa.admin"); err == nil {
		err = s.cfg.DB.Update(func(tx *store.Tx) error {
			a := s.accounts.With(tx)
			if u, err = a.User(id); err != nil {
				return err
			}
			return errors.Join(a.DeleteUser(id), s.roles.With(tx).DeleteUser(id))
		})
	}
	s.record(event{EventUserDelete, p, id, u.Name}, err)
	if err != nil {
		return reply{}, scimProblem(err)
	}
	return userReply(http.StatusOK, u), nil
}

// newPassword is the request body about a password.
type newPassword struct {
	Password    string `json:"password"`
	OldPassword string `json:"oldPassword,omitempty"`
}

// putPassword changes a password. Users need their old password; an administrator can
// set any password.
func (s *userHandlers) putPassword(r *http.Request) (reply, error) {
	p, err := s.caller(r)
	if err != nil {
		return reply{}, err
	}
	id := r.PathValue("id")
	var b newPassword
	u, err := s.canChangePassword(p, id)
	if err == nil {
		err = decode(r, &b)
	}
	if err == nil && (p.IsUser && p.ID == id || b.OldPassword != "") {
		_, err = s.login(r.Context(), login{name: u.Name, origin: u.Origin, password: b.OldPassword, peer: peer(r)})
	}
	if err == nil && b.OldPassword != "" && b.OldPassword == b.Password {
		err = &problem{
			status: http.StatusUnprocessableEntity, code: "invalid_password",
			description: "Your new password cannot be the same as the old password.",
		}
	}
	if err == nil {
		err = invalidPassword(s.accounts.SetPassword(id, b.Password))
	}
	s.record(event{EventUserPassword, p, id, u.Name}, err)
	if err != nil {
		return reply{}, scimProblem(err)
	}
	return reply{body: map[string]string{"status": "ok", "message": "password updated"}}, nil
}

// canChangePassword returns the user whose password is changed. A caller without
// permission gets the same error whether or not the user exists.
func (s *userHandlers) canChangePassword(p Principal, id string) (User, error) {
	if own := p.IsUser && p.ID == id && p.Has("password.write"); !own {
		if err := requireScope(p, "uaa.admin"); err != nil {
			return User{}, err
		}
	}
	return s.accounts.User(id)
}

// invalidPassword converts an Invalid about a password into the form that the command
// line reads.
func invalidPassword(err error) error {
	if invalid, ok := errors.AsType[*Invalid](err); ok {
		return &problem{status: http.StatusUnprocessableEntity, code: "invalid_password", description: "The password " + invalid.Message + "."}
	}
	return err
}
