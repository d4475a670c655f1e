// Package app describes the desired state: apps, their processes, sidecars and
// routes, in orgs and spaces. It has their values, the rules that they must follow, and
// the manifest. Package registry stores them; packages runtime and route act on them.
//
//	Manifest ──▶ App ──┬── Process "web"     ◀── Sidecar "config server" (process_types: web)
//	              ▲    └── Process "worker"  ◀── Sidecar "agent"         (process_types: web, worker)
//	              └─── Destination ◀── Route (domain, host, path)
//
// An Event records a change of the desired state, a Job a request that takes a while.
package app

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// ErrNotFound says that there is no such app, process, sidecar, route or the like.
var ErrNotFound = errors.New("not found")

// State is whether an app should run.
type State string

// The states that a user can set.
const (
	Started State = "STARTED"
	Stopped State = "STOPPED"
)

// App is the desired state of an app that its processes have in common.
type App struct {
	GUID       string            `json:"guid"`
	Name       string            `json:"name"`
	Space      string            `json:"space"` // guid
	State      State             `json:"state"`
	Env        map[string]string `json:"env,omitempty"`
	Stack      string            `json:"stack,omitempty"`
	Droplet    string            `json:"droplet,omitempty"` // guid of the current one
	Buildpacks []string          `json:"buildpacks,omitempty"`
	Lifecycle  string            `json:"lifecycle,omitempty"` // LifecycleDocker; empty: staged with buildpacks
	NoSSH      bool              `json:"no_ssh,omitempty"`    // SSH into its instances is disabled
	// NoRevisions disables revisions: starts and deployments of the app store none.
	NoRevisions bool `json:"no_revisions,omitempty"`
	// Its instances get files about their services instead of VCAP_SERVICES: one for
	// each value, or one with the whole document. At most one of the two is set.
	K8sBindings  bool      `json:"k8s_bindings,omitempty"`
	VCAPBindings bool      `json:"vcap_bindings,omitempty"`
	Metadata     Metadata  `json:"metadata,omitzero"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// Clone returns a copy that shares nothing with a.
func (a App) Clone() App {
	a.Env = maps.Clone(a.Env)
	a.Buildpacks = slices.Clone(a.Buildpacks)
	a.Metadata = a.Metadata.Clone()
	return a
}

// Now returns the time without its monotonic clock reading, which the store does not
// keep. So a stored value equals the one that is read.
func Now() time.Time { return time.Now().UTC().Round(0) }

// LifecycleDocker is the lifecycle of apps that are Docker images.
const LifecycleDocker = "docker"

// Docker reports whether the app is a Docker image, and not staged from files.
func (a App) Docker() bool { return a.Lifecycle == LifecycleDocker }

// AsStopped returns a in state Stopped.
func (a App) AsStopped() App {
	a.State = Stopped
	return a
}
