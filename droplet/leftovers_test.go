package droplet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// An unfinished file that cannot be removed does not prevent opening. It is reported,
// and removed by a later retry.
func TestLeftoversAreSetAside(t *testing.T) {
	t.Parallel()
	db := testkit.Open(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{Format: 1}))(t)
	for name, open := range map[string]func(dir string) (interface{ Sweep() error }, error){
		"droplets": func(dir string) (interface{ Sweep() error }, error) { return NewDroplets(db, dir) },
		"packages": func(dir string) (interface{ Sweep() error }, error) { return NewPackages(db, PackageOptions{Dir: dir}) },
		"buildpacks": func(dir string) (interface{ Sweep() error }, error) {
			return NewCatalog(db, CatalogOptions{Packages: PackageOptions{Dir: dir}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stuck := filepath.Join(dir, "x"+archive.Unfinished, "y") // a folder that is not empty cannot be removed as a file
			if err := os.MkdirAll(stuck, 0o700); err != nil {
				t.Fatal(err)
			}
			s, err := open(dir)
			if err != nil {
				t.Fatalf("open = %v, want it to work", err)
			}
			if err := s.Sweep(); err == nil || !strings.Contains(err.Error(), "x"+archive.Unfinished) {
				t.Errorf("Sweep = %v, want it to name the file", err)
			}
			if err := os.Remove(stuck); err != nil {
				t.Fatal(err)
			}
			if err := s.Sweep(); err != nil {
				t.Errorf("Sweep = %v, want nothing left", err)
			}
			if _, err := os.Stat(filepath.Dir(stuck)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the file is still there: %v", err)
			}
		})
	}
}
