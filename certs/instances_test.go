package certs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/testkit"
)

// Instances get the CA in a folder of its own and in the bundle of the machine, and the
// bundle follows the machine's.
func TestForInstances(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	machine := filepath.Join(dir, "machine.crt")
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(machine, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(machine, at, at); err != nil {
			t.Fatal(err)
		}
	}
	bundle := func(i *Instances) string {
		t.Helper()
		file, err := i.Bundle()
		if err != nil {
			t.Fatal(err)
		}
		if file == "" {
			return ""
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	i, err := ForInstances(filepath.Join(dir, "files"), machine, []byte("CA\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := bundle(i); got != "" {
		t.Errorf("a machine without certificates: %q", got)
	}
	write("one", time.Unix(1, 0))
	if got := bundle(i); got != "one\nCA\n" {
		t.Errorf("bundle = %q", got)
	}
	write("two", time.Unix(1, 0)) // nothing tells that it changed
	if got := bundle(i); got != "one\nCA\n" {
		t.Errorf("bundle = %q, want the one that was made", got)
	}
	write("two", time.Unix(2, 0))
	if got := bundle(i); got != "two\nCA\n" {
		t.Errorf("bundle = %q, want the machine's new one", got)
	}
	file := filepath.Join(i.Dir(), "trusted-ca-1.crt")
	if b, err := os.ReadFile(file); err != nil || string(b) != "CA\n" {
		t.Errorf("CA = %q, %v", b, err)
	}
	without, err := ForInstances(filepath.Join(dir, "files"), machine, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) || bundle(without) != "" {
		t.Errorf("without a CA: %v, bundle %q", err, bundle(without))
	}
}

// On a full disk, instances start with the bundle that exists. Without one, the error
// says why.
func TestBundleOnFullDisk(t *testing.T) {
	testkit.NeedRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("dew-test", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	machine := testkit.WriteFile(t, filepath.Join(t.TempDir(), "machine.crt"), "one\n")
	i := testkit.Must(ForInstances(dir, machine, []byte("CA\n")))(t)
	fill := func() {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	fill()
	if file, err := i.Bundle(); file != "" || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("without a bundle: %q, %v", file, err)
	}
	if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
		t.Fatal(err)
	}
	file := testkit.Must(i.Bundle())(t)
	fill()
	testkit.WriteFile(t, machine, "another one\n")
	if again, err := i.Bundle(); err != nil || again != file {
		t.Errorf("with an earlier bundle: %q, %v", again, err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "one\nCA\n" {
		t.Errorf("bundle = %q, %v", b, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "new-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.Remove(filepath.Join(dir, "fill")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(testkit.Must(i.Bundle())(t)); err != nil || string(b) != "another one\nCA\n" {
		t.Errorf("after the disk has space: %q, %v", b, err)
	}
}
