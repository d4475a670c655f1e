package network

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/userns"
)

// Bridge gives every instance a network namespace with a veth to one bridge.
type Bridge struct {
	dir    string // folder of the bind mounts that keep the namespaces
	bridge string
	Subnet netip.Prefix
	dials  chan struct{} // limits the threads that are in instances' namespaces

	isolated atomic.Bool // the bridge does not forward between instances
}

const (
	maxDials    = 64
	lockTimeout = 30 * time.Second // far longer than choosing a subnet takes
)

// New returns the network of the instances. SetUp creates its bridge.
func New(dir, bridge string, subnet netip.Prefix) *Bridge {
	return &Bridge{dir: dir, bridge: bridge, Subnet: subnet.Masked(), dials: make(chan struct{}, maxDials)}
}

// Gateway returns the bridge's own address: the first of the subnet.
func (n *Bridge) Gateway() netip.Addr { return n.Subnet.Addr().Next() }

// TakeSubnet finds the first /20 of 10.201.0.0/16 without an address or a route on this
// machine, and assigns it to the bridge. Daemons that start at the same moment take
// turns.
func TakeSubnet(ctx context.Context, bridge string) (netip.Prefix, error) {
	// A socket name in the network namespace of the subnets. The kernel releases it
	// when the process exits for any reason.
	turn, err := lockName(ctx, "@dew-subnet")
	if err != nil {
		return netip.Prefix{}, err
	}
	defer turn.Close()
	taken, err := takenSubnets(bridge)
	if err != nil {
		return netip.Prefix{}, err
	}
	p, err := freeSubnet(taken)
	if err != nil {
		return p, err
	}
	return p, New("", bridge, p).makeBridge()
}

// lockName waits until no other process holds the socket name, and takes it.
func lockName(ctx context.Context, name string) (io.Closer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockTimeout, errors.New("another daemon is still choosing a subnet"))
	defer cancel()
	for {
		l, err := net.ListenPacket("unixgram", name)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("cannot choose a subnet: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cannot choose a subnet: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// takenSubnets returns the subnets that have a route, except the bridge's own.
func takenSubnets(bridge string) ([]netip.Prefix, error) {
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("cannot list routes: %w", err)
	}
	own := -1
	if br, err := netlink.LinkByName(bridge); err == nil {
		own = br.Attrs().Index
	}
	var taken []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == own {
			continue
		}
		if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			ones, _ := r.Dst.Mask.Size()
			taken = append(taken, netip.PrefixFrom(a.Unmap(), ones))
		}
	}
	return taken, nil
}

// whole repeats a listing that was interrupted by a change, because other daemons also
// create links and routes.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range 100 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

func freeSubnet(taken []netip.Prefix) (netip.Prefix, error) {
next:
	for third := 0; third < 256; third += 16 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 201, byte(third), 0}), 20)
		for _, t := range taken {
			if t.Bits() > 0 && t.Overlaps(p) {
				continue next
			}
		}
		return p, nil
	}
	return netip.Prefix{}, errors.New("cannot find a free subnet in 10.201.0.0/16: choose one with --subnet")
}

// SetUp creates the bridge and the settings that instances need.
func (n *Bridge) SetUp() error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return fmt.Errorf("cannot create the folder for network namespaces: %w", err)
	}
	if err := n.makeBridge(); err != nil {
		return err
	}
	return setSysctl("net/ipv4/ip_forward", "1")
}

// makeBridge creates the bridge. It keeps an existing one, because instances of an
// earlier daemon are attached to it.
func (n *Bridge) makeBridge() error {
	la := netlink.NewLinkAttrs()
	la.Name = n.bridge
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: la})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("cannot create bridge %s: %w (check that the kernel module bridge is available)", n.bridge, err)
	}
	br, err := netlink.LinkByName(n.bridge)
	if err != nil {
		return fmt.Errorf("cannot find bridge %s: %w", n.bridge, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(n.Gateway(), n.Subnet.Bits()))}
	if err := netlink.AddrReplace(br, addr); err != nil {
		return fmt.Errorf("cannot assign an address to bridge %s: %w", n.bridge, err)
	}
	// Without its own IPv6 address the bridge has no unfiltered way to the host.
	if err := setSysctl("net/ipv6/conf/"+n.bridge+"/disable_ipv6", "1"); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(br); err != nil {
		return fmt.Errorf("cannot bring up bridge %s: %w", n.bridge, err)
	}
	return nil
}

// TearDown removes the bridge.
func (n *Bridge) TearDown() error {
	br, err := netlink.LinkByName(n.bridge)
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot find bridge %s: %w", n.bridge, err)
	}
	if err := netlink.LinkDel(br); err != nil {
		return fmt.Errorf("cannot remove bridge %s: %w", n.bridge, err)
	}
	return nil
}

// Path returns the file that keeps the network namespace of an instance.
func (n *Bridge) Path(id runtime.InstanceID) string {
	return filepath.Join(n.dir, namespaceName(id))
}

// namePrefix is the prefix of the name of every network namespace.
const namePrefix = "dew-"

func namespaceName(id runtime.InstanceID) string { return namePrefix + string(id) }

// instanceIn returns the instance id in the name of a network namespace.
func instanceIn(name string) (runtime.InstanceID, bool) {
	id := runtime.InstanceID(strings.TrimPrefix(name, namePrefix))
	return id, strings.HasPrefix(name, namePrefix) && id.Valid()
}

// VethName returns the name of the veth of an instance. It fits into the 15 characters
// of an interface name.
func VethName(id runtime.InstanceID) string {
	sum := sha256.Sum256([]byte(id))
	return "dew" + hex.EncodeToString(sum[:])[:11]
}

