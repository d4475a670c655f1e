package containerd

import (
	"context"
	"encoding/json"
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
)

// Adopt finds the instances that an earlier daemon left, and removes what never
// came to run.
func (e *Engine) Adopt(ctx context.Context) ([]runtime.Task, error) {
	found, err := e.find(ctx)
	if some := (*runtime.AdoptError)(nil); err == nil || errors.As(err, &some) {
		return found, err
	}
	for _, t := range found {
		// Forgotten too: the next try must find it again, or a sweep would take it
		// for a stray one.
		t.(*task).letGo()
		e.forget(t.Spec().Instance)
	}
	if unavailable(err) {
		return nil, fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return nil, err
}

// find adopts one container after the other. With an error it returns those it
// took over before.
func (e *Engine) find(ctx context.Context) ([]runtime.Task, error) {
	if err := e.sweepMounts(); err != nil { // each mount has a point of its own: it is in nobody's way
		e.log.Warn("cannot remove mounts of a killed daemon, trying again", "err", err)
	}
	if err := e.dropLeases(ctx); err != nil {
		return nil, err
	}
	cs, err := e.containers(ctx)
	if err != nil {
		return nil, err
	}
	var found []runtime.Task
	var left []runtime.Unadopted
	for _, c := range cs {
		id, ok := instanceOf(c.ID)
		if !ok || e.knows(id) {
			continue
		}
		t, err := e.adopt(ctx, c)
		if err != nil && (unavailable(err) && !e.answers(ctx) || errors.Is(err, errNewerFormat)) {
			return found, fmt.Errorf("cannot adopt %s: %w", c.ID, err)
		}
		if err != nil {
			left = append(left, e.unadopted(id, c, err))
		}
		if t != nil {
			found = append(found, t)
		}
	}
	if len(left) > 0 {
		return found, &runtime.AdoptError{Left: left}
	}
	return found, nil
}

// unadopted describes an instance that could not be adopted, with the ways to try
// again and to remove it.
func (e *Engine) unadopted(id runtime.InstanceID, c containers.Container, err error) runtime.Unadopted {
	u := runtime.Unadopted{Instance: id, App: c.Labels[labelPrefix+"app"], Err: err}
	if s, err := specFrom(c.Labels); err == nil {
		u.Slot, u.Task, u.Address = s.Slot, s.Task, s.Address.Addr()
	}
	u.Retry = func(ctx context.Context) (runtime.Task, error) {
		c, err := e.container(ctx, c.ID)
		if notFound(err) {
			return nil, e.removeOne(ctx, id, u.App)
		}
		if err != nil {
			return nil, err
		}
		t, err := e.adopt(ctx, c)
		if err != nil || t == nil {
			return nil, err
		}
		return t, nil
	}
	u.Remove = func(ctx context.Context) error { return e.removeOne(ctx, id, u.App) }
	return u
}

// answers reports whether containerd answers. If it does, a call about one instance
// that got no answer is that instance's fault.
func (e *Engine) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := e.client.Version(ctx)
	return err == nil
}

// container reads the record that containerd has of a container.
func (e *Engine) container(ctx context.Context, id string) (containers.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return e.client.ContainerService().Get(ctx, id)
}

// containers lists the records that containerd has in our namespace.
func (e *Engine) containers(ctx context.Context) ([]containers.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cs, err := e.client.ContainerService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list containers: %w", err)
	}
	return cs, nil
}

