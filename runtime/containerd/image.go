package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/rootfs"
)

// gcRoot protects a snapshot from garbage collection. containerd collects every
// snapshot without a container, a lease or this label, even active ones.
const gcRoot = "containerd.io/gc.root"

// leaseLabel marks the leases of this daemon's operations in progress.
const leaseLabel = names.LabelPrefix + "operation"

// images manages the committed snapshots of stacks and droplets. They are a cache:
// missing ones are created again from the stack's data and the droplet's tree.
type images struct {
	e      *Engine
	making chan struct{} // buffer of 1: images are created one at a time
}

func (im *images) snapshotter() snapshots.Snapshotter {
	return im.e.client.SnapshotService(im.e.cfg.Snapshotter)
}

const stackPrefix = "dew-stack-"

func stackKey(s stack.Stack) string { return stackPrefix + s.ID }

// imageKey returns the name of the snapshot of a tree on a stack.
func imageKey(s runtime.Spec) string {
	sum := sha256.Sum256([]byte(s.Image + "\n" + s.Stack.ID))
	return "dew-image-" + hex.EncodeToString(sum[:])
}

// prepare creates the writable layer of an instance.
func (im *images) prepare(ctx context.Context, s runtime.Spec, parent string) ([]mount.Mount, error) {
	return im.snapshotter().Prepare(ctx, names.Container(s.Instance), parent,
		snapshots.WithLabels(map[string]string{gcRoot: "instance"}))
}

// parent creates the image of an instance if necessary, and returns its name.
func (im *images) parent(ctx context.Context, s runtime.Spec) (string, error) {
	key := stackKey(s.Stack)
	if s.Image != "" {
		key = imageKey(s)
	}
	if _, err := im.snapshotter().Stat(ctx, key); err == nil {
		return key, nil
	}
	ctx, cancel := context.WithTimeout(ctx, unpackTimeout)
	defer cancel()
	select {
	case im.making <- struct{}{}:
		defer func() { <-im.making }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	lm := im.e.client.LeasesService()
	lease, err := lm.Create(ctx, leases.WithRandomID(), leases.WithLabels(map[string]string{leaseLabel: key}))
	if err != nil {
		return "", fmt.Errorf("cannot lease: %w", err)
	}
	defer func() { _ = lm.Delete(context.WithoutCancel(ctx), lease) }() // at worst the next daemon drops it
	ctx = leases.WithLease(ctx, lease.ID)
	if err := im.commit(ctx, snapshot{key: stackKey(s.Stack)}, func(root string) error { return rootfs.FillStack(ctx, root, s.Stack) }); err != nil {
		return "", fmt.Errorf("cannot make stack %s: %w", s.Stack.Name, err)
	}
	if s.Image == "" {
		return key, nil
	}
	if err := im.commit(ctx, snapshot{key: key, parent: stackKey(s.Stack), image: s.Image}, func(root string) error { return im.unpack(ctx, root, s.Image) }); err != nil {
		return "", fmt.Errorf("cannot unpack droplet: %w", err)
	}
	return key, nil
}

// imageLabel names the tree that a snapshot was created from.
const imageLabel = names.LabelPrefix + "image"

// snapshot is a committed snapshot: a stack, or a droplet's tree on a stack.
type snapshot struct {
	key, parent string
	image       string // sha256 of the tree; empty for a stack
}

// commit creates a committed snapshot unless it exists.
func (im *images) commit(ctx context.Context, s snapshot, fill func(root string) error) error {
	sn := im.snapshotter()
	if _, err := sn.Stat(ctx, s.key); err == nil {
		return nil
	}
	// Labels given at Prepare are lost at Commit, so they are set twice.
	label := snapshots.WithLabels(map[string]string{gcRoot: "image", imageLabel: s.image})
	draft := s.key + "-draft"
	if err := sn.Remove(ctx, draft); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot remove an unfinished snapshot: %w", err)
	}
	mounts, err := sn.Prepare(ctx, draft, s.parent, label)
	if err != nil {
		return fmt.Errorf("cannot prepare snapshot: %w", err)
	}
	if err := im.e.mounted(mounts, fill); err != nil {
		return errors.Join(err, sn.Remove(context.WithoutCancel(ctx), draft))
	}
	if err := sn.Commit(ctx, s.key, draft, label); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("cannot commit snapshot: %w", err)
	}
	return nil
}

// unpack extracts a droplet's tree into a stack.
func (im *images) unpack(ctx context.Context, root, sha string) error {
	r, err := im.e.cfg.Images(sha)
	if err != nil {
		return err
	}
	defer r.Close()
	return rootfs.UnpackDroplet(ctx, root, r, im.e.owner())
}

