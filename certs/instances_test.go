package certs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
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
