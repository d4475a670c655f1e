package runtime

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
)

// MainExec is the exec id of an instance's main process.
const MainExec = "main"

// InitExec stands for the container's own first process in an Exit. It has no
// output, and is no process of a Spec.
const InitExec = "init"

// SidecarExec is the exec id of the n-th sidecar, in the order of their names.
// The name itself cannot be an id: containerd refuses spaces and slashes.
func SidecarExec(n int) string { return "sidecar-" + strconv.Itoa(n) }

// Engine starts instances and finds them again. Package runtime/containerd is
// the real one, runtimetest.Fake the one of unit tests; runtimetest.EngineSuite
// is the contract that both keep.
type Engine interface {
	// Start makes the container of s and starts all its processes. When it fails
	// nothing of it stays behind. The error is a *StartError when trying again
	// changes nothing, ErrUnavailable when the container service did not answer.
	Start(ctx context.Context, s Spec) (Task, error)
	// Adopt finds the instances that an earlier daemon left, living or ended, and
	// removes what never came to run, and builds: these are begun again. Each is
	// returned once. An *AdoptError names those that it could not take over; the
	// others are taken over.
	Adopt(ctx context.Context) ([]Task, error)
	// Outage says why nothing is known about the instances at the moment; nil while
	// the container service answers.
	Outage() error
	// Sweep removes everything of this daemon that belongs to no instance in keep.
	Sweep(ctx context.Context, keep map[InstanceID]bool) error
}

// Task is one instance as the engine sees it. It has more methods than the house
// likes: Reap cannot be part of Exits, because an exit must be known at once and
// its last lines may take a while to read.
type Task interface {
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

// Spec is everything an engine needs to start one instance.
type Spec struct {
	Instance  InstanceID
	Slot      SlotID
	App       string // guid
	Type      string // process type, "web"
	Version   string
	Cell      string
	Droplet   string // guid; empty for the bare stack
	Stack     droplet.Stack
	Image     string          // sha256 of the droplet's tree; empty for the bare stack
	Build     string          // guid of the build that it stages; empty for an app's instance
	Layers    []droplet.Layer // of a build: laid into the writable layer before anything runs
	Task      string          // guid of the one-off task that it runs; empty for an app's instance
	Server    bool            // it is no app's, and keeps its address over its lives
	Mounts    []droplet.Mount // of its own, after the stack's
	Memory    int64           // of the whole container, in bytes
	Disk      int64           // of the writable layer, in bytes
	LogRate   *int64          // bytes per second that are kept of what it prints; nil: all
	Address   netip.Prefix    // of eth0
	Ports     []int
	Processes []ProcessSpec // main first, then the sidecars by name
	StartedAt time.Time     // set by the engine
}

// ProcessSpec is one process of an instance: main or a sidecar.
type ProcessSpec struct {
	Exec    string // MainExec or SidecarExec(n)
	Name    string // the sidecar's name; empty for main
	Source  string // of its log lines: "APP/PROC/WEB/SIDECAR/CONFIG SERVER"
	Command string
	Dir     string
	Env     []string
	Memory  int64    // of its leaf, in bytes; 0: only the container's limit
	Args    []string // a program and its arguments, run without a shell; none: Command is run by one
	User    *User    // who runs it in an image app, where nothing is sourced; nil: the app's own user
}

// User is who runs the processes of an image app.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// SlotID names a place for instances of a process.
type SlotID struct {
	Process    string // guid
	Generation int
	Index      int
}

// ErrUnavailable says that the container service did not answer: nothing is
// known about the instance, and asking again later is the way out.
var ErrUnavailable = errors.New("container service unavailable")

// StartError says that an instance cannot start, whose fault it is and why.
type StartError struct {
	Exec   string // empty: the container itself
	Source string // of the process, as in ProcessSpec; empty: the container itself
	Reason string // one line, with the remedy where there is one
	Err    error
}

func (e *StartError) Error() string { return "cannot start: " + e.Reason }
func (e *StartError) Unwrap() error { return e.Err }

// ProcessSource is the log source of a process: upper-cased, spaces kept.
func ProcessSource(processType, sidecar string) string {
	s := "APP/PROC/" + processType
	if sidecar != "" {
		s += "/SIDECAR/" + sidecar
	}
	return strings.ToUpper(s)
}
