//go:build integration

package world

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// A second copy finds every change: in the same second and with the same size, and files
// that are gone.
func TestCopyChanged(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for name, text := range map[string]string{"same": "1", "changed": "1", "gone": "1"} {
		testkit.WriteFile(t, filepath.Join(from, name), text)
	}
	at := time.Unix(1000, 1)
	change := filepath.Join(from, "changed")
	if err := os.Chtimes(change, at, at); err != nil {
		t.Fatal(err)
	}
	if err := copyChanged(from, to); err != nil {
		t.Fatal(err)
	}
	testkit.WriteFile(t, change, "2")
	at = time.Unix(1000, 2)
	if err := os.Chtimes(change, at, at); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(from, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := copyChanged(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"same": "1", "changed": "2"} {
		if got := string(testkit.Must(os.ReadFile(filepath.Join(to, name)))(t)); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(to, "gone")); !os.IsNotExist(err) {
		t.Errorf("a deleted file is in the copy: %v", err)
	}
}
