// Package platform carries out the requests of users: changes with their audit events
// in one transaction, jobs, deletions, staging, manifests and deployments. It is
// independent of HTTP: package api maps its errors to responses.
package platform

import (
	"log/slog"
	"sync"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/store"
)

// Platform holds the dependencies of the use cases.
type Platform struct {
	DB       *store.DB // database of Registry and Events: a change and its event are one transaction
	Registry *registry.Registry
	Events   *registry.Events
	Jobs     *registry.Jobs
	Packages *droplet.Packages
	Builds   *droplet.Builds
	Droplets *droplet.Droplets
	Catalog  *droplet.Catalog // catalog of buildpacks
	Services *marketplace.Marketplace
	Roles    *auth.Roles
	Auth     *auth.Server
	Exits    Exits
	// Processes gives access to the running instances.
	Processes Processes
	Logs      *logstream.Logs
	Log       *slog.Logger

	// Bindings returns the present service bindings of an app. Instances read them at
	// every start. If it is nil, instances get the bindings from the time of staging.
	Bindings func(app string) (droplet.Bindings, error)
	// Snapshots copies the data of service instances. Nil means not available.
	Snapshots Snapshots
	// Explain returns the response for an error. A job reports the same error as a
	// request would.
	Explain func(error) (status int, body v3.Errors)
	// APIDomain is the domain in which the names of the API are reserved. Empty means
	// that none are.
	APIDomain string

	servicesMu sync.Mutex // a check of the quotas for services and the creation are one step
}

// Place is the location of a resource: a space with its org, or an org.
type Place struct{ Org, Space string }

// MetadataChange returns the change of labels and annotations in a request body. A null
// value removes a key; keys that are absent stay unchanged.
func MetadataChange(m *v3.Metadata) app.MetadataChange {
	if m == nil {
		return app.MetadataChange{}
	}
	return app.MetadataChange{Labels: m.Labels, Annotations: m.Annotations}
}
