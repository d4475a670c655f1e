package containerd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

// maxVisits is how many sessions may be in one crashed instance: each has a copy,
// and the memory, of its own.
const maxVisits = 4

// alone is the address of a container that has no network but its own loopback.
var alone = netip.MustParsePrefix("127.0.0.1/8")

// visit is a session in a container of its own, which stands on a copy of what a
// crashed instance left. The container never counts as started: the next daemon
// removes it.
type visit struct {
	*session
	m    *morgue
	b    *remnant
	once sync.Once
}

// ExecRemains opens a session on a copy of the files of a crashed instance.
func (e *Engine) ExecRemains(ctx context.Context, id runtime.InstanceID, sidecar string, s runtime.ExecSpec) (runtime.Session, error) {
	b, around, err := e.morgue.admit(id, sidecar)
	if err != nil {
		return nil, err
	}
	v, err := e.morgue.open(ctx, b, around, s)
	if err != nil {
		e.morgue.tidyUp()
		if unavailable(err) {
			err = fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
		}
		return nil, fmt.Errorf("cannot open a session: %w", err)
	}
	return v, nil
}

// admit holds a crashed instance for a visit, and tells what it was started with.
func (m *morgue) admit(id runtime.InstanceID, sidecar string) (*remnant, surroundings, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.kept[id]
	if b == nil || b.leaving {
		return nil, surroundings{}, fmt.Errorf("crashed instance %s: %w", id, runtime.ErrNoInstance)
	}
	if b.making+len(b.visits) >= maxVisits {
		return nil, surroundings{}, fmt.Errorf("crashed instance %s has %d sessions, which is as many as there may be", id, maxVisits)
	}
	for _, p := range b.Processes {
		if p.Name == sidecar {
			b.making++
			// Its scripts have changed the environment of a process that is gone. On a copy
			// that nobody else sees they may run once more.
			p.profile = true
			return b, p.surroundings, nil
		}
	}
	return nil, surroundings{}, fmt.Errorf("crashed instance %s, sidecar '%s': %w", id, sidecar, runtime.ErrNoInstance)
}

// open makes the container and the session in it. What admit held is given back.
func (m *morgue) open(ctx context.Context, b *remnant, around surroundings, s runtime.ExecSpec) (*visit, error) {
	t, err := m.house(ctx, b, around.Shell)
	var ses *session
	if err == nil {
		if ses, err = t.makeSession(ctx, around, s); err == nil && s.Kind == runtime.ExecSocket {
			if err = ses.connected(ctx); err != nil {
				err = errors.Join(err, ses.Close())
			}
		}
		if err != nil {
			m.leave(ctx, t)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b.making--
	if err != nil {
		return nil, err
	}
	v := &visit{session: ses, m: m, b: b}
	b.visits[v] = true
	if b.leaving && m.ctx.Err() == nil { // whoever removes it did not see this one
		m.work.Go(func() { _ = v.Close() }) // it tells the log itself what it could not do
	}
	return v, nil
}

// house makes a container on a copy of the files, in which nothing runs.
func (m *morgue) house(ctx context.Context, b *remnant, shell string) (*task, error) {
	e := m.e
	t, err := e.newTask(ctx, runtime.Spec{
		Instance: runtime.NewInstanceID(), Slot: b.Slot, App: b.App, Type: b.Type, Memory: b.Memory, Address: alone,
		Stack: droplet.Stack{Shell: shell, Mounts: b.Mounts},
	})
	if err != nil {
		return nil, err
	}
	if err := t.lodge(ctx, b.Instance); err != nil {
		m.leave(ctx, t)
		return nil, err
	}
	e.remember(t)
	return t, nil
}

// lodge makes what the container stands on, and its first process.
func (t *task) lodge(ctx context.Context, on runtime.InstanceID) error {
	mounts, err := t.lay(ctx, on)
	if err != nil {
		return err
	}
	if err := t.createCgroups(); err != nil {
		return err
	}
	if err := t.makeFiles(); err != nil {
		return err
	}
	if err := t.createContainer(ctx, ""); err != nil {
		return err
	}
	return t.create(ctx, mounts)
}

// lay gives the container a layer of its own above the kept one.
func (t *task) lay(ctx context.Context, on runtime.InstanceID) ([]mount.Mount, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	mounts, err := t.e.images.snapshotter().Prepare(ctx, t.id, crashedKey(on), snapshots.WithLabels(map[string]string{gcRoot: "instance"}))
	if err != nil {
		return nil, fmt.Errorf("cannot copy the files: %w", err)
	}
	return mounts, nil
}

// leave removes the container of a visit.
func (m *morgue) leave(ctx context.Context, t *task) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := t.Delete(ctx); err != nil {
		m.e.log.Warn("cannot remove a copy of a crashed instance, it is tried again", "instance", t.spec.Instance, "err", err)
		m.e.leave(t.spec.Instance, t.spec.App, err)
	}
}

// Close ends the session and removes the copy.
func (v *visit) Close() error {
	v.once.Do(func() {
		_ = v.session.Close() // it never fails
		// After the daemon let go of the container the next one removes it.
		if v.t.ctx.Err() == nil {
			v.m.leave(v.t.ctx, v.t)
		}
		v.m.mu.Lock()
		delete(v.b.visits, v)
		v.m.mu.Unlock()
		v.m.tidyUp()
	})
	return nil
}