// Create creates the namespace of an instance, which is not connected yet.
// It belongs to the user namespace of the instance, if that has users of its own.
func (n *Bridge) Create(id runtime.InstanceID, users userns.Range) error {
	return newNamespace(n.Path(id), users)
}

// Connect connects the namespace of an instance to the bridge, with lo and eth0 up.
func (n *Bridge) Connect(id runtime.InstanceID, addr netip.Prefix) error {
	ns, err := netns.GetFromPath(n.Path(id))
	if err != nil {
		return fmt.Errorf("cannot open network namespace: %w", err)
	}
	defer ns.Close()
	br, err := netlink.LinkByName(n.bridge)
	if err != nil {
		return fmt.Errorf("cannot find bridge %s: %w", n.bridge, err)
	}
	la := netlink.NewLinkAttrs()
	la.Name, la.MasterIndex, la.MTU = VethName(id), br.Attrs().Index, br.Attrs().MTU
	veth := &netlink.Veth{LinkAttrs: la, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns), PeerMTU: uint32(la.MTU), PeerHardwareAddr: hardwareAddr(addr.Addr())}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("cannot create veth: %w", err)
	}
	if n.isolated.Load() {
		if err := netlink.LinkSetIsolated(veth, true); err != nil {
			return fmt.Errorf("cannot isolate veth: %w", err)
		}
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("cannot bring up veth: %w", err)
	}
	return n.configure(ns, addr)
}

// hardwareAddr derives the hardware address from the IP address of an instance. An ARP
// cache entry therefore stays correct when the address is assigned again.
func hardwareAddr(a netip.Addr) net.HardwareAddr {
	ip := a.As4()
	return net.HardwareAddr{0x02, 0xde, ip[0], ip[1], ip[2], ip[3]}
}

// configure sets up the links inside a namespace.
func (n *Bridge) configure(ns netns.NsHandle, addr netip.Prefix) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot enter network namespace: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("cannot find lo: %w", err)
	}
	eth, err := h.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("cannot find eth0: %w", err)
	}
	steps := []func() error{
		func() error { return h.LinkSetUp(lo) },
		func() error { return h.AddrAdd(eth, &netlink.Addr{IPNet: ipNet(addr)}) },
		func() error { return h.LinkSetUp(eth) },
		func() error {
			return h.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: n.Gateway().AsSlice()})
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("cannot set up network namespace: %w", err)
		}
	}
	return nil
}

// newNamespace creates a network namespace that a bind mount at path keeps alive.
func newNamespace(path string, users userns.Range) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("cannot create network namespace: %w", err)
	}
	f.Close()
	if users.Enabled() {
		return users.NewNetwork(path)
	}
	done := make(chan error)
	go func() {
		// Never unlocked: the thread is in the new namespace and must exit with this
		// goroutine.
		goruntime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("cannot create network namespace: %w", err)
			return
		}
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(self, path, "none", unix.MS_BIND, ""); err != nil {
			done <- fmt.Errorf("cannot mount network namespace: %w", err)
			return
		}
		done <- nil
	}()
	return <-done
}

// Remove unmounts a namespace. The kernel then removes it and its veth in the
// background; deleting each veth explicitly would take 16 ms, one after the other.
func (n *Bridge) Remove(id runtime.InstanceID) error {
	path := n.Path(id)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot unmount network namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove network namespace: %w", err)
	}
	return nil
}

// RemoveVeth removes the host's end of the veth of an instance whose namespace is still
// in use.
func (n *Bridge) RemoveVeth(name string) error {
	l, err := netlink.LinkByName(name)
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot find veth %s: %w", name, err)
	}
	if err := netlink.LinkDel(l); err != nil && !isNoLink(err) {
		return fmt.Errorf("cannot remove veth %s: %w", name, err)
	}
	return nil
}

// Namespaces lists the instances that have a namespace file.
func (n *Bridge) Namespaces() ([]runtime.InstanceID, error) {
	entries, err := os.ReadDir(n.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list network namespaces: %w", err)
	}
	var ids []runtime.InstanceID
	for _, e := range entries {
		if id, ok := instanceIn(e.Name()); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Veths lists the interfaces on the bridge.
func (n *Bridge) Veths() ([]string, error) {
	br, err := netlink.LinkByName(n.bridge)
	if isNoLink(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find bridge %s: %w", n.bridge, err)
	}
	links, err := whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("cannot list network links: %w", err)
	}
	var names []string
	for _, l := range links {
		if l.Attrs().MasterIndex == br.Attrs().Index {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}

// inNamespace runs fn on a thread in the namespace at path.
func inNamespace(path string, fn func() error) error {
	goruntime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		goruntime.UnlockOSThread()
		return fmt.Errorf("cannot open dewd's own network namespace: %w", err)
	}
	defer home.Close()
	away, err := netns.GetFromPath(path)
	if err != nil {
		goruntime.UnlockOSThread()
		return fmt.Errorf("cannot open network namespace of the instance: %w", err)
	}
	defer away.Close()
	if err := netns.Set(away); err != nil {
		goruntime.UnlockOSThread()
		return fmt.Errorf("cannot enter network namespace: %w", err)
	}
	err = fn()
	if back := netns.Set(home); back != nil {
		// The thread stays locked, so that it exits with its goroutine. Otherwise
		// another goroutine could run in the wrong namespace.
		return errors.Join(err, fmt.Errorf("cannot return from network namespace: %w", back))
	}
	goruntime.UnlockOSThread()
	return err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func isNoLink(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV)
}

// setSysctl writes below /proc/sys. A key that this kernel does not have is ignored:
// then there is nothing to set.
func setSysctl(key, value string) error {
	f, err := os.OpenFile(filepath.Join("/proc/sys", key), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot set sysctl %s: %w", key, err)
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot set sysctl %s: %w", key, err)
	}
	return nil
}
