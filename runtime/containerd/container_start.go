package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/capture"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/dns"
	"github.com/dewrun/dew/runtime/containerd/mainprocess"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/containerd/session"
	"github.com/dewrun/dew/runtime/process"
)

// The folder of an instance has these files from the moment when its gates can open, and
// when it is being stopped.
const (
	startedFile  = "started"
	stoppingFile = "stopping"
)

// NoteStop implements runtime.StopEngine.
func (e *Engine) NoteStop(id runtime.InstanceID) error {
	return runfile.Write(filepath.Join(e.instanceDir(id), stoppingFile), "", 0o600)
}

// Start creates the container of s and starts all its processes.
func (e *Engine) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	return e.Prepare(ctx, s, nil)
}

// Prepare creates the container of s and starts all its processes when proceed is
// closed.
func (e *Engine) Prepare(ctx context.Context, s runtime.Spec, proceed <-chan struct{}) (runtime.Container, error) {
	if !s.Instance.Valid() {
		return nil, fmt.Errorf("cannot start: %q is not a valid instance id", s.Instance)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	c, err := e.newContainer(ctx, s)
	if err != nil {
		return nil, startError(err)
	}
	if len(c.procs) > 0 && !e.execMain {
		c.procs[0].main = c.main
	}
	if err := c.build(ctx, proceed); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		c.init.stopping.Store(true)
		c.detach()
		if c.unanswered || connection.IsUnavailable(err) {
			e.removals.addLate(s.Instance, s.App)
		}
		if cerr := e.removeAll(clean, s.Instance, s.App); cerr != nil {
			e.log.Warn("cannot clean up after a failed start; dewd tries again", "instance", s.Instance, "err", cerr)
			e.removals.addInstance(s.Instance, s.App, cerr)
		}
		return nil, startError(err)
	}
	e.known.add(c)
	c.watch()
	return c, nil
}

// startError decides whether the connection to containerd failed, or the instance.
func startError(err error) error {
	var se *runtime.StartError
	switch {
	case errors.As(err, &se):
		return se
	case errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "no space left on device"):
		return &runtime.StartError{Reason: "the disk is full: free some space (" + oneLine(err) + ")", Err: err}
	case errors.Is(err, runtime.ErrUnavailable):
		return err
	case connection.IsUnavailable(err):
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return &runtime.StartError{Reason: oneLine(err), Err: err}
}

// oneLine returns an error as one line. Errors of runc contain many newlines.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// build creates all parts of an instance and opens the gates when proceed is closed.
func (c *container) build(ctx context.Context, proceed <-chan struct{}) error {
	mounts, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.e.net.Connect(c.spec.Instance, c.spec.Address) })
	g.Go(func() error { return c.e.guard.attach(c.spec) })
	g.Go(func() error { return launch(gctx, c, mounts) })
	if err := g.Wait(); err != nil {
		return err
	}
	for _, p := range c.procs {
		if err := c.e.cg.Place(c.spec.Instance, p.Exec, p.pid); err != nil {
			return err
		}
	}
	if proceed != nil {
		if err := awaitProceed(ctx, c, proceed); err != nil {
			return err
		}
	}
	c.spec.StartedAt = time.Now()
	// From here on commands run: the next daemon must not remove them.
	if err := runfile.Write(filepath.Join(c.dir, startedFile), c.spec.StartedAt.Format(time.RFC3339Nano), 0o600); err != nil {
		return err
	}
	return c.openGates(ctx)
}

// launch creates the task and all its processes, which wait at their gates.
func launch(ctx context.Context, c *container, mounts []mount.Mount) error {
	if err := c.create(ctx, mounts); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.startAll(gctx) })
	g.Go(func() error { return unpackLayers(gctx, c) })
	return g.Wait()
}

