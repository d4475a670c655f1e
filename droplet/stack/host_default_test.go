package stack

import (
	"errors"
	"os"
	"path/filepath"
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
