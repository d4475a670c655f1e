//go:build integration

package containerd

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/testkit"
)

// The snapshot of an image is removed when its tree is gone and no instance uses it.
func TestPruneImages(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "prune", memory: 64, command: idle})
	w.running(p)
	count := func() (n int) {
		t.Helper()
		err := w.engine.images.Snapshotter().Walk(context.Background(), func(_ context.Context, info snapshots.Info) error {
			if info.Labels[names.LabelPrefix+"image"] == w.image {
				n++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct {
		name string
		has  bool
		stop bool
		want int
	}{
		{"it is there and in use", true, false, 1},
		{"it is gone, an instance stands on it", false, false, 1},
		{"it is there, nothing runs", true, true, 1},
		{"it is gone, nothing runs", false, false, 0},
	} {
		if step.stop {
			w.stop(p)
		}
		if err := w.engine.PruneImages(context.Background(), func(string) bool { return step.has }); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if got := count(); got != step.want {
			t.Errorf("%s: snapshots = %d, want %d", step.name, got, step.want)
		}
	}
}

// containerd refuses to remove a snapshot by name after it has collected a child of it, for
// example the view of a dewd that was killed. dewd removes such a snapshot as well.
func TestPruneImageWithCollectedChild(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "prune", memory: 64, command: idle})
	w.running(p)
	w.stop(p)
	ctx := t.Context()
	sn := w.engine.images.Snapshotter()
	find := func() (image string) {
		t.Helper()
		err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			if info.Labels[names.LabelPrefix+"image"] == w.image {
				image = info.Name
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return image
	}
	image := find()
	lm := w.engine.conn.Client.LeasesService()
	lease := testkit.Must(lm.Create(ctx, leases.WithRandomID()))(t)
	testkit.Must(sn.View(leases.WithLease(ctx, lease.ID), "child", image))(t)
	if err := lm.Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		t.Fatal(err)
	}
	if _, err := sn.Stat(ctx, "child"); !errdefs.IsNotFound(err) {
		t.Fatalf("the child is not collected: %v", err)
	}
	if err := w.engine.PruneImages(ctx, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if left := find(); left != "" {
		t.Errorf("snapshot %s is left", left)
	}
}
