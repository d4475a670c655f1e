//go:build bench

package containerd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/policy"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/testkit"
)

// BenchmarkCrash kills a sidecar repeatedly. The floor is the moment when a plain
// client that waits for the same process receives its exit. The first figure of dew is
// the moment when a reader of the log has the exit record. The second is the moment
// when the next instance runs. Its floor is a start by containerd and runc alone, in
// turn with the crashes. A second daemon keeps a spare instance of its app; its crashes are
// in turn with both.
func BenchmarkCrash(b *testing.B) {
	w := newWorld(b)
	w.policy = policy.Policy{ImmediateRestarts: 1 << 20, MaxCrashes: 1 << 20}
	w.boot()
	c := newCrasher(b, w)
	f := newFloor(b, w.engine)
	ahead := newWorld(b)
	ahead.policy, ahead.spares = w.policy, 1
	ahead.boot()
	c2 := newCrasher(b, ahead)
	var heard, record, behind, again, bare, spared series
	for b.Loop() {
		for range repetitions(b, 100) {
			x := c.crash(b)
			heard = append(heard, x.heard.Sub(x.killed))
			record = append(record, x.record.Sub(x.killed))
			behind = append(behind, x.record.Sub(x.heard))
			again = append(again, x.running.Sub(x.killed))
			w.settle(b)
			bare = append(bare, f.oneStart(b, w.spareSpec(b)))
			ahead.spare()
			w.settle(b)
			x = c2.crash(b)
			spared = append(spared, x.running.Sub(x.killed))
		}
	}
	b.ReportMetric(ms(spared.median()), "with-a-spare-ms")
	b.ReportMetric(ratio(spared.median(), bare.median()), "with-a-spare/bare-start")
	r := newResult(b)
	b.ReportMetric(ms(behind.median()), "record-behind-wait-p50-ms")
	b.ReportMetric(ms(behind.quantile(0.99)), "record-behind-wait-p99-ms")
	b.ReportMetric(ms(again.median()), "crash-to-running-ms")
	b.ReportMetric(ms(bare.median()), "bare-start-ms")
	b.ReportMetric(ratio(again.median(), bare.median()), "crash-to-running/bare-start")
	r.row(fmt.Sprintf("%d crashes, from SIGKILL", len(heard)), "median", "p90", "p99", "max")
	r.spread("floor: client's Wait returns", heard)
	r.spread("exit record in the log", record)
	r.spread("record behind Wait", behind)
	r.spread("next instance RUNNING", again)
	r.spread("the same with --spare-instances", spared)
	r.spread("floor: a bare start", bare)
	r.row("goal: record behind Wait", "", "", "at most 10 ms")
	r.print("end of a sidecar")
}

// spareSpec is startSpec with an address that no instance has.
func (w *world) spareSpec(b *testing.B) runtime.Spec {
	b.Helper()
	s := w.startSpec(b)
	addr := s.Address.Addr()
	for range 200 {
		addr = addr.Next()
	}
	s.Address = netip.PrefixFrom(addr, s.Address.Bits())
	return s
}

// seen is an exit record that was read.
type seen struct {
	text string
	at   time.Time
}

// crasher kills the sidecar of one app.
type crasher struct {
	w       *world
	process app.Process
	plain   tasks.TasksClient
	records chan seen // exit records, as a live reader received them
	last    runtime.InstanceID
}

func newCrasher(b *testing.B, w *world) *crasher {
	b.Helper()
	cl, err := client.New(w.address, client.WithDefaultNamespace(w.config().Names.Namespace))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cl.Close() })
	c := &crasher{
		w: w, plain: cl.TaskService(), records: make(chan seen, 16),
		process: w.put(testApp{
			name: "crash", memory: 96, command: "exec sleep 3600",
			sidecars: []app.Sidecar{sidecar("agent", "exec sleep 3600", 32)},
		}),
	}
	l, err := w.appLogs.App(c.process.App)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.read(ctx, b, l.Cursor(1))
	}()
	b.Cleanup(func() { cancel(); <-done })
	return c
}

// read follows the app's log like any reader.
func (c *crasher) read(ctx context.Context, b *testing.B, cur *logstream.Cursor) {
	for {
		es, err := cur.Next(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.Errorf("cannot follow the log: %v", err)
			return
		}
		for _, e := range es {
			if e.Source.Type == "API" && strings.HasPrefix(string(e.Text), "App instance exited") {
				c.records <- seen{string(e.Text), now}
			}
		}
	}
}

// crashed has the times of one crash.
type crashed struct{ killed, heard, record, running time.Time }

func (c *crasher) crash(b *testing.B) crashed {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	st := c.w.running(c.process, c.last)
	c.last = st.Instance
	exec := runtime.SidecarExec(0)
	pid := c.w.mainPID(st.Instance, exec)
	awaitCommand(b, pid)
	heard := make(chan time.Time, 1)
	go func() {
		_, err := c.plain.Wait(ctx, &tasks.WaitRequest{ContainerID: names.Container(st.Instance), ExecID: exec})
		heard <- time.Now()
		if err != nil {
			b.Errorf("cannot wait: %v", err)
		}
	}()
	// Not during a start: the shim reports an exit late while it starts a process.
	testkit.Stays(b, "the sidecar runs", 100*time.Millisecond, func() error {
		if !process.Alive(pid) {
			return errors.New("it exited")
		}
		return nil
	})
	var x crashed
	x.killed = time.Now()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		b.Fatal(err)
	}
	x.heard = receive(ctx, b, heard)
	record := receive(ctx, b, c.records)
	if !strings.Contains(record.text, string(st.Instance)) {
		b.Fatalf("the sidecar of %s was killed, and the next record is: %s", st.Instance, record.text)
	}
	x.record = record.at
	x.running = c.next(ctx, b)
	return x
}

func receive[T any](ctx context.Context, b *testing.B, from <-chan T) T {
	b.Helper()
	select {
	case v := <-from:
		return v
	case <-ctx.Done():
		b.Fatal("the condition was not met in time for the end of a process")
		panic("unreachable")
	}
}

// next waits for another instance and returns the start of its RUNNING state.
func (c *crasher) next(ctx context.Context, b *testing.B) time.Time {
	b.Helper()
	var since time.Time
	err := testkit.UntilExactly(func() error {
		if err := ctx.Err(); err != nil {
			return testkit.Finally(err)
		}
		for _, st := range c.w.sup.Instances(c.process.GUID) {
			if st.State == runtime.Running && st.Instance != c.last {
				since = st.Since
				return nil
			}
		}
		return errors.New("no other instance is running")
	})
	if err != nil {
		b.Fatalf("cannot wait for the next instance: %v", err)
	}
	return since
}
