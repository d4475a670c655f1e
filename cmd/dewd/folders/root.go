// Package folders holds the root folder and the run folder of a daemon: their locks, the
// id of the cell, and the programs of instances.
package folders

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// Holder holds the folders of one daemon, so that no other has them.
type Holder struct {
	root, run  string
	lock, pids *os.File
	made       []string // folders that it made, outer ones first
}

// The files whose locks are held: of the root and of the run folder.
const (
	RootLock = "lock"
	pidFile  = "dewd.pid"
)

// SocketName is the file of the local socket in the run folder.
const SocketName = "dew.sock"

// runFolders are the folders that dewd makes in the run folder. They are empty when
// no instance runs.
var runFolders = []string{"instances", "netns", "mnt"}

// Hold makes the folders and takes their locks: of the root, because two
// daemons on one store would undo each other's work; of the run folder, because
// two daemons with different roots may have been given the same.
func Hold(ctx context.Context, root, run string, log *slog.Logger) (*Holder, error) {
	// Nobody but root has business among the state; the sockets are for users.
	h := &Holder{root: root, run: run}
	var err error
	if h.lock, err = h.take(ctx, root, 0o700, RootLock, log); err != nil {
		err = errors.Join(err, h.Release())
		if errors.Is(err, errHeld) {
			return nil, fmt.Errorf("cannot use root %s: %w (stop it, or give this one its own --root and --run)", root, err)
		}
		return nil, fmt.Errorf("cannot use root: %w (give another --root)", err)
	}
	if h.pids, err = h.take(ctx, run, 0o755, pidFile, log); err != nil {
		return nil, fmt.Errorf("cannot use run folder %s: %w (give this one its own --run)", run, errors.Join(err, h.Release()))
	}
	return h, nil
}

// take makes a folder, if it is not there, and takes the lock of a file in it. A
// daemon that leaves at this moment may remove either.
func (h *Holder) take(ctx context.Context, dir string, mode os.FileMode, file string, log *slog.Logger) (f *os.File, err error) {
	for ctx.Err() == nil {
		if err := h.mkdir(dir, mode); err != nil {
			return nil, err
		}
		if f, err = lockFile(ctx, filepath.Join(dir, file), log); !errors.Is(err, os.ErrNotExist) {
			return f, err
		}
	}
	return nil, ctx.Err()
}

// mkdir makes a folder with those above it, and remembers which it made.
func (h *Holder) mkdir(dir string, mode os.FileMode) error {
	err := os.Mkdir(dir, mode)
	if errors.Is(err, os.ErrNotExist) {
		if err := h.mkdir(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		err = os.Mkdir(dir, mode)
	}
	if err == nil {
		h.made = append(h.made, dir)
	}
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// Release gives the folders back. It removes the pid file, so that nobody sends a
// signal to the next process with that number, and the empty folders: those in the
// run folder, and those that Hold made. The lock of a root with anything else in it
// stays.
func (h *Holder) Release() error {
	var errs error
	if h.pids != nil {
		errs = errors.Join(errs, remove(h.pids.Name()))
		for _, name := range runFolders {
			errs = errors.Join(errs, removeEmpty(filepath.Join(h.run, name)))
		}
		errs = errors.Join(errs, removeEmpty(h.run), h.pids.Close())
	}
	if h.lock != nil {
		errs = errors.Join(errs, h.lock.Truncate(0))
		if all, err := os.ReadDir(h.root); err == nil && len(all) == 1 && slices.Contains(h.made, h.root) {
			errs = errors.Join(errs, remove(h.lock.Name()))
		}
		errs = errors.Join(errs, h.lock.Close())
	}
	for _, dir := range slices.Backward(h.made) {
		errs = errors.Join(errs, removeEmpty(dir))
	}
	return errs
}

// remove removes a file, if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// removeEmpty removes a folder, if it is there, empty, and not a mount point.
func removeEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return fmt.Errorf("cannot remove %s: %w", dir, err)
}

// ClearRun removes from the run folder what a daemon and its containerd leave there. It
// must have no mounts by now. Release then removes the folder. A file that dewd does not
// know stays, and with it the folder: --run may be wrong.
func (h *Holder) ClearRun(more ...string) error {
	for _, name := range append(more, runFolders...) {
		if err := os.RemoveAll(filepath.Join(h.run, name)); err != nil {
			return fmt.Errorf("cannot clear run folder: %w", err)
		}
	}
	socket := filepath.Join(h.run, SocketName)
	if served, err := IsServed(socket); err != nil || served {
		return err // systemd's, which starts dewd again when somebody calls
	}
	if err := remove(socket); err != nil {
		return fmt.Errorf("cannot clear run folder: %w", err)
	}
	return nil
}

// IsServed tells whether somebody listens on a socket, without calling: a call
// could start whom it looks for.
func IsServed(socket string) (bool, error) {
	// The thread's own: /proc/net is the first thread's, which may have been lent
	// to another network namespace.
	b, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return false, fmt.Errorf("cannot read sockets: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasSuffix(strings.TrimRight(line, "\n"), " "+socket) {
			return true, nil
		}
	}
	return false, nil
}

// CellID reads the name of this cell, or gives it one at the first start.
func (h *Holder) CellID() (string, error) {
	path := filepath.Join(h.root, "cell-id")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		id := uuid.NewString()
		return id, WriteDurably(path, strings.NewReader(id+"\n"), 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read cell id: %w", err)
	}
	id, err := uuid.Parse(strings.TrimSpace(string(b)))
	if err != nil {
		return "", fmt.Errorf("cannot read cell id in %s: %w (remove the file: the cell gets a new id)", path, err)
	}
	return id.String(), nil
}

// PlaceProgram copies a program for instances into the root under the name of
// its content: they bind that file, and an upgrade must not change it under them.
func (h *Holder) PlaceProgram(name, from string) (string, error) {
	src, err := os.Open(from)
	if err != nil {
		return "", fmt.Errorf("cannot find %s: %w (make build puts it beside dewd; --init names another place)", name, err)
	}
	defer src.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, src); err != nil {
		return "", fmt.Errorf("cannot read %s: %w", name, err)
	}
	path := filepath.Join(h.root, "bin", name+"-"+hex.EncodeToString(sum.Sum(nil)))
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("cannot read %s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("cannot place %s: %w", name, err)
	}
	return path, WriteDurably(path, src, 0o755)
}

// WriteDurably makes a file whole or not at all, also when the power fails.
func WriteDurably(path string, r io.Reader, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
		}
	}()
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
