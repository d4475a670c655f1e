package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/process"
)

// startTimeout limits the wait until a started dewd answers.
const startTimeout = 2 * time.Minute

// pause is the time between two checks of a condition.
const pause = 20 * time.Millisecond

// World is one dewd with its folders, listeners and containers.
type World struct {
	Dir    string // has everything below
	Root   string
	Run    string
	Bin    string // folder of the programs
	API    string // address of the API
	Router string // address of the router
	SSH    string // address of the SSH server
	Names  names.Names
	Client *client.Client

	flags  []string
	log    *os.File
	volume string   // folder with the files of the root, to read them without FUSE
	faults *faultFS // nil for a copy

	mu         sync.Mutex // guards the fields below
	cmd        *exec.Cmd
	exited     chan struct{} // closed when cmd has exited
	expected   int           // above 0, dewd can exit
	held       bool          // dewd is not started again
	starts     int
	unexpected []string // exits of dewd that nothing explains
	closed     bool
	once       bool            // dewd is not started again
	down       bool            // TearDown was called
	checked    int64           // bytes of dewd's output that Faulty has read
	unfinished map[string]bool // see Unfinished
	slots      map[string]Slot // of the instances that Instances found last, by id
}

// New creates the folders of a world in dir. Start starts its dewd.
func New(dir, bin string, flags ...string) (*World, error) {
	w, err := open(dir, bin, flags...)
	if err != nil {
		return nil, err
	}
	w.volume = filepath.Join(dir, "volume")
	if err := w.mountRoot(); err != nil {
		return nil, err
	}
	return w, nil
}

// Plain is New without a file system of its own for the root, for tests that break no
// disk.
func Plain(dir, bin string, flags ...string) (*World, error) {
	w, err := open(dir, bin, flags...)
	if err != nil {
		return nil, err
	}
	// With this folder, dewd starts a private containerd even if the machine has one.
	return w, os.MkdirAll(filepath.Join(w.Root, "containerd"), 0o700)
}

// open returns a world in a folder, and creates nothing but the file for the output.
func open(dir, bin string, flags ...string) (*World, error) {
	w := &World{Dir: dir, Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Bin: bin, unfinished: map[string]bool{}}
	w.volume = w.Root
	w.Names = names.For(w.Root)
	var err error
	if w.Client, err = client.New(client.Options{Run: w.Run}); err != nil {
		return nil, err
	}
	if w.log, err = os.OpenFile(w.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	addresses, err := freeAddresses(3)
	if err != nil {
		return nil, err
	}
	w.API, w.Router, w.SSH = addresses[0], addresses[1], addresses[2]
	w.flags = append([]string{
		"--listen", w.API, "--router", w.Router, "--ssh", w.SSH, "--tcp-ports=", "--router-tls=", "--listen-tls=",
		"--log-reserve", "1MiB", "--log-level", "debug", "--kill-delay", "2s", "--immediate-restarts", "1000000", "--give-up-after", "1000000",
		"--crash-records", "10000", "--crash-files", "0", "--log-retention", "48MiB",
	}, flags...)
	return w, nil
}

// freeAddresses returns addresses without a listener. They stay the same after a restart
// of dewd, so they cannot come from the kernel at each start.
func freeAddresses(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // it is closed at once
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// LogFile is the file with the output of dewd.
func (w *World) LogFile() string { return filepath.Join(w.Dir, "dewd.log") }

// command returns a command of dewd with the folders of this world.
func (w *World) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.Bin, "dewd"), append(args, "--root", w.Root, "--run", w.Run, "--init", filepath.Join(w.Bin, "dew-init"))...)
	return cmd
}

// Start starts dewd, and starts it again when it exits, until Close.
func (w *World) Start(ctx context.Context) error {
	if err := w.launch(); err != nil {
		return err
	}
	return w.Answers(ctx)
}

