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
func (t *task) clearSession(ctx context.Context, exec string) error {
	if err := t.e.cg.kill(ctx, t.spec.Instance, exec); err != nil {
		return err
	}
	// The leaf goes last: it is how the next daemon finds the rest.
	return errors.Join(t.e.deleteExec(ctx, t.id, exec), t.removePipes(exec), t.e.cg.removeLeaf(ctx, t.spec.Instance, exec))
}

func (t *task) removePipes(exec string) error {
	var errs error
	for _, kind := range []string{"in", "out", "err"} {
		if err := os.Remove(filepath.Join(t.dir, exec+"."+kind)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = errors.Join(errs, fmt.Errorf("cannot remove pipe: %w", err))
		}
	}
	return errs
}

// endSessions ends all sessions of the instance and lets no more in. It returns
// when all of them know.
func (t *task) endSessions(ctx context.Context) error {
	t.shut()
	leaves, err := t.e.cg.leaves(t.spec.Instance)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		if !strings.HasPrefix(leaf, sessionPrefix) {
			continue
		}
		if err := t.e.cg.kill(ctx, t.spec.Instance, leaf); err != nil {
			return err
		}
	}
	return nil
}

// shut lets no more sessions in.
func (t *task) shut() {
	t.door.Lock()
	defer t.door.Unlock()
	t.closed = true
}

// clearSessions ends, in the background, what a daemon before left of its
// sessions: whoever they belonged to is gone with it.
func (t *task) clearSessions() error {
	leaves, err := t.e.cg.leaves(t.spec.Instance)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		number, ok := strings.CutPrefix(leaf, sessionPrefix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			t.sessions.Store(max(t.sessions.Load(), n))
		}
		t.e.log.Info("swept session", "instance", t.spec.Instance, "exec", leaf)
		t.work.Go(func() { t.sweepSession(leaf) })
	}
	return nil
}

func (t *task) sweepSession(exec string) {
	ctx, cancel := context.WithTimeout(t.ctx, cleanupTimeout)
	defer cancel()
	var drained sync.WaitGroup
	for _, kind := range []string{"out", "err"} {
		// Unread output would keep the shim from letting go of it for two seconds.
		f, err := os.OpenFile(filepath.Join(t.dir, exec+"."+kind), os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		defer f.Close()
		drained.Go(func() { _, _ = io.Copy(io.Discard, f) })
	}
	if err := t.clearSession(ctx, exec); err != nil && t.ctx.Err() == nil {
		t.e.log.Warn("cannot sweep a session", "instance", t.spec.Instance, "exec", exec, "err", err)
	}
}
