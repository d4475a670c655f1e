package userns

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/testkit"
)

func owner(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// Mounted layers have the owners of the range, and the files on disk keep theirs. The
// kernel creates new files with the owner on disk.
func TestMount(t *testing.T) {
	testkit.NeedRoot(t)
	base := t.TempDir()
	if err := Probe(base); errors.Is(err, ErrNoTranslation) {
		t.Skipf("this kernel is too old: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(base, name) }
	for _, d := range []string{"lower", "upper", "work", "root"} {
		if err := os.Mkdir(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(at("lower/old"), []byte("x"), 0o644), os.Chown(at("lower/old"), 2000, 2000), os.WriteFile(at("net"), nil, 0o444)); err != nil {
		t.Fatal(err)
	}
	r := Range{first + 7*Size}
	if err := r.NewNetwork(at("net")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at("net"), unix.MNT_DETACH) })
	ns, err := Of(at("net"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := r.Mount(Overlay{Lower: []string{at("lower")}, Upper: at("upper"), Work: at("work")}, ns, at("root")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at("root"), unix.MNT_DETACH) })
	if got := owner(t, at("root/old")); got != r.First+2000 {
		t.Errorf("owner = %d, want %d", got, r.First+2000)
	}
	if err := os.Chown(at("root/old"), int(r.First)+3000, -1); err != nil { // copies it up
		t.Fatal(err)
	}
	if got := owner(t, at("upper/old")); got != 3000 {
		t.Errorf("owner on disk = %d, want 3000", got)
	}
	if got := owner(t, at("lower/old")); got != 2000 {
		t.Errorf("owner of the lower file = %d, want 2000", got)
	}
}

func TestReachable(t *testing.T) {
	dir := t.TempDir()
	closed := filepath.Join(dir, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Reachable("/run/dew"); err != nil {
		t.Error(err)
	}
	err := Reachable(filepath.Join(closed, "run", "missing"))
	if !errors.Is(err, ErrClosed) || Remedy(err) == "" {
		t.Errorf("error = %v", err)
	}
}