// awaitProceed waits until the processes of c can run. The engine keeps the network and the cgroups of
// an instance that waits, which can be for days.
func awaitProceed(ctx context.Context, c *container, proceed <-chan struct{}) error {
	c.e.waiting.add(c)
	defer c.e.waiting.remove(c.spec.Instance)
	t := time.NewTicker(waitingCheck)
	defer t.Stop()
	for over := false; !over; {
		select {
		case <-proceed:
			over = true
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("the prepared instance is not needed: %w", ctx.Err())
		}
		for _, p := range c.procs {
			if process.Ended(p.pid, p.born) {
				return fmt.Errorf("%w: the launcher of %s ended while the instance waited", runtime.ErrUnavailable, p.Exec)
			}
		}
	}
	return nil
}

// waitingCheck is how often a waiting instance is checked for killed launchers.
const waitingCheck = 5 * time.Second

// prepare creates, in parallel, all resources that the task needs. Its network is connected
// later, beside the creation of the task.
func (c *container) prepare(ctx context.Context) ([]mount.Mount, error) {
	e, s := c.e, c.spec
	// Unpacking a droplet for the first time has no time limit.
	parent, err := e.images.Parent(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	var mounts []mount.Mount
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.net.Create(s.Instance, c.users.Range) })
	g.Go(c.createCgroups)
	g.Go(c.makeFiles)
	g.Go(func() error {
		ms, err := e.images.Prepare(gctx, s, parent)
		if err != nil {
			return noteCall(c, err)
		}
		mounts = ms
		if err := e.disks.apply(c, ms); err != nil {
			return err
		}
		return noteCall(c, c.createContainer(gctx, e.net.Path(s.Instance)))
	})
	return mounts, g.Wait()
}

// noteCall notes whether a call that creates a part of c had no answer. Another part
// that failed can be the reason, and then its error is the one that build returns.
func noteCall(c *container, err error) error {
	c.unanswered = c.unanswered || err != nil && connection.IsUnavailable(err)
	return err
}

// createCgroups creates the instance's group, and the leaves that the container mounts.
func (c *container) createCgroups() error {
	id, memory := c.spec.Instance, c.spec.Memory
	if err := c.e.cg.Create(id, cgroup.Limits{Memory: memory, PIDs: c.e.cfg.PIDs, Cores: c.e.cfg.Cores}); err != nil {
		return err
	}
	for _, p := range c.procs {
		if err := c.e.cg.CreateFreezer(id, p.Exec); err != nil {
			return err
		}
		f := c.e.cg.Freezer(id, p.Exec)
		if err := c.users.Own(filepath.Join(f.Dir, f.File)); err != nil {
			return err
		}
	}
	return nil
}

