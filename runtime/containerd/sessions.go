package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// clearSession removes what is left of a session, whoever opened it.
func (c *container) clearSession(ctx context.Context, exec string) error {
	if err := c.e.cg.kill(ctx, c.spec.Instance, exec); err != nil {
		return err
	}
	// The leaf goes last: it is how the next daemon finds the rest.
	return errors.Join(c.e.deleteExec(ctx, c.id, exec), c.removePipes(exec), c.e.cg.removeLeaf(ctx, c.spec.Instance, exec))
}

func (c *container) removePipes(exec string) error {
	var errs error
	for _, kind := range []string{"in", "out", "err"} {
		if err := os.Remove(filepath.Join(c.dir, exec+"."+kind)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = errors.Join(errs, fmt.Errorf("cannot remove pipe: %w", err))
		}
	}
	return errs
}

// endSessions ends all sessions of the instance and lets no more in. It returns
// when all of them know.
func (c *container) endSessions(ctx context.Context) error {
	c.closeSessions()
	leaves, err := c.e.cg.leaves(c.spec.Instance)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		if !strings.HasPrefix(leaf, sessionPrefix) {
			continue
		}
		if err := c.e.cg.kill(ctx, c.spec.Instance, leaf); err != nil {
			return err
		}
	}
	return nil
}

// closeSessions lets no more sessions in.
func (c *container) closeSessions() {
	c.sessionsMu.Lock()
	defer c.sessionsMu.Unlock()
	c.closed = true
}

// clearSessions ends, in the background, what a daemon before left of its
// sessions: whoever they belonged to is gone with it.
func (c *container) clearSessions() error {
	leaves, err := c.e.cg.leaves(c.spec.Instance)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		number, ok := strings.CutPrefix(leaf, sessionPrefix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			c.sessions.Store(max(c.sessions.Load(), n))
		}
		c.e.log.Info("swept session", "instance", c.spec.Instance, "exec", leaf)
		c.work.Go(func() { c.sweepSession(leaf) })
	}
	return nil
}

func (c *container) sweepSession(exec string) {
	ctx, cancel := context.WithTimeout(c.ctx, cleanupTimeout)
	defer cancel()
	var drained sync.WaitGroup
	for _, kind := range []string{"out", "err"} {
		// Unread output would keep the shim from letting go of it for two seconds.
		f, err := os.OpenFile(filepath.Join(c.dir, exec+"."+kind), os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		defer f.Close()
		drained.Go(func() { _, _ = io.Copy(io.Discard, f) })
	}
	if err := c.clearSession(ctx, exec); err != nil && c.ctx.Err() == nil {
		c.e.log.Warn("cannot sweep a session", "instance", c.spec.Instance, "exec", exec, "err", err)
	}
}
