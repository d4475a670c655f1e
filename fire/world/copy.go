package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The requests that freeze and thaw a file system, from linux/fs.h.
const fiFreeze, fiThaw = 0xC0045877, 0xC0045878

// Copy copies the root at one moment, as a loss of power leaves it, and returns a world
// for the copy. The copy shares nothing with this world. Remove deletes it.
func (w *World) Copy(flags ...string) (*World, error) {
	dir, err := os.MkdirTemp("", "dewcut")
	if err == nil {
		err = os.Chmod(dir, 0o711) // users of containers find their root file system below it
	}
	if err != nil {
		return nil, err
	}
	// Most files are copied before the root is frozen. While it is frozen, apps that print
	// have to wait, and their health checks fail after some seconds.
	root := filepath.Join(dir, "root")
	copyOut := func() error { return copyChanged(w.volume, root) }
	if err := errors.Join(copyOut(), w.frozen(copyOut)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c, err := open(dir, w.Bin, flags...)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

// copyChanged copies the files that are not the same in the copy, and deletes others there.
func copyChanged(from, to string) error {
	cmd := exec.Command("rsync", "-aHXS", "--one-file-system", "--whole-file", "--delete", "--modify-window=-1", from+"/", to)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == vanished {
		return nil // files are deleted while they are copied
	}
	if err != nil {
		return fmt.Errorf("cannot copy the root: %w\n%s", err, out)
	}
	return nil
}

// vanished is the exit status of rsync if files were deleted while it ran.
const vanished = 24

// frozen runs fn while nothing can be written to the root.
func (w *World) frozen(fn func() error) error {
	f, err := os.Open(w.volume)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err != nil {
		return fmt.Errorf("cannot freeze the file system of the root: %w", err)
	}
	err = fn()
	if terr := unix.IoctlSetInt(int(f.Fd()), fiThaw, 0); terr != nil {
		return errors.Join(err, fmt.Errorf("cannot thaw the file system of the root: %w", terr))
	}
	return err
}

// Cut shortens the store of a copy to a number of bytes between 1 and its size.
func (w *World) Cut(byte uint64) (size, left int64, err error) {
	path := filepath.Join(w.Root, "dew.db")
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	left = 1 + int64(byte%uint64(info.Size()-1))
	return info.Size(), left, os.Truncate(path, left)
}

// Refused starts dewd once. It returns the output if dewd exits by itself, and nothing
// if it answers requests.
func (w *World) Refused(ctx context.Context) (output string, err error) {
	end := w.Expect()
	defer end()
	w.mu.Lock()
	w.once = true
	w.mu.Unlock()
	if err := w.launch(); err != nil {
		return "", err
	}
	_, exited := w.running()
	for {
		select {
		case <-exited:
			b, err := os.ReadFile(w.LogFile())
			return string(b), err
		case <-time.After(pause):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if _, err := w.Client.Daemon().Root(ctx); err == nil {
			return "", nil
		}
	}
}

// Discard deletes a copy that dewd refused. dewd must have started nothing.
func (w *World) Discard() error {
	if err := w.Stop(); err != nil {
		return err
	}
	if _, err := w.Containerd(); err == nil {
		return fmt.Errorf("dewd refused %s and started containerd", w.Root)
	}
	return os.RemoveAll(w.Dir)
}

// Remove tears a copy down and deletes its folders.
func (w *World) Remove() error {
	return errors.Join(w.TearDown(), os.RemoveAll(w.Dir))
}
