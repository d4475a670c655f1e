package stack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Installing a package on the machine changes its stack, without a restart. Apps that
// were staged before are staged again.
func TestStacksSeeInstalledPackages(t *testing.T) {
	root := machine(t, debian...)
	s, err := Open(openDB(t, filepath.Join(t.TempDir(), "dew.db")), Options{Host: HostOptions{Root: root}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	id := func() string {
		t.Helper()
		st, err := s.Get("")
		if err != nil {
			t.Fatal(err)
		}
		return st.ID
	}
	first := id()
	if again := id(); again != first {
		t.Errorf("nothing was installed: %s, then %s", first, again)
	}
	status, later := filepath.Join(root, packageDB), time.Now().Add(time.Minute)
	if err := errors.Join(os.WriteFile(status, []byte("Package: ruby\n"), 0o644), os.Chtimes(status, later, later)); err != nil {
		t.Fatal(err)
	}
	if now := id(); now == first {
		t.Errorf("ruby was installed: the stack is still %s", now)
	}
}

// In a cluster, the machine's own stack does not exist. The error says what to do.
func TestNoHost(t *testing.T) {
	s, err := Open(openDB(t, filepath.Join(t.TempDir(), "dew.db")), Options{Host: HostOptions{Root: t.TempDir()}, NoHost: true, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := s.All(); err != nil || len(all) != 0 {
		t.Errorf("stacks = %v, %v, want none", all, err)
	}
	if _, err := s.ByGUID(GUID(Default)); !errors.Is(err, ErrNotFound) {
		t.Errorf("error = %v, want that it does not exist", err)
	}
	for _, name := range []string{"", "host", "cflinuxfs4"} {
		if _, err := s.Get(name); err == nil || !strings.Contains(err.Error(), "need a stack, and there is none: add one with 'dew stack add'") {
			t.Errorf("stack %q: error = %v, want what to do", name, err)
		}
	}
	if err := s.stacks.Put("g", Record{GUID: "g", Name: "debian", State: StateReady}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(""); err == nil || !strings.Contains(err.Error(), "push the app with -s and 'debian'") {
		t.Errorf("error = %v, want the stack that exists", err)
	}
	if err := s.Check(""); err != nil {
		t.Errorf("a buildpack for all stacks: %v", err)
	}
	if err := s.collect(t.Context()); err != nil {
		t.Error(err)
	}
}
