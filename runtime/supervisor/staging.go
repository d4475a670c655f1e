package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

// Stager stages apps in their own containers. Unlike an instance, the container of a
// build stops with its daemon: the next daemon stages again.
type Stager struct {
	sup   *Supervisor
	every time.Duration // between two measurements
}

var _ droplet.Builder = (*Stager)(nil)

// stagingDeleteLimit is far longer than stopping and removing a container takes.
const stagingDeleteLimit = time.Minute

// Stager returns a Stager that runs builds on this supervisor's engine.
func (s *Supervisor) Stager() *Stager { return &Stager{sup: s, every: 2 * time.Second} }

// Build runs a staging until it is finished.
func (g *Stager) Build(ctx context.Context, s droplet.Staging, done func(ctx context.Context, code int, f droplet.Files) error) (err error) {
	select {
	case <-g.sup.settled: // before that, a sweep would remove the container as a stray one
	case <-ctx.Done():
		return ctx.Err()
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.Timeout, stagingFailed("staging took longer than %s", s.Timeout))
	defer cancel()
	id := runtime.NewInstanceID()
	addr, err := g.sup.addresses.Allocate(id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.sup.addresses.Release(id)) }()
	spec, err := g.sup.planner.Staging(s, id, addr)
	if err != nil {
		return err
	}
	task, err := g.startContainer(limited, spec)
	if err != nil {
		return stagingCause(limited, err)
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), stagingDeleteLimit)
		defer cancel()
		if derr := task.Delete(clean); derr != nil {
			// It does not affect other builds, and the next sweep removes it.
			g.sup.c.Logger.Error("cannot remove the container of a build", "build", s.Build, "err", derr)
		}
	}()
	code, err := g.watch(limited, task, s)
	if err != nil {
		return stagingCause(limited, err)
	}
	return stagingCause(limited, done(limited, code, task))
}

// stagingCause returns the reason why ctx was canceled, if there is one, instead of the
// resulting error.
func stagingCause(ctx context.Context, err error) error {
	if why, ok := errors.AsType[*droplet.StagingError](context.Cause(ctx)); ok && err != nil {
		return why
	}
	return err
}

func stagingFailed(format string, args ...any) *droplet.StagingError {
	return &droplet.StagingError{Kind: droplet.StagingFailed, Reason: fmt.Sprintf(format, args...)}
}

// startContainer starts the container. It tries again while the container service is
// unavailable.
func (g *Stager) startContainer(ctx context.Context, spec runtime.Spec) (runtime.StagingContainer, error) {
	for n := 1; ; n++ {
		c, err := g.sup.c.Engine.Start(ctx, spec)
		if err == nil {
			return g.asStagingContainer(ctx, c)
		}
		if refused, ok := errors.AsType[*runtime.StartError](err); ok {
			return nil, stagingFailed("the staging container cannot start: %s", refused.Reason)
		}
		if ctx.Err() != nil || !errors.Is(err, runtime.ErrUnavailable) {
			return nil, err
		}
		g.sup.c.Logger.Warn("cannot start the container of a build, trying again", "build", spec.Build, "err", err)
		if !wait(ctx, g.sup.policy.Retry(n)) {
			return nil, ctx.Err()
		}
	}
}

func (g *Stager) asStagingContainer(ctx context.Context, c runtime.Container) (runtime.StagingContainer, error) {
	if st, ok := c.(runtime.StagingContainer); ok {
		return st, nil
	}
	return nil, errors.Join(errors.New("this engine does not support staging"), c.Delete(context.WithoutCancel(ctx)))
}

// watch waits until the command has exited and its whole output is in the log. It stops
// the command if it exceeds a limit.
func (g *Stager) watch(ctx context.Context, t runtime.StagingContainer, s droplet.Staging) (int, error) {
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case e := <-t.Exits():
			last, err := t.Reap(ctx, runtime.MainExec)
			if err == nil {
				err = g.sup.c.Logs.Append(s.App, last...)
			}
			if err != nil {
				return 0, fmt.Errorf("cannot store the last log lines of a build: %w", err)
			}
			return stagingResult(e, s)
		case <-tick.C:
			if err := checkStagingLimits(ctx, t, s); err != nil {
				return 0, err
			}
		}
	}
}

// stagingResult distinguishes a command that exited by itself from one that was
// stopped.
func stagingResult(e runtime.Exit, s droplet.Staging) (int, error) {
	switch {
	case e.OOM:
		return 0, stagingFailed("staging ran out of memory: the limit is %dM", s.MemoryMB)
	case e.Cause != runtime.CauseExited && e.Cause != "":
		return 0, stagingFailed("the staging container was lost: %s", cmp.Or(e.Detail, string(e.Cause)))
	}
	return e.Code, nil
}

// checkStagingLimits returns an error if a build would fill the disk.
func checkStagingLimits(ctx context.Context, t runtime.StagingContainer, s droplet.Staging) error {
	if s.Space != nil {
		if err := s.Space(); err != nil {
			return stagingFailed("%v", err)
		}
	}
	bytes, files, err := t.Written(ctx)
	switch {
	case err != nil:
		return nil // checked again soon
	case bytes > int64(s.DiskMB)*(1<<20):
		return stagingFailed("disk quota exceeded: the limit for staging is %dM", s.DiskMB)
	case s.MaxFiles > 0 && files > s.MaxFiles:
		return stagingFailed("disk quota exceeded: the limit for staging is %d files", s.MaxFiles)
	}
	return nil
}
