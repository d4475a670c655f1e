package runtime

import (
	"net/netip"
	"time"
)

// State is the public state of a slot.
type State string

// The states of a slot. CRASHED lasts from the first exit to the next start. STOPPING
// is only for requested stops.
const (
	Down     State = "DOWN"
	Starting State = "STARTING"
	Running  State = "RUNNING"
	Crashed  State = "CRASHED"
	Stopping State = "STOPPING"
)

// Status is a copy of the public data of a slot.
type Status struct {
	Slot       SlotID
	App        string
	Type       string
	Instance   InstanceID // empty while there is none
	State      State
	Since      time.Time // start of this state
	Ready      bool      // RUNNING, and its readiness check passes: routes can lead to it
	Details    string    // why it is not running, in one sentence
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
