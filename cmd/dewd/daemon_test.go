//go:build integration || systemd || bench

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// patience limits every wait; only a hang reaches it.
const patience = testkit.Patience

// programs is the folder with dewd, dew, dew-init, dew-sftp and the apps of tests.
var programs string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if moment := os.Getenv("DEW_TEST_DIE"); moment != "" {
		return runKilledDewd(moment)
	}
	if programs = os.Getenv("DEW_TEST_BIN"); programs != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "dew")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	if err := os.Chmod(dir, 0o755); err != nil { // one test runs dewd as an unprivileged user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := buildPrograms(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// buildPrograms builds dewd and all other programs of the tests.
func buildPrograms(dir string) error {
	packages := []string{"../dew", "../dew-init", "../dew-sftp", "../../runtime/containerd/testdata/testapp", "./testdata/routeapp", "./testdata/instance"}
	if benching { // without it, builds reuse no dependencies
		packages = append(packages, "../dew-buildpack")
	}
	others := exec.Command("go", append([]string{"build", "-trimpath", testkit.NoSymbols, "-o", dir + "/"}, packages...)...)
	others.Env = append(os.Environ(), "CGO_ENABLED=0")
	dewd := exec.Command("go", "build", "-trimpath", testkit.NoSymbols, "-o", dir+"/", ".")
	dewd.Env = others.Env
	if !benching { // the daemon under test also detects races
		dewd.Args = slices.Insert(dewd.Args, 2, "-race")
		dewd.Env = os.Environ()
	}
	for _, c := range []*exec.Cmd{others, dewd} {
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", c, err, out)
		}
	}
	return nil
}

// parallelSlots limits the number of tests that run at the same time on a machine
// with many processors. The machine has subnets for 16 daemons.
var parallelSlots = make(chan struct{}, 4)

// runParallel lets a test run in parallel with others: a cell shares nothing with
// another one. Tests that measure time do not use it.
func runParallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	parallelSlots <- struct{}{}
	t.Cleanup(func() { <-parallelSlots })
}

// cell is a root with a dewd, which a test can only start and kill.
type cell struct {
	t           testing.TB
	root, run   string
	bin         string // folder of dewd, dew and dew-init
	names       names.Names
	cmd         *exec.Cmd
	said        *testkit.Buffer // dewd's output so far
	extraOutput io.Writer       // also gets dewd's output; can be nil
	flags       []string
	env         []string
	gone        bool
}

// freeAddress returns an address without a listener.
func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testkit.FreePorts(t, 1))
}

// newCell creates a root whose dewd uses a private containerd, so that a test can kill
// that as well.
func newCell(t testing.TB, flags ...string) *cell {
	t.Helper()
	dir, err := os.MkdirTemp("", "dew")
	if err == nil {
		err = os.Chmod(dir, 0o711) // users of containers find their root file system below it
	}
	if err != nil {
		t.Fatal(err)
	}
	return newCellIn(t, dir, flags...)
}

// newCellIn creates the cell in a folder, which is removed at the end of the test.
func newCellIn(t testing.TB, dir string, flags ...string) *cell {
	t.Helper()
	c := &cell{t: t, root: filepath.Join(dir, "root"), run: filepath.Join(dir, "run"), bin: programs, flags: flags}
	c.names = names.For(c.root)
	if err := os.MkdirAll(filepath.Join(c.root, "containerd"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.tearDown()
		os.RemoveAll(dir)
	})
	return c
}

// tearDown tears down the cell, once.
func (c *cell) tearDown() {
	if c.gone {
		return
	}
	c.gone = true
	if c.cmd != nil {
		c.kill(syscall.SIGKILL)
	}
	if out, err := c.command("teardown").CombinedOutput(); err != nil {
		c.t.Errorf("teardown: %v\n%s", err, out)
	}
	if _, err := os.Stat(c.run); !errors.Is(err, os.ErrNotExist) {
		c.t.Errorf("teardown left the run folder: %v", err)
	}
}

