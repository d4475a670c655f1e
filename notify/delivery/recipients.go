package delivery

import (
	"context"
	"errors"
	"iter"
)

// Errors of a Directory.
var (
	ErrNoUser  = errors.New("user does not exist")
	ErrNoSpace = errors.New("space does not exist")
	ErrNoOrg   = errors.New("organization does not exist")
	ErrNoScope = errors.New("scope does not exist")
	// ErrPlatform is returned if the platform could not return a space or an
	// organization. All other failures are plain errors.
	ErrPlatform = errors.New("unexpected response from the platform")
)

// Person is a recipient of notifications.
type Person struct {
	GUID  string // empty: only the address is known
	Email string // empty: unknown, or not looked up yet
}

// Place is a space or an organization.
type Place struct {
	GUID string `json:"guid"`
	Name string `json:"name"`
}

// Roles in an organization, as requests name them.
const (
	RoleManager = "OrgManager"
	RoleAuditor = "OrgAuditor"
	RoleBilling = "BillingManager"
)

// Audience is a group of people with its space or organization.
type Audience struct {
	Space Place // zero: not a space
	Org   Place // zero: neither an organization nor a space in one
	// People are loaded on demand, each person once. The first error ends the sequence.
	People iter.Seq2[Person, error]
}

// Directory finds recipients. directory.Accounts implements it for dew's own users.
type Directory interface {
	// User returns the person with a guid, or ErrNoUser. The Email is empty if the user
	// has no address.
	User(ctx context.Context, guid string) (Person, error)
	// Everyone returns all users.
	Everyone(ctx context.Context) (Audience, error)
	// InSpace returns the users with a role in a space, or ErrNoSpace.
	InSpace(ctx context.Context, guid string) (Audience, error)
	// InOrg returns the users with a role in an organization, or ErrNoOrg. If role is
	// set, it returns only the users with that role.
	InOrg(ctx context.Context, guid, role string) (Audience, error)
	// WithScope returns the users who have a scope.
	WithScope(ctx context.Context, scope string) (Audience, error)
}
