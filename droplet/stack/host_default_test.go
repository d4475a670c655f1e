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
		if _, err := s.Get(name); err == nil || !strings.Contains(err.Error(), "the stack 'debian' does not exist") || !strings.Contains(err.Error(), "dew stack add debian --image") {
			t.Errorf("stack %q: error = %v, want what to do", name, err)
		}
	}
	if err := s.stacks.Put("g", Record{GUID: "g", Name: "alpine", State: StateReady}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(""); err == nil || !strings.Contains(err.Error(), "or push the app with -s and 'alpine'") {
		t.Errorf("error = %v, want the stack that exists", err)
	}
	if err := s.stacks.Put("d", Record{GUID: "d", Name: ClusterDefault, State: StateMaking}); err != nil {
		t.Fatal(err)
	}
	if err := s.Check("cflinuxfs4"); err == nil || !strings.Contains(err.Error(), "'debian' is still being created") {
		t.Errorf("error = %v, want that it is not ready", err)
	}
	if err := s.stacks.Put("d", Record{GUID: "d", Name: ClusterDefault, State: StateReady}); err != nil {
		t.Fatal(err)
	}
	if err := s.Check("cflinuxfs4"); err != nil || s.DefaultName() != "debian" {
		t.Errorf("the default stack is %s, %v", s.DefaultName(), err)
	}
	if k, err := s.ByGUID("d"); err != nil || !k.Default {
		t.Errorf("stack = %+v, %v, want the default", k, err)
	}
	if err := s.Check(""); err != nil {
		t.Errorf("a buildpack for all stacks: %v", err)
	}
	if err := s.collect(t.Context()); err != nil {
		t.Error(err)
	}
}
