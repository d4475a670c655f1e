package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func recordInstance(ctx context.Context, cl *client.Client, id string) (record, error) {
	r := record{Container: id}
	c, err := cl.ContainerService().Get(ctx, id)
	if err != nil {
		return r, err
	}
	any, err := typeurl.UnmarshalAny(c.Spec)
	if err != nil {
		return r, err
	}
	spec := any.(*specs.Spec)
	r.Memory, r.Cgroup = c.Labels[labelMemory], path.Dir(spec.Linux.CgroupsPath)
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == specs.NetworkNamespace {
			r.Network.Path = ns.Path
		}
	}
	if err := r.Network.read(); err != nil {
		return r, fmt.Errorf("cannot read the network: %w", err)
	}
	for key, memory := range c.Labels {
		exec, ok := strings.CutPrefix(key, labelMemory+"-")
		if !ok {
			continue
		}
		p, err := recordProcess(ctx, cl, id, exec)
		if err != nil {
			return r, fmt.Errorf("cannot read process %s: %w", exec, err)
		}
		p.Memory = memory
		r.Execs = append(r.Execs, p)
	}
	slices.SortFunc(r.Execs, func(a, b run) int { return strings.Compare(a.Exec, b.Exec) })
	return r, nil
}

// recordProcess records a process after its launcher has run its command, because a
// later dewd finds it in that state.
func recordProcess(ctx context.Context, cl *client.Client, id, exec string) (run, error) {
	p := run{Exec: exec}
	got, err := cl.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: id, ExecID: exec})
	if err != nil {
		return p, err
	}
	p.Stdin, p.Stdout, p.Stderr = got.Process.Stdin, got.Process.Stdout, got.Process.Stderr
	dir := "/proc/" + strconv.Itoa(int(got.Process.Pid))
	list := func(file string) []string {
		b, rerr := os.ReadFile(path.Join(dir, file))
		if rerr != nil {
			err = rerr
		}
		return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	}
	p.Args, p.Env = list("cmdline"), list("environ")
	if err != nil {
		return p, err
	}
	if p.Cwd, err = os.Readlink(path.Join(dir, "cwd")); err != nil {
		return p, err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return p, err
	}
	p.UID, p.GID = st.Uid, st.Gid
	return p, nil
}

func (n *network) read() error {
	ns, err := netns.GetFromPath(n.Path)
	if err != nil {
		return err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	eth, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	addrs, err := h.AddrList(eth, netlink.FAMILY_V4)
	if err != nil || len(addrs) != 1 {
		return fmt.Errorf("addresses of eth0: %v, %w", addrs, err)
	}
	n.MAC, n.Address = eth.Attrs().HardwareAddr.String(), addrs[0].IPNet.String()
	veth, err := netlink.LinkByIndex(eth.Attrs().ParentIndex)
	if err != nil {
		return err
	}
	bridge, err := netlink.LinkByIndex(veth.Attrs().MasterIndex)
	if err != nil {
		return err
	}
	gateway, err := netlink.AddrList(bridge, netlink.FAMILY_V4)
	if err != nil || len(gateway) != 1 {
		return fmt.Errorf("addresses of the bridge: %v, %w", gateway, err)
	}
	n.Veth, n.Bridge, n.Gateway = veth.Attrs().Name, bridge.Attrs().Name, gateway[0].IPNet.String()
	return nil
}
