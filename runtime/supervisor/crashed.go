package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/runtime"
)

// dropLimit is far longer than the removal of the stored files of an app takes.
const dropLimit = 2 * time.Minute

// Crashed lists the stored files of crashed instances of a process, newest first.
func (s *Supervisor) Crashed(process string) []runtime.CrashFiles {
	return slices.DeleteFunc(s.AllCrashed(), func(files runtime.CrashFiles) bool { return files.Slot.Process != process })
}

// AllCrashed lists the stored files of crashed instances of all processes, newest
// first.
func (s *Supervisor) AllCrashed() []runtime.CrashFiles {
	if keeper, ok := s.c.Engine.(runtime.CrashKeeper); ok {
		return keeper.CrashFiles()
	}
	return nil
}

// ExecCrashed opens a session on a copy of the files of a crashed instance. It has the
// environment of the named sidecar, or of main if the name is empty.
func (s *Supervisor) ExecCrashed(ctx context.Context, id runtime.InstanceID, sidecar string, spec runtime.ExecSpec) (runtime.Session, error) {
	keeper, ok := s.c.Engine.(runtime.CrashKeeper)
	if !ok {
		return nil, fmt.Errorf("crashed instance %s: %w", id, runtime.ErrNoInstance)
	}
	select {
	case <-s.settled: // before that, a sweep would remove the copy as a stray one
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return keeper.ExecCrashFiles(ctx, id, sidecar, spec)
}

// keepFiles makes the deletion of a crashed instance store its files.
func keepFiles(in *Instance) {
	if k, ok := in.container.(runtime.KeepableContainer); ok && in.record.First.Cause.Counts() {
		k.KeepFiles(in.record.CrashedAt)
	}
}

// dropCrashed removes the stored files of a process that no longer exists, in the
// background.
func (s *Supervisor) dropCrashed(ctx context.Context, process string) {
	keeper, ok := s.c.Engine.(runtime.CrashKeeper)
	if !ok || len(s.Crashed(process)) == 0 {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, dropLimit)
		defer cancel()
		// The next daemon tries again. A daemon that exits does not report an error.
		if err := keeper.DropCrashFiles(ctx, process); err != nil && !errors.Is(err, context.Canceled) {
			s.c.Logger.Error("cannot delete the stored files of crashed instances", "process", process, "err", err)
		}
	})
}
