package plan

import (
	"net/netip"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
)

// Config has the sources of the desired state that a Planner reads, and the data about
// this machine for the containers.
type Config struct {
	Registry *registry.Registry
	Droplets *droplet.Droplets
	Stacks   func(name string) (stack.Stack, error) // by name (empty: the default)
	// Bindings returns the services that an app is bound to now. If it is nil,
	// instances see the services that their droplet was staged with.
	Bindings  func(app string) (droplet.Bindings, error)
	Servers   *runtime.ServerStore
	Subnet    netip.Prefix // subnet of the instances
	Cell      string       // id of this machine
	PublicURL string       // URL of the API, as apps see it
	Memory    int64        // bytes of this machine; an instance with a higher limit is not started (0: any is)
}

// Planner creates the Spec of a container from the desired state.
type Planner struct{ c Config }

// New returns a Planner.
func New(c Config) *Planner { return &Planner{c: c} }
