package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Leftovers are files and folders that could not be removed. They do not prevent dewd
// from starting. They stay until a retry removes them.
type Leftovers struct {
	mu    sync.Mutex
	paths []leftover // guarded by mu
}

type leftover struct {
	path   string
	remove func(path string) error
}

// Find removes unfinished files of an earlier daemon from a folder, and remembers the
// entries that it cannot remove.
func (l *Leftovers) Find(dir string, remove func(path string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot list unfinished files: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), Unfinished) {
			l.Remove(filepath.Join(dir, e.Name()), remove)
		}
	}
	return nil
}

// Remove removes a path, and remembers it if that fails.
func (l *Leftovers) Remove(path string, remove func(path string) error) {
	if err := remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paths = append(l.paths, leftover{path, remove})
}

// Retry tries again to remove all of them. It returns an error for each that remains.
func (l *Leftovers) Retry() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	l.paths = slices.DeleteFunc(l.paths, func(p leftover) bool {
		err := p.remove(p.path)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return true
		}
		errs = append(errs, fmt.Errorf("cannot remove unfinished %s: %w", p.path, err))
		return false
	})
	return errors.Join(errs...)
}
