package main

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

const bridgeName = "cluster0"

// controlNetwork creates the bridge that connects the machines of the cluster.
func controlNetwork() error {
	here, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer here.Close()
	if err := setUp(here, "lo"); err != nil {
		return err
	}
	if err := here.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}); err != nil {
		return fmt.Errorf("cannot create a bridge: %w", err)
	}
	if err := setAddress(here, bridgeName, controlAddress+"/24"); err != nil {
		return err
	}
	// kube-proxy translates the addresses of Services, but only if there is a route.
	return addRoute(here, serviceCIDR, bridgeName, "")
}

// nodeNetwork connects the network namespace of a process to the bridge, as node.
func nodeNetwork(pid, number, nodes int) error {
	here, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer here.Close()
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	there, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := connect(here, there, ns, number); err != nil {
		return fmt.Errorf("cannot connect %s to the network: %w", nodeName(number), err)
	}
	if err := addRoute(here, nodePods(number), bridgeName, nodeAddress(number)); err != nil {
		return err
	}
	for other := range nodes {
		if other+1 == number {
			continue
		}
		if err := addRoute(there, nodePods(other+1), "eth0", nodeAddress(other+1)); err != nil {
			return err
		}
	}
	return addRoute(there, "0.0.0.0/0", "eth0", controlAddress)
}

// connect creates a pair of devices: one on the bridge, the other as eth0 of the node.
func connect(here, there *netlink.Handle, ns netns.NsHandle, number int) error {
	bridge, err := here.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	// A node that was switched off can leave its device for a moment.
	if old, err := here.LinkByName(nodeName(number)); err == nil {
		_ = here.LinkDel(old) // it could be gone already
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = nodeName(number), bridge.Attrs().Index
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}
	if err := here.LinkAdd(pair); err != nil {
		return err
	}
	if err := setUp(here, nodeName(number)); err != nil {
		return err
	}
	if err := setUp(there, "lo"); err != nil {
		return err
	}
	return setAddress(there, "eth0", nodeAddress(number)+"/24")
}

// setLink cuts or restores the connection of a node to the other machines.
func setLink(node string, connected bool) error {
	link, err := netlink.LinkByName(node)
	if err != nil {
		return fmt.Errorf("%s has no network: %w", node, err)
	}
	if connected {
		return netlink.LinkSetUp(link)
	}
	return netlink.LinkSetDown(link)
}

func setUp(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	return h.LinkSetUp(link)
}

func setAddress(h *netlink.Handle, name, address string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	if err := h.AddrAdd(link, parsed); err != nil {
		return fmt.Errorf("cannot set the address %s: %w", address, err)
	}
	return h.LinkSetUp(link)
}

func addRoute(h *netlink.Handle, cidr, device, gateway string) error {
	link, err := h.LinkByName(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Gw: net.ParseIP(gateway)}
	if gateway == "" {
		route.Scope = netlink.SCOPE_LINK
	}
	if err := h.RouteReplace(route); err != nil {
		return fmt.Errorf("cannot add a route to %s: %w", cidr, err)
	}
	return nil
}

// forward lets this network namespace route packets of Pods.
func forward() error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
