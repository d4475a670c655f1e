package private

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/process"
)

// Config is the configuration of a private containerd.
type Config struct {
	Binary string // found on PATH unless it contains a slash
	Root   string // folder of its persistent state
	Run    string // folder of its run-time state
	Logger *slog.Logger
}

// Daemon is a private containerd. dewd starts it if none runs, takes it over from an
// earlier dewd, and starts it again if it exits. It outlives dewd, as the instances do.
type Daemon struct {
	cfg    Config
	binary string
	ended  chan struct{} // closed when the running one has exited
	pid    int
}

// bootTimeout is generous: a start takes 20 ms, but seconds on an emulated machine.
const bootTimeout = time.Minute

// Start takes over or starts a private containerd and waits for its socket.
func Start(ctx context.Context, cfg Config) (*Daemon, error) {
	d := &Daemon{cfg: cfg}
	if err := os.MkdirAll(cfg.Run, 0o711); err != nil {
		return nil, fmt.Errorf("cannot create the folder of containerd: %w", err)
	}
	if d.takeOver(ctx) {
		if err := d.awaitSocket(ctx, d.logFile()); !errors.Is(err, errEndedAtOnce) {
			return d, err
		}
	}
	binary, err := exec.LookPath(cfg.Binary)
	if err != nil {
		return nil, fmt.Errorf("cannot find %s: no containerd is running and dewd cannot start one (install the package containerd, or set --containerd)", cfg.Binary)
	}
	if _, err := exec.LookPath("runc"); err != nil {
		return nil, errors.New("cannot find runc: containerd needs it to start containers (install the package runc)")
	}
	d.binary = binary
	for tries := 1; ; tries++ {
		if err := d.start(ctx); !errors.Is(err, errEndedAtOnce) || tries == maxStarts {
			return d, err
		}
	}
}

// maxStarts is how often a start is tried, because containerd can be killed while it
// starts.
const maxStarts = 3

// errEndedAtOnce reports that containerd exited before it opened its socket.
var errEndedAtOnce = errors.New("containerd exited immediately")

// Revive starts it again if it has exited, and reports whether it had. It is for the
// time before Supervise.
func (d *Daemon) Revive(ctx context.Context) (bool, error) {
	timely, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-d.ended: // its connections break shortly before
		return true, d.restart(ctx)
	case <-timely.Done():
		return false, nil
	}
}

// Address returns its socket.
func (d *Daemon) Address() string { return filepath.Join(d.cfg.Run, "containerd.sock") }

func (d *Daemon) logFile() string { return filepath.Join(d.cfg.Root, "containerd.log") }

func (d *Daemon) configFile() string { return filepath.Join(d.cfg.Run, "containerd.toml") }

func (d *Daemon) stateDir() string { return filepath.Join(d.cfg.Run, "state") }

func (d *Daemon) pidFile() string { return filepath.Join(d.cfg.Run, "containerd.pid") }

// Supervise starts it again whenever it exits, until ctx is done. It does not stop it.
func (d *Daemon) Supervise(ctx context.Context) {
	for delay := 50 * time.Millisecond; ; {
		select {
		case <-d.ended:
		case <-ctx.Done():
			return
		}
		d.cfg.Logger.Warn("containerd exited; dewd starts it again", "pid", d.pid)
		if err := d.restart(ctx); err != nil {
			d.cfg.Logger.Error("cannot start containerd again", "err", err)
			if process.Sleep(ctx, delay) != nil {
				return
			}
			delay = min(2*delay, 10*time.Second)
			continue
		}
		delay = 50 * time.Millisecond
	}
}

func (d *Daemon) restart(ctx context.Context) error {
	if d.binary == "" {
		binary, err := exec.LookPath(d.cfg.Binary)
		if err != nil {
			return fmt.Errorf("cannot find containerd: %w", err)
		}
		d.binary = binary
	}
	return d.start(ctx)
}

// Stop stops it. Call it after the instances are stopped, because they keep running
// without it.
func (d *Daemon) Stop(ctx context.Context) error {
	if err := unix.Kill(d.pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot stop containerd: %w", err)
	}
	select {
	case <-d.ended:
	case <-ctx.Done():
		return fmt.Errorf("cannot stop containerd, pid %d: %w", d.pid, context.Cause(ctx))
	}
	return os.Remove(d.pidFile())
}

