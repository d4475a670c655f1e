package containerd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/capture"
	"github.com/dewrun/dew/runtime/containerd/connection"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/testkit"
)

var silent = slog.New(slog.DiscardHandler)

// fakeShim is the test process itself: it holds the pipes of a process and their
// files.
type fakeShim struct {
	files, reads, writes []*os.File
}

func newFakeShim(t *testing.T) *fakeShim {
	t.Helper()
	dir, s := t.TempDir(), &fakeShim{}
	for _, name := range []string{"main.out", "main.err"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close(); r.Close(); w.Close() })
		s.files, s.reads, s.writes = append(s.files, f), append(s.reads, r), append(s.writes, w)
	}
	return s
}

// start runs a process that prints into two of the pipes.
func (s *fakeShim) start(t *testing.T, out, err *os.File) *proc {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.Stdout, cmd.Stderr = out, err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for _, w := range s.writes {
		w.Close()
	}
	return &proc{pid: cmd.Process.Pid, output: output{Output: capture.Output{OutPath: s.files[0].Name(), ErrPath: s.files[1].Name()}}}
}

func TestCaptureBroken(t *testing.T) {
	t.Parallel()
	s := newFakeShim(t)
	p := s.start(t, s.writes[0], s.writes[1])
	if p.broken(p.pid, os.Getpid()) {
		t.Error("broken while everything is open")
	}
	s.files[1].Close()
	if !p.broken(p.pid, os.Getpid()) {
		t.Error("not broken although the file behind stderr is closed")
	}
	s.reads[1].Close() // the shim holds neither: the process gets a signal and does not hang
	if p.broken(p.pid, os.Getpid()) {
		t.Error("broken although nobody holds the pipe")
	}
	if (&output{}).broken(testkit.NoPID, os.Getpid()) || p.broken(p.pid, 0) {
		t.Error("broken without a process, or without a shim")
	}
}

// With 2>&1 the shim correctly closes the file of stderr.
func TestCaptureOfMergedStreamsIsWhole(t *testing.T) {
	t.Parallel()
	s := newFakeShim(t)
	p := s.start(t, s.writes[0], s.writes[0])
	s.files[1].Close()
	s.reads[1].Close()
	if p.broken(p.pid, os.Getpid()) {
		t.Error("broken although the one pipe has its file")
	}
	s.files[0].Close()
	if !p.broken(p.pid, os.Getpid()) {
		t.Error("not broken although the only file is closed")
	}
}

func newTestContainer(t *testing.T, execs ...string) *container {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	x := &container{
		e:    &Engine{cg: fakeV2(t), log: silent, conn: &connection.Connection{}},
		spec: runtime.Spec{Instance: someInstance, Type: "web"}, id: names.Container(someInstance), dir: t.TempDir(),
		ctx: ctx, cancel: cancel,
	}
	for _, e := range execs {
		x.procs = append(x.procs, &proc{ProcessSpec: runtime.ProcessSpec{Exec: e, Source: "APP/PROC/" + e}, dir: x.dir, reaped: make(chan struct{})})
	}
	x.exits = newExitCollector(x.procs, &x.init, func() error { return nil })
	return x
}

var someTime = time.Date(2025, 11, 15, 3, 0, 0, 0, time.UTC)

func execsOf(xs []runtime.Exit) (execs []string) {
	for _, x := range xs {
		execs = append(execs, x.Exec)
	}
	return execs
}

// A late report does not make another process the first to exit. If the kernel shows a
// dead process, its report is awaited.
func TestGatherWaitsForTheDead(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main", "sidecar-0", "sidecar-1")
	synctest.Test(t, func(t *testing.T) {
		x.exits.reports = make(chan runtime.Exit, 4)
		x.procs[1].pid = testkit.NoPID                                             // dead, and not reported yet
		x.procs[2].pid, x.procs[2].born = os.Getpid(), process.BornAt(os.Getpid()) // alive
		x.exits.reports <- runtime.Exit{Exec: "main", At: someTime.Add(time.Second)}
		late := time.AfterFunc(reportLimit/2, func() { x.exits.reports <- runtime.Exit{Exec: "sidecar-0", At: someTime} })
		defer late.Stop()
		batch, ok := x.exits.gather(t.Context())
		if got, want := execsOf(batch), []string{"sidecar-0", "main"}; !ok || !slices.Equal(got, want) {
			t.Errorf("order = %v, %v, want %v", got, ok, want)
		}
	})
}

