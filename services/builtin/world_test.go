//go:build integration

package builtin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/containerd/private"
	"github.com/dewrun/dew/runtime/supervisor"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

const (
	testUID    = 2000
	testFolder = "dewdb"
)

// shared is shared by all tests of the package: dew-init and one containerd.
var shared struct {
	bin    string
	daemon *private.Daemon
}

var discard = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	complain := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", testFolder)
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(dir)
	shared.bin = filepath.Join(dir, "bin")
	c := exec.Command("go", "build", "-trimpath", testkit.NoSymbols, "-o", shared.bin+"/", "../../cmd/dew-init")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := os.MkdirAll(shared.bin, 0o755); err != nil {
		return complain(err)
	}
	if b, err := c.CombinedOutput(); err != nil {
		return complain(fmt.Errorf("cannot build dew-init: %w\n%s", err, b))
	}
	shared.daemon, err = private.Start(context.Background(), private.Config{
		Binary: "containerd", Root: filepath.Join(dir, "c", "root"), Run: filepath.Join(dir, "c", "run"), Logger: discard,
	})
	if err != nil {
		return complain(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { shared.daemon.Supervise(ctx) })
	code := m.Run()
	cancel()
	wg.Wait()
	if err := shared.daemon.Stop(context.Background()); err != nil {
		return complain(err)
	}
	return code
}

// world is a daemon with databases but without listeners. It can exit and start again.
type world struct {
	t         *testing.T
	root, run string
	subnet    netip.Prefix
	machine   string // Config.Machine
	stacks    func(ctx context.Context, p Programs, progress func(string)) (string, error)
	reserve   int64
	measure   time.Duration

	db      *store.DB
	books   *logstream.Logs
	engine  *containerd.Engine
	sup     *supervisor.Supervisor
	broker  *Broker
	stopAll func()

	mu      sync.Mutex
	lines   []string // of the daemon's log, guarded by mu
	stepLog []string // of all instances, as users can see them, guarded by mu
}

var worlds byte // makes subnets differ; tests run one after the other

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", testFolder)
	if err != nil {
		t.Fatal(err)
	}
	worlds++
	w := &world{
		t: t, root: filepath.Join(dir, "root"), run: filepath.Join(dir, "run"), reserve: 1 << 20,
		subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 203, worlds, 0}), 24),
	}
	t.Cleanup(func() {
		w.leave()
		w.open()
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		if err := w.engine.TearDown(ctx); err != nil {
			t.Errorf("cannot tear down: %v", err)
		}
		w.leave()
		os.RemoveAll(dir)
	})
	return w
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

// Write receives a line of the daemon's log.
func (w *world) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, string(b))
	return len(b), nil
}

func (w *world) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// open opens store, logs and engine, without running anything yet.
func (w *world) open() {
	w.t.Helper()
	w.must(os.MkdirAll(w.root, 0o755))
	w.must(os.MkdirAll(w.run, 0o755))
	var err error
	w.db, err = store.Open(filepath.Join(w.root, "dew.db"), store.Options{Format: 1})
	w.must(err)
	w.books, err = logstream.Open(filepath.Join(w.root, "logs"), logstream.Options{Reserve: 1 << 20, Logger: w.logger()})
	w.must(err)
	w.engine, err = containerd.New(context.Background(), containerd.Config{
		Names: names.For(w.root), Run: w.run, Address: shared.daemon.Address(), Init: filepath.Join(shared.bin, "dew-init"),
		UID: testUID, GID: testUID, Subnet: w.subnet, Snapshotter: "overlayfs", Seccomp: ocispec.NativeArch, PIDs: 1024,
		HostPorts: []uint16{8484}, Crashed: containerd.Crashed{Dir: filepath.Join(w.root, "crashed"), Bytes: 1 << 30, Reserve: 1 << 20},
		Logs: w.books, Logger: w.logger(),
	})
	w.must(err)
}

