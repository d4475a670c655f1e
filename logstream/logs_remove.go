package logstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// removedPrefix marks a folder that is being removed.
const removedPrefix = ".removed-"

// ErrRemoved says that an app's log was removed with the app.
var ErrRemoved = fmt.Errorf("%w: the log was deleted with its app", ErrClosed)

// Remove closes the log of a deleted app and deletes all of its files. Readers get the
// remaining lines and then ErrClosed. Remove can be repeated. If the daemon is killed
// during the removal, it finishes at the next start.
func (ls *Logs) Remove(app string) error {
	if err := checkName(app); err != nil {
		return fmt.Errorf("cannot remove the log of app %q: %w", app, err)
	}
	ls.opening.Lock()
	defer ls.opening.Unlock()
	ls.mu.Lock()
	l, closed := ls.apps[app], ls.closed
	if !closed {
		ls.gone[app] = true // later lines for the app must not create it again
	}
	delete(ls.apps, app)
	ls.mu.Unlock()
	if closed {
		return ErrClosed
	}
	dir := filepath.Join(ls.dir, app)
	if l != nil {
		for _, t := range ls.openTails() {
			if t.log == l {
				t.Close()
			}
		}
		if err := l.close(); err != nil {
			l.log.Warn("cannot close the log of a deleted app", "err", err)
		}
	}
	// One rename decides: before it the log is complete, after it there is none.
	away := filepath.Join(ls.dir, removedPrefix+app)
	err := os.Rename(dir, away)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the log of app %s: %w", app, err)
	}
	if err := os.RemoveAll(away); err != nil {
		return fmt.Errorf("cannot remove the log of app %s: %w", app, err)
	}
	return nil
}

// Sweep removes the logs of all apps that keep does not return: apps that were deleted
// while their logs could not be. It calls keep after listing the logs, so that it never
// removes the log of a new app.
func (ls *Logs) Sweep(keep func() (map[string]bool, error)) error {
	apps, err := ls.Apps()
	if err != nil {
		return err
	}
	kept, err := keep()
	if err != nil {
		return fmt.Errorf("cannot find out which apps exist: %w", err)
	}
	var errs []error
	for _, app := range apps {
		if kept[app] {
			continue
		}
		ls.log.Info("removing the log of a deleted app", "app", app)
		errs = append(errs, ls.Remove(app))
	}
	return errors.Join(errs...)
}

// ClearRemoved finishes log removals that an earlier daemon started. It returns an
// error for each log that it cannot remove.
func (ls *Logs) ClearRemoved() error {
	entries, err := os.ReadDir(ls.dir)
	if err != nil {
		return fmt.Errorf("cannot list logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), removedPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(ls.dir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("cannot finish removing a log: %w", err))
		}
	}
	return errors.Join(errs...)
}
