package store

import (
	"os"
	"path/filepath"
	"testing"
)

// A store that waits for the disk reports a failed sync; a store with NoSync does not
// wait.
func TestSync(t *testing.T) {
	for name, noSync := range map[string]bool{"waits": false, "does not wait": true} {
		t.Run(name, func(t *testing.T) {
			db, err := Open(filepath.Join(t.TempDir(), "dew.db"), Options{NoSync: noSync})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			dir := t.TempDir()
			f, err := os.Create(filepath.Join(dir, "file"))
			if err != nil {
				t.Fatal(err)
			}
			if err := db.SyncFile(f); err != nil {
				t.Errorf("SyncFile: %v", err)
			}
			if err := db.SyncDir(dir); err != nil {
				t.Errorf("SyncDir: %v", err)
			}
			f.Close()
			if err := db.SyncFile(f); (err == nil) != noSync {
				t.Errorf("SyncFile of a closed file: %v", err)
			}
			if err := db.SyncDir(filepath.Join(dir, "none")); (err == nil) != noSync {
				t.Errorf("SyncDir of no folder: %v", err)
			}
		})
	}
}
