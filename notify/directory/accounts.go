package directory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/registry"
)

// Accounts is the Directory of dew's own users and roles.
type Accounts struct {
	users  *auth.Accounts
	roles  *auth.Roles
	places *registry.Registry
}

// NewAccounts returns the directory of dew's own accounts.
func NewAccounts(users *auth.Accounts, roles *auth.Roles, places *registry.Registry) *Accounts {
	return &Accounts{users: users, roles: roles, places: places}
}

// User implements Directory.
func (a *Accounts) User(_ context.Context, guid string) (delivery.Person, error) {
	u, err := a.users.User(guid)
	if errors.Is(err, auth.ErrNotFound) {
		return delivery.Person{}, fmt.Errorf("user %s: %w", guid, delivery.ErrNoUser)
	}
	if err != nil {
		return delivery.Person{}, err
	}
	return person(u), nil
}

// person returns the user with the mail address of the account, or with the name if
// that is an address.
func person(u auth.User) delivery.Person {
	p := delivery.Person{GUID: u.GUID, Email: u.Email}
	if p.Email == "" && strings.Contains(u.Name, "@") {
		p.Email = u.Name
	}
	return p
}

// Everyone implements Directory.
func (a *Accounts) Everyone(context.Context) (delivery.Audience, error) {
	return a.selectUsers(func(auth.User) bool { return true })
}

// WithScope implements Directory. The audience of an unused scope is empty.
func (a *Accounts) WithScope(_ context.Context, scope string) (delivery.Audience, error) {
	return a.selectUsers(func(u auth.User) bool { return slices.Contains(u.Scopes(), scope) })
}

func (a *Accounts) selectUsers(selects func(auth.User) bool) (delivery.Audience, error) {
	us, err := a.users.Users()
	if err != nil {
		return delivery.Audience{}, err
	}
	return delivery.Audience{People: func(yield func(delivery.Person, error) bool) {
		for _, u := range us {
			if u.Active && selects(u) && !yield(person(u), nil) {
				return
			}
		}
	}}, nil
}

// InSpace implements Directory.
func (a *Accounts) InSpace(_ context.Context, guid string) (delivery.Audience, error) {
	s, err := a.places.Space(guid)
	if errors.Is(err, app.ErrNotFound) {
		return delivery.Audience{}, fmt.Errorf("space %s: %w", guid, delivery.ErrNoSpace)
	}
	if err != nil {
		return delivery.Audience{}, err
	}
	o, err := a.places.Org(s.Org)
	if err != nil {
		return delivery.Audience{}, err
	}
	rs, err := a.roles.InSpace(guid)
	if err != nil {
		return delivery.Audience{}, err
	}
	return delivery.Audience{
		Space: delivery.Place{GUID: s.GUID, Name: s.Name}, Org: delivery.Place{GUID: o.GUID, Name: o.Name}, People: a.usersWithRoles(rs),
	}, nil
}

// orgRoles are the roles that requests can name.
var orgRoles = map[string]auth.RoleType{delivery.RoleManager: auth.OrgManager, delivery.RoleAuditor: auth.OrgAuditor, delivery.RoleBilling: auth.OrgBilling}

// InOrg implements Directory.
func (a *Accounts) InOrg(_ context.Context, guid, role string) (delivery.Audience, error) {
	o, err := a.places.Org(guid)
	if errors.Is(err, app.ErrNotFound) {
		return delivery.Audience{}, fmt.Errorf("organization %s: %w", guid, delivery.ErrNoOrg)
	}
	if err != nil {
		return delivery.Audience{}, err
	}
	rs, err := a.roles.InOrg(guid)
	if err != nil {
		return delivery.Audience{}, err
	}
	if role != "" {
		rs = slices.DeleteFunc(rs, func(r auth.Role) bool { return r.Type != orgRoles[role] })
	}
	return delivery.Audience{Org: delivery.Place{GUID: o.GUID, Name: o.Name}, People: a.usersWithRoles(rs)}, nil
}

// usersWithRoles returns the users who have one of the roles, without duplicates. It
// skips clients, which can have roles but read no mail.
func (a *Accounts) usersWithRoles(rs []auth.Role) iter.Seq2[delivery.Person, error] {
	return func(yield func(delivery.Person, error) bool) {
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
