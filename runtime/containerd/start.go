package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// startedFile stands in an instance's folder from the moment its gates may open.
const startedFile = "started"

// Start makes the container of s and starts all its processes.
func (e *Engine) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	if !s.Instance.Valid() {
		return nil, fmt.Errorf("cannot start: %q is no instance id", s.Instance)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	c, err := e.newContainer(ctx, s)
	if err != nil {
		return nil, e.startError(err)
	}
	if err := c.build(ctx); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		c.detach()
		if cerr := e.removeAll(clean, s.Instance, s.App); cerr != nil {
			e.log.Warn("cannot clean up after a failed start, it is tried again", "instance", s.Instance, "err", cerr)
			e.noteUnclean(s.Instance, s.App, cerr)
		}
		return nil, e.startError(err)
	}
	e.remember(c)
	c.watch()
	return c, nil
}

// startError sorts what went wrong: the way to containerd, or the instance.
func (e *Engine) startError(err error) error {
	var se *runtime.StartError
	switch {
	case errors.As(err, &se):
		return se
	case errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), "no space left on device"):
		return &runtime.StartError{Reason: "the disk is full: free some space (" + oneLine(err) + ")", Err: err}
	case errors.Is(err, runtime.ErrUnavailable):
		return err
	case unavailable(err):
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return &runtime.StartError{Reason: oneLine(err), Err: err}
}

// oneLine is an error as one line: runc's come with a trail of newlines.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// build makes everything of an instance and opens the gates.
func (c *container) build(ctx context.Context) error {
	mounts, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	if err := c.create(ctx, mounts); err != nil {
		return err
	}
	if err := c.startAll(ctx); err != nil {
		return err
	}
	for _, p := range c.procs {
		if err := c.e.cg.place(c.spec.Instance, p.Exec, p.pid); err != nil {
			return err
		}
	}
	c.spec.StartedAt = time.Now()
	// From here on commands run: whoever comes next must not throw them away.
	if err := writeFile(filepath.Join(c.dir, startedFile), c.spec.StartedAt.Format(time.RFC3339Nano), 0o600); err != nil {
		return err
	}
	return c.openGates(ctx)
}

// prepare makes, side by side, all that the container stands on.
func (c *container) prepare(ctx context.Context) ([]mount.Mount, error) {
	e, s := c.e, c.spec
	// Unpacking a droplet for the first time takes as long as it takes.
	parent, err := e.images.parent(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, prepareLimit(s))
	defer cancel()
	var mounts []mount.Mount
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.net.create(s.Instance, s.Address) })
	g.Go(c.createCgroups)
	g.Go(func() error { return c.makeFiles() })
	g.Go(func() error {
		ms, err := e.images.prepare(gctx, s, parent)
		if err != nil {
			return err
		}
		mounts = ms
		if err := e.unpackLayers(gctx, ms, s.Layers); err != nil {
			return err
		}
		return c.createContainer(gctx, e.net.path(s.Instance))
	})
	return mounts, g.Wait()
}

// createCgroups makes the instance's group, and of its leaves what the container mounts.
func (c *container) createCgroups() error {
	id, memory := c.spec.Instance, c.spec.Memory
	if err := c.e.cg.create(id, limits{memory: memory, pids: c.e.cfg.PIDs, shares: shares(memory)}); err != nil {
		return err
	}
	for _, p := range c.procs {
		if err := c.e.cg.createFreezer(id, p.Exec); err != nil {
			return err
		}
	}
	return nil
}

// makeFiles makes the instance's folder, gates and capture files.
func (c *container) makeFiles() error {
	if err := os.MkdirAll(c.dir, 0o711); err != nil {
		return fmt.Errorf("cannot make folder of the instance: %w", err)
	}
	files := map[string]string{
		"hosts":       hostsFile(c.spec, c.e.net.gateway().String()),
		"hostname":    string(c.spec.Instance) + "\n",
		"resolv.conf": c.e.resolvConf("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"),
	}
	for name, data := range files {
		if err := writeFile(filepath.Join(c.dir, name), data, 0o644); err != nil {
			return err
		}
	}
	for _, p := range c.procs {
		if err := c.saveStartContext(p); err != nil {
			return err
		}
		if err := unix.Mkfifo(c.gate(p), 0o600); err != nil {
			return fmt.Errorf("cannot make gate: %w", err)
		}
		var err error
		if p.outPath, p.errPath, err = c.applog.CreateCapture(string(c.spec.Instance), p.Exec); err != nil {
			return err
		}
		if err := c.follow(p, onTime); err != nil {
			return err
		}
	}
	return nil
}

// resolvConf is the first of the host's files that names a server which others
// than the host itself can reach, without those that they cannot.
func resolvConf(paths ...string) string {
	var text string
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var kept strings.Builder
		servers := 0
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			isServer := len(f) > 1 && f[0] == "nameserver"
			if isServer && (strings.HasPrefix(f[1], "127.") || f[1] == "::1") {
				continue
			}
			if isServer {
				servers++
			}
			kept.WriteString(line)
		}
		if text = kept.String(); servers > 0 {
			break
		}
	}
	return text
}

// createContainer makes the container's record. Without a network namespace it
// gets one of its own, with nothing but a loopback.
func (c *container) createContainer(ctx context.Context, netns string) error {
	s := c.spec
	oci := c.e.base.ociSpec(s, place{dir: c.dir, netns: netns, cgroups: c.e.cg.ociPath(s.Instance), guard: c.guardFor()})
	any, err := typeurl.MarshalAny(oci)
	if err != nil {
		return fmt.Errorf("cannot encode OCI spec: %w", err)
	}
	_, err = c.e.client.ContainerService().Create(ctx, containers.Container{
		ID: c.id, Labels: labels(s, c.e.boot), Spec: any,
		Runtime:     containers.RuntimeInfo{Name: runtimeName},
		Snapshotter: c.e.cfg.Snapshotter, SnapshotKey: c.id,
	})
	if err != nil {
		return fmt.Errorf("cannot create container: %w", err)
	}
	return nil
}

