package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"

	"github.com/dewrun/dew/runtime/process"
)

// Wait queries containerd for the exit of a process until it has a reliable answer. An
// error of the connection is not one: every open Wait fails with code 255 when
// containerd is killed, but the processes keep running. The returned error means that
// the process is lost.
func (c *Connection) Wait(ctx context.Context, id, exec string) (int, time.Time, error) {
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		r, err := c.Tasks.Wait(ctx, &tasks.WaitRequest{ContainerID: id, ExecID: exec})
		if err == nil {
			return int(r.ExitStatus), r.ExitedAt.AsTime(), nil
		}
		if ctx.Err() != nil {
			return 0, time.Time{}, ctx.Err()
		}
		if _, err := c.Process(ctx, id, exec); IsNotFound(err) {
			return 0, time.Now(), err
		}
		if err := process.Sleep(ctx, delay); err != nil {
			return 0, time.Time{}, err
		}
	}
}

// Process returns the state of a process of a container. The container's own process
// has an empty exec id.
func (c *Connection) Process(ctx context.Context, id, exec string) (*tasktypes.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	r, err := c.Tasks.Get(ctx, &tasks.GetRequest{ContainerID: id, ExecID: exec})
	if err != nil {
		return nil, Native(err)
	}
	return r.Process, nil
}

// DeleteExec removes an exited exec. This waits for its last output.
func (c *Connection) DeleteExec(ctx context.Context, id, exec string) error {
	return c.UntilDeleted(ctx, func(ctx context.Context) error {
		_, err := c.Tasks.DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: id, ExecID: exec})
		return err
	})
}

// UntilDeleted repeats a deletion until it succeeds, there is nothing to delete, or ctx
// is done. A process that just exited is possibly not reaped yet, and containerd is
// possibly restarting.
func (c *Connection) UntilDeleted(ctx context.Context, fn func(ctx context.Context) error) error {
	for delay := time.Millisecond; ; delay = min(2*delay, 200*time.Millisecond) {
		call, cancel := context.WithTimeout(ctx, CallTimeout)
		err := Native(fn(call))
		cancel()
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if !IsUnavailable(err) && !errdefs.IsFailedPrecondition(err) && !errdefs.IsUnknown(err) {
			return err
		}
		if perr := process.Sleep(ctx, delay); perr != nil {
			return errors.Join(err, perr)
		}
	}
}

// Answers reports whether containerd answers. If it does, an unanswered call about one
// instance is a fault of that instance.
func (c *Connection) Answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	_, err := c.Client.Version(ctx)
	return err == nil
}

// Record reads containerd's record of a container.
func (c *Connection) Record(ctx context.Context, id string) (containers.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return c.Client.ContainerService().Get(ctx, id)
}

// Records lists containerd's records in the daemon's namespace.
func (c *Connection) Records(ctx context.Context) ([]containers.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	cs, err := c.Client.ContainerService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list containers: %w", err)
	}
	return cs, nil
}