// A shim that never reports does not block the others.
func TestGatherGivesUpOnALateReport(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main", "sidecar-0")
	synctest.Test(t, func(t *testing.T) {
		x.exits.reports = make(chan runtime.Exit, 3)
		x.procs[1].pid = testkit.NoPID
		x.exits.reports <- runtime.Exit{Exec: "main", At: someTime}
		begin := time.Now()
		batch, ok := x.exits.gather(t.Context())
		if got := execsOf(batch); !ok || !slices.Equal(got, []string{"main"}) {
			t.Errorf("batch = %v, %v, want main alone", got, ok)
		}
		if got := time.Since(begin); got != reportLimit {
			t.Errorf("gave up after %v, want %v", got, reportLimit)
		}
	})
}

// A containerd that does not answer cannot report: the wait continues until it does.
func TestGatherWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main", "sidecar-0")
	synctest.Test(t, func(t *testing.T) {
		x.exits.reports = make(chan runtime.Exit, 3)
		x.procs[1].pid = testkit.NoPID
		x.exits.outage = func() error { return errors.New("containerd does not answer") }
		x.exits.reports <- runtime.Exit{Exec: "main", At: someTime.Add(time.Second)}
		late := time.AfterFunc(7*reportLimit, func() { x.exits.reports <- runtime.Exit{Exec: "sidecar-0", At: someTime} })
		defer late.Stop()
		batch, ok := x.exits.gather(t.Context())
		if got, want := execsOf(batch), []string{"sidecar-0", "main"}; !ok || !slices.Equal(got, want) {
			t.Errorf("order = %v, %v, want %v", got, ok, want)
		}
	})
}

// There is no wait if no other process is dead.
func TestGatherAlone(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main", "sidecar-0")
	synctest.Test(t, func(t *testing.T) {
		x.exits.reports = make(chan runtime.Exit, 3)
		x.procs[1].pid, x.procs[1].born = os.Getpid(), process.BornAt(os.Getpid())
		x.init.pid, x.init.born = os.Getpid(), process.BornAt(os.Getpid())
		x.exits.reports <- runtime.Exit{Exec: "main", At: someTime}
		begin := time.Now()
		if batch, ok := x.exits.gather(t.Context()); !ok || len(batch) != 1 || time.Since(begin) != 0 {
			t.Errorf("batch = %v, %v after %v, want main at once", execsOf(batch), ok, time.Since(begin))
		}
	})
}

// The exit of PID 1 ends all processes, and their times are often earlier.
func TestInitIsNamedFirst(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main", "sidecar-0")
	for _, p := range x.procs {
		p.pid = testkit.NoPID
	}
	x.init.pid = testkit.NoPID
	x.exits.reports <- runtime.Exit{Exec: "sidecar-0", At: someTime.Add(time.Millisecond)}
	x.exits.reports <- runtime.Exit{Exec: "main", At: someTime}
	x.exits.reports <- runtime.Exit{Exec: runtime.InitExec, At: someTime.Add(time.Second)}
	x.exits.collect(x.ctx)
	var got []string
	for e := range x.exits.sent {
		got = append(got, e.Exec)
		if e.Exec == runtime.InitExec && !e.At.Equal(someTime) {
			t.Errorf("PID 1 ended at %v, want %v: no later than what it took along", e.At, someTime)
		}
	}
	if want := []string{runtime.InitExec, "main", "sidecar-0"}; !slices.Equal(got, want) {
		t.Errorf("exits = %v, want %v", got, want)
	}
}

