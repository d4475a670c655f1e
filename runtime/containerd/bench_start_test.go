//go:build bench

package containerd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/images"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/userns"
	"github.com/dewrun/dew/testkit"
)

// BenchmarkStart measures the start of an instance with one sidecar, until both
// commands run. The floor is the time of containerd and runc alone for the same. This
// is a container, a task and two execs, one after the other, with the same OCI spec.
func BenchmarkStart(b *testing.B) {
	w := newWorld(b)
	f := newFloor(b, w.engine)
	var floor, gates, running, unlimited, hostUsers, neither series
	for b.Loop() {
		w.oneStart(b) // creates the image, which is not part of a start
		for range repetitions(b, 30) {
			w.settle(b)
			floor = append(floor, f.oneStart(b, w.startSpec(b)))
			w.settle(b)
			g, r := w.oneStart(b)
			gates, running = append(gates, g), append(running, r)
			unlimited = append(unlimited, w.startWith(b, 0, true))
			hostUsers = append(hostUsers, w.startWith(b, 1<<30, false))
			neither = append(neither, w.startWith(b, 0, false))
		}
	}
	r := newResult(b)
	b.ReportMetric(ms(floor.median()), "floor-ms")
	b.ReportMetric(ms(running.median()), "start-ms")
	b.ReportMetric(ms(floor.quantile(0.9)), "floor-ms-p90")
	b.ReportMetric(ms(running.quantile(0.9)), "start-ms-p90")
	b.ReportMetric(ms(unlimited.median()), "unlimited-ms")
	b.ReportMetric(ms(hostUsers.median()), "host-users-ms")
	b.ReportMetric(ratio(running.median(), neither.median()), "start/neither")
	b.ReportMetric(ratio(running.median(), floor.median()), "start/floor")
	r.row(fmt.Sprintf("%d turns", len(floor)), "median", "p90", "p99", "max")
	r.spread("floor", floor)
	r.spread("dew, gates open", gates)
	r.spread("dew, commands run", running)
	r.spread("without a disk limit", unlimited)
	r.spread("without user namespace", hostUsers)
	r.spread("without either", neither)
	r.row("both against neither", ratio(running.median(), neither.median()), "goal: at most 1.10")
	r.row("ratio", ratio(running.median(), floor.median()), "goal: at most 1.00")
	r.row("of the floor (medians):", f.steps())
	r.print("start of an instance with one sidecar")
}

// startWith measures a start with or without a disk limit and users of its own.
func (w *world) startWith(b *testing.B, disk int64, ownUsers bool) time.Duration {
	b.Helper()
	w.settle(b)
	w.engine.cfg.OwnUsers = ownUsers
	defer func() { w.engine.cfg.OwnUsers = true }()
	s := w.startSpec(b)
	s.Disk = disk
	_, running := w.measureStart(b, s)
	return running
}

// benchCommand is the command of the processes in the benchmarks.
const benchCommand = "sleep"

// startSpec returns an instance with one sidecar, as the supervisor would request it.
func (w *world) startSpec(b *testing.B) runtime.Spec {
	b.Helper()
	stack, err := w.stack("host")
	if err != nil {
		b.Fatal(err)
	}
	env := []string{
		"HOME=/home/vcap/app", "PWD=/home/vcap/app", "TMPDIR=/home/vcap/tmp", "USER=vcap", "LANG=en_US.UTF-8",
		"PATH=/usr/local/bin:/usr/bin:/bin", "PORT=8080", "VCAP_SERVICES={}",
	}
	process := func(exec, name string, memory int64) runtime.ProcessSpec {
		return runtime.ProcessSpec{
			Exec: exec, Name: name, Source: runtime.ProcessSource("web", name), Command: "exec " + benchCommand + " 3600",
			Dir: "/home/vcap/app", Env: env, Memory: memory,
		}
	}
	return runtime.Spec{
		Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), App: guidOf("bench"), Type: "web", Version: "1", Cell: "bench",
		Slot:  runtime.SlotID{Process: guidOf("bench")},
		Stack: stack, Image: w.image, Memory: 96 << 20, Disk: 1 << 30, Ports: []int{8080},
		Address:   netip.PrefixFrom(w.prefix().Addr().Next().Next(), w.prefix().Bits()),
		Processes: []runtime.ProcessSpec{process(runtime.MainExec, "", 64<<20), process(runtime.SidecarExec(0), "agent", 32<<20)},
	}
}

// oneStart measures one start: until the gates were open, and until the commands ran.
// It removes the instance afterwards.
func (w *world) oneStart(b *testing.B) (gates, running time.Duration) {
	b.Helper()
	return w.measureStart(b, w.startSpec(b))
}

