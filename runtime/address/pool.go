package address

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/store"
)

// ErrNoAddress reports that every address of the subnet is in use.
var ErrNoAddress = errors.New("no free address")

// lease is the address of an instance or a server.
type lease struct {
	Instance runtime.InstanceID `json:"instance,omitempty"`
	Server   string             `json:"server,omitempty"` // guid of the server that the address is reserved for, even while it does not run
	Address  netip.Addr         `json:"address"`
}

// Pool assigns the addresses of the subnet. The first one is the bridge's. The leases
// are stored on disk, so that an instance that outlives the daemon keeps its address.
type Pool struct {
	subnet netip.Prefix
	leases store.Bucket[lease]
	db     *store.DB

	mu   sync.Mutex
	last netip.Addr // last assigned address, guarded by mu
}

// NewPool opens the leases in db and assigns the addresses of subnet.
func NewPool(db *store.DB, subnet netip.Prefix) (*Pool, error) {
	subnet = subnet.Masked()
	if !subnet.IsValid() || !subnet.Addr().Is4() || subnet.Bits() > 30 {
		return nil, fmt.Errorf("cannot use %s as the subnet of instances: use an IPv4 network of /30 or larger, such as 10.201.0.0/20", subnet)
	}
	return &Pool{
		subnet: subnet,
		db:     db,
		last:   bridge(subnet),
		leases: store.In(db, "addresses", store.Unique("address", func(l lease) string { return l.Address.String() })),
	}, nil
}

// Subnet returns the network of the instances.
func (p *Pool) Subnet() netip.Prefix { return p.subnet }

// Allocated returns the number of addresses in use.
func (p *Pool) Allocated() (int, error) {
	all, err := p.leases.All()
	return len(all), err
}

// bridge returns the address of the bridge, the first of the subnet.
func bridge(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// Allocate assigns an address to the instance, in rotation. A released address is used
// last, because the kernel can still be removing its old network.
func (p *Pool) Allocate(id runtime.InstanceID) (netip.Prefix, error) {
	addr, err := p.lease(string(id), lease{Instance: id})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("cannot assign an address to instance %s: %w", id, err)
	}
	return netip.PrefixFrom(addr, p.subnet.Bits()), nil
}

// reserved returns the key of the address that is reserved for a server. It cannot be
// an instance id, because no instance id has a slash.
func reserved(guid string) string { return "server/" + guid }

// Reserve assigns an address to a server, the same one each time. An address of a
// former subnet is replaced.
func (p *Pool) Reserve(guid string) (netip.Addr, error) {
	l, err := p.leases.Get(reserved(guid))
	if err == nil && p.subnet.Contains(l.Address) {
		return l.Address, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return netip.Addr{}, fmt.Errorf("cannot read the address of server %s: %w", guid, err)
	}
	addr, err := p.lease(reserved(guid), lease{Server: guid})
	if err != nil {
		return addr, fmt.Errorf("cannot assign an address to server %s: %w", guid, err)
	}
	return addr, nil
}

// Unreserve releases the address of a server.
func (p *Pool) Unreserve(guid string) error {
	if err := p.leases.Delete(reserved(guid)); err != nil {
		return fmt.Errorf("cannot release the address of server %s: %w", guid, err)
	}
	return nil
}

// lease stores l under key with a free address.
func (p *Pool) lease(key string, l lease) (netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.db.Update(func(tx *store.Tx) error {
		leases := p.leases.With(tx)
		all, err := leases.All()
		if err != nil {
			return err
		}
		used := make(map[netip.Addr]bool, len(all))
		for _, l := range all {
			used[l.Address] = true
		}
		if l.Address = p.free(used); !l.Address.IsValid() {
			return fmt.Errorf("%w in %s: stop instances or choose a larger subnet with --subnet", ErrNoAddress, p.subnet)
		}
		return leases.Put(key, l)
	})
	if err != nil {
		return netip.Addr{}, err
	}
	p.last = l.Address
	return l.Address, nil
}

// free returns the next free address after the last one.
func (p *Pool) free(used map[netip.Addr]bool) netip.Addr {
	first := bridge(p.subnet).Next()
	a := p.last.Next()
	for range 1 << (32 - p.subnet.Bits()) {
		// The last address of the network is its broadcast address.
		if !p.subnet.Contains(a) || !p.subnet.Contains(a.Next()) {
			a = first
		}
		if !used[a] {
			return a
		}
		a = a.Next()
	}
	return netip.Addr{}
}

// Release releases the address. Call it only after the instance is gone, because until
// then its network still answers there.
func (p *Pool) Release(id runtime.InstanceID) error {
	if err := p.leases.Delete(string(id)); err != nil {
		return fmt.Errorf("cannot release the address of instance %s: %w", id, err)
	}
	return nil
}

// Settle updates the pool after adoption: it keeps only the addresses of adopted
// instances and of servers.
func (p *Pool) Settle(living map[runtime.InstanceID]netip.Addr) error {
	err := p.db.Update(func(tx *store.Tx) error {
		leases := p.leases.With(tx)
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
			if err != nil && !errors.Is(err, store.ErrTaken) { // two instances with the same address must not block the others
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot update the addresses of instances: %w", err)
	}
	return nil
}
