package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/shim"
	"github.com/dewrun/dew/runtime/network"
	"github.com/dewrun/dew/runtime/process"
)

// removeAll removes all resources of an instance, by name. In this order each step
// still finds what it needs: containerd can remove an orphaned shim only while the
// container's record exists. Missing resources are not an error.
func (e *Engine) removeAll(ctx context.Context, id runtime.InstanceID, app string) error {
	if err := e.killAll(ctx, id); err != nil {
		return err
	}
	// dew's own resources are removed even while containerd is down: an address must
	// not answer twice.
	err := errors.Join(e.removeContainer(ctx, names.Container(id)),
		e.net.Remove(id), e.cg.Remove(ctx, id), os.RemoveAll(e.instanceDir(id)))
	e.guard.detach(id)
	e.removals.addVeth(id)
	if err != nil || app == "" {
		return err
	}
	l, err := e.appLog(app)
	if errors.Is(err, logstream.ErrRemoved) {
		return nil // and the capture files with it
	}
	if err != nil {
		return err
	}
	return l.RemoveCapture(string(id))
}

// removeContainer removes containerd's task and container, and the snapshot.
func (e *Engine) removeContainer(ctx context.Context, name string) error {
	known := true
	err := e.conn.UntilDeleted(ctx, func(ctx context.Context) error {
		_, err := e.conn.Tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: name})
		known = !errdefs.IsNotFound(connection.Native(err))
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot delete task %s: %w", name, err)
	}
	// The shim of a call that containerd has not ended yet is not lost. containerd would
	// leave its bundle behind if it was killed.
	if !known && !e.removals.awaits(name) {
		pid, err := shim.Kill(e.cfg.Names.Namespace, name)
		if err != nil {
			return err
		}
		if pid != 0 {
			e.log.Info("killed a shim that containerd lost", "container", name, "pid", pid)
		}
	}
	err = e.conn.UntilDeleted(ctx, func(ctx context.Context) error { return e.conn.Client.ContainerService().Delete(ctx, name) })
	if err != nil {
		return fmt.Errorf("cannot delete container %s: %w", name, err)
	}
	// containerd can delete the folder of a snapshot only while nothing is mounted on it.
	if id, ok := names.Instance(name); ok {
		if err := e.disks.release(id); err != nil {
			return err
		}
	}
	err = e.conn.UntilDeleted(ctx, func(ctx context.Context) error { return e.images.Snapshotter().Remove(ctx, name) })
	if err != nil {
		return fmt.Errorf("cannot remove snapshot %s: %w", name, err)
	}
	return nil
}

// killAll kills every process in any leaf of an instance, PID 1 last.
func (e *Engine) killAll(ctx context.Context, id runtime.InstanceID) error {
	leaves, err := e.cg.Leaves(id)
	if err != nil {
		return err
	}
	for _, leaf := range leaves { // no leaves: no processes either
		if leaf == cgroup.InitLeaf {
			continue
		}
		if err := e.cg.Kill(ctx, id, leaf); err != nil {
			return err
		}
	}
	return e.cg.Kill(ctx, id, cgroup.InitLeaf)
}

// Sweep removes all resources of this daemon that belong to no instance in keep.
func (e *Engine) Sweep(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	strays := map[runtime.InstanceID]string{} // one kind of resource that was found, by instance
	note := func(id runtime.InstanceID, what string) {
		if id.Valid() && !keep[id] {
			strays[id] = what
		}
	}
	records, err := e.conn.Records(ctx)
	if err != nil {
		return err
	}
	for _, record := range records {
		if id, ok := names.Instance(record.ID); ok {
			note(id, "container")
		}
	}
	spaces, err := e.net.Namespaces()
	if err != nil {
		return err
	}
	for _, id := range spaces {
		note(id, "netns")
	}
	for _, id := range e.cg.Instances() {
		note(id, "cgroup")
	}
	shims, err := shim.List(e.cfg.Names.Namespace)
	if err != nil {
		return err
	}
	for name := range shims {
		if id, ok := names.Instance(name); ok {
			note(id, "shim")
		}
	}
	dirs, _ := os.ReadDir(filepath.Join(e.cfg.Run, "instances")) // missing: nothing to sweep
	for _, d := range dirs {
		note(runtime.InstanceID(d.Name()), "folder")
	}
	var errs error
	for id, what := range strays {
		e.log.Info("swept instance", "instance", id, "found", what)
		if c := e.known.remove(id); c != nil {
			c.detach()
		}
		if err := e.removeOne(ctx, id, ""); err != nil {
			errs = errors.Join(errs, err)
			e.removals.addInstance(id, "", err) // Keep tries again
		}
	}
	return errors.Join(errs, e.disks.sweep(keep), e.images.Sweep(ctx, keep), e.crashed.sweep(ctx, keep), e.sweepCaptures(keep), e.sweepVeths(ctx, keep))
}

