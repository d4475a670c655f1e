package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/runtime"
)

var (
	_ runtime.CrashKeeper       = (*Fake)(nil)
	_ runtime.KeepableContainer = (*handle)(nil)
)

// crashFiles is the stored data of a crashed instance. A Fake has no files, so it only
// records the instance.
type crashFiles struct {
	runtime.CrashFiles
	container *Container
	sessions  []*session
}

// Leaving implements LeavingContainer.Leaving.
func (h *handle) Leaving() <-chan struct{} { return h.container.leaving }

// KeepFiles implements KeepableContainer.KeepFiles.
func (h *handle) KeepFiles(crashed time.Time) {
	h.container.machine.mu.Lock()
	defer h.container.machine.mu.Unlock()
	h.container.crashed = &crashed
}

// keep adds the instance in front of the stored ones. It adds an instance only once.
func (g *fakeMachine) keep(c *Container) {
	if c.crashed == nil || c.deleted {
		return
	}
	s := c.spec
	g.kept = slices.Insert(g.kept, 0, &crashFiles{container: c, CrashFiles: runtime.CrashFiles{
		Instance: s.Instance, Slot: s.Slot, App: s.App, Type: s.Type, CrashedAt: *c.crashed, Size: c.consumption.Disk,
	}})
	n := 0
	g.kept = slices.DeleteFunc(g.kept, func(r *crashFiles) bool {
		if r.App == s.App {
			n++
		}
		return r.App == s.App && n > runtime.KeptPerApp
	})
}

// CrashFiles implements CrashKeeper.CrashFiles.
func (f *Fake) CrashFiles() []runtime.CrashFiles {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	var out []runtime.CrashFiles
	for _, r := range f.machine.kept {
		out = append(out, r.CrashFiles)
	}
	return out
}

// ExecCrashFiles implements CrashKeeper.ExecCrashFiles.
func (f *Fake) ExecCrashFiles(ctx context.Context, id runtime.InstanceID, sidecar string, s runtime.ExecSpec) (runtime.Session, error) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	for _, r := range f.machine.kept {
		if r.Instance != id || !slices.ContainsFunc(r.container.procs, func(p *proc) bool { return p.Name == sidecar }) {
			continue
		}
		ses := newSession(s)
		r.sessions = append(r.sessions, ses)
		go ses.run()
		return ses, ctx.Err()
	}
	return nil, fmt.Errorf("crashed instance %s, sidecar %q: %w", id, sidecar, runtime.ErrNoInstance)
}

// DropCrashFiles implements CrashKeeper.DropCrashFiles.
func (f *Fake) DropCrashFiles(ctx context.Context, process string) error {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	f.machine.kept = slices.DeleteFunc(f.machine.kept, func(r *crashFiles) bool {
		if r.Slot.Process != process {
			return false
		}
		for _, ses := range r.sessions {
			ses.finish(runtime.SessionEnd{Code: 137, Why: "the stored files of the instance were deleted"})
		}
		return true
	})
	return ctx.Err()
}
