package notify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/registry"
)

// Accounts is the Directory of dew's own users and roles.
type Accounts struct {
	users  *auth.Accounts
	roles  *auth.Roles
	places *registry.Registry
}

// NewAccounts returns the directory of who has an account here.
func NewAccounts(users *auth.Accounts, roles *auth.Roles, places *registry.Registry) *Accounts {
	return &Accounts{users: users, roles: roles, places: places}
}

// User implements Directory.
func (a *Accounts) User(_ context.Context, guid string) (Person, error) {
	u, err := a.users.User(guid)
	if errors.Is(err, auth.ErrNotFound) {
		return Person{}, fmt.Errorf("user %s: %w", guid, ErrNoUser)
	}
	if err != nil {
		return Person{}, err
	}
	return person(u), nil
}

// person has the account's mail address, or the name if it is one.
func person(u auth.User) Person {
	p := Person{GUID: u.GUID, Email: u.Email}
	if p.Email == "" && strings.Contains(u.Name, "@") {
		p.Email = u.Name
	}
	return p
}

// Everyone implements Directory.
func (a *Accounts) Everyone(context.Context) (Audience, error) {
	return a.those(func(auth.User) bool { return true })
}

// WithScope implements Directory. A scope that nobody has has nobody.
func (a *Accounts) WithScope(_ context.Context, scope string) (Audience, error) {
	return a.those(func(u auth.User) bool { return slices.Contains(u.Scopes(), scope) })
}

func (a *Accounts) those(chosen func(auth.User) bool) (Audience, error) {
	us, err := a.users.Users()
	if err != nil {
		return Audience{}, err
	}
	return Audience{People: func(yield func(Person, error) bool) {
		for _, u := range us {
			if u.Active && chosen(u) && !yield(person(u), nil) {
				return
			}
		}
	}}, nil
}

// InSpace implements Directory.
func (a *Accounts) InSpace(_ context.Context, guid string) (Audience, error) {
	s, err := a.places.Space(guid)
	if errors.Is(err, app.ErrNotFound) {
		return Audience{}, fmt.Errorf("space %s: %w", guid, ErrNoSpace)
	}
	if err != nil {
		return Audience{}, err
	}
	o, err := a.places.Org(s.Org)
	if err != nil {
		return Audience{}, err
	}
	rs, err := a.roles.InSpace(guid)
	if err != nil {
		return Audience{}, err
	}
	return Audience{
		Space: Place{GUID: s.GUID, Name: s.Name}, Org: Place{GUID: o.GUID, Name: o.Name}, People: a.holders(rs),
	}, nil
}

// orgRoles are the roles that requests may name.
var orgRoles = map[string]auth.RoleType{RoleManager: auth.OrgManager, RoleAuditor: auth.OrgAuditor, RoleBilling: auth.OrgBilling}

// InOrg implements Directory.
func (a *Accounts) InOrg(_ context.Context, guid, role string) (Audience, error) {
	o, err := a.places.Org(guid)
	if errors.Is(err, app.ErrNotFound) {
		return Audience{}, fmt.Errorf("organization %s: %w", guid, ErrNoOrg)
	}
	if err != nil {
		return Audience{}, err
	}
	rs, err := a.roles.InOrg(guid)
	if err != nil {
		return Audience{}, err
	}
	if role != "" {
		rs = slices.DeleteFunc(rs, func(r auth.Role) bool { return r.Type != orgRoles[role] })
	}
	return Audience{Org: Place{GUID: o.GUID, Name: o.Name}, People: a.holders(rs)}, nil
}

// holders are the users who have one of the roles, each once. Clients may have
// roles, too, and read no mail.
func (a *Accounts) holders(rs []auth.Role) iter.Seq2[Person, error] {
	return func(yield func(Person, error) bool) {
		seen := map[string]bool{}
		for _, r := range rs {
			if seen[r.User] {
				continue
			}
			seen[r.User] = true
			u, err := a.users.User(r.User)
			if errors.Is(err, auth.ErrNotFound) || err == nil && !u.Active {
				continue
			}
			if !yield(person(u), err) || err != nil {
				return
			}
		}
	}
}