// start starts a new one. It gets its own session, so that it does not receive signals
// to dewd.
func (d *Daemon) start(ctx context.Context) error {
	conf := d.configFile()
	if err := runfile.Write(conf, d.config(), 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(d.cfg.Root, 0o711); err != nil {
		return fmt.Errorf("cannot create the folder of containerd: %w", err)
	}
	if err := d.removeDeleted(); err != nil {
		d.cfg.Logger.Warn("cannot remove what a killed containerd has left", "err", err)
	}
	out, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open containerd's log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(d.binary, "--config", conf) //nolint:noctx // it must not end with any context of ours
	cmd.Stdout, cmd.Stderr = out, out
	// Remove systemd's variables for dewd: containerd would report that it is ready in
	// place of dewd.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}, name)
	})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start containerd: %w", err)
	}
	d.pid, d.ended = cmd.Process.Pid, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait() // its own log has the reason for the exit
		close(ended)
	}(d.ended)
	if err := d.storePID(d.pid); err != nil {
		return err
	}
	if err := d.awaitSocket(ctx, d.logFile()); err != nil {
		return err
	}
	if peer := d.peer(ctx); peer == d.pid || !d.isOurs(peer) {
		return nil
	}
	// An earlier dewd was killed before it wrote the pid of the containerd that serves.
	// The new one only waits for the lock.
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("cannot stop a second containerd: %w", err)
	}
	<-d.ended
	if !d.takeOver(ctx) {
		return fmt.Errorf("%w: it served %s before", errEndedAtOnce, d.Address())
	}
	return nil
}

// removeDeleted removes the folders of tasks that a killed containerd was deleting. It
// renames such a folder to a hidden name first, and ignores hidden folders when it starts.
func (d *Daemon) removeDeleted() error {
	var errs []error
	for _, dir := range []string{d.cfg.Root, d.stateDir()} {
		hidden, err := filepath.Glob(filepath.Join(dir, "io.containerd.runtime.v2.task", "*", ".*"))
		errs = append(errs, err)
		for _, path := range hidden {
			if _, err := os.Lstat(filepath.Join(path, "rootfs")); err == nil {
				continue // the files of a container can be mounted there
			}
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

func (d *Daemon) awaitSocket(ctx context.Context, log string) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	for !answers(ctx, d.Address()) {
		select {
		case <-d.ended:
			return fmt.Errorf("%w: see the end of %s", errEndedAtOnce, log)
		default:
		}
		if err := process.Sleep(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("containerd did not open its socket: %w (see %s)", err, log)
		}
	}
	return nil
}

// takeOver finds the containerd that an earlier dewd started. It is the process that
// serves the socket, or the one in the pid file, which is possibly still starting.
func (d *Daemon) takeOver(ctx context.Context) bool {
	pid := d.peer(ctx)
	if !d.isOurs(pid) {
		pid = d.StoredPID()
	}
	if !d.isOurs(pid) || !process.Alive(pid) {
		return false
	}
	if pid != d.StoredPID() {
		// An earlier dewd was killed before it wrote the file.
		if err := d.storePID(pid); err != nil {
			d.cfg.Logger.Warn("cannot write the pid of containerd", "err", err)
		}
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	d.pid, d.ended = pid, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		defer unix.Close(fd)
		for {
			// It is not a child process: its exit makes the pidfd readable.
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}(d.ended)
	return true
}

func (d *Daemon) storePID(pid int) error {
	return runfile.Write(d.pidFile(), strconv.Itoa(pid), 0o600)
}

// StoredPID returns the pid in the pid file, or 0 if there is none.
func (d *Daemon) StoredPID() int {
	b, err := os.ReadFile(d.pidFile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// peer returns the pid of the process that serves the socket, or 0 if none does.
func (d *Daemon) peer(ctx context.Context) int {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", d.Address())
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}

// isOurs reports whether the process runs with dewd's configuration. This detects a pid
// that was reused by another process.
func (d *Daemon) isOurs(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && slices.Contains(strings.Split(string(b), "\x00"), d.configFile())
}

// SocketAnswers reports whether a process listens at a socket. A socket file that no
// process serves is an error, unlike a missing socket.
func SocketAnswers(ctx context.Context, path string) (bool, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if !answers(ctx, path) {
		return false, fmt.Errorf("no process answers at the socket %s", path)
	}
	return true, nil
}

func answers(ctx context.Context, path string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// config disables the plugins that dew never uses, for a quick start and a small
// process. CRI alone would open ports and start a CNI watcher.
func (d *Daemon) config() string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]

[grpc]
address = %q

[ttrpc]
address = %q
`, d.cfg.Root, d.stateDir(), d.Address(), d.Address()+".ttrpc")
}
