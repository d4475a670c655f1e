package delivery

import (
	"context"
	"errors"
	"iter"
)

// What a caller may decide on about people and places.
var (
	ErrNoUser  = errors.New("no such user")
	ErrNoSpace = errors.New("no such space")
	ErrNoOrg   = errors.New("no such organization")
	ErrNoScope = errors.New("nobody knows this scope")
	// ErrPlatform is a platform that could not say what a space or an organization
	// is; every other failure to ask is a plain error.
	ErrPlatform = errors.New("the platform does not answer as it should")
)

// Person is somebody who can be told something.
type Person struct {
	GUID  string // empty: only the address is known
	Email string // empty: not known, or not asked for yet
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

// Audience is a group of people, and what it is called.
type Audience struct {
	Space Place // zero: it is no space
	Org   Place // zero: it is no organization, and no space in one
	// People are read as they are asked for, each person once. The first error ends
	// them.
	People iter.Seq2[Person, error]
}

// Directory knows who there is. Accounts is the one of dew's own users.
type Directory interface {
	// User returns the person with a guid, or ErrNoUser. One without an address
	// has an empty Email.
	User(ctx context.Context, guid string) (Person, error)
	// Everyone is all users there are.
	Everyone(ctx context.Context) (Audience, error)
	// InSpace are those with a role in a space, or ErrNoSpace.
	InSpace(ctx context.Context, guid string) (Audience, error)
	// InOrg are those with a role in an organization, or ErrNoOrg. With a role,
	// only those who have it.
	InOrg(ctx context.Context, guid, role string) (Audience, error)
	// WithScope are those who have a scope.
	WithScope(ctx context.Context, scope string) (Audience, error)
}
