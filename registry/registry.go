// Package registry stores the desired state that package app describes: orgs, apps,
// routes and the like, and the events and jobs about them, in buckets of package store.
// Every method is one transaction, and With joins several into one.
package registry

import "github.com/dewrun/dew/store"

// Registry stores everything that users ask for, by subject. Code that needs
// one subject can take that one instead, such as Registry.RouteStore.
type Registry struct {
	*tables
	*AppStore
	*DeploymentStore
	*RevisionStore
	*TaskStore
	*RouteStore
	*DomainStore
	*OrgStore
	*LimitStore
	*SettingStore
	*UsageStore
	*Manifests
}

// New returns the registry that is stored in db.
func New(db *store.DB) *Registry { return newTables(db).registry() }

// With returns the registry inside tx.
func (r *Registry) With(tx *store.Tx) *Registry { return r.with(tx).registry() }