// makeFiles creates the instance's folder, gates and capture files.
func (c *container) makeFiles() error {
	if err := os.MkdirAll(c.dir, 0o711); err != nil {
		return fmt.Errorf("cannot create the folder of the instance: %w", err)
	}
	files := map[string]string{
		"hosts":       dns.Hosts(c.spec, c.e.net.Gateway().String()),
		"hostname":    string(c.spec.Instance) + "\n",
		"resolv.conf": resolvConf(c.e, "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"),
	}
	for name, data := range files {
		if err := runfile.Write(filepath.Join(c.dir, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := makeBindingFiles(c); err != nil {
		return err
	}
	if err := requestMain(c); err != nil {
		return err
	}
	for _, p := range c.procs {
		if err := session.WriteContext(c.dir, p.ProcessSpec, c.spec.Stack.Shell); err != nil {
			return err
		}
		if err := unix.Mkfifo(p.gate(), 0o600); err != nil {
			return fmt.Errorf("cannot create gate: %w", err)
		}
		if err := p.Create(); err != nil {
			return err
		}
		if err := c.users.Own(c.appLog.CaptureDir(string(c.spec.Instance)), p.OutPath, p.ErrPath); err != nil {
			return err
		}
		if err := p.Follow(capture.OnTime); err != nil {
			return err
		}
	}
	return nil
}

// requestMain makes PID 1 start the first process of the spec.
func requestMain(c *container) error {
	if len(c.procs) == 0 || c.procs[0].main == nil {
		return nil
	}
	p := c.procs[0]
	return p.main.Request(c.e.base.Launch(p.ProcessSpec, c.spec.Stack.Shell), c.users.Range)
}

// makeBindingFiles creates the files with the service bindings of the instance. They
// are in a folder that only root can enter; the mount in the container shows what is in
// it.
func makeBindingFiles(c *container) error {
	if c.spec.Files == nil {
		return nil
	}
	dir := ocispec.BindingFiles(c.dir)
	if err := os.Mkdir(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("cannot create the folder of the service bindings: %w", err)
	}
	for name, data := range c.spec.Files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("cannot create the folder of a service binding: %w", err)
		}
		if err := runfile.Write(file, data, 0o644); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o755) // an app without services has an empty folder
}

// guardFor returns the limits for the output of an instance. An instance without
// processes has no capture files, and gets the zero guard.
func (c *container) guardFor() ocispec.Guard {
	if len(c.procs) == 0 {
		return ocispec.Guard{}
	}
	g := ocispec.Guard{Capture: c.appLog.CaptureDir(string(c.spec.Instance))}
	g.Limit, g.Reserve = c.e.cfg.Logs.Ceiling()
	for _, p := range c.procs {
		g.Freezers = append(g.Freezers, c.e.cg.Freezer(c.spec.Instance, p.Exec))
	}
	return g
}

// createContainer creates the container's record. Without a network namespace, the
// container gets a new one that has only a loopback interface.
func (c *container) createContainer(ctx context.Context, netns string) error {
	s := c.spec
	trusted, err := c.e.certificates()
	if err != nil {
		return err
	}
	var main string
	if len(c.procs) > 0 && c.procs[0].main != nil {
		main = c.main.Path()
	}
	oci := c.e.base.Container(s, ocispec.Paths{
		Dir: c.dir, Netns: netns, Cgroups: c.e.cg.OCIPath(s.Instance), Guard: c.guardFor(), Users: c.users.Range, UserNS: c.users.path,
		Certs: trusted, Main: main,
	})
	any, err := typeurl.MarshalAny(oci)
	if err != nil {
		return fmt.Errorf("cannot encode OCI spec: %w", err)
	}
	labels := names.Labels(s, c.e.boot)
	labels[names.LabelFormat] = strconv.Itoa(names.FormatMain)
	_, err = c.e.conn.Client.ContainerService().Create(ctx, containers.Container{
		ID: c.id, Labels: labels, Spec: any,
		Runtime:     containers.RuntimeInfo{Name: runtimeName},
		Snapshotter: c.e.cfg.Snapshotter, SnapshotKey: c.id,
	})
	if err != nil {
		return fmt.Errorf("cannot create container: %w", err)
	}
	return nil
}

// create creates containerd's task, and the leaves next to it.
func (c *container) create(ctx context.Context, mounts []mount.Mount) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	options, err := c.users.taskOptions()
	if err != nil {
		return err
	}
	req := &tasks.CreateTaskRequest{ContainerID: c.id, Options: options}
	for _, p := range c.procs {
		if p.main != nil {
			req.Stdin, req.Stdout, req.Stderr = p.gate(), p.OutPath, p.ErrPath
		}
	}
	for _, m := range c.users.rootMounts(mounts) {
		// If a leaf is a separate cgroup, runc's device filter does not apply to it.
		options := append(slices.Clone(m.Options), "nodev", "nosuid")
		req.Rootfs = append(req.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: options})
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for _, p := range c.procs {
			if err := c.e.cg.CreateLeaf(c.spec.Instance, p.Exec, p.Memory); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		err := c.users.with(mounts, func() error {
			_, err := c.e.conn.Tasks.Create(gctx, req)
			return noteCall(c, connection.Native(err))
		})
		if err != nil {
			return fmt.Errorf("cannot create task: %w", err)
		}
		r, err := c.e.conn.Tasks.Start(gctx, &tasks.StartRequest{ContainerID: c.id})
		if err != nil {
			return fmt.Errorf("cannot start task: %w", connection.Native(err))
		}
		c.init.started(int(r.Pid))
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	limits := map[string]int64{}
	for _, p := range c.procs {
		limits[p.Exec] = p.Memory
	}
	return c.e.cg.DivideCPU(c.spec.Instance, c.spec.Memory, limits)
}

// startAll starts every launcher, which then waits at its gate.
func (c *container) startAll(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(session.MaxCreating)
	for _, p := range c.procs {
		if p.main != nil {
			g.Go(func() error { return awaitMain(gctx, c, p) })
			continue
		}
		g.Go(func() error { return c.startOne(gctx, p) })
	}
	return g.Wait()
}

// awaitMain returns when PID 1 has started the launcher of the main process.
func awaitMain(ctx context.Context, c *container, p *proc) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	found, err := p.main.Started(ctx, c.init.process())
	if failed := (*mainprocess.FailedError)(nil); errors.As(err, &failed) {
		return &runtime.StartError{Exec: p.Exec, Source: p.Source, Reason: oneLine(err), Err: err}
	}
	if shim := c.init.shim; err != nil && shim.Born != 0 && process.Ended(shim.PID, shim.Born) {
		return fmt.Errorf("%w: the shim ended before process %s started: %w", runtime.ErrUnavailable, p.Exec, err)
	}
	if err != nil {
		return fmt.Errorf("cannot start process %s: %w", p.Exec, err)
	}
	p.pid, p.born = found.PID, found.Born
	p.exitTime = c.e.exitTimes.Watch(p.pid) // it waits at its gate, so this is early enough
	return nil
}