// create makes containerd's task, and the leaves beside it.
func (c *container) create(ctx context.Context, mounts []mount.Mount) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	req := &tasks.CreateTaskRequest{ContainerID: c.id}
	for _, m := range mounts {
		// Where a leaf is a cgroup of its own, runc's device filter does not reach it.
		options := append(slices.Clone(m.Options), "nodev", "nosuid")
		req.Rootfs = append(req.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: options})
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for _, p := range c.procs {
			if err := c.e.cg.createLeaf(c.spec.Instance, p.Exec, p.Memory); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		if _, err := c.e.tasks.Create(gctx, req); err != nil {
			return fmt.Errorf("cannot create task: %w", native(err))
		}
		r, err := c.e.tasks.Start(gctx, &tasks.StartRequest{ContainerID: c.id})
		if err != nil {
			return fmt.Errorf("cannot start task: %w", native(err))
		}
		c.initPID, c.initBorn = int(r.Pid), bornAt(int(r.Pid))
		return nil
	})
	return g.Wait()
}

// startAll starts every launcher, which then waits at its gate.
func (c *container) startAll(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxMaking)
	for _, p := range c.procs {
		g.Go(func() error { return c.startOne(gctx, p) })
	}
	return g.Wait()
}

func (c *container) startOne(ctx context.Context, p *proc) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	oci, err := typeurl.MarshalAnyToProto(c.e.base.launch(p.ProcessSpec, c.spec.Stack.Shell))
	if err != nil {
		return fmt.Errorf("cannot encode process: %w", err)
	}
	_, err = c.e.tasks.Exec(ctx, &tasks.ExecProcessRequest{
		ContainerID: c.id, ExecID: p.Exec, Spec: oci,
		Stdin: c.gate(p), Stdout: p.outPath, Stderr: p.errPath,
	})
	if err != nil {
		return fmt.Errorf("cannot create process %s: %w", p.Exec, native(err))
	}
	// A failed Start still answers Wait, with 0: only its own error is believed.
	r, err := c.e.tasks.Start(ctx, &tasks.StartRequest{ContainerID: c.id, ExecID: p.Exec})
	if err != nil {
		err = native(err)
		if unavailable(err) {
			return fmt.Errorf("cannot start process %s: %w", p.Exec, err)
		}
		return &runtime.StartError{Exec: p.Exec, Source: p.Source, Reason: oneLine(err), Err: err}
	}
	p.pid, p.born = int(r.Pid), bornAt(int(r.Pid))
	p.exitTime = c.e.exitTimes.watch(p.pid) // it waits at its gate: this is in time
	return nil
}

// openGates lets every launcher go on. The FIFO's end in the shim is closed in
// the background: it frees descriptors there and nothing waits for it.
func (c *container) openGates(ctx context.Context) error {
	for _, p := range c.procs {
		if err := openGate(ctx, c.gate(p)); err != nil {
			return fmt.Errorf("cannot open gate of %s: %w", p.Exec, err)
		}
	}
	for _, p := range c.procs {
		c.work.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
			defer cancel()
			// The process may have ended already: then there is nothing to close.
			_, _ = c.e.tasks.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: c.id, ExecID: p.Exec, Stdin: true})
		})
	}
	return nil
}

// openGate writes the one byte that a launcher waits for. A gate that is gone
// was opened before.
func openGate(ctx context.Context, path string) error {
	f, err := openFIFO(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write([]byte{'\n'})
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

// openFIFO opens the writing end. The shim may not have opened its own yet when
// it reports the process as started.
func openFIFO(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.ENXIO) {
			return f, err
		}
		if perr := pause(ctx, wait); perr != nil {
			// Nothing is known to be wrong with the app: it is tried again.
			return nil, fmt.Errorf("%w: %w: %w", runtime.ErrUnavailable, err, perr)
		}
	}
}

func (c *container) gate(p *proc) string { return filepath.Join(c.dir, p.Exec+".gate") }

// writeFile writes a run-time file whole: a reader sees all of it or none. It is
// not made durable, because the run folder is not.
func writeFile(path, data string, mode fs.FileMode) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	_, err = f.WriteString(data)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil { // the umask has no say
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// punctuality says whether what a capture file already holds was printed while
// no daemon read it.
type punctuality bool

const (
	onTime punctuality = false
	late   punctuality = true
)

// follow attaches the readers of a process's output.
func (c *container) follow(p *proc, when punctuality) error {
	src := logstream.Source{Type: p.Source, Index: c.spec.Slot.Index, InstanceID: string(c.spec.Instance)}
	freeze := func(frozen bool) error { return c.e.cg.freeze(c.spec.Instance, p.Exec, frozen) }
	capture := logstream.Capture{Source: src, Exec: p.Exec, Late: when == late, Freeze: freeze, Limit: c.limit}
	capture.Paused = capture.Late && c.e.cg.frozen(c.spec.Instance, p.Exec)
	for _, s := range []struct {
		stream logstream.Stream
		tail   **logstream.Tail
	}{{logstream.Out, &p.out}, {logstream.Err, &p.err}} {
		capture.Stream = s.stream
		tail, err := c.applog.Tail(capture)
		if err != nil {
			return fmt.Errorf("cannot follow output of %s: %w", p.Exec, err)
		}
		*s.tail = tail
	}
	return nil
}
