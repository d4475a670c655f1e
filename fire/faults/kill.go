package faults

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/world"
	"github.com/dewrun/dew/runtime"
)

// part is a process that faults kill and stop.
type part struct {
	name   string
	weight int
	// find returns the process, and how the instance must end if it is killed. The
	// instance is empty if no instance ends.
	find func(ctx context.Context, e *Env, d Draw) (pid int, instance string, ending load.Ending, err error)
}

// dewd is the name of the part that World starts again.
const dewd = "dewd"

// sidecarPart is the index of the sidecar in parts.
const sidecarPart = 5

func parts() []part {
	return []part{
		{dewd, 4, findDewd},
		{"containerd", 3, findContainerd},
		{"shim", 2, findShim},
		{"dew-init", 2, inLeaf(world.InitLeaf, load.Ending{Cause: causes(runtime.CauseInitExited), AnyProcess: true})},
		{"main process", 3, inLeaf(world.MainLeaf, load.Ending{Cause: causes(runtime.CauseExited)})},
		{"sidecar", 3, inLeaf(world.SidecarLeaf, load.Ending{Cause: causes(runtime.CauseExited), Sidecar: true})},
	}
}

func causes(list ...runtime.Cause) (out []string) {
	for _, c := range list {
		out = append(out, string(c))
	}
	return out
}

// kills returns the faults that send signals: SIGKILL and SIGSTOP to each part, and
// SIGKILL to two parts at once.
func kills() []Fault {
	var out []Fault
	all := parts()
	for _, p := range all {
		out = append(out, Fault{Name: "kill " + p.name, Weight: p.weight, Inject: killed(p), Anytime: true}, Fault{Name: "stop " + p.name, Weight: p.weight, Inject: stopped(p), Anytime: true})
	}
	for _, daemon := range all[:2] {
		for _, p := range all[2:] {
			out = append(out, Fault{Name: "kill " + daemon.name + " and " + p.name, Weight: 1, Inject: killed(daemon, p), Anytime: true})
		}
	}
	return append(out, Fault{Name: "kill dewd and containerd", Weight: 1, Inject: killed(all[0], all[1]), Anytime: true})
}

// killed returns a fault that kills processes, the first one first.
func killed(list ...part) Inject {
	return func(ctx context.Context, e *Env, d Draw) (func() error, error) {
		var pids []int
		for _, p := range list {
			pid, instance, ending, err := p.find(ctx, e, d)
			if err != nil {
				return nil, err
			}
			if instance != "" {
				ending.Fault = "kill " + p.name
				e.Ledger.End(instance, ending)
			}
			pids = append(pids, pid)
		}
		var errs []error
		for i, pid := range pids {
			if list[i].name == dewd {
				errs = append(errs, e.World.Kill())
			} else {
				errs = append(errs, signal(pid, syscall.SIGKILL))
			}
		}
		return nil, errors.Join(errs...)
	}
}

// stopped returns a fault that stops a process for a while.
func stopped(p part) Inject {
	return func(ctx context.Context, e *Env, d Draw) (func() error, error) {
		pid, _, _, err := p.find(ctx, e, d)
		if err != nil {
			return nil, err
		}
		return func() error { return continued(pid) }, signal(pid, syscall.SIGSTOP)
	}
}

// continued lets a stopped process continue, unless an earlier fault has ended its
// instance since.
func continued(pid int) error {
	if err := signal(pid, syscall.SIGCONT); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("cannot send %s to %d: %w", sig, pid, err)
	}
	return nil
}

// An earlier fault can have killed the daemons.
func findDewd(ctx context.Context, e *Env, _ Draw) (pid int, _ string, _ load.Ending, err error) {
	err = world.Until(ctx, targetTimeout, func() error {
		pid, err = e.World.Dewd()
		return err
	})
	return pid, "", load.Ending{}, err
}

func findContainerd(ctx context.Context, e *Env, _ Draw) (pid int, _ string, _ load.Ending, err error) {
	err = world.Until(ctx, targetTimeout, func() error {
		pid, err = e.World.Containerd()
		return err
	})
	return pid, "", load.Ending{}, err
}

func findShim(ctx context.Context, e *Env, d Draw) (int, string, load.Ending, error) {
	in, err := e.target(ctx, d)
	if err != nil {
		return 0, "", load.Ending{}, err
	}
	pid, err := e.World.Shim(in.ID)
	return pid, in.ID, load.Ending{Cause: causes(runtime.CauseRuntimeLost), AnyProcess: true, LosesOutput: true}, err
}

// inLeaf finds the first process of a leaf.
func inLeaf(leaf string, ending load.Ending) func(context.Context, *Env, Draw) (int, string, load.Ending, error) {
	return func(ctx context.Context, e *Env, d Draw) (int, string, load.Ending, error) {
		in, err := e.target(ctx, d)
		if err != nil {
			return 0, "", load.Ending{}, err
		}
		pids := in.Leaves[leaf]
		if len(pids) == 0 {
			return 0, "", load.Ending{}, fmt.Errorf("instance %s has no process in %s", in.ID, leaf)
		}
		return pids[0], in.ID, ending, nil
	}
}
