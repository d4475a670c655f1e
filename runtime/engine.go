package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
)

// Engine starts instances and finds them again. Package runtime/containerd has the real
// implementation, and runtimetest.Fake is the one for unit tests.
// runtimetest.EngineSuite tests the contract of both.
type Engine interface {
	// Start creates the container of s and starts all its processes. If it fails, it
	// leaves nothing behind. The error is a *StartError if a retry cannot succeed, and
	// ErrUnavailable if the container service did not answer.
	Start(ctx context.Context, s Spec) (Container, error)
	// Adopt finds the instances that an earlier daemon left, running or exited, and
	// returns each once. It removes builds, and instances that never ran; both are
	// started again. An *AdoptError names the instances that it could not take over; it
	// takes over all others.
	Adopt(ctx context.Context) ([]Container, error)
	// Outage returns why the state of the instances is unknown at the moment. It is nil
	// while the container service answers.
	Outage() error
	// Sweep removes all resources of this daemon that belong to no instance in keep.
	Sweep(ctx context.Context, keep map[InstanceID]bool) error
}

// PreparingEngine is an Engine that can create a container before its processes can
// run.
type PreparingEngine interface {
	// Prepare is Start, except that no process of the app runs before proceed is closed.
	// If ctx is done before that, it leaves nothing behind. Adopt removes a container
	// that was only prepared.
	Prepare(ctx context.Context, s Spec, proceed <-chan struct{}) (Container, error)
}

// StopEngine is an Engine that remembers over daemons which instances are being stopped.
type StopEngine interface {
	// NoteStop remembers that the instance is being stopped. Adopt then returns it with
	// Spec.Stopping.
	NoteStop(id InstanceID) error
}

// Container is the container of one instance, task, build or Server. Reap is separate
// from Exits, because an exit must be reported at once and reading its last lines can
// take a while.
type Container interface {
	// Spec returns the spec that the instance was started from. After Adopt it has the
	// identity of the instance and its processes, without their environment.
	Spec() Spec
	// Exits reports the exit of every process once, as soon as it is known. The order
	// is that of the exits, as far as it can be determined. The channel is closed after
	// the last one. If the container's own first process exits, an Exit of InitExec
	// with CauseInitExited comes first. The exits of the processes that it terminated
	// follow.
	Exits() <-chan Exit
	// Settle returns once Exits holds the exit of every process that has exited by now.
	// The error is ErrUnavailable while the container service does not answer, because
	// then it is unknown which processes are running.
	Settle(ctx context.Context) error
	// Reap waits until an exited process has left nothing running and its whole output
	// is read. It returns the last lines, which are not in the log yet: the caller
	// appends them. It returns the lines once; a second call returns none.
	Reap(ctx context.Context, exec string) ([]logstream.Envelope, error)
	// Signal sends sig to every process in the leaves of the named execs. It skips
	// exited ones.
	Signal(ctx context.Context, sig syscall.Signal, execs ...string) error
	// Dial connects from inside the instance's network namespace.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	// Exec opens a session next to one of the instance's processes. Sessions do not
	// appear in Exits, and Adopt stops the sessions of an earlier daemon. The error is
	// ErrEnding if the instance is stopping, and ErrNoInstance if the process has
	// exited.
	Exec(ctx context.Context, exec string, s ExecSpec) (Session, error)
	// Consumption returns the resources that the instance has used so far. It measures
	// the disk only if disk is set, because the container service does that.
	Consumption(ctx context.Context, disk bool) (Consumption, error)
	// CrashState returns what can still be observed of an instance that crashed. Facts
	// that cannot be read are zero.
	CrashState(ctx context.Context) CrashState
	// Paused reports whether one of the processes is paused until its output is stored.
	// A paused process answers no requests.
	Paused() bool
	// Delete stops the processes that still run and removes the instance. It can be
	// repeated.
	Delete(ctx context.Context) error
}

// ErrUnavailable reports that the container service did not answer. The state of the
// instance is unknown, and the caller should try again later.
var ErrUnavailable = errors.New("container service unavailable")

// ErrNoInstance reports that no such instance or process is running.
var ErrNoInstance = errors.New("instance or process not found")

// NotRunning is the ErrNoInstance for an index that has no running instance now.
type NotRunning int

func (n NotRunning) Error() string {
	return fmt.Sprintf("instance %d is not running. It may be restarting: try again in a moment", int(n))
}

// Is makes a NotRunning an ErrNoInstance.
func (NotRunning) Is(target error) bool { return target == ErrNoInstance }

// PlacementError reports that this machine cannot run an instance.
type PlacementError struct{ Reason string }

func (e *PlacementError) Error() string { return e.Reason }

// StartError reports that an instance cannot start, which process is the cause, and
// why.
type StartError struct {
	Exec   string // empty: the container itself
	Source string // log source of the process, as in ProcessSpec; empty: the container itself
	Reason string // one line, with the remedy if there is one
	Err    error
}

func (e *StartError) Error() string { return "cannot start: " + e.Reason }
func (e *StartError) Unwrap() error { return e.Err }

// AdoptError names the instances that an engine found and could not take over. The
// engine takes over all other instances and returns their containers with this error.
type AdoptError struct{ Left []Unadopted }

func (e *AdoptError) Error() string {
	var texts []string
	for _, u := range e.Left {
		texts = append(texts, u.Error())
	}
	return strings.Join(texts, "; ")
}

// Unadopted is an instance that an engine could not take over. It can still be running.
type Unadopted struct {
	Instance InstanceID
	App      string     // guid, empty if unknown
	Slot     SlotID     // zero if unknown
	Task     string     // guid of a one-off task, empty if it is not a task
	Address  netip.Addr // invalid if unknown
	Err      error
	// Retry tries again to take over the instance. The container is nil if nothing is
	// left of the instance.
	Retry func(ctx context.Context) (Container, error)
	// Remove removes all resources of the instance.
	Remove func(ctx context.Context) error
}

func (u Unadopted) Error() string {
	return fmt.Sprintf("cannot adopt instance %s of app %s: %v", u.Instance, cmp.Or(u.App, "unknown"), u.Err)
}

// SourceStaging is the log source of the output of buildpacks.
const SourceStaging = "STG"

// StagingContainer is a Container of KindStaging.
type StagingContainer interface {
	Container
	// Written returns the size of the writable layer.
	Written(ctx context.Context) (bytes, files int64, err error)
	// Pack writes a tar of files after the processes have exited.
	Pack(ctx context.Context, w io.Writer, p droplet.Packing) error
}
