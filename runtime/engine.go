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

// Engine starts instances and finds them again. Package runtime/containerd is
// the real one, runtimetest.Fake the one of unit tests; runtimetest.EngineSuite
// is the contract that both keep.
type Engine interface {
	// Start makes the container of s and starts all its processes. When it fails
	// nothing of it stays behind. The error is a *StartError when trying again
	// changes nothing, ErrUnavailable when the container service did not answer.
	Start(ctx context.Context, s Spec) (Container, error)
	// Adopt finds the instances that an earlier daemon left, living or ended, and
	// removes what never came to run, and builds: these are begun again. Each is
	// returned once. An *AdoptError names those that it could not take over; the
	// others are taken over.
	Adopt(ctx context.Context) ([]Container, error)
	// Outage says why nothing is known about the instances at the moment; nil while
	// the container service answers.
	Outage() error
	// Sweep removes everything of this daemon that belongs to no instance in keep.
	Sweep(ctx context.Context, keep map[InstanceID]bool) error
}

// Container is the container of one instance, task, build or Server. Reap is not
// part of Exits, because an exit must be known at once and its last lines may take
// a while to read.
type Container interface {
	// Spec tells what the instance was started from. After Adopt it holds what
	// identifies it and its processes, without their environment.
	Spec() Spec
	// Exits reports the end of every process once, in the order of their deaths as
	// far as it can be known, as soon as it is known. It is closed after the last.
	// Should the container's own first process end, an Exit of InitExec with
	// CauseInitExited comes before those of the processes it took along.
	Exits() <-chan Exit
	// Settle returns once Exits holds the end of every process that has ended by
	// now. The error is ErrUnavailable while the container service does not answer:
	// then it is not known which processes live.
	Settle(ctx context.Context) error
	// Reap waits until nothing of an ended process is left, its whole output is
	// read, and returns the last lines, which are not in the log yet: the caller
	// appends them. It returns the lines once; a second call returns none.
	Reap(ctx context.Context, exec string) ([]logstream.Envelope, error)
	// Signal sends sig to every process in the leaves of the named execs. Ended
	// ones are passed over.
	Signal(ctx context.Context, sig syscall.Signal, execs ...string) error
	// Dial connects from inside the instance's network namespace.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	// Exec opens a session beside one of its processes. Sessions are no part of
	// Exits, and what an earlier daemon left of them is ended by Adopt. The error is
	// ErrEnding when the instance is, ErrNoInstance when that process is gone.
	Exec(ctx context.Context, exec string, s ExecSpec) (Session, error)
	// Consumption tells what the whole instance has taken so far.
	Consumption(ctx context.Context) (Consumption, error)
	// Paused tells whether one of its processes stands still until its output is
	// stored. It answers nobody meanwhile.
	Paused() bool
	// Delete ends what still lives and removes the instance. It may be repeated.
	Delete(ctx context.Context) error
}

// ErrUnavailable says that the container service did not answer: nothing is
// known about the instance, and asking again later is the way out.
var ErrUnavailable = errors.New("container service unavailable")

// ErrNoInstance says that there is nothing running where somebody asked.
var ErrNoInstance = errors.New("no such instance")

// StartError says that an instance cannot start, whose fault it is and why.
type StartError struct {
	Exec   string // empty: the container itself
	Source string // of the process, as in ProcessSpec; empty: the container itself
	Reason string // one line, with the remedy where there is one
	Err    error
}

func (e *StartError) Error() string { return "cannot start: " + e.Reason }
func (e *StartError) Unwrap() error { return e.Err }

// AdoptError says which instances an engine found and could not take over. All other
// instances are taken over: the engine returns their containers with this error.
type AdoptError struct{ Left []Unadopted }

func (e *AdoptError) Error() string {
	var texts []string
	for _, u := range e.Left {
		texts = append(texts, u.Error())
	}
	return strings.Join(texts, "; ")
}

// Unadopted is an instance that an engine could not take over. It may still run.
type Unadopted struct {
	Instance InstanceID
	App      string     // guid; empty where nobody knows
	Slot     SlotID     // zero where nobody knows
	Task     string     // guid of a one-off task; empty: it is none
	Address  netip.Addr // invalid where nobody knows
	Err      error
	// Retry tries again to take the instance over. The container is nil if nothing is left
	// of the instance.
	Retry func(ctx context.Context) (Container, error)
	// Remove removes everything of the instance.
	Remove func(ctx context.Context) error
}

func (u Unadopted) Error() string {
	return fmt.Sprintf("cannot take over instance %s of app %s: %v", u.Instance, cmp.Or(u.App, "unknown"), u.Err)
}

// SourceStaging is the log source of what buildpacks print.
const SourceStaging = "STG"

// StagingContainer is a Container of KindStaging.
type StagingContainer interface {
	Container
	// Written tells how much is in the writable layer.
	Written(ctx context.Context) (bytes, files int64, err error)
	// Pack writes a tar of files, once the processes have ended.
	Pack(ctx context.Context, w io.Writer, p droplet.Packing) error
}
