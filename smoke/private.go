package smoke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
)

const (
	startTimeout = time.Minute     // timeout for the start of a daemon
	stopTimeout  = 3 * time.Minute // timeout for a daemon that stops with its apps
	// maxRun leaves room for the names of sockets in a folder of run-time files.
	maxRun        = 60
	privatePrefix = "dew-smoke-"
)

// Private is a daemon that is started for one run and stops with it.
type Private struct {
	Run string // folder of its run-time files

	dir    string
	dewd   string
	cmd    *exec.Cmd
	client *client.Client
	owner  *os.File      // locked as long as this process lives
	ended  chan struct{} // closed when dewd has exited
}

// StartPrivate starts a daemon with its own root, run folder and ports, and waits until
// it responds.
func StartPrivate(ctx context.Context, dewd string) (*Private, error) {
	if os.Geteuid() != 0 {
		return nil, &Failure{
			Status: StatusInfrastructure, Err: errors.New("cannot start a private daemon: it needs root"),
			Todo: "use sudo, or test on a running daemon: start dewd, or log in to one (dew login URL)",
		}
	}
	dir, err := privateFolder()
	if err != nil {
		return nil, &Failure{Status: StatusInfrastructure, Err: fmt.Errorf("cannot create a folder for a private daemon: %w", err), Todo: "set TMPDIR to a writable folder"}
	}
	p := newPrivate(dir, dewd)
	if err := p.start(); err != nil {
		return nil, errors.Join(&Failure{Status: StatusInfrastructure, Err: fmt.Errorf("cannot start %s: %w", dewd, err)}, os.RemoveAll(dir))
	}
	if err := p.await(ctx); err != nil {
		return nil, errors.Join(err, p.End(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func newPrivate(dir, dewd string) *Private {
	return &Private{dir: dir, dewd: dewd, Run: filepath.Join(dir, "run"), ended: make(chan struct{})}
}

// privateFolder creates a folder whose path is short enough for sockets.
func privateFolder() (string, error) {
	dir, err := os.MkdirTemp("", privatePrefix)
	if err == nil && len(filepath.Join(dir, "run")) > maxRun {
		err = os.Remove(dir)
		if err == nil {
			dir, err = os.MkdirTemp("/tmp", privatePrefix)
		}
	}
	return dir, err
}

// flags separate the daemon from every other one on the machine.
func (p *Private) flags() []string {
	return []string{
		"--root", filepath.Join(p.dir, "root"), "--run", p.Run, "--listen", "127.0.0.1:0", "--router", "127.0.0.1:0",
		"--ssh", "127.0.0.1:0", "--tcp-ports=", "--router-tls=", "--listen-tls=", "--public-url=",
	}
}

// environment is that of this process without the settings for another daemon.
func environment() []string {
	var out []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); name == "DEW_RUN" || name == "DEW_DOMAIN" || strings.HasPrefix(name, "DEW_SMTP") || name == "NOTIFY_SOCKET" {
			continue
		}
		out = append(out, e)
	}
	return out
}

func (p *Private) start() error {
	// If this folder exists, dewd starts its own containerd. Removing the folder
	// removes all of its data.
	if err := os.MkdirAll(filepath.Join(p.dir, "root", "containerd"), 0o700); err != nil {
		return err
	}
	var err error
	if p.owner, err = claim(p.dir); err != nil {
		return err
	}
	if p.client, err = client.New(client.Options{Run: p.Run}); err != nil {
		return err
	}
	log, err := os.Create(p.LogFile())
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.dewd, p.flags()...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = log, log, environment()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals that interrupt this process must not reach it: End stops it
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.cmd.Wait() // the waiting code checks the state
		close(p.ended)
	}()
	return nil
}

// LogFile is the path of the daemon's own log.
func (p *Private) LogFile() string { return filepath.Join(p.dir, "dewd.log") }

// await waits until the daemon responds.
func (p *Private) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, &Failure{
		Status: StatusInfrastructure, Err: fmt.Errorf("the private daemon did not answer within %s", startTimeout), Todo: "dew doctor shows which requirements this machine does not meet",
	})
	defer cancel()
	err := client.Poll(ctx, func() (bool, error) {
		select {
		case <-p.ended:
			return false, &Failure{
				Status: StatusInfrastructure, Err: fmt.Errorf("the private daemon exited while starting (%s)", p.cmd.ProcessState),
				Todo: "dew doctor shows which requirements this machine does not meet", Output: lastOf(p.LogFile()),
			}
		default:
		}
		_, err := p.client.Daemon().Root(ctx)
		return err == nil, nil
	})
	return causeOf(ctx, err)
}

// lastOf returns the last part of a file.
func lastOf(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	const most = 4 << 10
	return string(b[max(0, len(b)-most):])
}

// End stops the daemon with all its apps, and removes its folder. When ctx is done it
// waits no longer, and the error says what is left.
func (p *Private) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := p.stop(ctx); err != nil {
		return &Failure{
			Status: StatusInfrastructure, Err: fmt.Errorf("the private daemon did not stop: %w", err),
			Todo: fmt.Sprintf("to remove its containers and files, run: %s teardown %s; rm -r %s", p.dewd, strings.Join(p.flags()[:4], " "), p.dir),
		}
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return &Failure{Status: StatusInfrastructure, Err: fmt.Errorf("cannot remove the folder of the private daemon: %w", err)}
	}
	return nil
}

// Keep leaves the daemon running: it belongs to the user now.
func (p *Private) Keep() error { return os.Remove(filepath.Join(p.dir, ownerFile)) }

// Folder is the daemon's own folder. Its contents are removed with the daemon.
func (p *Private) Folder() string { return p.dir }

func (p *Private) stop(ctx context.Context) error {
	select {
	case <-p.ended: // exited by itself, possibly with leftovers
		return p.tearDown(ctx)
	default:
	}
	asked := p.client.Daemon().Shutdown(ctx, v3.Shutdown{Apps: true})
	if asked != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it could have exited by now
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if asked == nil && p.cmd.ProcessState.Success() {
		return nil
	}
	return p.tearDown(ctx)
}

// tearDown removes the leftovers of a daemon that did not stop cleanly.
func (p *Private) tearDown(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, p.dewd, append([]string{"teardown"}, p.flags()...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, lastBytes(out))
	}
	return nil
}

func lastBytes(b []byte) string {
	const most = 500
	return strings.TrimSpace(string(b[max(0, len(b)-most):]))
}
