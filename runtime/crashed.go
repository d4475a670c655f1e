package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Remains is what is kept of an instance that crashed: its files as they were, and
// what its processes were started with.
type Remains struct {
	Instance  InstanceID `json:"instance"`
	Slot      SlotID     `json:"slot"`
	App       string     `json:"app"`  // guid
	Type      string     `json:"type"` // of the process
	CrashedAt time.Time  `json:"crashed_at"`
	Size      int64      `json:"size"` // bytes that it had written
}

// KeptPerApp is of how many crashed instances of an app the files are kept.
const KeptPerApp = 3

// Keeper is an Engine that keeps the files of crashed instances: of the newest of
// each app, within its bounds. What it keeps outlives it, as instances do.
type Keeper interface {
	// Remains lists what is kept, newest first.
	Remains() []Remains
	// ExecRemains opens a session on a copy of such files, with what the named
	// sidecar was started with, or main where the name is empty. None of the
	// processes runs there, and there is no network. The copy goes when the session
	// is closed. The error is ErrNoInstance where nothing, or no such sidecar, is kept.
	ExecRemains(ctx context.Context, id InstanceID, sidecar string, s ExecSpec) (Session, error)
	// DropRemains removes what is kept of a process, and ends the sessions there.
	DropRemains(ctx context.Context, process string) error
}

// Keepable is a Task of a Keeper.
type Keepable interface {
	// Keep makes Delete keep the files, for those who ask why it crashed.
	Keep(crashed time.Time)
}

// dropLimit is far more than it takes to remove what is kept of an app.
const dropLimit = 2 * time.Minute

// Crashed lists what is kept of crashed instances of a process, newest first.
func (s *Supervisor) Crashed(process string) []Remains {
	return slices.DeleteFunc(s.AllCrashed(), func(r Remains) bool { return r.Slot.Process != process })
}

// AllCrashed lists what is kept of crashed instances of all processes, newest
// first.
func (s *Supervisor) AllCrashed() []Remains {
	if k, ok := s.c.Engine.(Keeper); ok {
		return k.Remains()
	}
	return nil
}

// ExecCrashed opens a session on a copy of the files of an instance that crashed,
// with the environment of the named sidecar, or of main where the name is empty.
func (s *Supervisor) ExecCrashed(ctx context.Context, id InstanceID, sidecar string, spec ExecSpec) (Session, error) {
	k, ok := s.c.Engine.(Keeper)
	if !ok {
		return nil, fmt.Errorf("crashed instance %s: %w", id, ErrNoInstance)
	}
	select {
	case <-s.settled: // before, a sweep would take the copy for a stray one
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return k.ExecRemains(ctx, id, sidecar, spec)
}

// keepFiles makes the deletion of a crashed instance keep its files.
func keepFiles(in *Instance) {
	if k, ok := in.task.(Keepable); ok {
		k.Keep(in.record.CrashedAt)
	}
}

// dropCrashed removes what is kept of a process that is no more, beside what else
// there is to do.
func (s *Supervisor) dropCrashed(ctx context.Context, process string) {
	k, ok := s.c.Engine.(Keeper)
	if !ok || len(s.Crashed(process)) == 0 {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, dropLimit)
		defer cancel()
		// The next daemon tries again; one that leaves has nothing to complain of.
		if err := k.DropRemains(ctx, process); err != nil && !errors.Is(err, context.Canceled) {
			s.c.Logger.Error("cannot remove what is kept of crashed instances", "process", process, "err", err)
		}
	})
}
