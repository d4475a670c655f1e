//go:build integration || bench

package containerd

import (
	"archive/tar"
	"bytes"
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

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/containerd/private"
	"github.com/dewrun/dew/runtime/disk"
	"github.com/dewrun/dew/runtime/policy"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/runtime/supervisor"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// shared is shared by all tests of the package: the programs they run and one
// containerd.
var shared struct {
	bin    string // has dew-init and testapp
	image  []byte // a droplet's tree with testapp in it
	dir    string
	daemon *private.Daemon
}

var discard = slog.New(slog.DiscardHandler)

// cleanupContext returns a context for the end of a test, when the test's own context
// is done.
func cleanupContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dew")
	if err == nil {
		err = os.Chmod(dir, 0o711) // the users of a container find their root file system below it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared.dir = dir
	if err := setUpShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { shared.daemon.Supervise(ctx) })
	code := m.Run()
	cancel()
	wg.Wait()
	if err := shared.daemon.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func setUpShared() error {
	if err := buildPrograms(); err != nil {
		return err
	}
	var err error
	if shared.image, err = makeImage(filepath.Join(shared.bin, "testapp")); err != nil {
		return err
	}
	shared.daemon, err = startContainerd(filepath.Join(shared.dir, "c"))
	return err
}

func startContainerd(dir string) (*private.Daemon, error) {
	return private.Start(context.Background(), private.Config{
		Binary: "containerd", Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Logger: discard,
	})
}

// buildPrograms compiles the programs for the instances, unless DEW_TEST_BIN names a
// folder that has them. That is for a guest without a compiler.
func buildPrograms() error {
	if shared.bin = os.Getenv("DEW_TEST_BIN"); shared.bin != "" {
		return nil
	}
	shared.bin = filepath.Join(shared.dir, "bin")
	for out, pkg := range map[string]string{"dew-init": "../../cmd/dew-init", "testapp": "./testdata/testapp"} {
		c := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(shared.bin, out), pkg)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if b, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build %s: %w\n%s", pkg, err, b)
		}
	}
	return nil
}

func makeImage(program string) ([]byte, error) {
	b, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Name: "app/", Mode: 0o755, Typeflag: tar.TypeDir}),
		w.WriteHeader(&tar.Header{Name: "app/testapp", Mode: 0o755, Size: int64(len(b)), Typeflag: tar.TypeReg}),
	)
	_, werr := w.Write(b)
	err = errors.Join(err, werr, w.Close())
	return buf.Bytes(), err
}

// world is the state of one daemon: its own root, and everything except the HTTP
// listeners, connected as in dewd. It can be stopped and started again.
type world struct {
	t         testing.TB
	root, run string
	address   string // address of containerd
	policy    policy.Policy
	spares    int
	logs      logstream.Options
	logDir    string
	subnet    int
	disks     disk.Config
	hostUsers bool // instances have the users of the machine

	db          *store.DB
	reg         *registry.Registry
	droplets    *droplet.Droplets
	appLogs     *logstream.Logs
	engine      *Engine
	sup         *supervisor.Supervisor
	stopRunning func()
	image       string
	daemonLog   *testkit.Buffer
}

var worlds int // makes subnets differ: tests run one after the other

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, shared.daemon.Address())
}

// newWorldOn returns a world on another containerd than the shared one.
func newWorldOn(t testing.TB, address string) *world {
	t.Helper()
	dir := testkit.ShortDir(t)
	worlds++
	w := &world{
		t: t, root: filepath.Join(dir, "root"), run: filepath.Join(dir, "run"), address: address,
		subnet: worlds % 250, daemonLog: &testkit.Buffer{},
		logs: logstream.Options{Reserve: 1 << 20},
	}
	w.logDir, w.disks.Dir = filepath.Join(w.root, "logs"), filepath.Join(w.root, "disks")
	t.Cleanup(func() {
		w.leave()
		w.tearDown()
	})
	w.open()
	w.image = testkit.Must(w.droplets.AddImage(bytes.NewReader(shared.image)))(t)
	return w
}

