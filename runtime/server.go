package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// ErrNoServer says that there is no server with that guid.
var ErrNoServer = errors.New("no such server")

// Server is a desired process that is not part of an app, such as the database of a service
// instance. It is kept alive like an app's instance, in a container and a network
// namespace of its own, over restarts of the daemon and of the machine.
type Server struct {
	GUID      string          `json:"guid"`                 // its process guid, its app guid, and the name of its log stream
	Name      string          `json:"name"`                 // in sentences
	Source    string          `json:"source"`               // of its log lines: "SERVICE/POSTGRES"
	Version   string          `json:"version"`              // another one replaces the instance
	Stopped   bool            `json:"stopped,omitempty"`    // nothing runs, everything else stays
	Stack     string          `json:"stack,omitempty"`      // name; resolved at each start
	Command   string          `json:"command"`              // by the stack's shell
	Dir       string          `json:"dir"`                  // where the command begins
	Env       []string        `json:"env,omitempty"`        // wins over the few variables that every server has
	MemoryMB  int             `json:"memory_mb"`            // of the whole container
	DiskMB    int             `json:"disk_mb,omitempty"`    // of the writable layer, not of the mounts
	Ports     []int           `json:"ports"`                // the first one is checked
	Mounts    []stack.Mount   `json:"mounts,omitempty"`     // its data
	Check     app.HealthCheck `json:"check,omitzero"`       // port, http or process
	Address   netip.Addr      `json:"address"`              // its own for ever: see ReserveAddress
	KillDelay time.Duration   `json:"kill_delay,omitempty"` // between SIGTERM and SIGKILL; 0: that of apps
}

// serverType is the process type that a server's records have.
const serverType = "server"

// check says what is wrong with a server that is to be kept.
func (v Server) check(subnet netip.Prefix) error {
	switch {
	case v.GUID == "":
		return errors.New("it has no guid")
	case v.Command == "" || v.Dir == "":
		return errors.New("it has no command or no folder to run it in")
	case v.Version == "":
		return errors.New("it has no version")
	case v.MemoryMB <= 0:
		return errors.New("it has no memory")
	case !subnet.Contains(v.Address):
		return fmt.Errorf("its address %s is not in the subnet %s", v.Address, subnet)
	}
	return nil
}

// process is the server as the slots know their processes.
func (v Server) process() app.Process {
	return app.Process{
		GUID: v.GUID, App: v.GUID, Type: serverType, Command: v.Command, Instances: 1,
		MemoryMB: v.MemoryMB, DiskMB: v.DiskMB, Ports: slices.Clone(v.Ports), HealthCheck: v.Check,
		Version: v.Version, Current: []string{v.Version},
	}
}

// source is the source of its lines.
func (v Server) source() string { return cmp.Or(v.Source, "SERVICE") }

// environment is what a server finds: nothing of the platform's, which is for apps.
func (v Server) environment() []string {
	return MergeEnv([]string{
		"HOME=" + v.Dir, "LANG=C.UTF-8", "MEMORY_LIMIT=" + strconv.Itoa(v.MemoryMB) + "m",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PWD=" + v.Dir, "USER=" + appUser,
	}, v.Env)
}

// spec makes the plain value that the engine starts.
func (v Server) spec(slot SlotID, cell string, stack stack.Stack, id InstanceID) Spec {
	memory := int64(v.MemoryMB) * mebibyte
	return Spec{
		Kind: KindService, Instance: id, Slot: slot, App: v.GUID, Type: serverType, Version: v.Version, Cell: cell,
		Stack: stack, Mounts: slices.Clone(v.Mounts),
		Memory: memory, Disk: int64(v.DiskMB) * mebibyte, Ports: slices.Clone(v.Ports),
		Processes: []ProcessSpec{{
			Exec: MainExec, Source: v.source(), Command: v.Command, Dir: v.Dir, Env: v.environment(), Memory: memory,
		}},
	}
}

