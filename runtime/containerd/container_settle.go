package containerd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

const (
	// reportLimit is how long a process that the kernel shows as dead may stay
	// unreported while containerd answers. A shim that is busy starting something is
	// late by up to 65 ms, and much more on a busy machine.
	reportLimit = 10 * time.Second
	// reportLook is how often a wait for a report looks at the processes again.
	reportLook = 10 * time.Millisecond
	// answerTimeout is how long containerd may take for a call that costs it nothing.
	answerTimeout = 3 * time.Second
	// answerInterval is how often dewd asks whether containerd answers.
	answerInterval = time.Second
)

// Settle returns once Exits holds the end of every process that the kernel shows
// as dead. Without it a failed health check could be blamed on a process whose
// peer ended first: containerd can report an end long after it happened.
func (c *container) Settle(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := c.e.get(call, c.id, ""); err != nil && unavailable(err) {
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	ctx, cancel = context.WithTimeout(ctx, reportLimit)
	defer cancel()
	for c.unreported(nil) {
		if pause(ctx, reportLook) != nil {
			c.e.log.Warn("containerd does not report the end of a process", "instance", c.spec.Instance)
			break
		}
	}
	return nil
}

// unreported tells whether a process has ended whose report is neither in batch
// nor handed on.
func (c *container) unreported(batch []runtime.Exit) bool {
	in := func(exec string) bool {
		return slices.ContainsFunc(batch, func(x runtime.Exit) bool { return x.Exec == exec })
	}
	for _, p := range c.procs {
		if !p.reported.Load() && !in(p.Exec) && process.Ended(p.pid, p.born) {
			return true
		}
	}
	return !c.deleting.Load() && !c.initSettled.Load() && !in(runtime.InitExec) && process.Ended(c.initPID, c.initBorn)
}

// Outage says why nothing is known about the instances now; nil while containerd
// answers.
func (e *Engine) Outage() error {
	if e.silent.Load() {
		return errSilent
	}
	return nil
}

// watchAnswers asks containerd again and again whether it is there, until ctx ends.
func (e *Engine) watchAnswers(ctx context.Context) {
	for pause(ctx, answerInterval) == nil {
		call, cancel := context.WithTimeout(ctx, answerTimeout)
		_, err := e.client.Version(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch was := e.silent.Swap(err != nil); {
		case err != nil && !was:
			e.log.Warn("containerd does not answer: instances are left as they are until it does", "address", e.cfg.Address, "err", err)
		case err == nil && was:
			e.log.Info("containerd answers again", "address", e.cfg.Address)
		}
	}
}
