package containerd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// removeAll takes away everything of an instance, by name, in the order in which
// each step still finds what it needs: containerd can clear an orphaned shim only
// while the container's record is there. Whatever is gone already is fine.
func (e *Engine) removeAll(ctx context.Context, id runtime.InstanceID, app string) error {
	if err := e.killAll(ctx, id); err != nil {
		return err
	}
	// What is ours goes also while containerd is away: an address must not answer
	// twice.
	err := errors.Join(e.removeContainer(ctx, containerID(id)),
		e.net.remove(id), e.cg.remove(ctx, id), os.RemoveAll(e.instanceDir(id)))
	e.noteVethRemoval(id)
	if err != nil || app == "" {
		return err
	}
	l, err := e.appLog(app)
	if errors.Is(err, logstream.ErrRemoved) {
		return nil // and the capture with it
	}
	if err != nil {
		return err
	}
	return l.RemoveCapture(string(id))
}

// removeContainer removes containerd's task and container, and the snapshot.
func (e *Engine) removeContainer(ctx context.Context, name string) error {
	known := true
	err := e.until(ctx, func(ctx context.Context) error {
		_, err := e.tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: name})
		known = !errdefs.IsNotFound(native(err))
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot delete task %s: %w", name, err)
	}
	if !known {
		if err := e.endShim(name); err != nil {
			return err
		}
	}
	err = e.until(ctx, func(ctx context.Context) error { return e.client.ContainerService().Delete(ctx, name) })
	if err != nil {
		return fmt.Errorf("cannot delete container %s: %w", name, err)
	}
	err = e.until(ctx, func(ctx context.Context) error { return e.images.snapshotter().Remove(ctx, name) })
	if err != nil {
		return fmt.Errorf("cannot remove snapshot %s: %w", name, err)
	}
	return nil
}

// killAll ends every process in any leaf of an instance, PID 1 last.
func (e *Engine) killAll(ctx context.Context, id runtime.InstanceID) error {
	leaves, err := e.cg.leaves(id)
	if err != nil {
		return err
	}
	for _, leaf := range leaves { // none: no process either
		if leaf == initLeaf {
			continue
		}
		if err := e.cg.kill(ctx, id, leaf); err != nil {
			return err
		}
	}
	return e.cg.kill(ctx, id, initLeaf)
}

// Sweep removes everything of this daemon that belongs to no instance in keep.
func (e *Engine) Sweep(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	doomed := map[runtime.InstanceID]string{} // to what was found of it
	note := func(id runtime.InstanceID, what string) {
		if id.Valid() && !keep[id] {
			doomed[id] = what
		}
	}
	records, err := e.containerRecords(ctx)
	if err != nil {
		return err
	}
	for _, record := range records {
		if id, ok := instanceOf(record.ID); ok {
			note(id, "container")
		}
	}
	spaces, err := e.net.namespaces()
	if err != nil {
		return err
	}
	for _, id := range spaces {
		note(id, "netns")
	}
	for _, id := range e.cg.instances() {
		note(id, "cgroup")
	}
	shims, err := e.shims()
	if err != nil {
		return err
	}
	for name := range shims {
		if id, ok := instanceOf(name); ok {
			note(id, "shim")
		}
	}
	dirs, _ := os.ReadDir(filepath.Join(e.cfg.Run, "instances")) // absent: nothing to sweep
	for _, d := range dirs {
		note(runtime.InstanceID(d.Name()), "folder")
	}
	var errs error
	for id, what := range doomed {
		e.log.Info("swept instance", "instance", id, "found", what)
		if c := e.forget(id); c != nil {
			c.detach()
		}
		if err := e.removeOne(ctx, id, ""); err != nil {
			errs = errors.Join(errs, err)
			e.noteUnclean(id, "", err) // Keep tries again
		}
	}
	return errors.Join(errs, e.sweepSnapshots(ctx, keep), e.crashed.sweep(ctx, keep), e.sweepCaptures(keep), e.sweepVeths(ctx, keep))
}

// removeOne is removeAll with a limit: what cannot be removed must not keep the
// rest from it.
func (e *Engine) removeOne(ctx context.Context, id runtime.InstanceID, app string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return e.removeAll(ctx, id, app)
}

// unremoved is an instance that could not be removed.
type unremoved struct {
	app string // guid; empty where nobody knows
	err error  // of the last try
}

