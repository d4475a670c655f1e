package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/dewrun/dew/runtime"
)

// PutServer adds or changes a server. Its address must come from ReserveAddress. An
// instance with another version is replaced in the background.
func (s *Supervisor) PutServer(v runtime.Server) error {
	if err := v.Validate(s.addresses.Subnet()); err != nil {
		return fmt.Errorf("cannot store server %s: %w", v.GUID, err)
	}
	if err := s.servers.Put(v); err != nil {
		return err
	}
	s.Sync(v.GUID)
	return nil
}

// DropServer stops the server and deletes its record. It does not wait for the stop;
// after that, Instances returns none. It is not an error if there is no such server.
func (s *Supervisor) DropServer(guid string) error {
	if err := s.servers.Delete(guid); err != nil {
		return err
	}
	s.Sync(guid)
	return nil
}

// Server returns the desired state of the server, or ErrNoServer.
func (s *Supervisor) Server(guid string) (runtime.Server, error) { return s.servers.Get(guid) }

// Servers returns all servers, sorted by guid.
func (s *Supervisor) Servers() ([]runtime.Server, error) { return s.servers.All() }

// ReserveAddress assigns an address to a server, always the same one until
// ReleaseAddress.
func (s *Supervisor) ReserveAddress(guid string) (netip.Addr, error) {
	return s.addresses.Reserve(guid)
}

// ReleaseAddress releases the address of a server. Call it only after the server is
// gone, because until then its network still answers there.
func (s *Supervisor) ReleaseAddress(guid string) error { return s.addresses.Unreserve(guid) }

// ofServer returns the wanted slots of a process that belongs to no app.
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

// killDelay returns the time of the slot's instance between SIGTERM and SIGKILL. A
// server that was dropped in the meantime keeps its previous value.
func (s *Slot) killDelay() time.Duration {
	if s.inst != nil && s.inst.spec.Kind == runtime.KindService {
		if v, err := s.sup.Server(s.id.Process); err == nil {
			s.serverKillDelay = v.KillDelay
		}
	}
	return cmp.Or(s.serverKillDelay, s.sup.policy.KillDelay)
}
