package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// Mounts are the temporary mounts of a daemon.
type Mounts struct {
	dir string // every mount point is in it
	log *slog.Logger

	mu    sync.Mutex // guards stuck
	stuck []string   // mount points of a killed daemon that could not be removed
}

// New returns the mounts below dir.
func New(dir string, log *slog.Logger) *Mounts { return &Mounts{dir: dir, log: log} }

// With runs fn while a snapshot is mounted below the folder of the mounts. A later
// daemon finds the mount there if this one is killed.
func (m *Mounts) With(mounts []mount.Mount, fn func(root string) error) error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return fmt.Errorf("cannot create mount folder: %w", err)
	}
	root, err := os.MkdirTemp(m.dir, "")
	if err != nil {
		return fmt.Errorf("cannot create mount point: %w", err)
	}
	if err := mount.All(mounts, root); err != nil {
		return errors.Join(fmt.Errorf("cannot mount snapshot: %w", err), os.Remove(root))
	}
	err = fn(root)
	if uerr := mount.UnmountAll(root, 0); uerr != nil {
		return errors.Join(err, fmt.Errorf("cannot unmount snapshot: %w", uerr))
	}
	return errors.Join(err, os.Remove(root))
}

// At returns the mount point with a name, for Hold.
func (m *Mounts) At(name string) string { return filepath.Join(m.dir, name) }

// Hold creates the mount point with a name, and runs fn, which mounts something on it.
// Then it removes both. A later daemon finds the mount if this one is killed.
func (m *Mounts) Hold(name string, fn func() error) error {
	if err := os.MkdirAll(m.At(name), 0o700); err != nil {
		return fmt.Errorf("cannot create mount point: %w", err)
	}
	err := fn()
	if uerr := mount.UnmountAll(m.At(name), unix.MNT_DETACH); uerr != nil {
		return errors.Join(err, fmt.Errorf("cannot unmount %s: %w", m.At(name), uerr))
	}
	return errors.Join(err, os.Remove(m.At(name)))
}

// Sweep unmounts the mounts of a killed daemon.
func (m *Mounts) Sweep() error {
	entries, err := os.ReadDir(m.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list mounts: %w", err)
	}
	var stuck []string
	var errs error
	for _, d := range entries {
		p := filepath.Join(m.dir, d.Name())
		if err := m.remove(p); err != nil {
			stuck, errs = append(stuck, p), errors.Join(errs, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck = stuck
	return errs
}

// remove removes one mount of a killed daemon.
func (m *Mounts) remove(p string) error {
	if err := mount.UnmountAll(p, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot unmount %s: %w", p, err)
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove mount point: %w", err)
	}
	m.log.Info("swept mount", "path", p)
	return nil
}

// Retry tries again to remove the mounts that Sweep could not remove.
func (m *Mounts) Retry() error {
	m.mu.Lock()
	stuck := m.stuck
	m.stuck = nil
	m.mu.Unlock()
	var errs error
	for _, p := range stuck {
		if err := m.remove(p); err != nil {
			errs = errors.Join(errs, err)
			m.mu.Lock()
			m.stuck = append(m.stuck, p)
			m.mu.Unlock()
		}
	}
	return errs
}
