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
	// reportLimit is how long the report of an exited process can be missing while
	// containerd answers. A shim that is busy with a start is up to 65 ms late, and
	// much more on a busy machine.
	reportLimit = 10 * time.Second
	// reportLook is how often a wait for a report checks the processes again.
	reportLook = 10 * time.Millisecond
	// answerTimeout is the time limit for a trivial call to containerd.
	answerTimeout = 3 * time.Second
	// answerInterval is how often dewd checks whether containerd answers.
	answerInterval = time.Second
)

// Settle returns once Exits holds the exit of every process that has exited according
// to the kernel. containerd can report an exit long after it happened. Without Settle,
// a failed health check could hide that another process exited first.
func (c *container) Settle(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := c.e.get(call, c.id, ""); err != nil && unavailable(err) {
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	ctx, cancel = context.WithTimeout(ctx, reportLimit)
	defer cancel()
	for c.unreported(nil) {
		if process.Sleep(ctx, reportLook) != nil {
			c.e.log.Warn("containerd does not report the end of a process", "instance", c.spec.Instance)
			break
		}
	}
	return nil
}

// unreported reports whether a process has exited whose report is neither in batch nor
// sent.
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

// Outage returns why the state of the instances is unknown now. It is nil while
// containerd answers.
func (e *Engine) Outage() error {
	if e.silent.Load() {
		return errSilent
	}
	return nil
}

// watchAnswers checks regularly whether containerd answers, until ctx is done.
func (e *Engine) watchAnswers(ctx context.Context) {
	for process.Sleep(ctx, answerInterval) == nil {
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
