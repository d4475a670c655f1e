//go:build integration

package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	coreContainers "github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
)

// Starts, crashes and stops leave nothing behind.
func TestNothingIsLeftBehind(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	var ps []app.Process
	for i := range times(3, 5) {
		ps = append(ps, w.put(testApp{
			name: fmt.Sprintf("leak%d", i), memory: 128, command: "trap 'exit 0' TERM; " + idle,
			sidecars: []app.Sidecar{sidecar("s", idle, 32)},
		}))
	}
	for range runtime.KeptPerApp { // creates everything that is created once: stack, image, log segments, and the stored crashes
		w.cycle(t, ps)
	}
	w.wantRemnants(len(ps) * runtime.KeptPerApp)
	before := w.settled(t, "containers", "netns", "veths", "shims")
	for range times(2, 40) {
		w.cycle(t, ps)
	}
	w.eventually("the same as before", func() error {
		if diff := cmp.Diff(before, w.census(t)); diff != "" {
			return fmt.Errorf("(-before +after):\n%s", diff)
		}
		return nil
	})
	for _, p := range ps {
		if err := w.reg.DeleteApp(p.App); err != nil {
			t.Fatal(err)
		}
	}
	w.wantRemnants(0)
}

// containerd can complete a call of a canceled start after dewd removed the instance. dewd
// removes the instance once more, after some time, and no other instance.
func TestLateCallsOfACanceledStart(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	stack, err := w.stack("")
	if err != nil {
		t.Fatal(err)
	}
	spec := func(n int) runtime.Spec {
		addr := w.prefix().Addr().Next()
		for range n {
			addr = addr.Next()
		}
		return runtime.Spec{
			Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), Slot: runtime.SlotID{Process: "late"},
			App: guidOf("late"), Type: "web", Version: "v1", Cell: "cell-of-the-test", Stack: stack, Image: w.image,
			Memory: 64 << 20, Disk: 1 << 30, Address: netip.PrefixFrom(addr, 24), Ports: []int{8080},
			Processes: []runtime.ProcessSpec{{
				Exec: runtime.MainExec, Source: "APP/PROC/WEB", Command: idle, Dir: "/home/vcap/app", Env: []string{"PATH=/bin:/usr/bin"},
			}},
		}
	}
	canceled, next := spec(1), spec(2)
	cut, cancel := context.WithCancel(ctx)
	prepared := make(chan error, 1)
	go func() {
		_, err := w.engine.Prepare(cut, canceled, make(chan struct{})) // its processes never run
		prepared <- err
	}()
	name := names.Container(canceled.Instance)
	w.eventually("the container exists", func() error {
		if !slices.Contains(w.containers(), name) {
			return errors.New("it does not")
		}
		return nil
	})
	cancel()
	if err := <-prepared; err == nil {
		t.Fatal("a canceled start succeeded")
	}
	if _, err := w.engine.Start(ctx, next); err != nil {
		t.Fatal(err)
	}
	snapshotter, containers := w.engine.images.Snapshotter(), w.engine.conn.Client.ContainerService()
	late := func() (left []string) {
		if _, err := snapshotter.Stat(ctx, name); err == nil {
			left = append(left, "snapshot")
		}
		if slices.Contains(w.containers(), name) {
			left = append(left, "container")
		}
		return left
	}
	if left := late(); left != nil {
		t.Fatalf("the canceled start left its %v", left)
	}
	if _, err := snapshotter.Prepare(ctx, name, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := containers.Create(ctx, coreContainers.Container{ID: name, Runtime: coreContainers.RuntimeInfo{Name: runtimeName}, Spec: &anypb.Any{}}); err != nil {
		t.Fatal(err)
	}
	w.engine.removals.lateTime = time.Hour
	w.engine.retryRemovals(ctx)
	if left := late(); len(left) != 2 {
		t.Errorf("before the time is over, only the %v is left", left)
	}
	w.engine.removals.lateTime = time.Nanosecond
	w.engine.retryRemovals(ctx)
	if left := late(); left != nil {
		t.Errorf("the late %v is still there", left)
	}
	if !slices.Contains(w.containers(), names.Container(next.Instance)) || len(w.pids(next.Instance, runtime.MainExec)) == 0 {
		t.Error("the next instance does not run any more")
	}
	if err := w.engine.Left(); err != nil {
		t.Error(err)
	}
}

