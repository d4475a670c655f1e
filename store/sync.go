package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"
)

// SyncFile makes the content of a file that belongs to the store durable. It does
// nothing if the store itself does not wait for the disk; see Options.NoSync.
func (db *DB) SyncFile(f *os.File) error {
	if db.options.NoSync {
		return nil
	}
	return f.Sync()
}

// SyncDir makes the names in a folder durable, as SyncFile does for content.
func (db *DB) SyncDir(dir string) error {
	if db.options.NoSync {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	return nil
}

// emptyFile is the content of a new file of bbolt.
var emptyFile = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "dew-store-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "empty")
	b, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return nil, err
	}
	if err := b.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// makeEmpty creates the file of a store with NoSync if it does not exist. bbolt would
// wait for the disk when it creates one, whatever its options are.
func makeEmpty(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // bbolt opens it, or reports why it cannot
	}
	content, err := emptyFile()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process created it first
	}
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
