package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/disk"
)

// The checks of this file try operations instead of reading settings. They use a
// namespace that disappears with its thread, so that nothing is left.

// inNamespace runs fn on a thread with its own namespaces.
func inNamespace(ctx context.Context, flags int, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // never unlocked, so the thread exits with the goroutine
		if err := unix.Unshare(flags); err != nil {
			done <- fmt.Errorf("cannot create a namespace: %w", err)
			return
		}
		done <- fn()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryOverlay mounts an overlay on the root's file system, because not every one
// supports it.
func tryOverlay(ctx context.Context, m Machine) Finding {
	if m.Snapshotter != "overlayfs" {
		return Good("not needed: the snapshotter is %s", m.Snapshotter)
	}
	dir, err := os.MkdirTemp(nearest(m.Root), ".dew-doctor-")
	if err != nil {
		return Bad(oneLine(err), "run dewd doctor as root, or choose another folder with --root")
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a scratch folder
	err = inNamespace(ctx, unix.CLONE_NEWNS|unix.CLONE_FS, func() error { return mountOverlay(dir) })
	if err != nil {
		return Bad(oneLine(err), "load the kernel module overlay, or choose a folder on ext4, xfs or btrfs with --root")
	}
	return Good("works on %s", nearest(m.Root))
}

func mountOverlay(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	at := func(d string) string { return filepath.Join(dir, d) }
	if err := unix.Mount("overlay", at("merged"), "overlay", 0, "lowerdir="+at("lower")+",upperdir="+at("upper")+",workdir="+at("work")); err != nil {
		return fmt.Errorf("cannot mount an overlay file system: %w", err)
	}
	// Before removing the folder: a work folder in use cannot be removed.
	return unix.Unmount(at("merged"), unix.MNT_DETACH)
}

// tryDiskLimits limits a small layer, and compares all limits with the free space.
func tryDiskLimits(ctx context.Context, m Machine) Finding {
	if !m.DiskLimits || m.Snapshotter != "overlayfs" {
		return Good("none: --disk-limits is %s, --snapshotter is %s", map[bool]string{true: "on", false: "off"}[m.DiskLimits], m.Snapshotter)
	}
	dir := nearest(m.Root)
	err := inNamespace(ctx, unix.CLONE_NEWNS|unix.CLONE_FS, func() error { return disk.Probe(dir) })
	if err != nil {
		return Warn(oneLine(err)+": instances run without a disk limit", disk.Remedy(err))
	}
	if growth, free := disk.Growth(filepath.Join(m.Root, "disks")); growth > free {
		return Warn(fmt.Sprintf("an ext4 image on a loop device for each instance; they can grow by %d MiB, but only %d MiB are free", growth>>20, free>>20), "free disk space, or set a smaller disk_quota for apps")
	}
	return Good("an ext4 image on a loop device for each instance")
}

// tryNetwork creates the network devices of an instance.
func tryNetwork(ctx context.Context, _ Machine) Finding {
	err := inNamespace(ctx, unix.CLONE_NEWNET, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "doctor0"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("cannot create a bridge: %w", err)
		}
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "doctor1", MasterIndex: bridge.Index}, PeerName: "doctor2"}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("cannot create a veth pair: %w", err)
		}
		return masquerade()
	})
	if err != nil {
		return Bad(oneLine(err), "load the kernel modules bridge, veth, nf_tables and nft_masq")
	}
	return Good("bridge, veth and nftables work")
}

func masquerade() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("cannot use nftables: %w", err)
	}
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "doctor"})
	chain := c.AddChain(&nftables.Chain{
		Name: "out", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{&expr.Masq{}}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("cannot add a masquerade rule with nftables: %w", err)
	}
	return nil
}

// defaultNetworks is the range in which dewd looks for a free subnet.
var defaultNetworks = netip.MustParsePrefix("10.201.0.0/16")

// checkSubnet checks that no other network uses the instances' addresses.
func checkSubnet(_ context.Context, m Machine) Finding {
	taken, err := hostNetworks(names.For(m.Root).Bridge)
	if err != nil {
		return Warn(oneLine(err), "run dewd doctor as root")
	}
	return subnetRule(m.Subnet, taken)
}

// hostNetworks returns the networks of this machine, without dewd's own bridge.
func hostNetworks(own string) ([]netip.Prefix, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("cannot list network interfaces: %w", err)
	}
	var found []netip.Prefix
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil || l.Name == own {
			continue // it can be gone by now
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				found = append(found, p.Masked())
			}
		}
	}
	return found, nil
}

func subnetRule(chosen netip.Prefix, taken []netip.Prefix) Finding {
	if chosen.IsValid() {
		for _, t := range taken {
			if t.Overlaps(chosen) {
				return Bad(fmt.Sprintf("%s overlaps %s, a network of this machine", chosen, t), "choose another network with --subnet")
			}
		}
		return Good("%s is free", chosen)
	}
	for _, t := range taken {
		if t.Contains(defaultNetworks.Addr()) && t.Bits() <= defaultNetworks.Bits() {
			return Bad(fmt.Sprintf("all of %s is within %s, a network of this machine", defaultNetworks, t), "choose a free network with --subnet")
		}
	}
	return Good("dewd chooses a free network in %s", defaultNetworks)
}

// nearest returns the folder itself, or its first parent that exists.
func nearest(dir string) string {
	for {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

func checkDisk(_ context.Context, m Machine) Finding {
	dir := nearest(m.Root)
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Bad(fmt.Sprintf("cannot read the free space of %s: %v", dir, err), "choose another folder with --root")
	}
	return diskRule(dir, int64(s.Bavail)*s.Bsize, m.LogReserve)
}

// pushSpace is the free space for pushing an app, in addition to the reserve.
const pushSpace = 1 << 30

func diskRule(dir string, free, reserve int64) Finding {
	what := fmt.Sprintf("%d MiB free on %s", free>>20, dir)
	switch {
	case free < reserve:
		return Bad(fmt.Sprintf("%s, less than the reserve of %d MiB: dewd pauses apps that print a lot", what, reserve>>20), "free disk space, or set a smaller --log-reserve")
	case free < reserve+pushSpace:
		return Warn(what, "free disk space: a push can need more than this")
	}
	return Good("%s", what)
}

// tryPunch punches a hole into an unnamed file.
func tryPunch(_ context.Context, m Machine) Finding {
	dir := nearest(m.Root)
	err := disk.PunchHole(dir)
	switch {
	case err == nil:
		return Good("works on %s", dir)
	case errors.Is(err, unix.EOPNOTSUPP):
		return Bad("the file system of "+dir+" cannot punch holes: dewd could not free the disk space of output that it has stored", "choose a folder on ext4, xfs, btrfs or tmpfs with --root")
	}
	return Bad(fmt.Sprintf("cannot test hole punching on %s: %v", dir, err), "run dewd doctor as root, or choose another folder with --root")
}