// The exit of PID 1 is not reported if dewd is deleting the instance.
func TestInitIsNotAwaitedWhileDeleting(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main")
	x.init.pid = testkit.NoPID
	if !x.exits.unreported(nil) {
		t.Error("a dead PID 1 is not waited for")
	}
	x.init.stopping.Store(true)
	if x.exits.unreported(nil) {
		t.Error("PID 1 is waited for although we ended it")
	}
}

func TestCollectEndsWhenLetGo(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main")
	x.cancel()
	x.exits.collect(x.ctx)
	select {
	case e, ok := <-x.exits.sent:
		t.Errorf("got exit %+v, %v, want nothing and no end", e, ok)
	default:
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main", "sidecar-0", "sidecar-1")
	write := func(exec, file, text string) {
		testkit.WriteFile(t, filepath.Join(x.e.cg.Memory(someInstance, exec), file), text)
	}
	write("sidecar-0", "memory.events.local", "oom_kill 1\n")
	write("sidecar-0", "memory.max", "67108864\n")
	write("sidecar-0", "memory.peak", "67108000\n")
	write("sidecar-1", "memory.events.local", "oom_kill 1\n")
	x.procs[2].captureFailed.Store(true)
	tests := []struct {
		cause  runtime.Cause
		oom    bool
		memory runtime.Memory
	}{
		{runtime.CauseExited, false, runtime.Memory{}},
		{runtime.CauseOutOfMemory, true, runtime.Memory{Limit: 67108864, Peak: 67108000}},
		{runtime.CauseCaptureFailed, true, runtime.Memory{}},
	}
	for i, tt := range tests {
		got := x.describeExit(x.procs[i], 137, someTime)
		if got.Cause != tt.cause || got.OOM != tt.oom || got.Memory != tt.memory || got.Code != 137 || !got.At.Equal(someTime) {
			t.Errorf("verdict on %s = %+v, want %+v", x.procs[i].Exec, got, tt)
		}
		if got.Exec != x.procs[i].Exec || got.Source != x.procs[i].Source {
			t.Errorf("verdict on %s names %s, %s", x.procs[i].Exec, got.Exec, got.Source)
		}
	}
}

// fakeTasks answers the calls of a test. Functions that a test does not set must not be
// called.
type fakeTasks struct {
	tasks.TasksClient
	wait  func(n int) (*tasks.WaitResponse, error)
	get   func() (*tasks.GetResponse, error)
	calls int
}

func (f *fakeTasks) Wait(context.Context, *tasks.WaitRequest, ...grpc.CallOption) (*tasks.WaitResponse, error) {
	f.calls++
	return f.wait(f.calls)
}

func (f *fakeTasks) Get(context.Context, *tasks.GetRequest, ...grpc.CallOption) (*tasks.GetResponse, error) {
	return f.get()
}

// containerd forgets an exit with the exec, so the exit is read from the folder.
func TestExitIsKept(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main")
	want := runtime.Exit{
		Exec: "main", Source: "APP/PROC/WEB", Code: 137, OOM: true, Cause: runtime.CauseOutOfMemory,
		At: someTime, Memory: runtime.Memory{Limit: 1 << 20, Peak: 1 << 19},
	}
	if err := x.procs[0].saveExit(want); err != nil {
		t.Fatal(err)
	}
	if err := x.findProcess(t.Context(), x.procs[0]); err != nil { // without a call to containerd
		t.Fatal(err)
	}
	if diff := cmp.Diff(x.procs[0].missed, &want); diff != "" {
		t.Errorf("exit read back (-got +want):\n%s", diff)
	}
	if got, ok := x.await(x.procs[0]); !ok || got != want {
		t.Errorf("await = %+v, %v, want %+v", got, ok, want)
	}
}

// If a stored status cannot be read, the instance is not given up: containerd can still
// have the status.
func TestHalfAKeptExit(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main")
	x.e.conn.Tasks = &fakeTasks{get: func() (*tasks.GetResponse, error) {
		return &tasks.GetResponse{Process: &tasktypes.Process{Pid: 4711, Status: tasktypes.Status_RUNNING}}, nil
	}}
	testkit.WriteFile(t, x.procs[0].exitFile(), `{"exec":"main","code":1`)
	if err := x.findProcess(t.Context(), x.procs[0]); err != nil || x.procs[0].missed != nil || x.procs[0].pid != 4711 {
		t.Errorf("pid %d, missed %v, %v, want what containerd says", x.procs[0].pid, x.procs[0].missed, err)
	}
}

func TestFindProcess(t *testing.T) {
	t.Parallel()
	process := func(s tasktypes.Status) func() (*tasks.GetResponse, error) {
		return func() (*tasks.GetResponse, error) {
			return &tasks.GetResponse{Process: &tasktypes.Process{Pid: 4711, Status: s}}, nil
		}
	}
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		x := newTestContainer(t, "main")
		x.e.conn.Tasks = &fakeTasks{get: process(tasktypes.Status_RUNNING)}
		if err := x.findProcess(t.Context(), x.procs[0]); err != nil || x.procs[0].pid != 4711 || x.procs[0].missed != nil {
			t.Errorf("pid %d, missed %v, %v, want it running", x.procs[0].pid, x.procs[0].missed, err)
		}
	})
	t.Run("stopped", func(t *testing.T) { // Wait returns the status, and the pid can belong to another process by now
		t.Parallel()
		x := newTestContainer(t, "main")
		x.e.conn.Tasks = &fakeTasks{get: process(tasktypes.Status_STOPPED)}
		if err := x.findProcess(t.Context(), x.procs[0]); err != nil || x.procs[0].pid != 0 || x.procs[0].missed != nil {
			t.Errorf("pid %d, missed %v, %v, want neither", x.procs[0].pid, x.procs[0].missed, err)
		}
	})
	t.Run("lost", func(t *testing.T) {
		t.Parallel()
		x := newTestContainer(t, "main")
		x.e.conn.Tasks = &fakeTasks{get: func() (*tasks.GetResponse, error) { return nil, status.Error(codes.NotFound, "gone") }}
		if err := x.findProcess(t.Context(), x.procs[0]); err != nil {
			t.Fatal(err)
		}
		if m := x.procs[0].missed; m == nil || m.Cause != runtime.CauseRuntimeLost || m.Code != -1 {
			t.Errorf("missed = %+v, want it lost", m)
		}
		if _, err := os.Stat(x.procs[0].exitFile()); err != nil {
			t.Errorf("the loss is not written down: %v", err)
		}
	})
	t.Run("containerd away", func(t *testing.T) {
		t.Parallel()
		x := newTestContainer(t, "main")
		x.e.conn.Tasks = &fakeTasks{get: func() (*tasks.GetResponse, error) { return nil, status.Error(codes.Unavailable, "away") }}
		if err := x.findProcess(t.Context(), x.procs[0]); !connection.IsUnavailable(err) || x.procs[0].missed != nil {
			t.Errorf("missed %v, %v, want that nothing is known", x.procs[0].missed, err)
		}
	})
}