// adopt takes over one container, or removes it when its commands never ran or
// ended with an earlier boot of the machine.
func (e *Engine) adopt(ctx context.Context, c containers.Container) (*task, error) {
	s, err := specFrom(c.Labels)
	if err != nil {
		return nil, err
	}
	build := isBuild(c.Labels, &s)
	started, err := os.ReadFile(filepath.Join(e.instanceDir(s.Instance), startedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read when it started: %w", err)
	}
	t, err := e.newTask(ctx, s)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	sameBoot := c.Labels[labelBoot] == e.boot
	if started == nil || !sameBoot || build {
		e.log.Info("swept container", "container", c.ID, "started", started != nil, "same_boot", sameBoot, "build", build)
		// Ended first: what still runs must not print behind our back.
		if err := errors.Join(e.killAll(bounded, s.Instance), t.drain(bounded), e.removeAll(bounded, s.Instance, s.App)); err != nil {
			// In nobody's way: the sweep tries again, and so does the next daemon.
			e.log.Error("cannot remove what never came to run", "container", c.ID, "err", err)
		}
		return nil, nil
	}
	// An odd time is no reason to give up an instance.
	t.spec.StartedAt, _ = time.Parse(time.RFC3339Nano, string(started))
	if err := t.takeOver(bounded); err != nil {
		t.letGo()
		return nil, err
	}
	e.remember(t)
	t.watch()
	t.work.Go(func() { t.checkCapture(t.ctx) })
	return t, nil
}

// takeOver finds out how every process fares.
func (t *task) takeOver(ctx context.Context) error {
	for _, p := range t.procs {
		if err := t.adoptProcess(ctx, p); err != nil {
			return err
		}
	}
	if err := t.clearSessions(); err != nil {
		return err
	}
	init, err := t.e.get(ctx, t.id, "")
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if err == nil {
		t.initPID, t.initBorn = int(init.Pid), bornAt(int(init.Pid))
	}
	return nil
}

// adoptProcess finds out how one process fares and reads on where the earlier
// daemon stopped.
func (t *task) adoptProcess(ctx context.Context, p *proc) error {
	// Files that somebody removed are made again: the check of the captures then
	// finds out that nobody writes to them.
	var err error
	if p.outPath, p.errPath, err = t.applog.CreateCapture(string(t.spec.Instance), p.Exec); err != nil {
		return err
	}
	if err := t.findProcess(ctx, p); err != nil {
		return err
	}
	// The leaf may be frozen, by the earlier daemon or by PID 1 since. The reader
	// continues it, unless the disk has no room for what it would print.
	if err := t.follow(p, late); err != nil {
		return err
	}
	if p.missed != nil {
		return nil
	}
	return t.openClosedGate(ctx, p)
}

func (t *task) findProcess(ctx context.Context, p *proc) error {
	b, err := os.ReadFile(t.exitFile(p.Exec))
	if err == nil {
		x := &runtime.Exit{}
		if err := json.Unmarshal(b, x); err == nil {
			p.missed = x
			return nil
		}
		t.e.log.Warn("the kept exit status cannot be read, containerd is asked", "instance", t.spec.Instance, "exec", p.Exec)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read exit status: %w", err)
	}
	st, err := t.e.get(ctx, t.id, p.Exec)
	if errdefs.IsNotFound(err) {
		x := t.verdict(p, -1, time.Now())
		x.Cause, x.Detail = runtime.CauseRuntimeLost, "its shim is gone and its status with it"
		p.missed = &x
		return t.keepExit(x)
	}
	if err != nil {
		return err
	}
	if st.Status != tasktypes.Status_STOPPED {
		p.pid, p.born = int(st.Pid), bornAt(int(st.Pid))
		p.death = t.e.deaths.watch(p.pid)
	}
	return nil
}

// openClosedGate finishes a start: everything was ready, only the byte is missing.
func (t *task) openClosedGate(ctx context.Context, p *proc) error {
	gate := t.gate(p)
	if _, err := os.Stat(gate); err != nil || p.pid == 0 {
		return nil
	}
	if err := t.e.cg.place(t.spec.Instance, p.Exec, p.pid); err != nil {
		return err
	}
	if err := openGate(ctx, gate); err != nil {
		return fmt.Errorf("cannot open gate of %s: %w", p.Exec, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// The process may have ended already: then there is nothing to close.
	_, _ = t.e.tasks.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: t.id, ExecID: p.Exec, Stdin: true})
	return nil
}
