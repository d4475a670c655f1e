package plan

import (
	"net/netip"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
)

// Config is what a Planner reads the desired state from, and what containers
// are told about this machine.
type Config struct {
	Registry *registry.Registry
	Droplets *droplet.Droplets
	Stacks   func(name string) (stack.Stack, error) // by name; empty is the default
	// Bindings are the services that an app is bound to now. Nil: instances see those
	// that their droplet was made with.
	Bindings  func(app string) (droplet.Bindings, error)
	Servers   *runtime.ServerStore
	Subnet    netip.Prefix // of the instances
	Cell      string       // id of this machine
	PublicURL string       // of the API, as apps see it
}

// Planner makes the Spec of a container from the desired state.
type Planner struct{ c Config }

// New makes a Planner.
func New(c Config) *Planner { return &Planner{c: c} }
