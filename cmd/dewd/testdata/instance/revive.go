package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// launcher waits for a byte on its standard input, then executes the command.
var launcher = []string{"/.dew/init", "launch", "--exec", "--"}

// revive creates the instance again. The record of its container, its snapshot and the
// files that it binds must exist: they are part of a dewd's root and run folder.
func revive(ctx context.Context, cl *client.Client, r record) error {
	for _, step := range []func() error{
		r.Network.make,
		r.makeCgroups,
		func() error { return r.bootNow(ctx, cl) },
		func() error { return r.startTask(ctx, cl) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, p := range r.Execs {
		if err := r.start(ctx, cl, p); err != nil {
			return fmt.Errorf("cannot start %s: %w", p.Exec, err)
		}
	}
	return nil
}

// bootNow sets the present boot of the machine in the labels of the container. It is
// the only change to the data of the old dewd.
func (r record) bootNow(ctx context.Context, cl *client.Client) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	c, err := cl.ContainerService().Get(ctx, r.Container)
	if err != nil {
		return err
	}
	c.Labels[labelBoot] = strings.TrimSpace(string(boot))
	_, err = cl.ContainerService().Update(ctx, c, "labels")
	return err
}

func (r record) startTask(ctx context.Context, cl *client.Client) error {
	c, err := cl.ContainerService().Get(ctx, r.Container)
	if err != nil {
		return err
	}
	mounts, err := cl.SnapshotService(c.Snapshotter).Mounts(ctx, c.SnapshotKey)
	if err != nil {
		return err
	}
	req := &tasks.CreateTaskRequest{ContainerID: r.Container}
	for _, m := range mounts {
		req.Rootfs = append(req.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: append(m.Options, "nodev", "nosuid")})
	}
	if _, err := cl.TaskService().Create(ctx, req); err != nil {
		return fmt.Errorf("cannot create the task: %w", err)
	}
	if _, err := cl.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: r.Container}); err != nil {
		return fmt.Errorf("cannot start the task: %w", err)
	}
	return nil
}

// start runs one process behind a gate, so that it is in its cgroup before it does
// anything.
func (r record) start(ctx context.Context, cl *client.Client, p run) error {
	if err := unix.Mkfifo(p.Stdin, 0o600); err != nil {
		return fmt.Errorf("cannot make the gate: %w", err)
	}
	oom := 100
	spec, err := typeurl.MarshalAnyToProto(&specs.Process{
		User: specs.User{UID: p.UID, GID: p.GID}, Args: append(launcher, p.Args...), Env: p.Env, Cwd: p.Cwd,
		Capabilities: &specs.LinuxCapabilities{}, OOMScoreAdj: &oom, NoNewPrivileges: true,
	})
	if err != nil {
		return err
	}
	tc := cl.TaskService()
	if _, err := tc.Exec(ctx, &tasks.ExecProcessRequest{ContainerID: r.Container, ExecID: p.Exec, Spec: spec, Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr}); err != nil {
		return err
	}
	started, err := tc.Start(ctx, &tasks.StartRequest{ContainerID: r.Container, ExecID: p.Exec})
	if err != nil {
		return err
	}
	for _, dir := range hierarchies() {
		procs := filepath.Join(dir, r.Cgroup, p.Exec, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(int(started.Pid))), 0); err != nil {
			return err
		}
	}
	gate, err := os.OpenFile(p.Stdin, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = gate.Write([]byte{'\n'})
	if err := errors.Join(err, gate.Close(), os.Remove(p.Stdin)); err != nil {
		return err
	}
	_, err = tc.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: r.Container, ExecID: p.Exec, Stdin: true})
	return err
}

// hierarchies returns the cgroup v1 mounts in which dewd creates the cgroups of an
// instance.
func hierarchies() []string {
	all := []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/pids"}
	if unified := "/sys/fs/cgroup/unified"; exists(unified) {
		all = append(all, unified)
	}
	return all
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (r record) makeCgroups() error {
	for _, controller := range []string{"memory", "pids", "freezer", "cpu"} {
		if err := os.MkdirAll(filepath.Join("/sys/fs/cgroup", controller, r.Cgroup), 0o755); err != nil {
			return err
		}
	}
	limits := map[string]string{"": r.Memory}
	for _, p := range r.Execs {
		for _, dir := range hierarchies() {
			if err := os.MkdirAll(filepath.Join(dir, r.Cgroup, p.Exec), 0o755); err != nil {
				return err
			}
		}
		if p.Memory != "0" {
			limits[p.Exec] = p.Memory
		}
	}
	for leaf, limit := range limits {
		file := filepath.Join("/sys/fs/cgroup/memory", r.Cgroup, leaf, "memory.limit_in_bytes")
		if err := os.WriteFile(file, []byte(limit), 0); err != nil {
			return err
		}
	}
	return nil
}

// make creates the network namespace, the bridge and the veth between them.
func (n network) make() error {
	bridge, err := n.makeBridge()
	if err != nil {
		return fmt.Errorf("cannot make the bridge: %w", err)
	}
	if err := newNamespace(n.Path); err != nil {
		return fmt.Errorf("cannot make the network namespace: %w", err)
	}
	ns, err := netns.GetFromPath(n.Path)
	if err != nil {
		return err
	}
	defer ns.Close()
	mac, err := net.ParseMAC(n.MAC)
	if err != nil {
		return err
	}
	la := netlink.NewLinkAttrs()
	la.Name, la.MasterIndex = n.Veth, bridge.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: la, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns), PeerHardwareAddr: mac}
	if err := errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth)); err != nil {
		return fmt.Errorf("cannot make the veth: %w", err)
	}
	return n.configure(ns)
}

func (n network) makeBridge() (netlink.Link, error) {
	la := netlink.NewLinkAttrs()
	la.Name = n.Bridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: la}); err != nil {
		return nil, err
	}
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		return nil, err
	}
	gateway, err := netlink.ParseAddr(n.Gateway)
	if err != nil {
		return nil, err
	}
	return bridge, errors.Join(netlink.AddrAdd(bridge, gateway), netlink.LinkSetUp(bridge))
}

// configure sets up the links inside the namespace.
func (n network) configure(ns netns.NsHandle) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	eth, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(n.Address)
	if err != nil {
		return err
	}
	gateway, _, err := net.ParseCIDR(n.Gateway)
	if err != nil {
		return err
	}
	if err := errors.Join(h.LinkSetUp(lo), h.AddrAdd(eth, addr), h.LinkSetUp(eth)); err != nil {
		return err
	}
	return h.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: gateway})
}

// newNamespace creates a network namespace with a bind mount at path.
func newNamespace(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	done := make(chan error)
	go func() {
		goruntime.LockOSThread() // the thread exits with the goroutine, in its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "none", unix.MS_BIND, "")
	}()
	return <-done
}
