package containerd

import (
	"context"
	"fmt"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/process"
)

// Settle returns once Exits holds the exit of every process that has exited according
// to the kernel. containerd can report an exit long after it happened. Without Settle,
// a failed health check could hide that another process exited first. It also stops the
// processes whose output is no longer captured, because they block and fail the check.
func (c *container) Settle(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, connection.AnswerTimeout)
	defer cancel()
	if _, err := c.e.conn.Process(call, c.id, ""); err != nil && connection.IsUnavailable(err) {
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	ctx, cancel = context.WithTimeout(ctx, reportLimit)
	defer cancel()
	c.checkCapture(ctx)
	for c.exits.unreported(nil) || losesOutput(c.procs) {
		if process.Sleep(ctx, reportLook) != nil {
			c.e.log.Warn("containerd has not reported the exit of a process", "instance", c.spec.Instance)
			break
		}
	}
	return nil
}