// launch starts dewd once, and a goroutine that starts the next one.
func (w *World) launch() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.held || w.cmd != nil || w.once && w.starts > 0 {
		return nil
	}
	cmd := w.command()
	cmd.Args = append(cmd.Args, w.flags...)
	cmd.Stdout, cmd.Stderr = w.log, w.log
	// Signals to the process group of the suite must not reach dewd.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start dewd: %w", err)
	}
	w.cmd, w.exited = cmd, make(chan struct{})
	w.starts++
	go w.watch(cmd, w.exited)
	return nil
}

// watch waits for the exit of a dewd and starts the next one, as systemd does.
func (w *World) watch(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	w.mu.Lock()
	w.cmd = nil
	if w.expected == 0 && !w.closed {
		w.unexpected = append(w.unexpected, fmt.Sprintf("dewd exited without a fault: %v", err))
	}
	w.mu.Unlock()
	close(exited)
	for w.launch() != nil { // the machine can be out of memory for a moment
		<-time.After(time.Second)
	}
}

// Answers waits until dewd answers requests.
func (w *World) Answers(ctx context.Context) error {
	err := Until(ctx, startTimeout, func() error {
		_, err := w.Client.Daemon().Root(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("dewd does not answer: %w\n%s", err, w.LogTail())
	}
	return nil
}

// Until waits until ok returns nil, and returns its last error after the limit.
func Until(ctx context.Context, limit time.Duration, ok func() error) error {
	for end := time.Now().Add(limit); ; {
		err := ok()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// Expect lets dewd exit until the returned function is called. Without it, an exit of
// dewd is a defect.
func (w *World) Expect() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.expected--
	})
}

// Kill kills dewd and waits until it has exited. The next one starts at once.
func (w *World) Kill() error {
	defer w.Expect()()
	cmd, exited := w.running()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot kill dewd: %w", err)
	}
	<-exited
	return nil
}

// Hold kills dewd and starts no other one until the returned function is called.
func (w *World) Hold() (release func() error, err error) {
	w.mu.Lock()
	w.held = true
	w.mu.Unlock()
	return func() error {
		w.mu.Lock()
		w.held = false
		w.mu.Unlock()
		return w.launch()
	}, w.Kill()
}

func (w *World) running() (*exec.Cmd, chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cmd, w.exited
}

// Dewd returns the pid of the running dewd.
func (w *World) Dewd() (int, error) {
	cmd, _ := w.running()
	if cmd == nil {
		return 0, errors.New("dewd does not run")
	}
	return cmd.Process.Pid, nil
}

// Containerd returns the pid of the private containerd.
func (w *World) Containerd() (int, error) {
	b, err := os.ReadFile(filepath.Join(w.Run, "containerd", "containerd.pid"))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err == nil && !process.Alive(pid) {
		err = fmt.Errorf("containerd %d has exited", pid)
	}
	return pid, err
}

// Starts returns how often dewd was started.
func (w *World) Starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

// Unexpected returns the exits of dewd that no fault explains.
func (w *World) Unexpected() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.unexpected...)
}

// Dew runs a command of dew.
func (w *World) Dew(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(w.Bin, "dew"), args...)
	cmd.Env = append(os.Environ(), "DEW_RUN="+w.Run, "DEW_HOME="+w.Dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("dew %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// LogTail returns the last lines of dewd's output.
func (w *World) LogTail() string {
	const most = 8000
	b, err := os.ReadFile(w.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}

// Stop kills dewd for good. Its containers stay.
func (w *World) Stop() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	return w.Kill()
}

// TearDown stops dewd and removes everything of this world outside its folders. It can be
// repeated.
func (w *World) TearDown() error {
	w.mu.Lock()
	done := w.down
	w.down = true
	w.mu.Unlock()
	if done {
		return nil
	}
	stopped := w.Stop()
	out, err := w.command("teardown").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("dewd teardown: %w\n%s", err, out)
	}
	return errors.Join(stopped, err, w.unmountRoot())
}
