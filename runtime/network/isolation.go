package network

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

// Isolate makes the host route all packets between instances, so that the firewall sees
// them: the bridge no longer forwards between its ports, and answers ARP requests for
// other instances itself. It includes instances that already run. Without on, the
// bridge forwards between its ports again.
func (n *Bridge) Isolate(on bool) error {
	n.isolated.Store(on)
	value := "0"
	if on {
		value = "1"
	}
	// An answer to an ARP request would otherwise wait for up to 0.8 s.
	if err := errors.Join(setSysctl("net/ipv4/neigh/"+n.bridge+"/proxy_delay", "0"), setSysctl("net/ipv4/conf/"+n.bridge+"/proxy_arp_pvlan", value)); err != nil {
		return err
	}
	ids, err := n.Namespaces()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := n.isolate(id, on); err != nil {
			return fmt.Errorf("cannot isolate instance %s: %w", id, err)
		}
	}
	return nil
}

// isolate changes the port of one instance. It then clears the instance's ARP cache,
// which has hardware addresses that are not reachable any more.
func (n *Bridge) isolate(id runtime.InstanceID, on bool) error {
	link, err := netlink.LinkByName(VethName(id))
	if isNoLink(err) {
		return nil // the instance has stopped
	}
	if err != nil {
		return err
	}
	if link.Attrs().MasterIndex == 0 {
		return nil // an earlier daemon was killed before it connected the veth; Sweep deletes it
	}
	port, err := netlink.LinkGetProtinfo(link)
	if err == nil && port.Isolated == on {
		return nil
	}
	if err := netlink.LinkSetIsolated(link, on); err != nil && !isNoLink(err) {
		return err
	}
	return forgetIn(n.Path(id))
}

// forgetIn clears the ARP cache of a namespace.
func forgetIn(path string) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil //nolint:nilerr // not a namespace any more: the instance is gone
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if errors.Is(err, unix.EINVAL) {
		return nil // a file that is no longer mounted
	}
	if err != nil {
		return err
	}
	defer h.Close()
	eth, err := h.LinkByName("eth0")
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return err
	}
	known, err := h.NeighList(eth.Attrs().Index, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, one := range known {
		if err := h.NeighDel(&one); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
