package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file system that cannot punch holes is refused with what to do, and nothing is left on
// it.
func TestCheckPunch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := CheckPunch(dir, Real()); err != nil {
		t.Error(err)
	}
	d := Real()
	d.Punch = func(*os.File, int64, int64) error { return unix.EOPNOTSUPP }
	if err := CheckPunch(dir, d); err == nil || !strings.Contains(err.Error(), "choose a folder on ext4") {
		t.Errorf("err = %v, want what to do", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v was left behind, %v", left, err)
	}
}

// A reserve takes its space until it is released. It is created again only if it is not
// there.
func TestReserve(t *testing.T) {
	t.Parallel()
	r := Reserve{Path: filepath.Join(t.TempDir(), "reserve"), Size: 10 * Block}
	allocations := 0
	d := Real()
	allocate := d.Allocate
	d.Allocate = func(f *os.File, size int64) error {
		allocations++
		return allocate(f, size)
	}
	for range 2 {
		if err := r.Create(d); err != nil || !r.Exists() {
			t.Fatalf("the reserve exists: %t, %v", r.Exists(), err)
		}
	}
	if fi, err := os.Stat(r.Path); err != nil || fi.Size() != r.Size || allocations != 1 {
		t.Errorf("%v, %v after %d allocations", fi, err, allocations)
	}
	if !r.Release() || r.Exists() || r.Release() {
		t.Error("the reserve was not released once")
	}
	d.Allocate = func(*os.File, int64) error { return unix.ENOSPC }
	if err := r.Create(d); err == nil || r.Exists() {
		t.Errorf("without space: %v, and the file exists: %t", err, r.Exists())
	}
}
