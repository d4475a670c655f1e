package images

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/dewrun/dew/runtime/containerd/rootfs"
)

// commitDroplet creates the snapshot of a droplet. Files that are the same in the app's
// last droplet are hard links to it.
func (im *Store) commitDroplet(ctx context.Context, s snapshot) error {
	last, done, err := im.last(ctx, s)
	if err == nil && last != "" {
		err = im.commitChanges(ctx, s, last)
		if done(); err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err != nil {
		im.log.Warn("cannot use the files of the last droplet; dewd unpacks all files", "image", s.image, "err", err)
	}
	return im.commit(ctx, s, func(root string) error { return im.unpack(ctx, root, s.image) }, nil)
}

// commitChanges creates the snapshot of a droplet, with the folder of the last one.
func (im *Store) commitChanges(ctx context.Context, s snapshot, last string) error {
	var links *rootfs.Links
	err := im.commit(ctx, s, func(root string) error {
		r, err := im.cfg.Droplet(s.image)
		if err != nil {
			return err
		}
		defer r.Close()
		links, err = rootfs.UnpackChanged(ctx, root, r, im.cfg.Owner, last)
		return err
	}, func(root string) error { return links.Create(root) })
	if links != nil {
		err = errors.Join(err, links.Close())
	}
	return err
}

// last returns the folder of the app's last droplet on the same stack. It is empty if
// there is none, or the snapshotter does not show it. done releases it.
func (im *Store) last(ctx context.Context, s snapshot) (root string, done func(), err error) {
	if s.app == "" {
		return "", nil, nil
	}
	sn := im.Snapshotter()
	var newest snapshots.Info
	err = sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindCommitted && info.Parent == s.parent && info.Created.After(newest.Created) {
			newest = info
		}
		return nil
	}, fmt.Sprintf("labels.%q==%s", appLabel, s.app))
	if err != nil || newest.Name == "" {
		return "", nil, err
	}
	view := s.key + "-last-draft" // a name that Sweep removes
	remove := func() {
		if err := sn.Remove(context.WithoutCancel(ctx), view); err != nil && !errdefs.IsNotFound(err) {
			im.log.Warn("cannot remove the view of a snapshot", "snapshot", view, "err", err)
		}
	}
	remove()
	// Without the label, containerd would collect the view of a killed dewd. It could then
	// never remove the snapshot itself by name.
	mounts, err := sn.View(ctx, view, newest.Name, snapshots.WithLabels(map[string]string{GCRoot: "view"}))
	if err != nil {
		return "", nil, fmt.Errorf("cannot view snapshot %s: %w", newest.Name, err)
	}
	if root = layer(mounts, "lowerdir="); root == "" {
		remove()
	}
	return root, remove, nil
}

// layer returns the first folder of an option of an overlay mount, or an empty string.
func layer(mounts []mount.Mount, option string) string {
	if len(mounts) != 1 || mounts[0].Type != "overlay" {
		return ""
	}
	for _, o := range mounts[0].Options {
		if dirs, ok := strings.CutPrefix(o, option); ok {
			first, _, _ := strings.Cut(dirs, ":")
			return first
		}
	}
	return ""
}