// open opens the store, the logs and the engine, without running anything yet.
func (w *world) open() {
	w.t.Helper()
	must := func(err error) {
		if err != nil {
			w.t.Helper()
			w.t.Fatal(err)
		}
	}
	must(os.MkdirAll(w.root, 0o755))
	must(os.MkdirAll(w.run, 0o755))
	var err error
	w.db, err = store.Open(filepath.Join(w.root, "dew.db"), store.Options{Format: 1})
	must(err)
	w.reg = registry.New(w.db)
	w.droplets, err = droplet.NewDroplets(w.db, filepath.Join(w.root, "droplets"))
	must(err)
	w.logs.Logger = w.logger()
	w.appLogs, err = logstream.Open(w.logDir, w.logs)
	must(err)
	w.engine, err = New(context.Background(), w.config())
	must(err)
}

func (w *world) config() Config {
	return Config{
		Names: names.For(w.root), Run: w.run, Address: w.address, Init: filepath.Join(shared.bin, "dew-init"),
		UID: 2000, GID: 2000, Subnet: w.prefix(), Snapshotter: "overlayfs", Seccomp: ocispec.NativeArch, PIDs: 1024, OwnUsers: !w.hostUsers,
		HostPorts: []uint16{8484}, Crashed: Crashed{Dir: filepath.Join(w.root, "crashed"), Bytes: 1 << 30, Reserve: 1 << 20}, Disks: w.disks, Images: w.droplets.OpenImage, Logs: w.appLogs, Logger: w.logger(),
	}
}

// boot runs the supervisor as a daemon does from its start.
func (w *world) boot() {
	w.t.Helper()
	if w.db == nil {
		w.open()
	}
	var err error
	w.sup, err = supervisor.New(supervisor.Config{
		Engine: w.engine, Registry: w.reg, Droplets: w.droplets, Stacks: w.stack, Logs: runtime.AppLogs{Logs: w.appLogs}, DB: w.db,
		Cell: "cell-of-the-test", Subnet: w.prefix(), PublicURL: "http://127.0.0.1:8484", Policy: w.policy, Spares: w.spares, Logger: w.logger(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.reg.Listen(w.sup.Sync)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.sup.Run(ctx); err != nil && ctx.Err() == nil {
			w.t.Errorf("supervisor ended: %v", err)
		}
	})
	wg.Go(func() { w.engine.Keep(ctx) })
	w.stopRunning = func() { cancel(); wg.Wait() }
}

// leave stops the daemon; its apps keep running.
func (w *world) leave() {
	if w.stopRunning != nil {
		w.stopRunning()
	}
	if w.engine != nil {
		if err := errors.Join(w.engine.Close(), w.appLogs.Close(), w.db.Close()); err != nil {
			w.t.Errorf("cannot leave: %v", err)
		}
	}
	w.stopRunning, w.engine, w.db, w.sup = nil, nil, nil, nil
}

func (w *world) tearDown() {
	w.open()
	defer w.leave()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := w.engine.TearDown(ctx); err != nil {
		w.t.Errorf("cannot tear down: %v", err)
	}
	if all := testkit.Must(w.engine.conn.Client.NamespaceService().List(ctx))(w.t); slices.Contains(all, w.engine.cfg.Names.Namespace) {
		w.t.Errorf("namespaces of containerd = %v, want %s deleted", all, w.engine.cfg.Names.Namespace)
	}
}

func (w *world) stack(name string) (stack.Stack, error) { return stacks.Get(name) }

var stacks = stack.New(stack.HostOptions{UID: 2000, GID: 2000})

func (w *world) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w.daemonLog, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testApp is one app of a test.
type testApp struct {
	name     string
	memory   int
	disk     int // MB; 0: the default
	command  string
	check    app.HealthCheck
	types    map[string]string // further process types and their commands
	sidecars []app.Sidecar
	count    int
	spoil    func() // called before the app starts
}

// put writes an app into the store and starts the app.
func (w *world) put(x testApp) app.Process {
	w.t.Helper()
	must := func(err error) {
		if err != nil {
			w.t.Helper()
			w.t.Fatal(err)
		}
	}
	guid := guidOf(x.name)
	must(w.droplets.Put(droplet.Droplet{GUID: "droplet-of-" + guid, App: guid, Stack: "host", Image: w.image, CreatedAt: time.Now()}))
	a, err := w.reg.PutApp(app.App{GUID: guid, Name: x.name, Space: "dev", State: app.Stopped, Stack: "host", Droplet: "droplet-of-" + guid})
	must(err)
	p, err := w.reg.UpdateProcess(guid, func(p *app.Process) error {
		p.Command, p.MemoryMB, p.Instances = x.command, max(x.memory, 64), max(x.count, 1)
		p.HealthCheck = x.check
		if x.disk > 0 {
			p.DiskMB = x.disk
		}
		if p.HealthCheck.Type == "" {
			p.HealthCheck.Type = app.CheckProcess
		}
		return nil
	})
	must(err)
	for typ, cmd := range x.types {
		_, err := w.reg.PutProcess(app.Process{GUID: guid + "-" + typ, App: guid, Type: typ, Command: cmd, Instances: 1, MemoryMB: 64})
		must(err)
	}
	for i, s := range x.sidecars {
		s.GUID, s.App = fmt.Sprintf("%s-sidecar-%d", guid, i), guid
		if s.ProcessTypes == nil {
			s.ProcessTypes = []string{"web"}
		}
		_, err := w.reg.PutSidecar(s)
		must(err)
	}
	if x.spoil != nil {
		x.spoil()
	}
	_, err = w.reg.UpdateApp(a.GUID, func(a *app.App) error { a.State = app.Started; return nil })
	must(err)
	p, err = w.reg.Process(p.GUID)
	must(err)
	return p
}

// guidOf derives a guid from a name, so that failures are readable.
func guidOf(name string) string {
	return "00000000-0000-4000-8000-" + fmt.Sprintf("%012x", []byte(fmt.Sprintf("%-6.6s", name)))[:12]
}

func (w *world) stop(p app.Process) {
	w.t.Helper()
	if _, err := w.reg.UpdateApp(p.App, func(a *app.App) error { a.State = app.Stopped; return nil }); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the app is down", func() error {
		for _, st := range w.sup.Instances(p.GUID) {
			if st.State != runtime.Down {
				return fmt.Errorf("slot %d is %s", st.Slot.Index, st.State)
			}
		}
		return nil
	})
}

