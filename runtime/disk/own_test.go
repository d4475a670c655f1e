//go:build integration

package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/testkit"
)

// A daemon on a copy of a root does not touch the layers of the daemon on the original.
func TestCopiedRecords(t *testing.T) {
	l := open(t, nil)
	folder := limited(t, l, "running", 8<<20)
	file := filepath.Join(folder, "fs", "note")
	testkit.WriteFile(t, file, "hello")
	cfg := l.cfg
	cfg.Dir = filepath.Join(t.TempDir(), "disks")
	if err := os.CopyFS(cfg.Dir, os.DirFS(l.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := testkit.Must(Open(cfg))(t).Sweep(none, none); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, file, "hello again") // the file system was not shut down
	if u, ok := l.Of("running"); !isMount(folder) || !ok || u.Limit != 8<<20 {
		t.Errorf("mounted %t, usage %+v, %t", isMount(folder), u, ok)
	}
	if left := testkit.Must(os.ReadDir(cfg.Dir))(t); len(left) != 0 {
		t.Errorf("the copy has %v, want nothing", left)
	}
}

// If another program unmounts a layer, dewd reserves nothing on the file system below.
func TestUnmountedLayer(t *testing.T) {
	l := open(t, nil)
	outer := limited(t, l, "outer", 64<<20)
	below := &layer{record: record{Layer: outer}}
	reserved := filepath.Join("/sys/fs/ext4", testkit.Must(below.device())(t), "reserved_clusters")
	folder := filepath.Join(outer, "fs", "7")
	for _, d := range []string{folder, filepath.Join(folder, "fs"), filepath.Join(folder, "work")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Limit("inner", folder, 8<<20); err != nil {
		t.Fatal(err)
	}
	l.Check(time.Now()) // adapts the outer layer to the new folders
	if err := unix.Unmount(folder, 0); err != nil {
		t.Fatal(err)
	}
	before := string(testkit.Must(os.ReadFile(reserved))(t))
	inner := l.of("inner")
	inner.reserved = -1 // so that the next check sets it
	l.Check(time.Now())
	if after := string(testkit.Must(os.ReadFile(reserved))(t)); after != before {
		t.Errorf("reserved blocks below = %s, before %s", strings.TrimSpace(after), strings.TrimSpace(before))
	}
	if _, ok := l.Of("inner"); ok {
		t.Error("an unmounted layer has a usage")
	}
	if err := l.Remove("inner"); err != nil {
		t.Error(err)
	}
}
