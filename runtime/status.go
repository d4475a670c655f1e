package runtime

import (
	"net/netip"
	"time"
)

// State is what a slot shows to the outside.
type State string

// The states of a slot. CRASHED lasts from the first exit to the next start,
// STOPPING is only for stops that were asked for.
const (
	Down     State = "DOWN"
	Starting State = "STARTING"
	Running  State = "RUNNING"
	Crashed  State = "CRASHED"
	Stopping State = "STOPPING"
)

// Status is a slot as others see it: a copy.
type Status struct {
	Slot       SlotID
	App        string
	Type       string
	Instance   InstanceID // empty while there is none
	State      State
	Since      time.Time // in this state
	Ready      bool      // RUNNING, and its readiness check passes: routes may lead here
	Details    string    // why it is not running, in a sentence
	Address    netip.Addr
	Ports      []int
	Version    string
	CrashCount int
	NextStart  time.Time // while it waits for its next start
	GivenUp    bool

	HealthUnknown    Unknown // while its health check cannot be run
	ReadinessUnknown Unknown // while its readiness check cannot be run
}

// Unknown says that a check of an instance cannot be run. It is zero while the check
// can be run.
type Unknown struct {
	Since  time.Time
	Reason string
}
