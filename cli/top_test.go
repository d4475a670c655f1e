package cli

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/api/v3"
)

// asDew is the variable that makes the test program behave as dew.
const asDew = "DEW_TEST_AS_DEW"

// withLive adds the app shop with a sidecar, and the stopped app cart of another space.
func (d *fakeDaemon) withLive() *fakeDaemon {
	d.mu.Lock() // requests of another process are not ordered otherwise
	defer d.mu.Unlock()
	d.withApp(v3.AppStarted)
	now := time.Now().UTC()
	d.live = v3.LiveApps{Time: now, Resources: []v3.LiveApp{
		{GUID: "app-9", Name: "cart", State: v3.AppStopped, Space: v3.LiveSpace{GUID: "space-2", Name: "test", OrgGUID: "org-1", OrgName: "local"}},
		{
			GUID: "app-1", Name: "shop", State: v3.AppStarted, Space: v3.LiveSpace{GUID: "space-1", Name: "dev", OrgGUID: "org-1", OrgName: "local"},
			Instances: []v3.LiveInstance{{
				Type: "web", State: v3.StateRunning, Ready: true, Since: now.Add(-time.Hour), Mem: 64 << 20, MemQuota: 256 << 20, CPU: 0.125, Restarts: 2,
				Processes: []v3.LivePart{{Mem: 50 << 20, CPU: 0.1, PIDs: 8}, {Sidecar: "config-server", Mem: 14 << 20, MemQuota: 32 << 20, PIDs: 2}},
			}},
		},
	}}
	return d
}

// Without a terminal dew top prints one table.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withLive()
	for _, args := range [][]string{{"top"}, {"top", "--once"}, {"top", "--sort", "memory"}} {
		r := runDew(t.Context(), append([]string{"--run", d.run}, args...)...)
		r.must(t, 0, "app", "restarts", "dev/shop", "test/cart", "config-server", "64M/256M", "12.5%", "stopped")
		if strings.Contains(r.out, "\x1b") {
			t.Errorf("%v: escape sequences in %q", args, r.out)
		}
	}
	r := runDew(t.Context(), "--run", d.run, "top", "shop")
	r.must(t, 0, "shop")
	if strings.Contains(r.out, "cart") {
		t.Errorf("other apps:\n%s", r.out)
	}
	runDew(t.Context(), "--run", d.run, "top", "--space", "dev").must(t, 0, "shop")
	runDew(t.Context(), "--run", d.run, "top", "shpo").must(t, 1, "app shpo does not exist", `did you mean "shop"?`)
	runDew(t.Context(), "--run", d.run, "top", "--space", "dve").must(t, 1, "space dve does not exist")
	runDew(t.Context(), "--run", d.run, "top", "--org", "loca").must(t, 1, "loca")
	runDew(t.Context(), "--run", d.run, "top", "--sort", "memroy").must(t, 2, `--sort: "memroy" is not one of name, cpu, memory, logs, requests, restarts: did you mean memory?`)
	for _, interval := range []string{"199ms", "61s", "-1s"} {
		runDew(t.Context(), "--run", d.run, "top", "--interval", interval).must(t, 2, "--interval", "is not between 200ms and 1m")
	}
	runDew(t.Context(), "--run", d.run, "top", "--sort", "--generate-bash-completion").must(t, 0, "requests\n")
	d.live.Resources = nil
	runDew(t.Context(), "--run", d.run, "top").must(t, 0, "There are no apps. To create one: dew push")
	runDew(t.Context(), "--run", d.run, "top", "--json").must(t, 0, `"resources": []`)
	runDew(t.Context(), "--run", t.TempDir(), "top").must(t, 6, "cannot connect to dewd")
}

func TestTopJSON(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withLive()
	r := runDew(t.Context(), "--run", d.run, "top", "--json")
	r.must(t, 0)
	var got v3.LiveApps
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(d.live, got); diff != "" {
		t.Error(diff)
	}
}

// screenTimeout bounds the wait for a text on the screen.
const screenTimeout = time.Minute

// ptyScreen is dew on a pseudo terminal.
type ptyScreen struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	output chan string
	text   string // since the last key
	wide   bool
}

