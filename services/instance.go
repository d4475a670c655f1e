package services

import (
	"context"
	"encoding/json"

	"github.com/dewrun/dew/app"
)

// NewInstance is the wish for a service instance.
type NewInstance struct {
	Type       InstanceType
	Name       string
	Space      string // guid
	Plan       string // guid, of a managed one
	Parameters json.RawMessage
	Tags       []string
	// The rest but metadata is for user-provided ones.
	Credentials  json.RawMessage
	SyslogDrain  string
	RouteService string
	Metadata     app.Metadata
	By           app.Actor
}

// InstanceChange is the wish for an instance to be different. What is nil stays.
type InstanceChange struct {
	Name        *string
	Tags        *[]string
	Plan        *string // guid
	Parameters  json.RawMessage
	Maintenance *string // the version to upgrade to
	// For user-provided ones.
	Credentials  json.RawMessage
	SyslogDrain  *string
	RouteService *string
	Metadata     app.MetadataChange
	By           app.Actor
}

// InstanceFilter chooses instances. An empty list chooses all.
type InstanceFilter struct {
	GUIDs, Names     []string
	Type             InstanceType // empty: both
	Spaces, Orgs     []string     // guids; also of spaces that it is shared with
	Plans, PlanNames []string
	Labels           app.Selector
}

// Usage is how many apps of a space that an instance is shared with are bound to it.
type Usage struct {
	Space string // guid
	Apps  int
}

// Instance returns the service instance with guid.
func (b *Book) Instance(guid string) (i Instance, err error) { return i, err }

// InstanceIn returns the service instance that has the name in a space, its own or
// a shared one.
func (b *Book) InstanceIn(space, name string) (i Instance, err error) { return i, err }

// Instances returns the instances that f chooses, by name.
func (b *Book) Instances(f InstanceFilter) (is []Instance, err error) { return is, err }

// CreateInstance keeps an instance. A managed one has an operation that makes it;
// for a user-provided one the operation is empty.
func (b *Book) CreateInstance(n NewInstance) (i Instance, o Operation, err error) { return i, o, err }

// UpdateInstance changes an instance. The operation is empty when its broker need
// not be asked: then it is done.
func (b *Book) UpdateInstance(guid string, c InstanceChange) (i Instance, o Operation, err error) {
	return i, o, err
}

// DeleteInstance removes an instance after all that is bound to it. The operation
// is empty when that is done already.
func (b *Book) DeleteInstance(guid string, by app.Actor) (o Operation, err error) { return o, err }

// PurgeInstance forgets an instance and what is bound to it without a word to its
// broker.
func (b *Book) PurgeInstance(guid string, by app.Actor) error { return nil }

// DeleteIn begins to delete all instances of a space, and takes back what is shared
// with it.
func (b *Book) DeleteIn(space string, by app.Actor) (os []Operation, err error) { return os, err }

// Parameters asks the broker for the parameters of an instance.
func (b *Book) Parameters(ctx context.Context, guid string) (p json.RawMessage, err error) {
	return p, err
}

// Upgradable tells whether the plan of an instance has another maintenance version.
func (b *Book) Upgradable(i Instance) bool { return false }

// Share lets apps of further spaces be bound to an instance.
func (b *Book) Share(guid string, spaces []string, by app.Actor) (i Instance, err error) {
	return i, err
}

// Unshare takes that back, with the bindings of that space's apps.
func (b *Book) Unshare(guid, space string, by app.Actor) error { return nil }

// SharedUsage tells for every space that an instance is shared with how many of its
// apps are bound to it.
func (b *Book) SharedUsage(guid string) (us []Usage, err error) { return us, err }
