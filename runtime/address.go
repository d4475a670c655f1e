package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/dewrun/dew/store"
)

// ErrNoAddress says that every address of the subnet is taken.
var ErrNoAddress = errors.New("no free address")

// lease is an address that an instance has.
type lease struct {
	Instance InstanceID `json:"instance"`
	Address  netip.Addr `json:"address"`
}

// addressBook hands out the addresses of the subnet. The first one is the
// bridge's. They are kept on disk, so that an instance that outlived the daemon
// keeps its own.
type addressBook struct {
	subnet netip.Prefix
	leases *store.Bucket[lease]
	db     *store.DB

	mu   sync.Mutex
	last netip.Addr // handed out last, guarded by mu
}

func newAddressBook(db *store.DB, subnet netip.Prefix) (*addressBook, error) {
	subnet = subnet.Masked()
	if !subnet.IsValid() || !subnet.Addr().Is4() || subnet.Bits() > 30 {
		return nil, fmt.Errorf("cannot use %s as the subnet of instances: give an IPv4 network of /30 or larger, such as 10.201.0.0/20", subnet)
	}
	return &addressBook{
		subnet: subnet,
		db:     db,
		last:   bridge(subnet),
		leases: store.In(db, "addresses", store.Unique("address", func(l lease) string { return l.Address.String() })),
	}, nil
}

// bridge is the address of the bridge, the first of the subnet.
func bridge(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// take gives the instance an address. They go round: one that was just given
// back is used last, while the kernel may still be clearing its old network.
func (b *addressBook) take(id InstanceID) (netip.Prefix, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var addr netip.Addr
	err := b.db.Update(func(tx *store.Tx) error {
		leases := b.leases.With(tx)
		all, err := leases.All()
		if err != nil {
			return err
		}
		used := make(map[netip.Addr]bool, len(all))
		for _, l := range all {
			used[l.Address] = true
		}
		if addr = b.free(used); !addr.IsValid() {
			return fmt.Errorf("%w in %s: stop instances or give a larger subnet (--subnet)", ErrNoAddress, b.subnet)
		}
		return leases.Put(string(id), lease{Instance: id, Address: addr})
	})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("cannot give instance %s an address: %w", id, err)
	}
	b.last = addr
	return netip.PrefixFrom(addr, b.subnet.Bits()), nil
}

// free is the first address after the last one that nobody has.
func (b *addressBook) free(used map[netip.Addr]bool) netip.Addr {
	first := bridge(b.subnet).Next()
	a := b.last.Next()
	for range 1 << (32 - b.subnet.Bits()) {
		// The last address of the network is its broadcast address.
		if !b.subnet.Contains(a) || !b.subnet.Contains(a.Next()) {
			a = first
		}
		if !used[a] {
			return a
		}
		a = a.Next()
	}
	return netip.Addr{}
}

// release gives the address back. Only after the instance is gone: until then
// its network still answers there.
func (b *addressBook) release(id InstanceID) error {
	if err := b.leases.Delete(string(id)); err != nil {
		return fmt.Errorf("cannot release the address of instance %s: %w", id, err)
	}
	return nil
}

// settle makes the book say what is true after adoption: the addresses of the
// living, nobody else's.
func (b *addressBook) settle(living map[InstanceID]netip.Addr) error {
	err := b.db.Update(func(tx *store.Tx) error {
		leases := b.leases.With(tx)
		all, err := leases.All()
		if err != nil {
			return err
		}
		for _, l := range all {
			if living[l.Instance] == l.Address {
				continue
			}
			if err := leases.Delete(string(l.Instance)); err != nil {
				return err
			}
		}
		for id, addr := range living {
			if !addr.IsValid() {
				continue
			}
			if err := leases.Put(string(id), lease{Instance: id, Address: addr}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot settle the addresses of instances: %w", err)
	}
	return nil
}
