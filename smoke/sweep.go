package smoke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

// sweepTime is the timeout for stopping a daemon without an owner.
const sweepTime = time.Minute

// ownerFile is locked by the process that started a private daemon. The kernel unlocks
// it however that process exits.
const ownerFile = "owner"

// claim creates the owner file of a folder. It locks the file before it renames it, so
// that no other run mistakes it for a leftover.
func claim(dir string) (*os.File, error) {
	file := filepath.Join(dir, ownerFile)
	f, err := lockFile(file+".new", os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// lockFile opens a file and locks it, or fails.
func lockFile(file string, flags int) (*os.File, error) {
	f, err := os.OpenFile(file, flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", file, err)
	}
	return f, nil
}

// Sweep stops private daemons whose owners were killed, and removes their leftovers. A
// daemon that was kept has no owner file and stays.
func Sweep(ctx context.Context, dewd string, say func(format string, args ...any)) {
	files, err := filepath.Glob(filepath.Join(os.TempDir(), privatePrefix+"*", ownerFile))
	if err != nil {
		return // the pattern is valid
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		if !isOwn(dir) {
			continue
		}
		owner, err := lockFile(file, os.O_RDWR)
		if err != nil {
			continue // it is in use
		}
		say("Removing a private daemon of a killed dew smoke: %s", dir)
		if err := newPrivate(dir, dewd).sweep(ctx); err != nil {
			say("warning: cannot remove the private daemon: %v", err)
		}
		owner.Close()
	}
}

// isOwn reports whether only this user can have written to a folder. Every user can
// create such a name in the folder of temporary files.
func isOwn(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// sweep stops a daemon that is not a child of this process.
func (p *Private) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sweepTime, fmt.Errorf("the daemon did not stop within %s", sweepTime))
	defer cancel()
	daemon, err := client.New(client.Options{Run: p.Run})
	if err != nil {
		return err
	}
	_ = daemon.Daemon().Shutdown(ctx, v3.Shutdown{Apps: true}) // it could have exited long ago
	var last error
	err = client.Poll(ctx, func() (bool, error) {
		_, err := daemon.Daemon().Root(ctx)
		if u := (*client.Unreachable)(nil); !errors.As(err, &u) {
			return false, nil
		}
		last = p.tearDown(ctx) // needs the daemon to be stopped
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return os.RemoveAll(p.dir)
}
