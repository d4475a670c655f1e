package containerd

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

	"github.com/dewrun/dew/runtime/process"
)

// DaemonConfig says how a private containerd is run.
type DaemonConfig struct {
	Binary string // found on PATH unless it is a path
	Root   string // folder of its lasting state
	Run    string // folder of its run-time state
	Logger *slog.Logger
}

// Daemon is a private containerd: started when none runs, taken over when an
// earlier dewd left one, started again when it dies. It outlives dewd, as the
// instances do.
type Daemon struct {
	cfg    DaemonConfig
	binary string
	ended  chan struct{} // closed when the running one has ended
	pid    int
}

// bootTimeout is generous: a start takes 20 ms, on an emulated machine seconds.
const bootTimeout = time.Minute

// StartDaemon takes over or starts a private containerd and waits for its socket.
func StartDaemon(ctx context.Context, cfg DaemonConfig) (*Daemon, error) {
	d := &Daemon{cfg: cfg}
	if err := os.MkdirAll(cfg.Run, 0o711); err != nil {
		return nil, fmt.Errorf("cannot make folder for containerd: %w", err)
	}
	if d.takeOver(ctx) {
		return d, d.awaitSocket(ctx, d.logFile())
	}
	binary, err := exec.LookPath(cfg.Binary)
	if err != nil {
		return nil, fmt.Errorf("cannot find %s: no containerd socket is there and none can be started (install the package containerd, or give --containerd)", cfg.Binary)
	}
	if _, err := exec.LookPath("runc"); err != nil {
		return nil, errors.New("cannot find runc: containerd needs it to start anything (install the package runc)")
	}
	d.binary = binary
	err = d.start(ctx)
	if errors.Is(err, errEndedAtOnce) {
		err = d.start(ctx) // it may have been killed
	}
	return d, err
}

// errEndedAtOnce says that containerd ended before it opened its socket.
var errEndedAtOnce = errors.New("containerd ended at once")

// Revive starts it again if it has ended, and says whether it had. It is for the
// time before Supervise.
func (d *Daemon) Revive(ctx context.Context) (bool, error) {
	timely, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-d.ended: // its connections break a moment before
		return true, d.restart(ctx)
	case <-timely.Done():
		return false, nil
	}
}

// Address is its socket.
func (d *Daemon) Address() string { return filepath.Join(d.cfg.Run, "containerd.sock") }

func (d *Daemon) logFile() string { return filepath.Join(d.cfg.Root, "containerd.log") }

func (d *Daemon) configFile() string { return filepath.Join(d.cfg.Run, "containerd.toml") }

func (d *Daemon) pidFile() string { return filepath.Join(d.cfg.Run, "containerd.pid") }

// Supervise starts it again whenever it ends, until ctx does. It does not end it.
func (d *Daemon) Supervise(ctx context.Context) {
	for delay := 50 * time.Millisecond; ; {
		select {
		case <-d.ended:
		case <-ctx.Done():
			return
		}
		d.cfg.Logger.Warn("containerd ended, starting it again", "pid", d.pid)
		if err := d.restart(ctx); err != nil {
			d.cfg.Logger.Error("cannot start containerd again", "err", err)
			if pause(ctx, delay) != nil {
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

// Stop ends it. Instances would live on without it, so it comes after them.
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

// start runs a new one. It gets a session of its own, so that no signal meant
// for dewd reaches it.
func (d *Daemon) start(ctx context.Context) error {
	conf := d.configFile()
	if err := writeFile(conf, d.config(), 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(d.cfg.Root, 0o711); err != nil {
		return fmt.Errorf("cannot make folder for containerd: %w", err)
	}
	out, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open containerd's log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(d.binary, "--config", conf) //nolint:noctx // it must not end with any context of ours
	cmd.Stdout, cmd.Stderr = out, out
	// What systemd told dewd is not for it: it would say that it is ready as if it
	// were dewd.
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
		_ = cmd.Wait() // how it ended is in its own log
		close(ended)
	}(d.ended)
	if err := writeFile(d.pidFile(), strconv.Itoa(d.pid), 0o600); err != nil {
		return err
	}
	if err := d.awaitSocket(ctx, d.logFile()); err != nil {
		return err
	}
	if peer := d.peer(ctx); peer == d.pid || !d.isOurs(peer) {
		return nil
	}
	// An earlier dewd was killed before it could note the pid of the one that
	// serves; ours only waits for its lock.
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("cannot end a surplus containerd: %w", err)
	}
	<-d.ended
	if !d.takeOver(ctx) {
		return errors.New("cannot take over the containerd that serves " + d.Address())
	}
	return nil
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
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("containerd does not open its socket: %w (see %s)", err, log)
		}
	}
	return nil
}

// takeOver finds the one that an earlier dewd started: who serves the socket, or
// who is noted and may be on its way.
func (d *Daemon) takeOver(ctx context.Context) bool {
	pid := d.peer(ctx)
	if !d.isOurs(pid) {
		pid = d.noted()
	}
	if !d.isOurs(pid) || !process.Alive(pid) {
		return false
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
			// Not a child of ours: its end shows as a readable pidfd.
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}(d.ended)
	return true
}

// noted is the pid in the pid file, 0 where there is none.
func (d *Daemon) noted() int {
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

// peer is the pid of who serves the socket, 0 where nobody does.
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

// isOurs guards against a pid that went to somebody else: it runs with our
// configuration.
func (d *Daemon) isOurs(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && slices.Contains(strings.Split(string(b), "\x00"), d.configFile())
}

// SocketAnswers says that something listens at a socket. A socket file that
// nobody serves is an error to be told apart from no socket at all.
func SocketAnswers(ctx context.Context, path string) (bool, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if !answers(ctx, path) {
		return false, fmt.Errorf("nothing answers at %s", path)
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

// config leaves out what dew never uses: it makes the start quick and the process
// small. CRI alone would open ports and start a CNI watcher.
func (d *Daemon) config() string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]

[grpc]
address = %q

[ttrpc]
address = %q
`, d.cfg.Root, filepath.Join(d.cfg.Run, "state"), d.Address(), d.Address()+".ttrpc")
}
