package runtime

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
)

// MainExec is the exec id of an instance's main process.
const MainExec = "main"

// InitExec stands for the container's own first process in an Exit. It has no output,
// and is not a process of a Spec.
const InitExec = "init"

// SidecarExec returns the exec id of the n-th sidecar, in the order of their names. The
// name itself cannot be an id, because containerd refuses spaces and slashes.
func SidecarExec(n int) string { return "sidecar-" + strconv.Itoa(n) }

// StartFormat is the platform's format for the time of a start in VCAP_APPLICATION.
const StartFormat = "2006-01-02 15:04:05 -0700"

// Kind is the purpose of a container.
type Kind string

// The kinds of containers.
const (
	KindInstance Kind = "instance" // an instance of a process of an app
	KindTask     Kind = "task"     // a one-off task of an app
	KindStaging  Kind = "staging"  // a build of an app: it stops with its daemon
	KindService  Kind = "service"  // a Server, which keeps its address across restarts
)

// Spec has all settings that an engine needs to start one container.
type Spec struct {
	Kind      Kind
	Instance  InstanceID
	Slot      SlotID
	App       string // guid
	Type      string // process type, such as "web"
	Version   string
	Cell      string
	Droplet   string // guid, empty for the bare stack
	Stack     stack.Stack
	Image     string            // name of the droplet's image, empty for the bare stack
	Build     string            // KindStaging: guid of the build
	Layers    []droplet.Layer   // KindStaging: unpacked into the writable layer before any process starts
	Task      string            // KindTask: guid of the task
	Mounts    []stack.Mount     // its own mounts, after the stack's
	Files     map[string]string // its service bindings, by path below bindingfiles.Dir; they are secret
	Memory    int64             // limit of the whole container, in bytes
	Disk      int64             // limit of the writable layer, in bytes
	LogRate   *int64            // bytes of output per second that are stored; nil: all
	Address   netip.Prefix      // address of eth0
	Ports     []int
	Processes []ProcessSpec // main first, then the sidecars by name
	StartedAt time.Time     // set by the engine
	Stopping  bool          // set by Adopt: an earlier daemon was stopping it
}

// Port returns the value of $PORT, or 0 if the container has no ports.
func (s Spec) Port() int {
	if len(s.Ports) == 0 {
		return 0
	}
	return s.Ports[0]
}

// Check returns an error if the spec has no kind, or fields of another kind. An
// engine calls it before it starts a container.
func (s Spec) Check() error {
	switch s.Kind {
	case KindInstance, KindTask, KindStaging, KindService:
	default:
		return fmt.Errorf("cannot start %s: %q is not a valid kind of container", s.Instance, s.Kind)
	}
	if (s.Task != "") != (s.Kind == KindTask) {
		return fmt.Errorf("cannot start %s: a container of kind %s cannot have task %q", s.Instance, s.Kind, s.Task)
	}
	if (s.Build != "") != (s.Kind == KindStaging) {
		return fmt.Errorf("cannot start %s: a container of kind %s cannot have build %q", s.Instance, s.Kind, s.Build)
	}
	return nil
}

// ExecOf returns the exec id of a sidecar, or of main if the name is empty.
func (s Spec) ExecOf(sidecar string) (string, error) {
	var names []string
	for _, p := range s.Processes {
		if p.Name == sidecar {
			return p.Exec, nil
		}
		if p.Name != "" {
			names = append(names, "'"+p.Name+"'")
		}
	}
	return "", fmt.Errorf("sidecar '%s': %w (available: %s)", sidecar, ErrNoInstance, strings.Join(append(names, "main"), ", "))
}

// ProcessSpec describes one process of a container: main or a sidecar.
type ProcessSpec struct {
	Exec    string // MainExec or SidecarExec(n)
	Name    string // the sidecar's name, empty for main
	Source  string // log source: "APP/PROC/WEB/SIDECAR/CONFIG SERVER"
	Command string
	Dir     string
	Env     []string
	Memory  int64    // limit of its leaf, in bytes (0: only the container's limit)
	Args    []string // program and arguments, run without a shell (none: a shell runs Command)
	User    *User    // user in an image app, where nothing is sourced; nil: the app's own user
}

// User is the user of the processes of an image app.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// SlotID identifies a slot for instances of a process.
type SlotID struct {
	Process    string // guid
	Generation int
	Index      int
}

// ProcessSource returns the log source of a process: in upper case, with spaces.
func ProcessSource(processType, sidecar string) string {
	s := "APP/PROC/" + processType
	if sidecar != "" {
		s += "/SIDECAR/" + sidecar
	}
	return strings.ToUpper(s)
}
