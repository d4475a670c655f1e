package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/rootfs"
	"github.com/dewrun/dew/runtime/containerd/scratch"
)

// GCRoot protects a snapshot from garbage collection. containerd collects every
// snapshot without a container, a lease or this label, even active ones.
const GCRoot = "containerd.io/gc.root"

// leaseLabel marks the leases of this daemon's operations in progress.
const leaseLabel = names.LabelPrefix + "operation"

// UnpackTimeout is the time limit for unpacking a droplet or the files of a build.
const UnpackTimeout = 15 * time.Minute

const cleanupTimeout = time.Minute

// Config is the configuration of a Store.
type Config struct {
	Client      *client.Client
	Snapshotter string
	Mounts      *scratch.Mounts
	Owner       rootfs.Owner                            // user and group of the apps
	Droplet     func(sha string) (io.ReadCloser, error) // opens a droplet's tree
	Logger      *slog.Logger
}

// Store manages the committed snapshots of stacks and droplets. They are a cache:
// missing ones are created again from the stack's data and the droplet's tree.
type Store struct {
	cfg      Config
	log      *slog.Logger
	creating chan struct{} // buffer of 1: images are created one at a time
}

// New returns the images of a daemon.
func New(cfg Config) *Store {
	return &Store{cfg: cfg, log: cfg.Logger, creating: make(chan struct{}, 1)}
}

// Snapshotter returns containerd's snapshotter.
func (im *Store) Snapshotter() snapshots.Snapshotter {
	return im.cfg.Client.SnapshotService(im.cfg.Snapshotter)
}

// Prepare creates the writable layer of an instance.
func (im *Store) Prepare(ctx context.Context, s runtime.Spec, parent string) ([]mount.Mount, error) {
	return im.Snapshotter().Prepare(ctx, names.Container(s.Instance), parent,
		snapshots.WithLabels(map[string]string{GCRoot: "instance"}))
}

// Parent creates the image of an instance if necessary, and returns its name.
func (im *Store) Parent(ctx context.Context, s runtime.Spec) (string, error) {
	key := names.Stack(s.Stack)
	if s.Image != "" {
		key = names.Image(s)
	}
	if _, err := im.Snapshotter().Stat(ctx, key); err == nil {
		return key, nil
	}
	ctx, cancel := context.WithTimeout(ctx, UnpackTimeout)
	defer cancel()
	select {
	case im.creating <- struct{}{}:
		defer func() { <-im.creating }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if _, err := im.Snapshotter().Stat(ctx, key); err == nil {
		return key, nil // another caller has created it in the meantime
	}
	lm := im.cfg.Client.LeasesService()
	lease, err := lm.Create(ctx, leases.WithRandomID(), leases.WithLabels(map[string]string{leaseLabel: key}))
	if err != nil {
		return "", fmt.Errorf("cannot create lease: %w", err)
	}
	defer func() { _ = lm.Delete(context.WithoutCancel(ctx), lease) }() // at worst the next daemon drops it
	ctx = leases.WithLease(ctx, lease.ID)
	if err := im.commit(ctx, snapshot{key: names.Stack(s.Stack)}, func(root string) error { return rootfs.FillStack(ctx, root, s.Stack) }, nil); err != nil {
		return "", fmt.Errorf("cannot create stack %s: %w", s.Stack.Name, err)
	}
	if s.Image == "" {
		return key, nil
	}
	if err := im.commitDroplet(ctx, snapshot{key: key, parent: names.Stack(s.Stack), image: s.Image, app: s.App}); err != nil {
		return "", fmt.Errorf("cannot unpack droplet: %w", err)
	}
	return key, nil
}

// imageLabel names the tree that a snapshot was created from, and appLabel its app.
const imageLabel, appLabel = names.LabelPrefix + "image", names.LabelPrefix + "app"

// snapshot is a committed snapshot: a stack, or a droplet's tree on a stack.
type snapshot struct {
	key, parent string
	image       string // name of the image; empty for a stack
	app         string // guid; empty for a stack
}

// commit creates a committed snapshot unless it exists. fill writes its files, and finish,
// if it is not nil, changes the folder of the snapshot when it is not mounted any more.
func (im *Store) commit(ctx context.Context, s snapshot, fill, finish func(root string) error) error {
	sn := im.Snapshotter()
	if _, err := sn.Stat(ctx, s.key); err == nil {
		return nil
	}
	// Labels given at Prepare are lost at Commit, so they are set twice.
	label := snapshots.WithLabels(map[string]string{GCRoot: "image", imageLabel: s.image, appLabel: s.app})
	draft := s.key + "-draft"
	if err := sn.Remove(ctx, draft); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot remove an unfinished snapshot: %w", err)
	}
	mounts, err := sn.Prepare(ctx, draft, s.parent, label)
	if err != nil {
		return fmt.Errorf("cannot prepare snapshot: %w", err)
	}
	err = im.cfg.Mounts.With(mounts, fill)
	if err == nil && finish != nil {
		err = finish(layer(mounts, "upperdir="))
	}
	if err != nil {
		return errors.Join(err, sn.Remove(context.WithoutCancel(ctx), draft))
	}
	if err := sn.Commit(ctx, s.key, draft, label); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("cannot commit snapshot: %w", err)
	}
	return nil
}

