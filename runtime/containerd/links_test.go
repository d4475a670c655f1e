//go:build integration

package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/testkit"
)

// The snapshot of an app's next droplet has links to the files that did not change, and
// no other app has such links.
func TestUnchangedFilesAreLinked(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	stack := testkit.Must(w.stack(""))(t)
	image := func(changed string) string {
		t.Helper()
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, h := range []struct{ name, text string }{{"app/", ""}, {"app/same", "same"}, {"app/changed", changed}} {
			header := &tar.Header{Typeflag: tar.TypeReg, Name: h.name, Mode: 0o644, Size: int64(len(h.text)), ModTime: time.Unix(1, 0)}
			if strings.HasSuffix(h.name, "/") {
				header.Typeflag, header.Mode = tar.TypeDir, 0o755
			}
			if err := tw.WriteHeader(header); err != nil {
				t.Fatal(err)
			}
			if _, err := tw.Write([]byte(h.text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		return testkit.Must(w.droplets.AddImage(&b))(t)
	}
	inodes := map[string]os.FileInfo{}
	for _, c := range []struct{ app, changed string }{{"a", "1"}, {"a", "2"}, {"b", "3"}, {"a", "4"}} {
		key, err := w.engine.images.Parent(ctx, runtime.Spec{App: guidOf(c.app), Stack: stack, Image: image(c.changed)})
		if err != nil {
			t.Fatal(err)
		}
		mounts := testkit.Must(w.engine.images.Snapshotter().View(ctx, "view-of-"+key, key))(t)
		_, dirs, _ := strings.Cut(strings.Join(mounts[0].Options, ","), "lowerdir=")
		root, _, _ := strings.Cut(dirs, ":")
		if b, err := os.ReadFile(root + "/home/vcap/app/changed"); err != nil || string(b) != c.changed {
			t.Errorf("the changed file of %s has %q, %v, want %q", c.app, b, err, c.changed)
		}
		fi := testkit.Must(os.Stat(root + "/home/vcap/app/same"))(t)
		for name, other := range inodes {
			if os.SameFile(fi, other) != strings.HasPrefix(name, c.app) {
				t.Errorf("%s%s and %s: the unchanged files are the same: %v", c.app, c.changed, name, os.SameFile(fi, other))
			}
		}
		inodes[c.app+c.changed] = fi
		if err := w.engine.images.Snapshotter().Remove(ctx, "view-of-"+key); err != nil {
			t.Fatal(err)
		}
	}
	err := w.engine.images.Snapshotter().Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind != snapshots.KindCommitted {
			t.Errorf("snapshot %s is left", info.Name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