// spare waits for the spare of an app: its launchers wait at their gates.
func (w *world) spare() *container {
	w.t.Helper()
	var c *container
	w.eventually("a spare waits", func() error {
		all := w.engine.waiting.all()
		if len(all) != 1 {
			return fmt.Errorf("%d instances wait", len(all))
		}
		c = all[0]
		return nil
	})
	return c
}

// running waits for a running instance other than the given ones.
func (w *world) running(p app.Process, not ...runtime.InstanceID) runtime.Status {
	w.t.Helper()
	return w.state(p, runtime.Running, not...)
}

func (w *world) state(p app.Process, want runtime.State, not ...runtime.InstanceID) runtime.Status {
	w.t.Helper()
	var got runtime.Status
	w.eventually(fmt.Sprintf("%s is %s", p.GUID, want), func() error {
		sts := w.sup.Instances(p.GUID)
		for _, st := range sts {
			if st.State == want && !slices.Contains(not, st.Instance) {
				got = st
				return nil
			}
		}
		return fmt.Errorf("instances: %+v", sts)
	})
	return got
}

// records waits for n exit records of a process.
func (w *world) records(p app.Process, n int) []runtime.ExitRecord {
	w.t.Helper()
	var rs []runtime.ExitRecord
	w.eventually(fmt.Sprintf("%d exit records", n), func() error {
		var err error
		rs, err = runtime.NewExitLog(w.db, 0).Process(p.GUID)
		if err == nil && len(rs) < n {
			err = fmt.Errorf("%d records", len(rs))
		}
		return err
	})
	return rs
}

// record waits for the nth record and its completion.
func (w *world) record(p app.Process, n int) runtime.ExitRecord {
	w.t.Helper()
	var r runtime.ExitRecord
	w.eventually(fmt.Sprintf("exit record %d is complete", n), func() error {
		rs := w.records(p, n)
		r = rs[n-1]
		if !r.Complete {
			return errors.New("not complete")
		}
		return nil
	})
	return r
}

