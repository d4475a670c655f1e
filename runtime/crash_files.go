package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// CrashFiles is what is kept of an instance that crashed: its files as they were, and
// what its processes were started with.
type CrashFiles struct {
	Instance  InstanceID `json:"instance"`
	Slot      SlotID     `json:"slot"`
	App       string     `json:"app"`  // guid
	Type      string     `json:"type"` // of the process
	CrashedAt time.Time  `json:"crashed_at"`
	Size      int64      `json:"size"` // bytes that it had written
}

// KeptPerApp is of how many crashed instances of an app the files are kept.
const KeptPerApp = 3

// CrashKeeper is an Engine that keeps the files of crashed instances: of the newest of
// each app, within its bounds. What it keeps outlives it, as instances do.
type CrashKeeper interface {
	// CrashFiles lists what is kept, newest first.
	CrashFiles() []CrashFiles
	// ExecCrashFiles opens a session on a copy of such files, with what the named
	// sidecar was started with, or main where the name is empty. None of the
	// processes runs there, and there is no network. The copy goes when the session
	// is closed. The error is ErrNoInstance where nothing, or no such sidecar, is kept.
	ExecCrashFiles(ctx context.Context, id InstanceID, sidecar string, s ExecSpec) (Session, error)
	// DropCrashFiles removes what is kept of a process, and ends the sessions there.
	DropCrashFiles(ctx context.Context, process string) error
}

// KeepableContainer is a Container of a CrashKeeper.
type KeepableContainer interface {
	// KeepFiles makes Delete keep the files, for those who ask why it crashed.
	KeepFiles(crashed time.Time)
}

// dropLimit is far more than it takes to remove what is kept of an app.
const dropLimit = 2 * time.Minute

// Crashed lists what is kept of crashed instances of a process, newest first.
func (s *Supervisor) Crashed(process string) []CrashFiles {
	return slices.DeleteFunc(s.AllCrashed(), func(files CrashFiles) bool { return files.Slot.Process != process })
}

// AllCrashed lists what is kept of crashed instances of all processes, newest
// first.
func (s *Supervisor) AllCrashed() []CrashFiles {
	if keeper, ok := s.c.Engine.(CrashKeeper); ok {
		return keeper.CrashFiles()
	}
	return nil
}

// ExecCrashed opens a session on a copy of the files of an instance that crashed,
// with the environment of the named sidecar, or of main where the name is empty.
func (s *Supervisor) ExecCrashed(ctx context.Context, id InstanceID, sidecar string, spec ExecSpec) (Session, error) {
	keeper, ok := s.c.Engine.(CrashKeeper)
	if !ok {
		return nil, fmt.Errorf("crashed instance %s: %w", id, ErrNoInstance)
	}
	select {
	case <-s.settled: // before, a sweep would take the copy for a stray one
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return keeper.ExecCrashFiles(ctx, id, sidecar, spec)
}

// keepFiles makes the deletion of a crashed instance keep its files.
func keepFiles(in *Instance) {
	if k, ok := in.container.(KeepableContainer); ok {
		k.KeepFiles(in.record.CrashedAt)
	}
}

// dropCrashed removes what is kept of a process that is no more, beside what else
// there is to do.
func (s *Supervisor) dropCrashed(ctx context.Context, process string) {
	keeper, ok := s.c.Engine.(CrashKeeper)
	if !ok || len(s.Crashed(process)) == 0 {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, dropLimit)
		defer cancel()
		// The next daemon tries again; one that leaves has nothing to complain of.
		if err := keeper.DropCrashFiles(ctx, process); err != nil && !errors.Is(err, context.Canceled) {
			s.c.Logger.Error("cannot remove what is kept of crashed instances", "process", process, "err", err)
		}
	})
}
