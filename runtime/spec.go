package runtime

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/droplet"
)

// MainExec is the exec id of an instance's main process.
const MainExec = "main"

// InitExec stands for the container's own first process in an Exit. It has no
// output, and is no process of a Spec.
const InitExec = "init"

// SidecarExec is the exec id of the n-th sidecar, in the order of their names.
// The name itself cannot be an id: containerd refuses spaces and slashes.
func SidecarExec(n int) string { return "sidecar-" + strconv.Itoa(n) }

// Kind is what a container runs.
type Kind string

// The kinds of containers.
const (
	KindInstance Kind = "instance" // an instance of a process of an app
	KindTask     Kind = "task"     // a one-off task of an app
	KindStaging  Kind = "staging"  // a build of an app: it ends with its daemon
	KindService  Kind = "service"  // a Server, which keeps its address over restarts
)

// Spec is everything an engine needs to start one container.
type Spec struct {
	Kind      Kind
	Instance  InstanceID
	Slot      SlotID
	App       string // guid
	Type      string // process type, "web"
	Version   string
	Cell      string
	Droplet   string // guid; empty for the bare stack
	Stack     droplet.Stack
	Image     string          // sha256 of the droplet's tree; empty for the bare stack
	Build     string          // KindStaging: guid of the build
	Layers    []droplet.Layer // KindStaging: unpacked into the writable layer before anything runs
	Task      string          // KindTask: guid of the task
	Mounts    []droplet.Mount // of its own, after the stack's
	Memory    int64           // of the whole container, in bytes
	Disk      int64           // of the writable layer, in bytes
	LogRate   *int64          // bytes per second that are kept of what it prints; nil: all
	Address   netip.Prefix    // of eth0
	Ports     []int
	Processes []ProcessSpec // main first, then the sidecars by name
	StartedAt time.Time     // set by the engine
}

// Check returns an error if the spec has no kind, or fields of another kind. An
// engine calls it before it starts a container.
func (s Spec) Check() error {
	switch s.Kind {
	case KindInstance, KindTask, KindStaging, KindService:
	default:
		return fmt.Errorf("cannot start %s: %q is not a kind of container", s.Instance, s.Kind)
	}
	if (s.Task != "") != (s.Kind == KindTask) {
		return fmt.Errorf("cannot start %s: kind %s with task %q", s.Instance, s.Kind, s.Task)
	}
	if (s.Build != "") != (s.Kind == KindStaging) {
		return fmt.Errorf("cannot start %s: kind %s with build %q", s.Instance, s.Kind, s.Build)
	}
	return nil
}

// ProcessSpec is one process of a container: main or a sidecar.
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

// User is the user of the processes of an image app.
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

// ProcessSource is the log source of a process: upper-cased, spaces kept.
func ProcessSource(processType, sidecar string) string {
	s := "APP/PROC/" + processType
	if sidecar != "" {
		s += "/SIDECAR/" + sidecar
	}
	return strings.ToUpper(s)
}
