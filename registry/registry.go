// Package registry stores the desired state that package app describes, with its events
// and jobs, in buckets of package store. Every method is one transaction, and With
// joins several.
package registry

import "github.com/dewrun/dew/store"

// Registry stores the desired state, by subject. Code that needs only one subject can
// take that one: the RouteStore of a Registry, for example.
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
