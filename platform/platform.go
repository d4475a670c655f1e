// Package platform carries out what users ask for: changes with their audit events in one
// transaction, jobs, deletions, staging, manifests, deployments. It knows nothing of HTTP:
// package api maps its errors to responses.
package platform

import (
	"log/slog"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services/marketplace"
	"github.com/dewrun/dew/store"
)

// Platform has what the use cases work on.
type Platform struct {
	DB       *store.DB // where Registry and Events live: a change and its event are one transaction
	Registry *registry.Registry
	Events   *registry.Events
	Jobs     *registry.Jobs
	Packages *droplet.Packages
	Builds   *droplet.Builds
	Droplets *droplet.Droplets
	Catalog  *droplet.Catalog // of buildpacks
	Services *marketplace.Marketplace
	Roles    *auth.Roles
	Auth     *auth.Server
	Exits    Exits
	// Processes are what runs.
	Processes Processes
	Logs      *logstream.Logs
	Log       *slog.Logger

	// Bindings are the services that an app is bound to now, where instances read them at
	// every start; nil: they have those that their droplet was made with.
	Bindings func(app string) (droplet.Bindings, error)
	// Snapshots copies the data of service instances; nil: not available.
	Snapshots Snapshots
	// Explain is the response to an error: jobs report what their request would have
	// been answered with.
	Explain func(error) (status int, body v3.Errors)
}

// Place is where a resource belongs: a space with its org, or an org.
type Place struct{ Org, Space string }

// MetadataChange is what a body says of labels and annotations; null takes a key
// away, what is absent stays.
func MetadataChange(m *v3.Metadata) app.MetadataChange {
	if m == nil {
		return app.MetadataChange{}
	}
	return app.MetadataChange{Labels: m.Labels, Annotations: m.Annotations}
}