const idle = "while :; do sleep 1000 & wait; done"

// cycle takes every app through a start, a crash, a restart and a stop.
func (w *world) cycle(t *testing.T, ps []app.Process) {
	t.Helper()
	for _, p := range ps {
		w.setState(p, app.Started)
	}
	for _, p := range ps {
		st := w.running(p)
		kill(t, w.commandPID(st.Instance, "sidecar-0"))
		w.running(p, st.Instance)
	}
	for _, p := range ps {
		w.setState(p, app.Stopped)
	}
	for _, p := range ps {
		w.stop(p)
	}
}

func (w *world) setState(p app.Process, s app.State) {
	w.t.Helper()
	if _, err := w.reg.UpdateApp(p.App, func(a *app.App) error { a.State = s; return nil }); err != nil {
		w.t.Fatal(err)
	}
}

// settled returns a census that no longer changes, without the named resources. The
// kernel needs time to remove links, and goroutines need time to exit.
func (w *world) settled(t *testing.T, none ...string) (n map[string]int) {
	t.Helper()
	var since time.Time
	w.eventually("nothing changes any more", func() error {
		now := w.census(t)
		for _, key := range none {
			if now[key] != 0 {
				return fmt.Errorf("%d %s", now[key], key)
			}
		}
		if diff := cmp.Diff(n, now); diff != "" {
			n, since = now, time.Now()
			return fmt.Errorf("still changing:\n%s", diff)
		}
		if time.Since(since) < time.Second {
			return errors.New("it is unchanged for less than a second")
		}
		return nil
	})
	return n
}

// census counts all resources that an instance could leave behind.
func (w *world) census(t *testing.T) map[string]int {
	t.Helper()
	ctx := context.Background()
	n := map[string]int{"containers": len(w.containers())}
	count := func(key string, err error, add int) {
		if err != nil {
			t.Fatalf("cannot count %s: %v", key, err)
		}
		n[key] += add
	}
	err := w.engine.images.Snapshotter().Walk(ctx, func(_ context.Context, _ snapshots.Info) error { n["snapshots"]++; return nil })
	count("snapshots", err, 0)
	ls, err := w.engine.conn.Client.LeasesService().List(ctx)
	count("leases", err, len(ls))
	ns, err := w.engine.net.Namespaces()
	count("netns", err, len(ns))
	vs, err := w.engine.net.Veths()
	count("veths", err, len(vs))
	for _, m := range w.engine.cg.All {
		err := filepath.WalkDir(filepath.Join(m, w.engine.cg.Parent), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				n["cgroups"]++
			}
			return nil
		})
		count("cgroups", err, 0)
	}
	captures, err := filepath.Glob(filepath.Join(w.logDir, "*", "capture", "*"))
	count("captures", err, len(captures))
	dirs, err := filepath.Glob(filepath.Join(w.run, "instances", "*"))
	count("folders", err, len(dirs))
	kept, err := filepath.Glob(filepath.Join(w.root, "crashed", "*"))
	count("kept", err, len(kept))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	count("mounts", err, strings.Count(string(mounts), "\n"))
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	count("shims", err, 0)
	for _, f := range cmdlines {
		b, _ := os.ReadFile(f)
		if strings.Contains(string(b), w.engine.cfg.Names.Namespace) && strings.Contains(string(b), "shim") {
			n["shims"]++
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	count("file descriptors", err, len(fds))
	n["goroutines"] = goruntime.NumGoroutine()
	return n
}