// PutServer keeps a server from now on, or changes it. Its address must be one
// that ReserveAddress gave. What runs with another version is replaced, soon.
func (s *Supervisor) PutServer(v Server) error {
	if err := v.check(s.addresses.subnet); err != nil {
		return fmt.Errorf("cannot keep server %s: %w", v.GUID, err)
	}
	if err := s.servers.Put(v.GUID, v); err != nil {
		return fmt.Errorf("cannot keep server %s: %w", v.GUID, err)
	}
	s.Sync(v.GUID)
	return nil
}

// DropServer ends the server and forgets it. It does not wait for the end: then
// Instances gives nothing any more. Dropping what is not there is no error.
func (s *Supervisor) DropServer(guid string) error {
	if err := s.servers.Delete(guid); err != nil {
		return fmt.Errorf("cannot drop server %s: %w", guid, err)
	}
	s.Sync(guid)
	return nil
}

// Server returns the desired state of the server, or ErrNoServer.
func (s *Supervisor) Server(guid string) (Server, error) {
	v, err := s.servers.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("server %s: %w", guid, ErrNoServer)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read server %s: %w", guid, err)
	}
	return v, nil
}

// Servers returns all servers by guid.
func (s *Supervisor) Servers() ([]Server, error) {
	vs, err := s.servers.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read the servers: %w", err)
	}
	return vs, nil
}

// ReserveAddress gives a server its address, always the same one until
// ReleaseAddress.
func (s *Supervisor) ReserveAddress(guid string) (netip.Addr, error) {
	return s.addresses.reserve(guid)
}

// ReleaseAddress gives the address of a server back. Only after the server is
// gone: until then its network still answers there.
func (s *Supervisor) ReleaseAddress(guid string) error { return s.addresses.unreserve(guid) }

// process reads what the process of a slot should be: an app's, or else a server.
func (s *Supervisor) process(id SlotID) (app.Process, error) {
	_, p, _, err := s.c.Registry.DesiredAt(id.Process, id.Generation)
	if !errors.Is(err, app.ErrNotFound) {
		return p, err
	}
	v, serr := s.Server(id.Process)
	switch {
	case errors.Is(serr, ErrNoServer):
		return p, err
	case serr != nil:
		return p, serr
	}
	return v.process(), nil
}

// desiredServer reads what a server should be now. It returns false where there is
// none with that guid.
func (s *Supervisor) desiredServer(guid string) (d desired, ok bool, err error) {
	v, err := s.Server(guid)
	if errors.Is(err, ErrNoServer) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	d = desired{app: app.App{GUID: v.GUID, Name: v.Name}, process: v.process(), server: &v}
	if !s.addresses.subnet.Contains(v.Address) {
		return d, true, refuse(d, fmt.Sprintf("its address %s is not in the subnet %s: give the old one with --subnet, or make the service again", v.Address, s.addresses.subnet))
	}
	if d.stack, err = s.c.Stacks(v.Stack); err != nil {
		return d, true, refuse(d, fmt.Sprintf("its stack cannot be used: %v", err))
	}
	return d, true, nil
}

// addressFor is the address of a new instance: a server has its own.
func (s *Supervisor) addressFor(id InstanceID, d desired) (netip.Prefix, error) {
	if d.server != nil {
		return netip.PrefixFrom(d.server.Address, s.addresses.subnet.Bits()), nil
	}
	return s.addresses.take(id)
}

// wantedServer is how many slots a process has that is no app's.
func (s *Supervisor) wantedServer(w wantedSlots) (wantedSlots, error) {
	v, err := s.Server(w.process)
	if errors.Is(err, ErrNoServer) {
		return w, nil
	}
	if err != nil {
		return w, err
	}
	if w.known = true; !v.Stopped {
		w.counts = map[int]int{0: 1}
	}
	return w, nil
}

// killDelay is how long the slot's instance has between SIGTERM and SIGKILL. One
// that was dropped meanwhile has what it had.
func (s *Slot) killDelay() time.Duration {
	if s.inst != nil && s.inst.spec.Kind == KindService {
		if v, err := s.sup.Server(s.id.Process); err == nil {
			s.serverKillDelay = v.KillDelay
		}
	}
	return cmp.Or(s.serverKillDelay, s.sup.policy.KillDelay)
}