// removeOne is removeAll with a time limit: a failing removal must not prevent the
// others.
func (e *Engine) removeOne(ctx context.Context, id runtime.InstanceID, app string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return e.removeAll(ctx, id, app)
}

// retryRemovals removes leftover instances, and links that still exist.
func (e *Engine) retryRemovals(ctx context.Context) {
	instances, links := e.removals.due()
	for id, u := range instances {
		if err := e.removeOne(ctx, id, u.app); err != nil {
			e.log.Warn("cannot remove an instance; dewd tries again", "instance", id, "err", err)
			e.removals.addInstance(id, u.app, err)
			continue
		}
		e.removals.done(id)
	}
	for _, name := range links {
		if err := e.net.RemoveVeth(name); err != nil {
			e.log.Warn("cannot remove a link", "link", name, "err", err)
		}
	}
}

// Left returns an error for each instance and each mount of an earlier daemon that
// could not be removed. It tries the mounts again; Keep tries the instances again.
func (e *Engine) Left() error { return errors.Join(e.removals.err(), e.mounts.Retry()) }

// sweepCaptures removes capture files whose instance is gone. Their unread content
// becomes a gap in the log: without the container the source of the lines is unknown.
func (e *Engine) sweepCaptures(keep map[runtime.InstanceID]bool) error {
	apps, err := e.cfg.Logs.Apps()
	if err != nil {
		return fmt.Errorf("cannot list logs: %w", err)
	}
	var errs error
	for _, guid := range apps {
		l, err := e.appLog(guid)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		ids, err := l.Captures()
		errs = errors.Join(errs, err)
		for _, id := range ids {
			if keep[runtime.InstanceID(id)] {
				continue
			}
			e.log.Info("swept capture files", "app", guid, "instance", id)
			errs = errors.Join(errs, l.RemoveCapture(id))
		}
	}
	return errs
}

// sweepVeths removes links that the kernel did not remove because their namespace is
// still in use. It first gives the kernel the time it needs.
func (e *Engine) sweepVeths(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	kept := map[string]bool{}
	for id := range keep {
		kept[network.VethName(id)] = true
	}
	for wait := time.Millisecond; ; wait *= 2 {
		names, err := e.net.Veths()
		if err != nil {
			return err
		}
		var left []string
		for _, n := range names {
			if !kept[n] {
				left = append(left, n)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if wait < 500*time.Millisecond && process.Sleep(ctx, wait) == nil {
			continue
		}
		var errs error
		for _, n := range left {
			e.log.Info("swept veth", "link", n)
			errs = errors.Join(errs, e.net.RemoveVeth(n))
		}
		return errs
	}
}

// TearDown stops every instance and removes everything that the daemon created on the
// machine outside its root, so that no trace is left.
func (e *Engine) TearDown(ctx context.Context) error {
	found, err := e.Adopt(ctx)
	if some := (*runtime.AdoptError)(nil); err != nil && !errors.As(err, &some) { // the sweep removes those
		return err
	}
	for _, c := range e.known.all() { // including those that this daemon already had
		found = append(found, c)
	}
	var errs error
	for _, c := range found {
		errs = errors.Join(errs, c.Delete(ctx))
	}
	errs = errors.Join(errs, e.Sweep(ctx, nil), e.crashed.clear(), e.disks.sweep(nil), e.images.Drop(ctx))
	if err := e.conn.DeleteNamespace(ctx); err != nil {
		e.log.Warn("cannot delete the namespace of dew in containerd", "err", err)
	}
	return errors.Join(errs, e.guard.policies.Remove(), e.fw.Remove(), e.net.TearDown(), e.cg.RemoveParent(ctx))
}
