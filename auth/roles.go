package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// RoleType is the type of a role, with the names of Cloud Foundry.
type RoleType string

// The role types of Cloud Foundry.
const (
	OrgUser        RoleType = "organization_user"
	OrgManager     RoleType = "organization_manager"
	OrgAuditor     RoleType = "organization_auditor"
	OrgBilling     RoleType = "organization_billing_manager"
	SpaceManager   RoleType = "space_manager"
	SpaceDeveloper RoleType = "space_developer"
	SpaceAuditor   RoleType = "space_auditor"
	SpaceSupporter RoleType = "space_supporter"
)

var (
	orgRoles   = []RoleType{OrgUser, OrgManager, OrgAuditor, OrgBilling}
	spaceRoles = []RoleType{SpaceManager, SpaceDeveloper, SpaceAuditor, SpaceSupporter}
)

// RoleTypes returns all role types.
func RoleTypes() []RoleType { return slices.Concat(orgRoles, spaceRoles) }

// OfOrg reports whether a role belongs to an organization.
func (t RoleType) OfOrg() bool { return slices.Contains(orgRoles, t) }

// OfSpace reports whether a role belongs to a space.
func (t RoleType) OfSpace() bool { return slices.Contains(spaceRoles, t) }

// Role gives a user permissions in one organization or space.
type Role struct {
	GUID       string
	Type       RoleType
	User       string // guid of a user, or id of a client
	Org, Space string // guids; exactly one is set, depending on the type
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// Roles stores the roles of users in organizations and spaces.
type Roles struct {
	db    *store.DB
	tx    *store.Tx // nil means that each method is its own transaction
	roles store.Bucket[Role]
}

// RolesBucket is the name of the bucket of roles.
const RolesBucket = "roles"

// NewRoles returns the roles that are stored in db.
func NewRoles(db *store.DB) *Roles {
	return &Roles{db: db, roles: store.In(db, RolesBucket,
		store.Index("user", func(r Role) string { return r.User }),
		store.Index("org", func(r Role) string { return r.Org }),
		store.Index("space", func(r Role) string { return r.Space }),
		store.Unique("user, type and place", func(r Role) string {
			return strings.Join([]string{r.User, string(r.Type), r.Org, r.Space}, "\x00")
		}))}
}

// With returns the roles inside tx.
func (r *Roles) With(tx *store.Tx) *Roles {
	return &Roles{db: r.db, tx: tx, roles: r.roles.With(tx)}
}

// Put stores a new role and returns it with guid and times. Roles never change: a
// second role with the same user, type and org or space, or with the same guid, is
// ErrTaken.
func (r *Roles) Put(role Role) (Role, error) {
	if err := role.check(); err != nil {
		return role, err
	}
	if role.GUID == "" {
		role.GUID = uuid.NewString()
	}
	role.CreatedAt = now()
	role.UpdatedAt = role.CreatedAt
	err := r.update(func(r *Roles) error {
		if _, err := r.roles.Get(role.GUID); err == nil {
			return fmt.Errorf("role %s: %w", role.GUID, ErrTaken)
		}
		err := r.roles.Put(role.GUID, role)
		if errors.Is(err, store.ErrTaken) {
			return fmt.Errorf("role %s of user %s: %w", role.Type, role.User, ErrTaken)
		}
		if err != nil {
			return fmt.Errorf("cannot store role %s: %w", role.GUID, err)
		}
		return nil
	})
	return role, err
}

func (r Role) check() error {
	switch {
	case r.User == "":
		return &Invalid{Key: "user", Message: "a role must have a user"}
	case !r.Type.OfOrg() && !r.Type.OfSpace():
		return &Invalid{Key: "type", Message: fmt.Sprintf("%q is not a valid role type", r.Type)}
	case r.Type.OfOrg() && (r.Org == "" || r.Space != ""):
		return &Invalid{Key: "relationships", Message: fmt.Sprintf("%s is a role in an organization, not in a space", r.Type)}
	case r.Type.OfSpace() && (r.Space == "" || r.Org != ""):
		return &Invalid{Key: "relationships", Message: fmt.Sprintf("%s is a role in a space, not in an organization", r.Type)}
	}
	return nil
}

// Get returns the role with guid.
func (r *Roles) Get(guid string) (Role, error) { return get(r.roles, "role", guid) }

// All returns all roles.
func (r *Roles) All() ([]Role, error) {
	all, err := r.roles.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list roles: %w", err)
	}
	return all, nil
}

// OfUser returns the roles of a user.
func (r *Roles) OfUser(user string) ([]Role, error) { return r.by("user", user) }

// InOrg returns the roles in an organization, without those in its spaces.
func (r *Roles) InOrg(org string) ([]Role, error) { return r.by("org", org) }

// InSpace returns the roles in a space.
func (r *Roles) InSpace(space string) ([]Role, error) { return r.by("space", space) }

// Delete removes a role.
func (r *Roles) Delete(guid string) error {
	return r.update(func(r *Roles) error {
		if _, err := r.Get(guid); err != nil {
			return err
		}
		return r.remove(guid)
	})
}

// DeleteUser removes every role of a user.
func (r *Roles) DeleteUser(user string) error { return r.deleteBy("user", user) }

// DeleteOrg removes the roles in an organization, without those in its spaces.
func (r *Roles) DeleteOrg(org string) error { return r.deleteBy("org", org) }

// DeleteSpace removes the roles in a space.
func (r *Roles) DeleteSpace(space string) error { return r.deleteBy("space", space) }

func (r *Roles) by(index, value string) ([]Role, error) {
	found, err := r.roles.By(index, value)
	if err != nil {
		return nil, fmt.Errorf("cannot list roles of %s %s: %w", index, value, err)
	}
	return found, nil
}

func (r *Roles) deleteBy(index, value string) error {
	return r.update(func(r *Roles) error {
		found, err := r.by(index, value)
		if err != nil {
			return err
		}
		for _, role := range found {
			if err := r.remove(role.GUID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Roles) remove(guid string) error {
	if err := r.roles.Delete(guid); err != nil {
		return fmt.Errorf("cannot delete role %s: %w", guid, err)
	}
	return nil
}

func (r *Roles) update(fn func(r *Roles) error) error {
	if r.tx != nil {
		return fn(r)
	}
	return r.db.Update(func(tx *store.Tx) error { return fn(r.With(tx)) })
}
