package supervisor

import (
	"time"

	"github.com/dewrun/dew/runtime"
)

// Leases counts the addresses that are taken.
func (s *Supervisor) Leases() (int, error) { return s.addresses.Taken() }

// FirstCheck is the time between the start or the adoption of an instance and its
// first liveness check.
func FirstCheck(id runtime.InstanceID, interval time.Duration) time.Duration {
	return spread(id, interval)
}
