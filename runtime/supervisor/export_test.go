package supervisor

import (
	"time"

	"github.com/dewrun/dew/runtime"
)

// Leases returns the number of addresses in use.
func (s *Supervisor) Leases() (int, error) { return s.addresses.Allocated() }

// FirstCheck returns the time between the start or the adoption of an instance and its
// first liveness check.
func FirstCheck(id runtime.InstanceID, interval time.Duration) time.Duration {
	return spread(id, interval)
}
