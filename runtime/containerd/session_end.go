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

// clearSession removes the rest of a session, of this daemon or an earlier one.
func (c *container) clearSession(ctx context.Context, exec string) error {
	if err := c.e.cg.Kill(ctx, c.spec.Instance, exec); err != nil {
		return err
	}
	// The leaf is removed last, because the next daemon finds the rest by its leaf.
	return errors.Join(c.e.deleteExec(ctx, c.id, exec), c.removePipes(exec), c.e.cg.RemoveLeaf(ctx, c.spec.Instance, exec))
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

// endSessions stops all sessions of the instance and allows no more. It returns when
// all of them have reported their end.
func (c *container) endSessions(ctx context.Context) error {
	c.closeSessions()
	leaves, err := c.e.cg.Leaves(c.spec.Instance)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		if !strings.HasPrefix(leaf, sessionPrefix) {
			continue
		}
		if err := c.e.cg.Kill(ctx, c.spec.Instance, leaf); err != nil {
			return err
		}
	}
	return nil
}

// closeSessions allows no more sessions.
func (c *container) closeSessions() {
	c.sessionsMu.Lock()
	defer c.sessionsMu.Unlock()
	c.closed = true
}

// clearSessions stops, in the background, the sessions of an earlier daemon. Their
// clients were disconnected with that daemon.
func (c *container) clearSessions() error {
	leaves, err := c.e.cg.Leaves(c.spec.Instance)
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
		// Unread output would delay the shim for two seconds.
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
