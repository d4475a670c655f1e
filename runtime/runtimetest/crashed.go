package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/runtime"
)

var (
	_ runtime.Keeper   = (*Fake)(nil)
	_ runtime.Keepable = (*handle)(nil)
)

// remains is what a Fake keeps of an instance: it has no files, so that it was.
type remains struct {
	runtime.Remains
	t        *Task
	sessions []*session
}

// Keep is Keepable.Keep.
func (h *handle) Keep(crashed time.Time) {
	h.t.ground.mu.Lock()
	defer h.t.ground.mu.Unlock()
	h.t.crashed = &crashed
}

// keep puts the instance before those that are kept already. One that is kept is
// not kept twice.
func (g *ground) keep(t *Task) {
	if t.crashed == nil || t.deleted {
		return
	}
	s := t.spec
	g.kept = slices.Insert(g.kept, 0, &remains{t: t, Remains: runtime.Remains{
		Instance: s.Instance, Slot: s.Slot, App: s.App, Type: s.Type, CrashedAt: *t.crashed, Size: t.taken.Disk,
	}})
	n := 0
	g.kept = slices.DeleteFunc(g.kept, func(r *remains) bool {
		if r.App == s.App {
			n++
		}
		return r.App == s.App && n > runtime.KeptPerApp
	})
}

// Remains is Keeper.Remains.
func (f *Fake) Remains() []runtime.Remains {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	var out []runtime.Remains
	for _, r := range f.ground.kept {
		out = append(out, r.Remains)
	}
	return out
}

// ExecRemains is Keeper.ExecRemains.
func (f *Fake) ExecRemains(ctx context.Context, id runtime.InstanceID, sidecar string, s runtime.ExecSpec) (runtime.Session, error) {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	for _, r := range f.ground.kept {
		if r.Instance != id || !slices.ContainsFunc(r.t.procs, func(p *proc) bool { return p.Name == sidecar }) {
			continue
		}
		ses := newSession(s)
		r.sessions = append(r.sessions, ses)
		go ses.run()
		return ses, ctx.Err()
	}
	return nil, fmt.Errorf("crashed instance %s, sidecar %q: %w", id, sidecar, runtime.ErrNoInstance)
}

// DropRemains is Keeper.DropRemains.
func (f *Fake) DropRemains(ctx context.Context, process string) error {
	f.ground.mu.Lock()
	defer f.ground.mu.Unlock()
	f.ground.kept = slices.DeleteFunc(f.ground.kept, func(r *remains) bool {
		if r.Slot.Process != process {
			return false
		}
		for _, ses := range r.sessions {
			ses.finish(runtime.SessionEnd{Code: 137, Why: "what was kept of it is removed"})
		}
		return true
	})
	return ctx.Err()
}