func (c *cell) command(args ...string) *exec.Cmd {
	args = append(args, "--root", c.root, "--run", c.run, "--init", filepath.Join(c.bin, "dew-init"), "--log-reserve", "1MiB",
		"--listen", "127.0.0.1:0", "--router", "127.0.0.1:0", "--ssh", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", "--router-tls", "127.0.0.1:0")
	return exec.Command(filepath.Join(c.bin, "dewd"), args...)
}

// start runs dewd and waits until it is ready.
func (c *cell) start() {
	c.t.Helper()
	c.launch()
	c.awaitSocket()
}

func (c *cell) awaitSocket() {
	c.t.Helper()
	c.eventually("dewd is ready", func() error {
		_, err := os.Stat(filepath.Join(c.run, socketName))
		return err
	})
}

// launch starts dewd and does not wait.
func (c *cell) launch() {
	c.t.Helper()
	c.launchAs(filepath.Join(c.bin, "dewd"))
}

// launchAs starts a program as dewd, with additional environment variables.
func (c *cell) launchAs(program string, env ...string) {
	c.t.Helper()
	// A socket of an earlier dewd would look like a ready one.
	if err := os.Remove(filepath.Join(c.run, socketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	c.cmd = c.command("--log-level", "debug")
	c.cmd.Args = append(c.cmd.Args, c.flags...) // the last flag of a name wins
	c.cmd.Path, c.cmd.Env = program, append(os.Environ(), env...)
	c.said = &testkit.Buffer{}
	c.cmd.Stdout, c.cmd.Stderr = c.said, c.said
	if c.extraOutput != nil {
		w := io.MultiWriter(c.said, c.extraOutput)
		c.cmd.Stdout, c.cmd.Stderr = w, w
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// kill sends a signal to dewd and waits until it has exited.
func (c *cell) kill(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("cannot kill dewd: %v\n%s", err, c.said)
	}
	err := c.cmd.Wait()
	if sig == syscall.SIGTERM && err != nil {
		c.t.Errorf("dewd left with %v, want status 0\n%s", err, c.said)
	}
	if strings.Contains(c.said.String(), "DATA RACE") {
		c.t.Errorf("dewd has a data race:\n%s", c.said)
	}
	c.cmd = nil
}

// diskState is the state on disk, while no dewd runs.
type diskState struct {
	reg      *registry.Registry
	droplets *droplet.Droplets
	exits    *runtime.ExitLog
	logs     *logstream.Logs
}

// read opens the state of the root. dewd must not be running.
func (c *cell) read(fn func(b diskState)) {
	c.t.Helper()
	db, err := store.Open(filepath.Join(c.root, "dew.db"), store.Options{Format: storeFormat})
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close()
	droplets, err := droplet.NewDroplets(db, filepath.Join(c.root, "droplets"))
	if err != nil {
		c.t.Fatal(err)
	}
	logs, err := logstream.Open(filepath.Join(c.root, "logs"), logstream.Options{Reserve: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	defer logs.Close()
	fn(diskState{reg: registry.New(db), droplets: droplets, exits: runtime.NewExitLog(db, 0), logs: logs})
}

const guid = "11111111-1111-4111-8111-111111111111"

// storeApp stores one app with a sidecar.
func (c *cell) storeApp(command, sidecar string, change ...func(p *app.Process)) {
	c.t.Helper()
	check := func(err error) {
		if err != nil {
			c.t.Helper()
			c.t.Fatal(err)
		}
	}
	c.read(func(b diskState) {
		image, err := b.droplets.AddImage(bytes.NewReader(image(c.t)))
		check(err)
		check(b.droplets.Put(droplet.Droplet{GUID: "d", App: guid, Stack: "host", Image: image}))
		_, err = b.reg.PutApp(app.App{GUID: guid, Name: "sample", Space: "dev", State: app.Stopped, Droplet: "d"})
		check(err)
		_, err = b.reg.UpdateProcess(guid, func(p *app.Process) error {
			p.Command, p.MemoryMB, p.HealthCheck.Type = command, 128, app.CheckProcess
			for _, fn := range change {
				fn(p)
			}
			return nil
		})
		check(err)
		if sidecar != "" {
			_, err = b.reg.PutSidecar(app.Sidecar{GUID: "s", App: guid, Name: "config server", Command: sidecar, ProcessTypes: []string{"web"}, MemoryMB: 32})
			check(err)
		}
		_, err = b.reg.UpdateApp(guid, func(a *app.App) error { a.State = app.Started; return nil })
		check(err)
	})
}

// image returns a droplet's tree with testapp in it.
func image(t testing.TB) []byte {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Name: "app/", Mode: 0o755, Typeflag: tar.TypeDir}),
		w.WriteHeader(&tar.Header{Name: "app/testapp", Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg}),
	)
	_, werr := w.Write(program)
	if err := errors.Join(err, werr, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// leaves returns the processes of every instance by leaf, from the cgroup files.
func (c *cell) leaves() map[string]map[string][]int {
	found := map[string]map[string][]int{}
	for _, base := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		files, _ := filepath.Glob(filepath.Join(base, c.names.Cgroup, "*", "*", "cgroup.procs"))
		for _, f := range files {
			leaf := filepath.Dir(f)
			id := filepath.Base(filepath.Dir(leaf))
			if found[id] == nil {
				found[id] = map[string][]int{}
			}
			b, _ := os.ReadFile(f)
			for _, s := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(s); err == nil && pid > 0 {
					found[id][filepath.Base(leaf)] = append(found[id][filepath.Base(leaf)], pid)
				}
			}
		}
	}
	return found
}

// settled waits for exactly n instances whose main process and sidecar run their
// commands, not only the launcher, and returns them.
func (c *cell) settled(n int, not ...string) map[string]map[string][]int {
	c.t.Helper()
	var got map[string]map[string][]int
	c.eventually(fmt.Sprintf("%d instances run", n), func() error {
		got = c.leaves()
		for id, leaves := range got {
			if slices.Contains(not, id) {
				return fmt.Errorf("instance %s is still there", id)
			}
			for _, leaf := range []string{"main", "sidecar-0"} {
				// The shell and its sleep run, so nothing changes by itself any more.
				if len(leaves[leaf]) < 2 {
					return fmt.Errorf("instance %s: its command does not run in %s yet: %v", id, leaf, leaves)
				}
			}
		}
		if len(got) != n {
			return fmt.Errorf("%d instances", len(got))
		}
		return nil
	})
	return got
}

func only(t testing.TB, m map[string]map[string][]int) (id string, leaves map[string][]int) {
	t.Helper()
	for id, leaves := range m {
		return id, leaves
	}
	t.Fatal("no instance")
	return "", nil
}

func (c *cell) eventually(what string, ok func() error) {
	c.t.Helper()
	if err := testkit.Until(ok); err != nil {
		if c.cmd != nil {
			c.kill(syscall.SIGQUIT) // it prints its goroutines
		}
		c.t.Fatalf("the condition was not met in time: %s: %v\ndewd said:\n%s", what, err, c.said)
	}
}

// privatePID returns the PID of the private containerd.
func (c *cell) privatePID() int {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.run, "containerd", "containerd.pid"))
	if err != nil {
		c.t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		c.t.Fatal(err)
	}
	return pid
}

func killPID(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("cannot kill %d: %v", pid, err)
	}
}

// recordLines returns the exit record lines of the app's log.
func recordLines(t testing.TB, b diskState) []string {
	t.Helper()
	var found []string
	for _, e := range allLines(t, b) {
		if strings.HasPrefix(string(e.Text), "App instance exited") {
			found = append(found, string(e.Text))
		}
	}
	return found
}

func allLines(t testing.TB, b diskState) []logstream.Envelope {
	t.Helper()
	l, err := b.logs.App(guid)
	if err != nil {
		t.Fatal(err)
	}
	var all []logstream.Envelope
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for cur := l.Cursor(1); uint64(len(all)) < l.LastSeq(); {
		es, err := cur.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, es...)
	}
	return all
}

// dewCommand returns a dew command for this cell.
func (c *cell) dewCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, "dew"), args...)
	cmd.Env = append(os.Environ(), "DEW_RUN="+c.run, "DEW_HOME="+filepath.Dir(c.root))
	return cmd
}

// dew runs a command that must succeed.
func (c *cell) dew(args ...string) {
	c.t.Helper()
	if out, err := c.dewCommand(args...).CombinedOutput(); err != nil {
		c.t.Fatalf("dew %s: %v\n%s\ndewd said:\n%s", strings.Join(args, " "), err, out, c.said)
	}
}
