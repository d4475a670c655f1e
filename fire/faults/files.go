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
		{Name: "EIO in the store", Weight: 1, Inject: failing(syscall.EIO, world.StoreFiles)},
		{Name: "EIO in the logs", Weight: 1, Inject: failing(syscall.EIO, world.SegmentFiles)},
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
// output after an error.
func losing(inject Inject) Inject {
	mark := func(e *Env) {
		for id, in := range e.World.Instances() {
			e.Ledger.See(in)
			e.Ledger.End(id, load.Ending{Fault: "an error of the disk", Cause: causes(runtime.CauseCaptureFailed), AnyProcess: true, LosesOutput: true, Maybe: true})
		}
	}
	return func(ctx context.Context, e *Env, d Draw) (func() error, error) {
		mark(e)
		heal, err := inject(ctx, e, d)
		if err != nil {
			return nil, err
		}
		return func() error {
			mark(e) // some can have started since
			return heal()
		}, nil
	}
}
