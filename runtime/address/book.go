package address

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
)

// ErrNoAddress says that every address of the subnet is taken.
var ErrNoAddress = errors.New("no free address")

// lease is an address that an instance has.
type lease struct {
	Instance runtime.InstanceID `json:"instance,omitempty"`
	Server   string             `json:"server,omitempty"` // guid: it is kept for a server, whether it runs or not
	Address  netip.Addr         `json:"address"`
}

// Book hands out the addresses of the subnet. The first one is the
// bridge's. They are kept on disk, so that an instance that outlived the daemon
// keeps its own.
type Book struct {
	subnet netip.Prefix
	leases *store.Bucket[lease]
	db     *store.DB

	mu   sync.Mutex
	last netip.Addr // handed out last, guarded by mu
}

// NewBook opens the addresses in db, of which those of subnet are handed out.
func NewBook(db *store.DB, subnet netip.Prefix) (*Book, error) {
	subnet = subnet.Masked()
	if !subnet.IsValid() || !subnet.Addr().Is4() || subnet.Bits() > 30 {
		return nil, fmt.Errorf("cannot use %s as the subnet of instances: give an IPv4 network of /30 or larger, such as 10.201.0.0/20", subnet)
	}
	return &Book{
		subnet: subnet,
		db:     db,
		last:   bridge(subnet),
		leases: store.In(db, "addresses", store.Unique("address", func(l lease) string { return l.Address.String() })),
	}, nil
}

// Subnet is the network of the instances.
func (b *Book) Subnet() netip.Prefix { return b.subnet }

// Taken is how many addresses are taken.
func (b *Book) Taken() (int, error) {
	all, err := b.leases.All()
	return len(all), err
}

// bridge is the address of the bridge, the first of the subnet.
func bridge(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// Take gives the instance an address. They go round: one that was just given
// back is used last, while the kernel may still be clearing its old network.
func (b *Book) Take(id runtime.InstanceID) (netip.Prefix, error) {
	addr, err := b.lease(string(id), lease{Instance: id})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("cannot give instance %s an address: %w", id, err)
	}
	return netip.PrefixFrom(addr, b.subnet.Bits()), nil
}

// reserved is the key of the address that is kept for a server. No instance id
// has a slash.
func reserved(guid string) string { return "server/" + guid }

// Reserve gives a server an address, the same one each time. One of a subnet that
// was given up is of no use any more.
func (b *Book) Reserve(guid string) (netip.Addr, error) {
	l, err := b.leases.Get(reserved(guid))
	if err == nil && b.subnet.Contains(l.Address) {
		return l.Address, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return netip.Addr{}, fmt.Errorf("cannot read the address of server %s: %w", guid, err)
	}
	addr, err := b.lease(reserved(guid), lease{Server: guid})
	if err != nil {
		return addr, fmt.Errorf("cannot give server %s an address: %w", guid, err)
	}
	return addr, nil
}

// Unreserve gives the address of a server back.
func (b *Book) Unreserve(guid string) error {
	if err := b.leases.Delete(reserved(guid)); err != nil {
		return fmt.Errorf("cannot release the address of server %s: %w", guid, err)
	}
	return nil
}

// lease keeps l under key with an address that nobody has.
func (b *Book) lease(key string, l lease) (netip.Addr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
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
		if l.Address = b.free(used); !l.Address.IsValid() {
			return fmt.Errorf("%w in %s: stop instances or give a larger subnet (--subnet)", ErrNoAddress, b.subnet)
		}
		return leases.Put(key, l)
	})
	if err != nil {
		return netip.Addr{}, err
	}
	b.last = l.Address
	return l.Address, nil
}

// free is the first address after the last one that nobody has.
func (b *Book) free(used map[netip.Addr]bool) netip.Addr {
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

// Release gives the address back. Only after the instance is gone: until then
// its network still answers there.
func (b *Book) Release(id runtime.InstanceID) error {
	if err := b.leases.Delete(string(id)); err != nil {
		return fmt.Errorf("cannot release the address of instance %s: %w", id, err)
	}
	return nil
}

// Settle makes the book say what is true after adoption: the addresses of the
// living and those of servers, nobody else's.
func (b *Book) Settle(living map[runtime.InstanceID]netip.Addr) error {
	err := b.db.Update(func(tx *store.Tx) error {
		leases := b.leases.With(tx)
		all, err := leases.All()
		if err != nil {
			return err
		}
		kept := map[netip.Addr]bool{}
		for _, l := range all {
			if l.Server != "" {
				kept[l.Address] = true
				continue
			}
			if living[l.Instance] == l.Address {
				continue
			}
			if err := leases.Delete(string(l.Instance)); err != nil {
				return err
			}
		}
		for id, addr := range living {
			if !addr.IsValid() || kept[addr] {
				continue
			}
			err := leases.Put(string(id), lease{Instance: id, Address: addr})
			if err != nil && !errors.Is(err, store.ErrTaken) { // two that share one must not stop the others
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
