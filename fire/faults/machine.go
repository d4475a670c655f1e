package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/world"
	"github.com/dewrun/dew/runtime/containerd/names"
)

// machine returns the faults of another program on the machine: it removes the bridge, a
// network namespace, a table of the firewall or a cgroup.
func machine() []Fault {
	return []Fault{
		{Name: "bridge down", Weight: 1, Inject: bridgeDown, Restored: true},
		{Name: "remove bridge", Weight: 1, Inject: removeBridge, Restored: true},
		{Name: "unmount network namespace", Weight: 1, Inject: unmountNamespace, Restored: true},
		{Name: "remove firewall table", Weight: 1, Inject: removeTable(""), Restored: true},
		{Name: "remove policies table", Weight: 1, Inject: removeTable("-policies"), Restored: true},
		{Name: "remove cgroup", Weight: 1, Inject: loseGroup, Restored: true},
	}
}

func removeBridge(ctx context.Context, e *Env, _ Draw) (func() error, error) {
	return nil, e.withBridge(ctx, netlink.LinkDel)
}

func bridgeDown(ctx context.Context, e *Env, _ Draw) (func() error, error) {
	return nil, e.withBridge(ctx, netlink.LinkSetDown)
}

// withBridge changes the bridge. An earlier fault can have removed it.
func (e *Env) withBridge(ctx context.Context, change func(netlink.Link) error) error {
	return world.Until(ctx, targetTimeout, func() error {
		br, err := netlink.LinkByName(e.World.Names.Bridge)
		if err != nil {
			return err
		}
		return change(br)
	})
}

// unmountNamespace removes the file that names a network namespace, as ip netns del
// does. The processes stay in the namespace.
func unmountNamespace(ctx context.Context, e *Env, d Draw) (func() error, error) {
	in, err := e.target(ctx, d)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(e.World.Run, "netns", names.Prefix+in.ID)
	return nil, errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path))
}

func removeTable(suffix string) Inject {
	return func(ctx context.Context, e *Env, _ Draw) (func() error, error) {
		return nil, world.Until(ctx, targetTimeout, func() error { // an earlier fault can have removed it
			c, err := nftables.New()
			if err != nil {
				return err
			}
			c.DelTable(&nftables.Table{Name: e.World.Names.Table + suffix, Family: nftables.TableFamilyINet})
			return c.Flush()
		})
	}
}

// scarcity returns the faults that leave dewd too little of something. Each exists
// alone, and together with a sidecar that is killed: then dewd must start an instance.
func scarcity() []Fault {
	alone := []Fault{
		{Name: "dewd without free files", Weight: 1, Inject: fewFiles},
		{Name: "dewd without free threads", Weight: 1, Inject: fewThreads},
		{Name: "dewd without free memory", Weight: 1, Inject: fewMemory},
		{Name: "dewd without processor time", Weight: 1, Inject: starved(findDewd)},
		{Name: "containerd without processor time", Weight: 1, Inject: starved(findContainerd)},
		{Name: "disk full", Weight: 1, Inject: preventing(diskFull(0))},
		{Name: "disk nearly full", Weight: 1, Inject: preventing(diskFull(512 << 10))},
	}
	var both []Fault
	for _, f := range alone {
		both = append(both, Fault{Name: f.Name + ", sidecar killed", Weight: 1, Inject: withKill(f.Inject)})
	}
	return append(alone, both...)
}

// withKill adds the kill of a sidecar to a fault. It finds the sidecar before the fault,
// which can keep dewd from starting instances.
func withKill(inject Inject) Inject {
	sidecar := parts()[sidecarPart]
	return func(ctx context.Context, e *Env, d Draw) (func() error, error) {
		pid, instance, ending, err := sidecar.find(ctx, e, d)
		if err != nil {
			return nil, err
		}
		heal, err := inject(ctx, e, d)
		if err != nil {
			return nil, err
		}
		ending.Fault = "kill " + sidecar.name
		e.Ledger.End(instance, ending)
		// An earlier fault can have ended it by now.
		if err := signal(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, errors.Join(err, heal())
		}
		return heal, nil
	}
}

// fewFiles leaves dewd two more files than it has open.
func fewFiles(_ context.Context, e *Env, _ Draw) (func() error, error) {
	pid, err := e.World.Dewd()
	if err != nil {
		return nil, err
	}
	open, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return nil, err
	}
	var old unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		return nil, err
	}
	low := unix.Rlimit{Cur: uint64(len(open)) + 2, Max: old.Max}
	return func() error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil) }, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &low, nil)
}

// fewThreads lets dewd create no thread and no process. A Go program exits if it cannot
// create a thread.
func fewThreads(ctx context.Context, e *Env, _ Draw) (func() error, error) {
	return e.limitDewd(ctx, "pids", "1")
}

// fewMemory lets dewd allocate almost no memory, so that the kernel kills it.
func fewMemory(ctx context.Context, e *Env, _ Draw) (func() error, error) {
	return e.limitDewd(ctx, "memory", strconv.Itoa(256<<10))
}

// limitDewd limits dewd so much that it can exit.
func (e *Env) limitDewd(ctx context.Context, controller, limit string) (func() error, error) {
	pid, err := e.World.Dewd()
	if err != nil {
		return nil, err
	}
	end := e.World.Expect()
	release, err := e.World.Limit(controller, limit, pid)
	if errors.Is(err, unix.EBUSY) { // the kernel cannot free so much memory: there was no fault
		e.Ledger.Count("refused limits", 1)
		release, err = func() error { return nil }, nil
	}
	if err != nil {
		end()
		return nil, err
	}
	return func() error {
		defer end()
		// The kernel can have begun to kill it.
		err := errors.Join(release(), e.World.Answers(ctx))
		e.World.Forgive()
		return err
	}, nil
}

// starved lets a daemon use 1% of a processor.
func starved(find func(context.Context, *Env, Draw) (int, string, load.Ending, error)) Inject {
	return func(ctx context.Context, e *Env, d Draw) (func() error, error) {
		pid, _, _, err := find(ctx, e, d)
		if err != nil {
			return nil, err
		}
		return e.World.Limit("cpu", "1000 100000", pid)
	}
}

func diskFull(except int64) Inject {
	return func(_ context.Context, e *Env, _ Draw) (func() error, error) { return e.World.Fill(except) }
}

// loseGroup moves a sidecar out of its cgroup and removes the cgroup.
func loseGroup(ctx context.Context, e *Env, d Draw) (func() error, error) {
	in, err := e.target(ctx, d)
	if err != nil {
		return nil, err
	}
	if err := e.World.LoseGroup(in.ID, world.SidecarLeaf); err != nil {
		return nil, fmt.Errorf("cannot remove the cgroup of %s: %w", in.Slot, err)
	}
	return nil, nil
}
