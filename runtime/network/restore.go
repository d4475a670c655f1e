package network

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

// Restore restores the bridge, and the ports of instances on it, if another program has
// removed them. It reports whether something was missing.
func (n *Bridge) Restore(ids []runtime.InstanceID) (restored bool, err error) {
	whole, err := n.bridgeIsUp()
	if err != nil {
		return false, err
	}
	if !whole {
		if err := n.makeBridge(); err != nil {
			return false, err
		}
		restored = true
	}
	br, err := netlink.LinkByName(n.bridge)
	if err != nil {
		return restored, fmt.Errorf("cannot find bridge %s: %w", n.bridge, err)
	}
	for _, id := range ids {
		attached, err := attach(VethName(id), br)
		if err != nil {
			return restored, err
		}
		restored = restored || attached
	}
	if restored {
		err = n.Isolate(n.isolated.Load())
	}
	return restored, err
}

// bridgeIsUp reports whether the bridge exists, is up and has its address.
func (n *Bridge) bridgeIsUp() (bool, error) {
	br, err := netlink.LinkByName(n.bridge)
	if isNoLink(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot find bridge %s: %w", n.bridge, err)
	}
	addrs, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(br, netlink.FAMILY_V4) })
	if err != nil {
		return false, fmt.Errorf("cannot list the addresses of bridge %s: %w", n.bridge, err)
	}
	own := n.Gateway().AsSlice()
	has := slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(own) })
	return has && br.Attrs().RawFlags&unix.IFF_UP != 0, nil
}

// attach makes a veth a port of the bridge, and reports whether it was none. A veth that
// does not exist belongs to an instance that has just ended.
func attach(name string, br netlink.Link) (bool, error) {
	veth, err := netlink.LinkByName(name)
	if isNoLink(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot find veth %s: %w", name, err)
	}
	if veth.Attrs().MasterIndex == br.Attrs().Index {
		return false, nil
	}
	if err := errors.Join(netlink.LinkSetMaster(veth, br), netlink.LinkSetUp(veth)); err != nil && !isNoLink(err) {
		return false, fmt.Errorf("cannot connect veth %s to bridge %s: %w", name, br.Attrs().Name, err)
	}
	return true, nil
}

// nsfsMagic is the type of the file system of namespaces.
const nsfsMagic = 0x6e736673

// RestoreNamespace mounts the network namespace of an instance at its path again, if
// another program has unmounted it. pid is a process in the namespace. It reports
// whether the mount was missing.
func (n *Bridge) RestoreNamespace(id runtime.InstanceID, pid int) (bool, error) {
	path := n.Path(id)
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err == nil && st.Type == nsfsMagic {
		return false, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return false, fmt.Errorf("cannot create network namespace: %w", err)
	}
	f.Close()
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/net", pid), path, "none", unix.MS_BIND, ""); err != nil {
		return false, fmt.Errorf("cannot mount network namespace of instance %s: %w", id, err)
	}
	return true, nil
}
