// Package folders manages the root folder and the run folder of a daemon. It holds
// their locks, the ID of the cell, and the programs of instances.
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

// Holder holds the folders of one daemon, so that no other daemon can use them.
type Holder struct {
	root, run  string
	lock, pids *os.File
	made       []string // folders that it created, outer ones first
}

// The lock files of the root folder and of the run folder.
const (
	RootLock = "lock"
	pidFile  = "dewd.pid"
)

// SocketName is the file of the local socket in the run folder.
const SocketName = "dew.sock"

// runFolders are the folders that dewd creates in the run folder. They are empty when
// no instance runs.
var runFolders = []string{"instances", "netns", "mnt"}

// Hold creates the folders and takes their locks. The root needs a lock, because two
// daemons on one store would undo each other's work. The run folder needs one, because
// two daemons with different roots can have the same run folder.
func Hold(ctx context.Context, root, run string, log *slog.Logger) (*Holder, error) {
	// Only root needs access to the state; the sockets are for users.
	h := &Holder{root: root, run: run}
	var err error
	if h.lock, err = h.lockFolder(ctx, root, 0o700, RootLock, log); err != nil {
		err = errors.Join(err, h.Release())
		if errors.Is(err, errHeld) {
			return nil, fmt.Errorf("cannot use root %s: %w (stop that dewd, or choose other folders with --root and --run)", root, err)
		}
		return nil, fmt.Errorf("cannot use root: %w (choose another folder with --root)", err)
	}
	if h.pids, err = h.lockFolder(ctx, run, 0o755, pidFile, log); err != nil {
		return nil, fmt.Errorf("cannot use run folder %s: %w (choose another folder with --run)", run, errors.Join(err, h.Release()))
	}
	return h, nil
}

// lockFolder creates a folder, if it does not exist, and locks a file in it. A daemon
// that is stopping can remove either at this moment.
func (h *Holder) lockFolder(ctx context.Context, dir string, mode os.FileMode, file string, log *slog.Logger) (f *os.File, err error) {
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

// mkdir creates a folder and its parents, and remembers which ones it created.
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

// Release releases the folders. It removes the PID file, so that no signal goes to the
// next process with that PID. It also removes the empty folders: those in the run
// folder, and those that Hold created. The lock file of a root with other files stays.
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

// remove removes a file, if it exists.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// removeEmpty removes a folder, if it exists, is empty, and is not a mount point.
func removeEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) {
		return nil
	}
	return fmt.Errorf("cannot remove %s: %w", dir, err)
}

// ClearRun removes the files of a daemon and its containerd from the run folder. The
// run folder must not contain mounts any more. Release then removes the folder. A file
// that dewd does not know stays, and the folder with it, because --run can be wrong.
func (h *Holder) ClearRun(more ...string) error {
	for _, name := range append(more, runFolders...) {
		if err := os.RemoveAll(filepath.Join(h.run, name)); err != nil {
			return fmt.Errorf("cannot clear run folder: %w", err)
		}
	}
	socket := filepath.Join(h.run, SocketName)
	if served, err := IsServed(socket); err != nil || served {
		return err // the socket belongs to systemd, which starts dewd at the next connection
	}
	if err := remove(socket); err != nil {
		return fmt.Errorf("cannot clear run folder: %w", err)
	}
	return nil
}

// IsServed reports whether a process listens on a socket. It does not connect, because
// a connection could start the daemon.
func IsServed(socket string) (bool, error) {
	// Use the file of the thread: /proc/net belongs to the first thread, which can be
	// in another network namespace.
	b, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return false, fmt.Errorf("cannot list the listening sockets: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasSuffix(strings.TrimRight(line, "\n"), " "+socket) {
			return true, nil
		}
	}
	return false, nil
}

// CellID returns the ID of this cell. It creates one at the first start.
func (h *Holder) CellID() (string, error) {
	path := filepath.Join(h.root, "cell-id")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		id := uuid.NewString()
		return id, WriteDurably(path, strings.NewReader(id+"\n"), 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the cell ID: %w", err)
	}
	id, err := uuid.Parse(strings.TrimSpace(string(b)))
	if err != nil {
		return "", fmt.Errorf("cannot read the cell ID in %s: %w (remove the file: dewd creates a new ID)", path, err)
	}
	return id.String(), nil
}

// PlaceProgram copies a program for instances into the root, under the name of its
// content. Instances bind that file, so an upgrade must not change it.
func (h *Holder) PlaceProgram(name, from string) (string, error) {
	src, err := os.Open(from)
	if err != nil {
		return "", fmt.Errorf("cannot find %s: %w (run make build, which puts it into the folder of dewd, or set the path of dew-init with --init)", name, err)
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
		return "", fmt.Errorf("cannot copy %s: %w", name, err)
	}
	return path, WriteDurably(path, src, 0o755)
}

// WriteDurably writes a file completely or not at all, even in a power failure.
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