// onScreen starts dew on a pseudo terminal.
func onScreen(t *testing.T, args ...string) *ptyScreen {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	s := &ptyScreen{t: t, master: os.NewFile(uintptr(fd), "ptmx"), output: make(chan string, 100)}
	s.resize()
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	s.cmd.Env = append(os.Environ(), asDew+"=1", "TERM=xterm-256color", "NO_COLOR=")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = terminal, terminal, terminal
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	go func() {
		defer close(s.output)
		for {
			b := make([]byte, 4096)
			n, err := s.master.Read(b)
			if err != nil {
				return
			}
			s.output <- string(b[:n])
		}
	}()
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			for range s.output { // the program waits until its output is read
			}
			_ = s.cmd.Wait()
		}
		_ = s.master.Close()
	})
	return s
}

// resize changes the size, so that the program draws all lines again.
func (s *ptyScreen) resize() {
	s.t.Helper()
	size := unix.Winsize{Col: 100, Row: 30}
	if s.wide = !s.wide; s.wide {
		size.Col = 101
	}
	if err := unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		s.t.Fatal(err)
	}
}

// press types keys.
func (s *ptyScreen) press(keys string) {
	s.t.Helper()
	s.text = ""
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the screen has a text. The program writes only the parts of the screen
// that change, so that shows resizes the terminal from time to time.
func (s *ptyScreen) shows(text string) {
	s.t.Helper()
	late := time.After(screenTimeout)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for !strings.Contains(ansi.Strip(s.text), text) {
		select {
		case part, open := <-s.output:
			if !open {
				s.t.Fatalf("dew exited before the screen had %q:\n%q", text, s.text)
			}
			s.text += part
		case <-again.C:
			s.resize()
		case <-late:
			s.t.Fatalf("the screen does not show %q:\n%q", text, s.text)
		}
	}
}

// exits waits until dew exits, and returns its status.
func (s *ptyScreen) exits() int {
	s.t.Helper()
	for part := range s.output {
		s.text += part
	}
	_ = s.cmd.Wait() // the status says how it ended
	if !strings.Contains(s.text, "\x1b[?1049l") {
		s.t.Errorf("dew did not leave the alternate screen: %q", s.text)
	}
	return s.cmd.ProcessState.ExitCode()
}

// dew top runs on a real terminal: keys filter, restart, explain and show logs, and it
// survives an outage of the daemon.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withLive()
	s := onScreen(t, "--run", d.run, "top", "--interval", "200ms")
	s.shows("dev/shop")
	s.press("/sho\r")
	s.shows("(Esc removes it)")
	s.press("\x1b") // Esc
	s.shows("test/cart")
	s.press("e")
	s.shows("config-server")
	s.press("\x1b[B") // Down
	s.press("r")
	s.shows("Restart app shop? [y/n]")
	s.press("y")
	s.shows("dewd restarts app shop")
	if !d.requested("POST /v3/apps/app-1/actions/restart") {
		t.Error("the daemon got no request for a restart")
	}
	s.press("w")
	s.shows("Why: shop")
	s.shows("shop has no droplet")
	s.press("q")
	s.shows("dev/shop")
	s.press("\r")
	s.shows("Press Ctrl-C to return")
	s.shows("OUT hello")
	s.press("\x03") // Ctrl-C
	s.shows("dev/shop")
	d.setGone(true)
	s.press("")
	s.shows("dewd does not answer. Last data:")
	d.setGone(false)
	s.press("")
	s.shows("CPU 0.12")
	s.press("q")
	if got := s.exits(); got != 0 {
		t.Errorf("exit status %d", got)
	}
}

// A signal ends dew top, and the terminal is as before.
func TestTopTerminated(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withLive()
	for name, keys := range map[string][2]string{"table": {"", "dev/shop"}, "logs": {"\x1b[B\r", "OUT hello"}} {
		t.Run(name, func(t *testing.T) {
			s := onScreen(t, "--run", d.run, "top")
			s.shows("dev/shop")
			if keys[0] != "" {
				s.press(keys[0])
			}
			s.shows(keys[1])
			if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if got := s.exits(); got != 128+int(syscall.SIGTERM) {
				t.Errorf("exit status %d", got)
			}
		})
	}
}

// requested reports whether a request was received.
func (d *fakeDaemon) requested(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, got := range d.requests {
		if got == key {
			return true
		}
	}
	return false
}

// setGone makes the daemon close connections without an answer, or answer again.
func (d *fakeDaemon) setGone(gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = gone
}
