package platform

import (
	"context"
	"syscall"

	"github.com/dewrun/dew/runtime"
)

// Processes is what runs, as far as handlers ask for it. runtime.Supervisor is
// the real one.
type Processes interface {
	// Instances is what is known of the slots of a process.
	Instances(process string) []runtime.Status
	// Usage is what an instance takes now; false: nobody knows.
	Usage(ctx context.Context, process string, index int) (runtime.Usage, bool)
	// Signal sends sig to main, or to the sidecar with the name.
	Signal(ctx context.Context, process string, index int, sidecar string, sig syscall.Signal) error
	// RestartInstance ends an instance and starts another in its place.
	RestartInstance(process string, index int) error
}

// SSHDoor is how clients find the way into instances.
type SSHDoor struct {
	Address     string // host:port
	Fingerprint string // of the host key, as clients compare it
}