// mounted runs fn with a snapshot mounted below the run folder, where a later
// daemon finds the mount if this one is killed.
func (e *Engine) mounted(mounts []mount.Mount, fn func(root string) error) error {
	if err := os.MkdirAll(e.mountDir(), 0o700); err != nil {
		return fmt.Errorf("cannot make mount folder: %w", err)
	}
	root, err := os.MkdirTemp(e.mountDir(), "")
	if err != nil {
		return fmt.Errorf("cannot make mount point: %w", err)
	}
	if err := mount.All(mounts, root); err != nil {
		return errors.Join(fmt.Errorf("cannot mount snapshot: %w", err), os.Remove(root))
	}
	err = fn(root)
	if uerr := mount.UnmountAll(root, 0); uerr != nil {
		return errors.Join(err, fmt.Errorf("cannot unmount snapshot: %w", uerr))
	}
	return errors.Join(err, os.Remove(root))
}

func (e *Engine) mountDir() string { return filepath.Join(e.cfg.Run, "mnt") }

// sweepMounts unmounts the mounts of a killed daemon.
func (e *Engine) sweepMounts() error {
	entries, err := os.ReadDir(e.mountDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list mounts: %w", err)
	}
	var stuck []string
	var errs error
	for _, d := range entries {
		p := filepath.Join(e.mountDir(), d.Name())
		if err := e.sweepMount(p); err != nil {
			stuck, errs = append(stuck, p), errors.Join(errs, err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stuck = stuck
	return errs
}

// sweepMount removes one mount of a killed daemon.
func (e *Engine) sweepMount(p string) error {
	if err := mount.UnmountAll(p, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot unmount %s: %w", p, err)
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove mount point: %w", err)
	}
	e.log.Info("swept mount", "path", p)
	return nil
}

// sweepSnapshots removes the layers of instances that are not in keep, and unfinished
// images.
func (e *Engine) sweepSnapshots(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sn := e.images.snapshotter()
	var doomed []string
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		id, isInstance := names.Instance(info.Name)
		if isInstance && !keep[id] || strings.HasSuffix(info.Name, "-draft") {
			doomed = append(doomed, info.Name)
		}
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	var errs error
	for _, name := range doomed {
		if err := sn.Remove(ctx, name); err != nil && !errdefs.IsNotFound(err) {
			errs = errors.Join(errs, fmt.Errorf("cannot remove snapshot %s: %w", name, err))
			continue
		}
		e.log.Info("swept snapshot", "snapshot", name)
	}
	return errs
}

// dropLeases deletes the leases of operations that ended with their daemon.
func (e *Engine) dropLeases(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	lm := e.client.LeasesService()
	ls, err := lm.List(ctx, `labels."`+leaseLabel+`"`)
	if err != nil {
		return fmt.Errorf("cannot list leases: %w", err)
	}
	for _, l := range ls {
		if err := lm.Delete(ctx, l); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("cannot drop lease %s: %w", l.ID, err)
		}
		e.log.Info("swept lease", "lease", l.ID)
	}
	return nil
}

// unlabel makes all snapshots of this daemon available for garbage collection.
func (im *images) unlabel(ctx context.Context) error {
	sn := im.snapshotter()
	var all []snapshots.Info
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		all = append(all, info)
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	for _, info := range all {
		delete(info.Labels, gcRoot)
		if _, err := sn.Update(ctx, info, "labels"); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("cannot unlabel snapshot %s: %w", info.Name, err)
		}
	}
	return nil
}

// PruneImages removes the snapshots of trees that no longer exist. A snapshot that an
// instance still uses stays until the instance is gone.
func (e *Engine) PruneImages(ctx context.Context, has func(sha string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sn := e.images.snapshotter()
	var old []string
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if sha := info.Labels[imageLabel]; sha != "" && info.Kind == snapshots.KindCommitted && !has(sha) {
			old = append(old, info.Name)
		}
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	for _, name := range old {
		err := sn.Remove(ctx, name)
		if errdefs.IsFailedPrecondition(err) || errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot remove snapshot %s: %w", name, err)
		}
		e.log.Info("removed the snapshot of an image that is gone", "snapshot", name)
	}
	return nil
}

// PruneStacks removes the snapshots of stacks that no longer exist. A snapshot that an
// image or an instance still uses stays until that is gone.
func (e *Engine) PruneStacks(ctx context.Context, keep func(id string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sn := e.images.snapshotter()
	var old []string
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		id, isStack := strings.CutPrefix(info.Name, stackPrefix)
		if isStack && info.Kind == snapshots.KindCommitted && !keep(id) {
			old = append(old, info.Name)
		}
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	for _, name := range old {
		err := sn.Remove(ctx, name)
		if errdefs.IsFailedPrecondition(err) || errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot remove snapshot %s: %w", name, err)
		}
		e.log.Info("removed the snapshot of a stack that is gone", "snapshot", name)
	}
	return nil
}