// boot starts everything as a daemon does.
func (w *world) boot() {
	w.t.Helper()
	w.open()
	shelf, err := droplet.NewDroplets(w.db, filepath.Join(w.root, "droplets"))
	w.must(err)
	stacks := stack.New(stack.HostOptions{UID: testUID, GID: testUID})
	w.sup, err = supervisor.New(supervisor.Config{
		Engine: w.engine, Registry: registry.New(w.db), Droplets: shelf, Stacks: stacks.Get, Logs: runtime.AppLogs{Logs: w.books}, DB: w.db,
		Cell: "cell-of-the-test", Subnet: w.subnet, PublicURL: "http://127.0.0.1:8484", Logger: w.logger(),
	})
	w.must(err)
	w.broker, err = New(Config{
		DB: w.db, Host: w.sup, Dir: filepath.Join(w.root, "services"), UID: testUID, GID: testUID, Logger: w.logger(),
		Machine: w.machine, Stacks: w.stacks, Reserve: w.reserve, Measure: w.measure, Say: w.say,
		Changed: w.changed,
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.check(ctx, w.sup.Run(ctx)) })
	wg.Go(func() { w.engine.Keep(ctx) })
	wg.Go(func() { w.check(ctx, w.broker.Run(ctx)) })
	w.stopAll = func() { cancel(); wg.Wait() }
}

// say writes a dew message into the log of an instance.
func (w *world) say(guid, line string) {
	e := logstream.Envelope{Source: logstream.Source{Type: "CELL"}, Stream: logstream.Err, Text: []byte(line)}
	if err := (runtime.AppLogs{Logs: w.books}).Append(guid, e); err != nil {
		w.t.Errorf("cannot say %q: %v", line, err)
	}
}

// changed records the step of an instance. Polling could miss a step.
func (w *world) changed(guid string) {
	rec, err := w.broker.get(guid)
	if err != nil {
		return // it was deleted
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepLog = append(w.stepLog, rec.Step)
}

func (w *world) check(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		w.t.Errorf("a part of the daemon ended: %v", err)
	}
}

// leave stops the daemon; its servers keep running.
func (w *world) leave() {
	if w.stopAll != nil {
		w.stopAll()
	}
	if w.engine != nil {
		if err := errors.Join(w.engine.Close(), w.books.Close(), w.db.Close()); err != nil {
			w.t.Errorf("cannot leave: %v", err)
		}
	}
	w.stopAll, w.engine = nil, nil
}

// whole returns the complete stored log of a server.
func (w *world) whole(guid string) string {
	w.t.Helper()
	es, err := (runtime.AppLogs{Logs: w.books}).NewestOf(context.Background(), guid, 1<<20, logstream.Filter{})
	w.must(err)
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintln(&b, e.String())
	}
	return b.String()
}

// log returns the logs of a server and of the daemon, for failures.
func (w *world) log(guid string) string {
	var b strings.Builder
	if es, err := (runtime.AppLogs{Logs: w.books}).NewestOf(context.Background(), guid, 60, logstream.Filter{}); err == nil {
		for _, e := range es {
			fmt.Fprintln(&b, e.String())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lines[max(0, len(w.lines)-20):] {
		b.WriteString(l)
	}
	return b.String()
}

func (w *world) eventually(what, guid string, ok func() error) {
	w.t.Helper()
	if err := testkit.Until(ok); err != nil {
		w.t.Fatalf("the condition was not met in time: %s: %v\n%s", what, err, w.log(guid))
	}
}

// ctx returns a context that testkit.Patience limits.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	w.t.Cleanup(cancel)
	return ctx
}

func request(a services.Action, guid, engine, plan, parameters string) services.InstanceRequest {
	return services.InstanceRequest{
		Action: a, Instance: guid, Offering: offeringID(engine), Plan: planID(engine, plan),
		Parameters: []byte(parameters), Context: services.Context{InstanceName: "my-" + engine},
	}
}

// ask sends a request for an instance and waits until its operation finishes.
func (w *world) ask(r services.InstanceRequest) services.Progress {
	w.t.Helper()
	p, err := w.broker.Instance(w.ctx(), r)
	w.must(err)
	w.eventually(string(r.Action)+" ends", r.Instance, func() error {
		if p.State != services.InProgress {
			return nil
		}
		p, err = w.broker.LastOperation(w.ctx(), services.LastOperationRequest{Action: r.Action, Instance: r.Instance, Operation: p.Operation})
		w.must(err)
		return fmt.Errorf("%s: %s", p.State, p.Description)
	})
	return p
}

// succeed is like ask, but the operation must succeed.
func (w *world) succeed(r services.InstanceRequest) {
	w.t.Helper()
	p := w.ask(r)
	if p.State != services.Succeeded {
		w.t.Fatalf("%s %s: %s\n%s", r.Action, p.State, p.Description, w.log(r.Instance))
	}
}

// steps returns all steps that users could have seen so far.
func (w *world) steps() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.stepLog)
}