func TestReapHandsOutLinesOnce(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main", "sidecar-0")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Reap(canceled, "main"); !errors.Is(err, context.Canceled) {
		t.Errorf("before its end: %v, want %v", err, context.Canceled)
	}
	printLastLine(t, x.procs[0])
	close(x.procs[0].reaped)
	for want := 1; want >= 0; want-- {
		if es, err := x.Reap(t.Context(), "main"); err != nil || len(es) != want {
			t.Errorf("lines = %v, %v, want %d", es, err, want)
		}
	}
	if es, err := x.Reap(t.Context(), "nobody"); es != nil || err != nil {
		t.Errorf("lines of nobody = %v, %v", es, err)
	}
	x.cancel()
	if _, err := x.Reap(t.Context(), "sidecar-0"); err == nil || !strings.Contains(err.Error(), "engine was closed") {
		t.Errorf("after the daemon let go: %v, want that it did", err)
	}
	if es, err := x.Reap(t.Context(), "main"); err != nil {
		t.Errorf("what ended before: %v, %v, want no error", es, err)
	}
}

// printLastLine captures one line of a process that has exited. The line has no end, so
// it is not in the log before.
func printLastLine(t *testing.T, p *proc) {
	t.Helper()
	logs, err := logstream.Open(t.TempDir(), logstream.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logs.Close() })
	if p.Log, err = logs.App("app"); err != nil {
		t.Fatal(err)
	}
	p.Capture = logstream.Capture{Source: logstream.Source{InstanceID: "instance"}, Exec: p.Exec}
	if err := p.Create(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.OutPath, []byte("last words"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Follow(capture.OnTime), p.Finish(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func TestSignalOnlyTheNamed(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main", "sidecar-0", "sidecar-1")
	cmds := map[string]*exec.Cmd{}
	for _, p := range x.procs {
		cmds[p.Exec] = testkit.Sleeper(t)
		pid := cmds[p.Exec].Process.Pid
		dir := x.e.cg.Memory(someInstance, p.Exec)
		testkit.WriteFile(t, filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
		testkit.Touch(t, dir, "cgroup.freeze", "cgroup.kill")
	}
	x.procs[2].ended.Store(true) // its pid can belong to another process
	if err := x.Signal(t.Context(), syscall.SIGKILL, "sidecar-0", "sidecar-1"); err != nil {
		t.Fatal(err)
	}
	if got := signalOf(cmds["sidecar-0"].Wait()); got != syscall.SIGKILL {
		t.Errorf("sidecar-0 ended by signal %d, want SIGKILL", got)
	}
	for _, exec := range []string{"main", "sidecar-1"} {
		if !process.Alive(cmds[exec].Process.Pid) {
			t.Errorf("%s was not meant, and is dead", exec)
		}
	}
	checkFiles(t, x.e.cg.Memory(someInstance, "sidecar-0"), map[string]string{"cgroup.freeze": "0", "cgroup.kill": "1"})
}

// If its shim is gone, the exit status of a process is unknown. That is stored as well,
// so that the next daemon does not query it again.
func TestLostProcessIsARecord(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main")
	x.e.conn.Tasks = &fakeTasks{
		wait: func(int) (*tasks.WaitResponse, error) { return nil, status.Error(codes.Unknown, "ttrpc: closed") },
		get:  func() (*tasks.GetResponse, error) { return nil, status.Error(codes.NotFound, "gone") },
	}
	got, ok := x.await(x.procs[0])
	if !ok || got.Cause != runtime.CauseRuntimeLost || got.Code != -1 || got.Detail == "" || got.At.IsZero() {
		t.Errorf("exit = %+v, %v, want it lost", got, ok)
	}
	if _, err := os.Stat(x.procs[0].exitFile()); err != nil {
		t.Errorf("it is not written down: %v", err)
	}
	x.cancel()
	if got, ok := x.await(x.procs[0]); ok {
		t.Errorf("exit = %+v although the daemon let go", got)
	}
}

func TestInitIsReportedUnlessWeEndIt(t *testing.T) {
	t.Parallel()
	x := newTestContainer(t, "main")
	x.e.conn.Tasks = &fakeTasks{wait: func(int) (*tasks.WaitResponse, error) {
		return &tasks.WaitResponse{ExitStatus: 137, ExitedAt: timestamppb.New(someTime)}, nil
	}}
	x.watchInit()
	select {
	case got := <-x.exits.reports:
		if got.Exec != runtime.InitExec || got.Cause != runtime.CauseInitExited || got.Code != 137 || got.Source != "APP/PROC/WEB" {
			t.Errorf("report = %+v, want the end of PID 1", got)
		}
	default:
		t.Error("the end of PID 1 is not reported")
	}
	x.init.stopping.Store(true)
	x.watchInit()
	select {
	case got := <-x.exits.reports:
		t.Errorf("report = %+v although we ended it", got)
	default:
	}
}
