package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Collect removes the trees that have no name and no user. A tree that it cannot remove
// does not stop it from removing the others.
func (p *Pool) Collect(named func(sha string) (bool, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for sha, t := range p.trees {
		if t.users > 0 || t.leased() {
			continue
		}
		keep, err := named(sha)
		if err == nil && !keep {
			err = p.drop(sha)
		}
		if err != nil { // the other trees do not depend on it
			errs = append(errs, fmt.Errorf("cannot delete unused package %.12s: %w", sha, err))
		}
	}
	return errors.Join(errs...)
}

// drop removes a tree. If it cannot, the next collection tries again.
func (p *Pool) drop(sha string) error {
	// The index is removed last: an index alone is removed at the next start.
	for _, name := range []string{p.Tar(sha), p.Index(sha)} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	delete(p.trees, sha)
	p.log.Info("deleted unused package", "sha256", sha)
	return nil
}

// Sweep removes unfinished files of an earlier daemon, and trees without a name. It
// returns an error for each file that it cannot remove.
func (p *Pool) Sweep(named func(sha string) (bool, error)) error {
	return errors.Join(p.unfinished.Retry(), p.Collect(named))
}