func (c *container) startOne(ctx context.Context, p *proc) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	oci, err := typeurl.MarshalAnyToProto(c.e.base.Launch(p.ProcessSpec, c.spec.Stack.Shell))
	if err != nil {
		return fmt.Errorf("cannot encode process: %w", err)
	}
	_, err = c.e.conn.Tasks.Exec(ctx, &tasks.ExecProcessRequest{
		ContainerID: c.id, ExecID: p.Exec, Spec: oci,
		Stdin: p.gate(), Stdout: p.OutPath, Stderr: p.ErrPath,
	})
	if err != nil {
		return fmt.Errorf("cannot create process %s: %w", p.Exec, connection.Native(err))
	}
	// After a failed Start, Wait still answers, with 0: only the error of Start is
	// reliable.
	r, err := c.e.conn.Tasks.Start(ctx, &tasks.StartRequest{ContainerID: c.id, ExecID: p.Exec})
	if err != nil {
		err = connection.Native(err)
		if connection.IsUnavailable(err) {
			return fmt.Errorf("cannot start process %s: %w", p.Exec, err)
		}
		return &runtime.StartError{Exec: p.Exec, Source: p.Source, Reason: oneLine(err), Err: err}
	}
	p.pid, p.born = int(r.Pid), process.BornAt(int(r.Pid))
	p.exitTime = c.e.exitTimes.Watch(p.pid) // it waits at its gate, so this is early enough
	// crun ignores the score of an exec, which then has that of containerd.
	return process.SetOOMScore(p.pid, ocispec.OOMScore)
}

// openGates lets every launcher continue. The FIFO's end in the shim is closed in the
// background. This frees descriptors there, and nothing waits for it.
func (c *container) openGates(ctx context.Context) error {
	for _, p := range c.procs {
		if err := runfile.OpenGate(ctx, p.gate(), runfile.Process{PID: p.pid, Born: p.born}, c.spec.StartedAt); err != nil {
			return fmt.Errorf("cannot open gate of %s: %w", p.Exec, err)
		}
	}
	for _, p := range c.procs {
		c.work.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connection.CallTimeout)
			defer cancel()
			// If the process has already exited, there is nothing to close.
			_, _ = c.e.conn.Tasks.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: c.id, ExecID: p.execID(), Stdin: true})
		})
	}
	return nil
}

// execID returns containerd's id of a process. The main process has the standard streams of
// the container's first one, whose id is empty.
func (p *proc) execID() string {
	if p.main != nil {
		return ""
	}
	return p.Exec
}

func (p *proc) gate() string { return filepath.Join(p.dir, p.Exec+".gate") }
