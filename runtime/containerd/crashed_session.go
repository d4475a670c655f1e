package containerd

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/images"
	"github.com/dewrun/dew/runtime/containerd/session"
)

// maxCrashSessions is the maximum number of sessions in one crashed instance. Each has
// its own copy of the files and its own memory.
const maxCrashSessions = 4

// loopbackOnly is the address of a container that has only a loopback interface.
var loopbackOnly = netip.MustParsePrefix("127.0.0.1/8")

// crashSession is a session in its own container, on a copy of the files of a crashed
// instance. The container never counts as started: the next daemon removes it.
type crashSession struct {
	*session.Session
	container *container
	st        *crashedStore
	ci        *crashedInstance
	once      sync.Once
}

// ExecCrashFiles opens a session on a copy of the files of a crashed instance.
func (e *Engine) ExecCrashFiles(ctx context.Context, id runtime.InstanceID, sidecar string, s runtime.ExecSpec) (runtime.Session, error) {
	ci, around, err := e.crashed.admit(id, sidecar)
	if err != nil {
		return nil, err
	}
	cs, err := e.crashed.openSession(ctx, ci, around, s)
	if err != nil {
		e.crashed.tidyUp()
		if connection.IsUnavailable(err) {
			err = fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
		}
		return nil, fmt.Errorf("cannot open a session: %w", err)
	}
	return cs, nil
}

// admit reserves a crashed instance for a session, and returns the settings that it was
// started with.
func (st *crashedStore) admit(id runtime.InstanceID, sidecar string) (*crashedInstance, session.Context, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	ci := st.kept[id]
	if ci == nil || ci.removing {
		return nil, session.Context{}, fmt.Errorf("crashed instance %s: %w", id, runtime.ErrNoInstance)
	}
	if ci.starting+len(ci.sessions) >= maxCrashSessions {
		return nil, session.Context{}, fmt.Errorf("crashed instance %s already has %d sessions, the maximum; close one first", id, maxCrashSessions)
	}
	for _, p := range ci.Processes {
		if p.Name == sidecar {
			ci.starting++
			// The scripts changed the environment of a process that has exited. On this
			// private copy they can run once more.
			p.Profile = true
			return ci, p.Context, nil
		}
	}
	return nil, session.Context{}, fmt.Errorf("crashed instance %s, sidecar '%s': %w", id, sidecar, runtime.ErrNoInstance)
}

// openSession creates the container and the session in it. It ends the reservation of
// admit.
func (st *crashedStore) openSession(ctx context.Context, ci *crashedInstance, around session.Context, s runtime.ExecSpec) (*crashSession, error) {
	c, err := st.newSessionContainer(ctx, ci, around.Shell)
	var ses *session.Session
	if err == nil {
		if ses, err = c.sessions.Open(ctx, around, s); err != nil {
			st.removeSessionContainer(ctx, c, ci)
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	ci.starting--
	if err != nil {
		return nil, err
	}
	cs := &crashSession{Session: ses, container: c, st: st, ci: ci}
	ci.sessions[cs] = true
	if ci.removing && st.ctx.Err() == nil { // a removal in progress did not see this session
		st.work.Go(func() { _ = cs.Close() }) // it logs its own errors
	}
	return cs, nil
}

// newSessionContainer creates a container on a copy of the files, in which no process
// runs.
func (st *crashedStore) newSessionContainer(ctx context.Context, ci *crashedInstance, shell string) (*container, error) {
	e := st.e
	c, err := e.newContainer(ctx, runtime.Spec{
		Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), Slot: ci.Slot, App: ci.App, Type: ci.Type, Memory: ci.Memory, Address: loopbackOnly,
		Stack: stack.Stack{Shell: shell, Mounts: ci.Mounts},
	})
	if err != nil {
		return nil, err
	}
	if err := st.e.disks.Attach(string(ci.Instance)); err != nil {
		return nil, fmt.Errorf("cannot read the files of the crashed instance: %w", err)
	}
	if err := st.buildOnCopy(ctx, c, ci.Instance); err != nil {
		st.removeSessionContainer(ctx, c, ci)
		return nil, err
	}
	e.known.add(c)
	return c, nil
}

// buildOnCopy creates the resources of the container, and its first process.
func (st *crashedStore) buildOnCopy(ctx context.Context, c *container, on runtime.InstanceID) error {
	mounts, err := st.prepareCopy(ctx, c, on)
	if err != nil {
		return err
	}
	if err := c.createCgroups(); err != nil {
		return err
	}
	if err := c.makeFiles(); err != nil {
		return err
	}
	if err := c.createContainer(ctx, ""); err != nil {
		return err
	}
	return c.create(ctx, mounts)
}

// prepareCopy gives the container its own layer on top of the stored one.
func (st *crashedStore) prepareCopy(ctx context.Context, c *container, on runtime.InstanceID) ([]mount.Mount, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	mounts, err := st.e.images.Snapshotter().Prepare(ctx, c.id, crashedKey(on), snapshots.WithLabels(map[string]string{images.GCRoot: "instance"}))
	if err != nil {
		return nil, fmt.Errorf("cannot copy the files of the crashed instance: %w", err)
	}
	return mounts, nil
}

// removeSessionContainer removes the container of a session, and unmounts the files of
// the crashed instance after its last session.
func (st *crashedStore) removeSessionContainer(ctx context.Context, c *container, ci *crashedInstance) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := c.Delete(ctx); err != nil {
		st.e.log.Warn("cannot remove a copy of a crashed instance; dewd tries again", "instance", c.spec.Instance, "err", err)
		st.e.removals.addInstance(c.spec.Instance, c.spec.App, err)
	}
	if err := st.e.disks.Detach(string(ci.Instance)); err != nil {
		st.e.log.Warn("cannot unmount the files of a crashed instance", "instance", ci.Instance, "err", err)
	}
}

// Close stops the session and removes the copy.
func (cs *crashSession) Close() error {
	cs.once.Do(func() {
		_ = cs.Session.Close() // never fails
		// If the daemon has released the container, the next daemon removes it.
		if cs.container.ctx.Err() == nil {
			cs.st.removeSessionContainer(cs.container.ctx, cs.container, cs.ci)
		}
		cs.st.mu.Lock()
		delete(cs.ci.sessions, cs)
		cs.st.mu.Unlock()
		cs.st.tidyUp()
	})
	return nil
}