// unpack extracts a droplet's tree into a stack.
func (im *Store) unpack(ctx context.Context, root, sha string) error {
	r, err := im.cfg.Droplet(sha)
	if err != nil {
		return err
	}
	defer r.Close()
	return rootfs.UnpackDroplet(ctx, root, r, im.cfg.Owner)
}

// Sweep removes the layers of instances that are not in keep, and unfinished
// images.
func (im *Store) Sweep(ctx context.Context, keep map[runtime.InstanceID]bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sn := im.Snapshotter()
	var stale []string
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		id, isInstance := names.Instance(info.Name)
		if isInstance && !keep[id] || strings.HasSuffix(info.Name, "-draft") {
			stale = append(stale, info.Name)
		}
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	var errs error
	for _, name := range stale {
		if err := sn.Remove(ctx, name); err != nil && !errdefs.IsNotFound(err) {
			errs = errors.Join(errs, fmt.Errorf("cannot remove snapshot %s: %w", name, err))
			continue
		}
		im.log.Info("swept snapshot", "snapshot", name)
	}
	return errs
}

// DropLeases deletes the leases of operations that ended with their daemon.
func (im *Store) DropLeases(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	lm := im.cfg.Client.LeasesService()
	ls, err := lm.List(ctx, `labels."`+leaseLabel+`"`)
	if err != nil {
		return fmt.Errorf("cannot list leases: %w", err)
	}
	for _, l := range ls {
		if err := lm.Delete(ctx, l); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("cannot delete lease %s: %w", l.ID, err)
		}
		im.log.Info("swept lease", "lease", l.ID)
	}
	return nil
}

// unlabel makes all snapshots of this daemon available for garbage collection.
func (im *Store) unlabel(ctx context.Context) error {
	sn := im.Snapshotter()
	var all []snapshots.Info
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		all = append(all, info)
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	for _, info := range all {
		if err := im.unlabelOne(ctx, info); err != nil {
			return err
		}
	}
	return nil
}

// unlabelOne makes a snapshot available for garbage collection.
func (im *Store) unlabelOne(ctx context.Context, info snapshots.Info) error {
	delete(info.Labels, GCRoot)
	if _, err := im.Snapshotter().Update(ctx, info, "labels"); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot remove the label of snapshot %s: %w", info.Name, err)
	}
	return nil
}

// PruneImages removes the snapshots of trees that no longer exist. A snapshot that an
// instance still uses stays until the instance is gone.
func (im *Store) PruneImages(ctx context.Context, has func(sha string) bool) error {
	return im.prune(ctx, "image", func(info snapshots.Info) bool {
		sha := info.Labels[imageLabel]
		return sha != "" && !has(sha)
	})
}

// PruneStacks removes the snapshots of stacks that no longer exist. A snapshot that an
// image or an instance still uses stays until that is gone.
func (im *Store) PruneStacks(ctx context.Context, keep func(id string) bool) error {
	return im.prune(ctx, "stack", func(info snapshots.Info) bool {
		id, isStack := strings.CutPrefix(info.Name, names.StackPrefix)
		return isStack && !keep(id)
	})
}

// prune removes the committed snapshots that are old and have no child.
func (im *Store) prune(ctx context.Context, kind string, isOld func(snapshots.Info) bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sn := im.Snapshotter()
	var old []snapshots.Info
	used := map[string]bool{}
	err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		used[info.Parent] = true
		if info.Kind == snapshots.KindCommitted && isOld(info) {
			old = append(old, info)
		}
		return nil
	})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("cannot list snapshots: %w", err)
	}
	collect := false
	for _, info := range old {
		err := sn.Remove(ctx, info.Name)
		if errdefs.IsFailedPrecondition(err) && !used[info.Name] {
			// containerd collected its child, and refuses to remove the parent since then.
			collect, err = true, im.unlabelOne(ctx, info)
		}
		if errdefs.IsFailedPrecondition(err) || errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot remove snapshot %s: %w", info.Name, err)
		}
		im.log.Info("removed the snapshot of a deleted "+kind, "snapshot", info.Name)
	}
	if collect {
		return im.collect(ctx)
	}
	return nil
}

// Drop removes the committed snapshots. A snapshot whose child was
// garbage-collected can never be removed by name. Without its label it is collected as
// well.
func (im *Store) Drop(ctx context.Context) error {
	if err := im.unlabel(ctx); err != nil {
		return err
	}
	return im.collect(ctx)
}

// collect runs a garbage collection of containerd.
func (im *Store) collect(ctx context.Context) error {
	lm := im.cfg.Client.LeasesService()
	l, err := lm.Create(ctx, leases.WithRandomID())
	if err != nil {
		return fmt.Errorf("cannot create lease: %w", err)
	}
	if err := lm.Delete(ctx, l, leases.SynchronousDelete); err != nil { // this runs a garbage collection
		return fmt.Errorf("cannot run the garbage collection of snapshots: %w", err)
	}
	return nil
}