// lines reads the whole current log of an app.
func (w *world) lines(guid string) []logstream.Envelope {
	w.t.Helper()
	l, err := w.appLogs.App(guid)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []logstream.Envelope
	cur := l.Cursor(1)
	for last := l.LastSeq(); uint64(len(all)) < last; {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		es, err := cur.Next(ctx)
		cancel()
		if err != nil {
			w.t.Fatalf("cannot read log: %v", err)
		}
		all = append(all, es...)
	}
	return all
}

// line waits for a line that contains text, from a source with the suffix from.
func (w *world) line(guid, from, text string) logstream.Envelope {
	w.t.Helper()
	var got logstream.Envelope
	w.eventually(fmt.Sprintf("line %q from %s", text, from), func() error {
		es := w.lines(guid)
		for _, e := range es {
			if strings.HasSuffix(e.Source.Type, from) && strings.Contains(string(e.Text), text) {
				got = e
				return nil
			}
		}
		return fmt.Errorf("log is:\n%s", printed(es))
	})
	return got
}

func printed(es []logstream.Envelope) string {
	var b strings.Builder
	for _, e := range es[max(0, len(es)-40):] {
		fmt.Fprintln(&b, e.String())
	}
	return b.String()
}

func (w *world) eventually(what string, ok func() error) {
	w.t.Helper()
	if err := testkit.Until(ok); err != nil {
		said := strings.SplitAfter(w.daemonLog.String(), "\n")
		w.t.Fatalf("the condition was not met in time: %s: %v\nthe daemon said:\n%s", what, err, strings.Join(said[max(0, len(said)-30):], ""))
	}
}

// pids returns the processes of a leaf.
func (w *world) pids(id runtime.InstanceID, exec string) []int {
	w.t.Helper()
	var pids []int
	w.eventually("processes in leaf "+exec, func() error {
		var err error
		pids, err = w.engine.cg.Procs(id, exec)
		if err == nil && len(pids) == 0 {
			err = errors.New("none")
		}
		return err
	})
	return pids
}

// mainPID returns the first process of a leaf: the one containerd waits for.
func (w *world) mainPID(id runtime.InstanceID, exec string) int {
	w.t.Helper()
	return leader(w.pids(id, exec))
}

// leader returns the process whose parent is not among pids. The numbers give no order,
// because they wrap around.
func leader(pids []int) int {
	for _, pid := range pids {
		if s, ok := process.ReadStat(process.Dir(pid)); ok && !slices.Contains(pids, s.Parent) {
			return pid
		}
	}
	return pids[0]
}

func sidecar(name, command string, memory int) app.Sidecar {
	return app.Sidecar{Name: name, Command: command, MemoryMB: memory, ProcessTypes: []string{"web"}}
}

// prefix returns a subnet that differs from those of other tests and of a daemon.
func (w *world) prefix() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 202, byte(w.subnet), 0}), 24)
}

// execs lists the execs of an instance that containerd knows.
func (w *world) execs(id runtime.InstanceID) []string {
	w.t.Helper()
	var found []string
	for _, exec := range []string{"main", "sidecar-0", "sidecar-1", "sidecar-2"} {
		if _, err := w.engine.conn.Process(context.Background(), names.Container(id), exec); err == nil {
			found = append(found, exec)
		}
	}
	return found
}

// containers lists the containers of this world.
func (w *world) containers() []string {
	w.t.Helper()
	cs, err := w.engine.conn.Client.ContainerService().List(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	var ids []string
	for _, c := range cs {
		ids = append(ids, c.ID)
	}
	return ids
}

// isCommand checks that main has become the program of that name.
func (w *world) isCommand(id runtime.InstanceID, name string) error {
	pids, err := w.engine.cg.Procs(id, "main")
	if err != nil || len(pids) == 0 {
		return fmt.Errorf("no process: %w", err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pids[0]))
	if got := strings.TrimSpace(string(b)); err != nil || got != name {
		return fmt.Errorf("it is %s, %w", got, err)
	}
	return nil
}
