package faults

import (
	"context"
	"syscall"

	"github.com/dewrun/dew/fire/load"
	"github.com/dewrun/dew/fire/world"
	"github.com/dewrun/dew/runtime"
)

// files returns the faults of the disk below the root: operations fail with EIO, or the
// file system is read-only.
func files() []Fault {
	return []Fault{
		{Name: "EIO in the store", Weight: 1, Inject: preventing(failing(syscall.EIO, world.StoreFiles))},
		{Name: "EIO in the logs", Weight: 1, Inject: preventing(failing(syscall.EIO, world.SegmentFiles))},
		{Name: "EIO in captured output", Weight: 1, Inject: losing(failing(syscall.EIO, world.CaptureFiles)), Alone: true},
		{Name: "EIO everywhere", Weight: 1, Inject: losing(failing(syscall.EIO, world.AllFiles)), Alone: true},
		{Name: "read-only root", Weight: 1, Inject: losing(failing(syscall.EROFS, world.AllFiles)), Alone: true},
	}
}

func failing(errno syscall.Errno, fails func(string) bool) Inject {
	return func(_ context.Context, e *Env, _ Draw) (func() error, error) {
		heal := e.World.Fail(errno, fails)
		return func() error {
			e.Ledger.Count("failed operations", heal())
			return nil
		}, nil
	}
}

// losing marks the instances that a fault can end, because the shim stops to copy their
// output after an error. It also prevents starts.
func losing(inject Inject) Inject {
	return marking(load.Ending{
		Fault: "an error of the disk", Cause: causes(runtime.CauseCaptureFailed, runtime.CauseStartFailed), AnyProcess: true, LosesOutput: true, Maybe: true,
	}, func(world.Instance) bool { return true }, inject)
}

// preventing marks the instances that are starting: a fault of the disk can prevent that.
func preventing(inject Inject) Inject {
	return marking(load.Ending{Fault: "a start without a disk", Cause: causes(runtime.CauseStartFailed), AnyProcess: true, Maybe: true}, func(in world.Instance) bool {
		return in.Slot.App == "" || len(in.Leaves[world.SidecarLeaf]) == 0
	}, inject)
}

// marking says how some of the instances can end, and those that start during the fault.
func marking(ending load.Ending, can func(world.Instance) bool, inject Inject) Inject {
	mark := func(e *Env) {
		for id, in := range e.World.Instances() {
			if can(in) {
				e.Ledger.See(in)
				e.Ledger.End(id, ending)
			}
		}
	}
	return func(ctx context.Context, e *Env, d Draw) (func() error, error) {
		mark(e)
		over := e.Ledger.Starting(ending)
		heal, err := inject(ctx, e, d)
		if err != nil {
			over()
			return nil, err
		}
		return func() error {
			mark(e) // some can have started since
			over()
			return heal()
		}, nil
	}
}
