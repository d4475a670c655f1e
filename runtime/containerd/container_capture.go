package containerd

import (
	"context"
	"slices"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// drain copies the rest of the capture files of a dead instance into the log.
func (c *container) drain(ctx context.Context) error {
	defer c.detach()
	for _, p := range c.procs {
		if err := p.Drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkCaptures checks that the output of every running process is still captured.
func (e *Engine) checkCaptures(ctx context.Context) {
	for _, c := range e.known.all() {
		c.checkCapture(ctx)
	}
}

// captureGrace is the time between two checks of the files of a process.
const captureGrace = 150 * time.Millisecond

// checkCapture stops every process whose output the shim no longer copies. On a full
// disk the shim stops copying permanently. The process would block in its next write
// forever, even after space is available again.
func (c *container) checkCapture(ctx context.Context) {
	for _, p := range c.procs {
		if p.ended.Load() || p.pid == 0 || p.captureFailed.Load() || !p.broken(p.pid, c.init.shim.PID) {
			continue
		}
		// Check twice: a process that exits closes its files one after the other.
		if process.Sleep(ctx, captureGrace) != nil || p.ended.Load() || !process.Alive(p.pid) || !p.broken(p.pid, c.init.shim.PID) {
			continue
		}
		if !p.captureFailed.CompareAndSwap(false, true) {
			continue
		}
		if err := p.saveCaptureFailed(); err != nil {
			c.e.log.Warn("cannot store that the output of a process is lost", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
		}
		if err := c.appLog.Gap(p.Capture.Source, string(runtime.CauseCaptureFailed), 0); err != nil {
			c.e.log.Error("cannot record lost output in the log", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
		}
		killUncaptured(ctx, c, p)
	}
}

// killUncaptured kills a process whose output is not captured.
func killUncaptured(ctx context.Context, c *container, p *proc) {
	if err := c.e.cg.Kill(ctx, c.spec.Instance, p.Exec); err != nil {
		c.e.log.Error("cannot kill a process whose output is not captured", "instance", c.spec.Instance, "exec", p.Exec, "err", err)
	}
}

// losesOutput reports whether a process still runs that checkCapture has killed.
func losesOutput(all []*proc) bool {
	return slices.ContainsFunc(all, func(p *proc) bool {
		return p.captureFailed.Load() && !p.ended.Load() && process.Alive(p.pid)
	})
}