// noteUnclean notes an instance that could not be removed, and why.
func (e *Engine) noteUnclean(id runtime.InstanceID, app string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notRemoved[id] = unremoved{app, err}
}

// noteVethRemoval notes a link that the kernel should clear by itself.
func (e *Engine) noteVethRemoval(id runtime.InstanceID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removedVeths[vethName(id)] = time.Now()
}

// retryRemovals removes what was left, and links that something kept alive.
func (e *Engine) retryRemovals(ctx context.Context) {
	e.mu.Lock()
	left := maps.Clone(e.notRemoved)
	var links []string
	for name, since := range e.removedVeths {
		if time.Since(since) > vethRemovalTime {
			links = append(links, name)
			delete(e.removedVeths, name)
		}
	}
	e.mu.Unlock()
	for id, u := range left {
		if err := e.removeOne(ctx, id, u.app); err != nil {
			e.log.Warn("cannot clean up yet", "instance", id, "err", err)
			e.noteUnclean(id, u.app, err)
			continue
		}
		e.mu.Lock()
		delete(e.notRemoved, id)
		e.mu.Unlock()
	}
	for _, name := range links {
		if err := e.net.removeVeth(name); err != nil {
			e.log.Warn("cannot remove a link", "link", name, "err", err)
		}
	}
}

// Left returns an error for each instance and each mount of an earlier daemon that
// could not be removed. It tries the mounts again; Keep tries the instances again.
func (e *Engine) Left() error {
	e.mu.Lock()
	stuck := e.stuck
	e.stuck = nil
	var errs error
	for _, id := range slices.Sorted(maps.Keys(e.notRemoved)) {
		errs = errors.Join(errs, fmt.Errorf("cannot remove instance %s: %w", id, e.notRemoved[id].err))
	}
	e.mu.Unlock()
	for _, p := range stuck {
		if err := e.sweepMount(p); err != nil {
			errs = errors.Join(errs, err)
			e.mu.Lock()
			e.stuck = append(e.stuck, p)
			e.mu.Unlock()
		}
	}
	return errs
}

// vethRemovalTime is far more than the kernel needs to clear a namespace.
const vethRemovalTime = 10 * time.Second

// sweepCaptures removes capture files whose instance is gone. What they still held
// becomes a gap in the log: without the container nobody knows whose lines it was.
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

// sweepVeths removes links that the kernel did not clear by itself: something
// holds their namespace. It first gives the kernel the time it needs.
func (e *Engine) sweepVeths(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	kept := map[string]bool{}
	for id := range keep {
		kept[vethName(id)] = true
	}
	for wait := time.Millisecond; ; wait *= 2 {
		names, err := e.net.veths()
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
		if wait < 500*time.Millisecond && pause(ctx, wait) == nil {
			continue
		}
		var errs error
		for _, n := range left {
			e.log.Info("swept veth", "link", n)
			errs = errors.Join(errs, e.net.removeVeth(n))
		}
		return errs
	}
}

// TearDown ends every instance and removes everything that the daemon put on the
// machine outside its root: the way to leave no trace.
func (e *Engine) TearDown(ctx context.Context) error {
	found, err := e.Adopt(ctx)
	if some := (*runtime.AdoptError)(nil); err != nil && !errors.As(err, &some) { // the sweep removes those
		return err
	}
	for _, c := range e.living() { // also those that this daemon had before
		found = append(found, c)
	}
	var errs error
	for _, c := range found {
		errs = errors.Join(errs, c.Delete(ctx))
	}
	errs = errors.Join(errs, e.Sweep(ctx, nil), e.dropImages(ctx), e.crashed.clear())
	return errors.Join(errs, e.fw.remove(), e.net.tearDown(), e.cg.removeParent(ctx))
}

// dropImages removes the committed snapshots. One whose child a collection took
// away can never be removed by name; unlabelled, the collection takes it too.
func (e *Engine) dropImages(ctx context.Context) error {
	if err := e.images.unlabel(ctx); err != nil {
		return err
	}
	lm := e.client.LeasesService()
	l, err := lm.Create(ctx, leases.WithRandomID())
	if err != nil {
		return fmt.Errorf("cannot lease: %w", err)
	}
	if err := lm.Delete(ctx, l, leases.SynchronousDelete); err != nil { // which runs a collection
		return fmt.Errorf("cannot collect snapshots: %w", err)
	}
	return nil
}
