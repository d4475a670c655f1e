package main

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
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// holder holds the folders of one daemon, so that no other has them.
type holder struct {
	root, run  string
	lock, pids *os.File
}

// hold makes the folders and takes their locks: of the root, because two
// daemons on one store would undo each other's work; of the run folder, because
// two daemons with different roots may have been given the same.
func hold(ctx context.Context, root, run string, log *slog.Logger) (*holder, error) {
	// Nobody but root has business among the state; the sockets are for users.
	lock, made, err := take(ctx, root, 0o700, "lock", log)
	if errors.Is(err, errHeld) {
		return nil, fmt.Errorf("cannot use root %s: %w (stop it, or give this one its own --root and --run)", root, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use root: %w (give another --root)", err)
	}
	pids, _, err := take(ctx, run, 0o755, "dewd.pid", log)
	if err == nil {
		return &holder{root: root, run: run, lock: lock, pids: pids}, nil
	}
	if made {
		err = errors.Join(err, os.Remove(lock.Name()), os.Remove(root))
	}
	lock.Close()
	return nil, fmt.Errorf("cannot use run folder %s: %w (give this one its own --run)", run, err)
}

// take makes a folder, if it is not there, and takes the lock of a file in it.
func take(ctx context.Context, dir string, mode os.FileMode, file string, log *slog.Logger) (f *os.File, made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, false, err
	}
	err = os.Mkdir(dir, mode)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, false, err
	}
	made = err == nil
	f, err = lockFile(ctx, filepath.Join(dir, file), log)
	return f, made, err
}

// release lets go of the folders. The files stay: whoever removed one under a
// waiting daemon would let two in. The pids go, nobody shall send a signal to
// whoever gets the number next.
func (h *holder) release() error {
	return errors.Join(h.pids.Truncate(0), h.lock.Truncate(0), h.pids.Close(), h.lock.Close())
}

// clearRun removes the run folder with the named things in it, which must be
// without mounts by now. What is not known stays, and with it the folder:
// --run may have been given wrongly.
func (h *holder) clearRun(names ...string) error {
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(h.run, name)); err != nil {
			return fmt.Errorf("cannot clear run folder: %w", err)
		}
	}
	socket := filepath.Join(h.run, socketName)
	if served, err := isServed(socket); err != nil || served {
		return err // systemd's, which starts dewd again when somebody calls
	}
	for _, name := range []string{socketName, "dewd.pid"} {
		if err := os.Remove(filepath.Join(h.run, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot clear run folder: %w", err)
		}
	}
	err := os.Remove(h.run)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// isServed tells whether somebody listens on a socket, without calling: a call
// could start whom it looks for.
func isServed(socket string) (bool, error) {
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

// cellID reads the name of this cell, or gives it one at the first start.
func (h *holder) cellID() (string, error) {
	path := filepath.Join(h.root, "cell-id")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		id := uuid.NewString()
		return id, writeDurably(path, strings.NewReader(id+"\n"), 0o644)
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

func (h *holder) placeInit(from string) (string, error) { return h.placeProgram("dew-init", from) }

// placeProgram copies a program for instances into the root under the name of
// its content: they bind that file, and an upgrade must not change it under them.
func (h *holder) placeProgram(name, from string) (string, error) {
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
	return path, writeDurably(path, src, 0o755)
}

// writeDurably makes a file whole or not at all, also when the power fails.
func writeDurably(path string, r io.Reader, mode os.FileMode) (err error) {
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
