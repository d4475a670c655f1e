package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/capture"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/process"
)

// Adopt finds the instances that an earlier daemon left, and removes those that never
// ran.
func (e *Engine) Adopt(ctx context.Context) ([]runtime.Container, error) {
	found, err := e.find(ctx)
	if some := (*runtime.AdoptError)(nil); err == nil || errors.As(err, &some) {
		return found, err
	}
	for _, c := range found {
		// Forget it as well: the next try must find it again, or a sweep would remove
		// it as a stray one.
		c.(*container).detach()
		e.known.remove(c.Spec().Instance)
	}
	if connection.IsUnavailable(err) {
		return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return nil, err
}

// find adopts one container after the other. With an error it returns the containers
// that it already took over.
func (e *Engine) find(ctx context.Context) ([]runtime.Container, error) {
	if err := e.mounts.Sweep(); err != nil { // each mount has its own mount point, so leftovers do no harm
		e.log.Warn("cannot remove mounts of an earlier dewd; dewd tries again", "err", err)
	}
	if err := e.images.DropLeases(ctx); err != nil {
		return nil, err
	}
	records, err := e.conn.Records(ctx)
	if err != nil {
		return nil, err
	}
	var found []runtime.Container
	var left []runtime.Unadopted
	var specs []runtime.Spec
	for _, record := range records {
		id, ok := names.Instance(record.ID)
		if !ok || e.known.has(id) {
			continue
		}
		c, err := e.adopt(ctx, record)
		if err != nil && (connection.IsUnavailable(err) && !e.conn.Answers(ctx) || errors.Is(err, names.ErrNewerFormat)) {
			return found, fmt.Errorf("cannot adopt %s: %w", record.ID, err)
		}
		if err != nil {
			left = append(left, e.unadopted(id, record, err))
			if s, err := names.Spec(record.Labels); err == nil { // it can still be running
				specs = append(specs, s)
			}
		}
		if c != nil {
			found = append(found, c)
			specs = append(specs, c.spec)
		}
	}
	// All at once: the rules of an earlier daemon stay until then.
	if err := e.guard.attach(specs...); err != nil {
		return found, err
	}
	if len(left) > 0 {
		return found, &runtime.AdoptError{Left: left}
	}
	return found, nil
}

// unadopted describes an instance that could not be adopted, with functions to try
// again and to remove it.
func (e *Engine) unadopted(id runtime.InstanceID, record containers.Container, err error) runtime.Unadopted {
	u := runtime.Unadopted{Instance: id, App: record.Labels[names.LabelPrefix+"app"], Err: err}
	if s, err := names.Spec(record.Labels); err == nil {
		u.Slot, u.Task, u.Address = s.Slot, s.Task, s.Address.Addr()
	}
	u.Retry = func(ctx context.Context) (runtime.Container, error) {
		record, err := e.conn.Record(ctx, record.ID)
		if connection.IsNotFound(err) {
			return nil, e.removeOne(ctx, id, u.App)
		}
		if err != nil {
			return nil, err
		}
		c, err := e.adopt(ctx, record)
		if err != nil || c == nil {
			return nil, err
		}
		return c, nil
	}
	u.Remove = func(ctx context.Context) error { return e.removeOne(ctx, id, u.App) }
	return u
}

// adopt takes over one container. It removes the container if its commands never ran,
// or if they ran before a reboot.
func (e *Engine) adopt(ctx context.Context, record containers.Container) (*container, error) {
	s, err := names.Spec(record.Labels)
	if err != nil {
		return nil, err
	}
	build := s.Kind == runtime.KindStaging
	started, err := os.ReadFile(filepath.Join(e.instanceDir(s.Instance), startedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the start time of the instance: %w", err)
	}
	c, err := e.newContainer(ctx, s)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sameBoot := record.Labels[names.LabelBoot] == e.boot
	if started == nil || !sameBoot || build {
		e.log.Info("swept container", "container", record.ID, "started", started != nil, "same_boot", sameBoot, "build", build)
		if started == nil && sameBoot { // containerd can still be completing a call of the earlier daemon
			e.removals.addLate(s.Instance, s.App)
		}
		// Kill the processes first: they must not print more output during the removal.
		err := errors.Join(e.killAll(bounded, s.Instance), c.drain(bounded))
		if err == nil {
			err = e.removeAll(bounded, s.Instance, s.App)
		}
		if err != nil {
			// Leftovers do no harm: the sweep tries again, and so does the next daemon.
			e.log.Error("cannot remove a container of an earlier dewd", "container", record.ID, "err", err)
		}
		return nil, nil
	}
	// A time that cannot be parsed is not a reason to give up an instance.
	c.spec.StartedAt, _ = time.Parse(time.RFC3339Nano, string(started))
	if _, err := os.Stat(filepath.Join(c.dir, stoppingFile)); err == nil {
		c.spec.Stopping = true
	}
	if err := c.takeOver(bounded); err != nil {
		c.detach()
		return nil, err
	}
	e.known.add(c)
	c.watch()
	c.work.Go(func() { c.checkCapture(c.ctx) })
	return c, nil
}

// takeOver reads the state of every process.
func (c *container) takeOver(ctx context.Context) error {
	init, err := c.e.conn.Process(ctx, c.id, "")
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	switch {
	case err != nil:
	case init.Status == tasktypes.Status_STOPPED: // another process can have its number
		c.init.pid = int(init.Pid)
	default:
		c.init.started(int(init.Pid))
	}
	requested, err := c.main.Requested()
	if err != nil {
		return err
	}
	for n, p := range c.procs {
		if requested && n == 0 {
			p.main = c.main
		}
		if err := c.adoptProcess(ctx, p); err != nil {
			return err
		}
	}
	return c.sessions.Sweep()
}

// adoptProcess reads the state of one process and continues to read its output where
// the earlier daemon stopped.
func (c *container) adoptProcess(ctx context.Context, p *proc) error {
	// Create deleted files again: the check of the captures then finds that no process
	// writes to them.
	if err := p.Create(); err != nil {
		return err
	}
	if err := p.loadCaptureFailed(); err != nil {
		return err
	}
	if err := c.findProcess(ctx, p); err != nil {
		return err
	}
	if p.captureFailed.Load() && p.pid != 0 { // the earlier daemon was about to kill it
		killUncaptured(ctx, c, p)
	}
	// The leaf can be frozen, by the earlier daemon or by PID 1 since then. The reader
	// thaws it, unless the disk has no space for further output.
	if err := p.Follow(capture.Late); err != nil {
		return err
	}
	if p.missed != nil {
		return nil
	}
	return c.openClosedGate(ctx, p)
}

func (c *container) findProcess(ctx context.Context, p *proc) error {
	x, err := p.loadExit()
	switch {
	case err == nil:
		p.missed = x
		return nil
	case errors.Is(err, errBadExit):
		c.e.log.Warn("cannot decode the stored exit status; dewd gets it from containerd", "instance", c.spec.Instance, "exec", p.Exec)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot read exit status: %w", err)
	}
	if p.main != nil {
		found, err := p.main.Running(c.init.process(), p.Exec)
		if err != nil {
			return err
		}
		if found.PID != 0 {
			p.pid, p.born = found.PID, found.Born
			p.exitTime = c.e.exitTimes.Watch(p.pid)
		}
		return nil
	}
	st, err := c.e.conn.Process(ctx, c.id, p.Exec)
	if errdefs.IsNotFound(err) {
		x := c.describeExit(p, -1, time.Now())
		x.Cause, x.Detail = runtime.CauseRuntimeLost, "its shim is gone and its status with it"
		p.missed = &x
		return p.saveExit(x)
	}
	if err != nil {
		return err
	}
	if st.Status != tasktypes.Status_STOPPED {
		p.pid, p.born = int(st.Pid), process.BornAt(int(st.Pid))
		p.exitTime = c.e.exitTimes.Watch(p.pid)
	}
	return nil
}

// openClosedGate completes a start: everything was ready, only the byte is missing.
func (c *container) openClosedGate(ctx context.Context, p *proc) error {
	gate := p.gate()
	if _, err := os.Stat(gate); err != nil || p.pid == 0 {
		return nil
	}
	if err := c.e.cg.Place(c.spec.Instance, p.Exec, p.pid); err != nil {
		return err
	}
	if err := runfile.OpenGate(ctx, gate, runfile.Process{PID: p.pid, Born: p.born}, c.spec.StartedAt); err != nil {
		return fmt.Errorf("cannot open gate of %s: %w", p.Exec, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connection.CallTimeout)
	defer cancel()
	// If the process has already exited, there is nothing to close.
	_, _ = c.e.conn.Tasks.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: c.id, ExecID: p.execID(), Stdin: true})
	return nil
}
