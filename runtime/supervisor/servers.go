package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/plan"
)

// PutServer keeps a server from now on, or changes it. Its address must be one
// that ReserveAddress gave. What runs with another version is replaced, soon.
func (s *Supervisor) PutServer(v runtime.Server) error {
	if err := v.Validate(s.addresses.Subnet()); err != nil {
		return fmt.Errorf("cannot keep server %s: %w", v.GUID, err)
	}
	if err := s.servers.Put(v); err != nil {
		return err
	}
	s.Sync(v.GUID)
	return nil
}

// DropServer ends the server and forgets it. It does not wait for the end: then
// Instances gives nothing any more. Dropping what is not there is no error.
func (s *Supervisor) DropServer(guid string) error {
	if err := s.servers.Delete(guid); err != nil {
		return err
	}
	s.Sync(guid)
	return nil
}

// Server returns the desired state of the server, or ErrNoServer.
func (s *Supervisor) Server(guid string) (runtime.Server, error) { return s.servers.Get(guid) }

// Servers returns all servers by guid.
func (s *Supervisor) Servers() ([]runtime.Server, error) { return s.servers.All() }

// ReserveAddress gives a server its address, always the same one until
// ReleaseAddress.
func (s *Supervisor) ReserveAddress(guid string) (netip.Addr, error) {
	return s.addresses.Reserve(guid)
}

// ReleaseAddress gives the address of a server back. Only after the server is
// gone: until then its network still answers there.
func (s *Supervisor) ReleaseAddress(guid string) error { return s.addresses.Unreserve(guid) }

// addressFor is the address of a new instance: a server has its own.
func (s *Supervisor) addressFor(id runtime.InstanceID, d plan.Desired) (netip.Prefix, error) {
	if d.Server != nil {
		return netip.PrefixFrom(d.Server.Address, s.addresses.Subnet().Bits()), nil
	}
	return s.addresses.Take(id)
}

// ofServer is how many slots a process has that is no app's.
func (w wantedSlots) ofServer(servers *runtime.ServerStore) (wantedSlots, error) {
	v, err := servers.Get(w.process)
	if errors.Is(err, runtime.ErrNoServer) {
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
	if s.inst != nil && s.inst.spec.Kind == runtime.KindService {
		if v, err := s.sup.Server(s.id.Process); err == nil {
			s.serverKillDelay = v.KillDelay
		}
	}
	return cmp.Or(s.serverKillDelay, s.sup.policy.KillDelay)
}