func (w *world) measureStart(b *testing.B, s runtime.Spec) (gates, running time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	begin := time.Now()
	c, err := w.engine.Start(ctx, s)
	gates = time.Since(begin)
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range c.(*container).procs {
		awaitCommand(b, p.pid)
	}
	running = time.Since(begin)
	if err := c.Delete(ctx); err != nil {
		b.Fatal(err)
	}
	return gates, running
}

// awaitCommand returns as soon as a process has become its command. Both sides of the
// comparison stop with it.
func awaitCommand(b *testing.B, pid int) {
	b.Helper()
	comm := filepath.Join("/proc", fmt.Sprint(pid), "comm")
	err := testkit.UntilEvery(50*time.Microsecond, func() error {
		name, err := os.ReadFile(comm)
		if err != nil {
			return testkit.Finally(err)
		}
		if got := strings.TrimSpace(string(name)); got != benchCommand {
			return fmt.Errorf("process %d is still %s", pid, got)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// floor starts the parts of an instance with only containerd's own client.
type floor struct {
	e      *Engine
	client *client.Client

	snapshot, container, task, start, execs series
}

func newFloor(b *testing.B, e *Engine) *floor {
	b.Helper()
	cl, err := client.New(e.cfg.Address, client.WithDefaultNamespace(e.cfg.Names.Namespace))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cl.Close() })
	return &floor{e: e, client: cl}
}

// steps returns how the floor's time is divided.
func (f *floor) steps() string {
	return fmt.Sprintf("snapshot %.1f, container %.1f, create task %.1f, start task %.1f, each exec %.1f ms",
		ms(f.snapshot.median()), ms(f.container.median()), ms(f.task.median()), ms(f.start.median()), ms(f.execs.median()))
}

// oneStart measures one start. The spec's resources on the host, including the network
// namespace, exist before and take no time here.
func (f *floor) oneStart(b *testing.B, s runtime.Spec) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	parent, err := f.createResources(ctx, s)
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	pids, err := f.run(ctx, s, parent)
	if err != nil {
		b.Fatal(err)
	}
	for _, pid := range pids {
		awaitCommand(b, pid)
	}
	took := time.Since(begin)
	if err := f.e.removeAll(ctx, s.Instance, ""); err != nil {
		b.Fatal(err)
	}
	return took
}

// createResources creates the resources that the OCI spec names, and the image.
func (f *floor) createResources(ctx context.Context, s runtime.Spec) (string, error) {
	dir := f.e.instanceDir(s.Instance)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	for _, name := range []string{"hosts", "hostname", "resolv.conf"} {
		if err := runfile.Write(filepath.Join(dir, name), "", 0o644); err != nil {
			return "", err
		}
	}
	if err := errors.Join(f.e.net.Create(s.Instance, userns.Range{}), f.e.net.Connect(s.Instance, s.Address)); err != nil {
		return "", err
	}
	return f.e.images.Parent(ctx, s)
}

func (f *floor) run(ctx context.Context, s runtime.Spec, parent string) ([]int, error) {
	e, id := f.e, names.Container(s.Instance)
	oci := e.base.Container(s, ocispec.Paths{Dir: e.instanceDir(s.Instance), Netns: e.net.Path(s.Instance), Cgroups: e.cg.OCIPath(s.Instance)})
	last := time.Now()
	lap := func(ts *series) {
		now := time.Now()
		*ts, last = append(*ts, now.Sub(last)), now
	}
	_, err := f.client.SnapshotService(e.cfg.Snapshotter).Prepare(ctx, id, parent,
		snapshots.WithLabels(map[string]string{images.GCRoot: "instance"}))
	if err != nil {
		return nil, err
	}
	lap(&f.snapshot)
	c, err := f.client.NewContainer(ctx, id, client.WithSpec(oci), client.WithRuntime(runtimeName, nil), onSnapshot(e.cfg.Snapshotter, id))
	if err != nil {
		return nil, err
	}
	lap(&f.container)
	t, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return nil, err
	}
	lap(&f.task)
	if err := t.Start(ctx); err != nil {
		return nil, err
	}
	lap(&f.start)
	var pids []int
	for _, p := range s.Processes {
		x, err := t.Exec(ctx, p.Exec, e.base.Process([]string{"/usr/bin/" + benchCommand, "3600"}, p.Dir, p.Env), cio.NullIO)
		if err != nil {
			return nil, err
		}
		if err := x.Start(ctx); err != nil {
			return nil, err
		}
		lap(&f.execs)
		pids = append(pids, int(x.Pid()))
	}
	return pids, nil
}

// onSnapshot is the shortest way to set the snapshot of a container.
func onSnapshot(snapshotter, key string) client.NewContainerOpts {
	return func(_ context.Context, _ *client.Client, c *containers.Container) error {
		c.Snapshotter, c.SnapshotKey = snapshotter, key
		return nil
	}
}
