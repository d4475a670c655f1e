//go:build systemd

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/testkit"
)

const (
	unitName   = "dew.service"
	socketUnit = "dew.socket"
	dropIn     = "/run/systemd/system/dew.service.d/test.conf"
	defaults   = "/etc/default/dew"
	// forever is a command with a child, which settled expects.
	forever = "while :; do sleep 1000; done"
	// showTime is how long a test waits for a wrong start or exit to happen.
	showTime = 2 * time.Second
	// systemdTries is how often systemd starts a unit within 10 s by default.
	systemdTries = 5
)

// unit is dew on a machine with systemd: the installed unit with the default folders.
type unit struct{ *cell }

// newUnit gives the unit an empty root. Nothing runs.
func newUnit(t *testing.T) unit {
	t.Helper()
	if os.Getenv("DEW_VMTEST_GUEST") == "" {
		t.Fatal("this test empties the machine's own /var/lib/dew: run it in a guest (make vmtest)")
	}
	d := defaultConfig()
	u := unit{&cell{t: t, root: d.Root, run: d.Run, bin: programs, names: names.For(d.Root), said: &testkit.Buffer{}}}
	u.clear()
	if err := os.MkdirAll(u.root, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, err := exec.Command("journalctl", "--boot", "--no-pager", "--lines=200", "--output=short-monotonic", "--unit", unitName, "--unit", socketUnit).CombinedOutput()
			t.Logf("journal (%v):\n%s", err, out)
		}
		u.clear()
	})
	return u
}

// clear stops everything and deletes all state.
func (u unit) clear() {
	u.t.Helper()
	u.systemctl("stop", socketUnit, unitName)
	u.tearDown()
	for _, path := range []string{u.root, dropIn, defaults} {
		if err := os.RemoveAll(path); err != nil {
			u.t.Fatal(err)
		}
	}
	u.systemctl("daemon-reload")
	u.systemctl("reset-failed") // also resets the start counter
}

// tearDown stops all apps. dewd must not be running.
func (u unit) tearDown() {
	u.t.Helper()
	if out, err := u.command("teardown").CombinedOutput(); err != nil {
		u.t.Errorf("teardown: %v\n%s", err, out)
	}
	if left := u.leaves(); len(left) != 0 {
		u.t.Errorf("teardown left instances: %v", left)
	}
	if _, err := os.Stat(u.run); !os.IsNotExist(err) {
		u.t.Errorf("teardown left the run folder: %v", err)
	}
}

func (u unit) systemctl(args ...string) {
	u.t.Helper()
	if out, err := trySystemctl(args...); err != nil {
		u.t.Fatalf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func trySystemctl(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	return exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
}

// property returns a property of the unit in systemd.
func (u unit) property(name string) string {
	u.t.Helper()
	out, err := trySystemctl("show", "--property", name, "--value", unitName)
	if err != nil {
		u.t.Fatalf("systemctl show: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func (u unit) number(name string) int {
	u.t.Helper()
	n, err := strconv.Atoi(u.property(name))
	if err != nil {
		u.t.Fatalf("%s: %v", name, err)
	}
	return n
}

// check compares properties of the unit with pairs of name and value.
func (u unit) check(when string, pairs ...string) {
	u.t.Helper()
	for p := range slices.Chunk(pairs, 2) {
		if got := u.property(p[0]); got != p[1] {
			u.t.Errorf("%s: %s = %q, want %q", when, p[0], got, p[1])
		}
	}
}

// same fails unless the same processes run as before.
func (u unit) same(when string, before map[string]map[string][]int) {
	u.t.Helper()
	testkit.Stays(u.t, when, showTime, func() error {
		if diff := cmp.Diff(before, u.leaves()); diff != "" {
			return fmt.Errorf("processes changed (-before +now):\n%s", diff)
		}
		return nil
	})
}

// restarted waits until systemd has restarted dewd for the nth time.
func (u unit) restarted(n, old int) {
	u.t.Helper()
	u.eventually(fmt.Sprintf("restart %d of dewd", n), func() error {
		state, restarts, pid := u.property("ActiveState"), u.number("NRestarts"), u.number("MainPID")
		if state != "active" || restarts != n || pid == old || pid == 0 {
			return fmt.Errorf("unit is %s, restarts = %d, pid = %d", state, restarts, pid)
		}
		return nil
	})
}

// ask sends a request to dewd's local socket.
func (u unit) ask() (string, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(u.run, socketName))
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := client.Get("http://dew/healthz")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.Status + " " + string(b), err
}

func (u unit) mustAnswer(when string) {
	u.t.Helper()
	if got, err := u.ask(); err != nil || !strings.HasPrefix(got, "200 OK") {
		u.t.Fatalf("%s: dewd answers %q, %v", when, got, err)
	}
}

// Stopping, restarting and killing the unit stops only dewd. The apps keep running, and
// the next dewd adopts them. Exits in between are recorded.
func TestUnitEndsAndAppsStay(t *testing.T) {
	for _, kind := range []string{"containerd of the machine", "private containerd"} {
		t.Run(kind, func(t *testing.T) {
			u := newUnit(t)
			if kind == "private containerd" {
				if err := os.MkdirAll(filepath.Join(u.root, "containerd"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			u.storeApp(forever, forever)
			u.systemctl("start", unitName)
			u.mustAnswer("when systemctl start returns")
			u.check("after start", "ActiveState", "active", "SubState", "running", "NRestarts", "0")
			before := u.settled(1)
			u.checkOOMScore(before)

			u.systemctl("stop", unitName)
			u.check("after stop", "ActiveState", "inactive", "Result", "success", "ExecMainStatus", "0", "MainPID", "0")
			u.same("after stop", before)
			u.systemctl("start", unitName)
			u.same("after start", before)
			u.systemctl("restart", unitName)
			u.same("after restart", before)
			pid := u.number("MainPID")
			killPID(t, pid)
			u.restarted(1, pid)
			u.same("after kill -9", before)
			u.checkMissedExit(before)
		})
	}
}

// checkOOMScore checks that apps did not inherit the OOM score adjustment of the
// services that start them.
func (u unit) checkOOMScore(instances map[string]map[string][]int) {
	u.t.Helper()
	_, leaves := only(u.t, instances)
	for leaf, pids := range leaves {
		for _, pid := range pids {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
			if err != nil || strings.HasPrefix(string(b), "-") {
				u.t.Errorf("oom_score_adj of a process in %s = %q, %v, want none below 0", leaf, b, err)
			}
		}
	}
}

// checkMissedExit kills a sidecar while the unit is stopped.
func (u unit) checkMissedExit(before map[string]map[string][]int) {
	u.t.Helper()
	id, leaves := only(u.t, before)
	u.systemctl("stop", unitName)
	for _, pid := range leaves["sidecar-0"] {
		killPID(u.t, pid)
	}
	u.systemctl("start", unitName)
	u.settled(1, id)
	u.systemctl("stop", unitName)
	u.read(func(b diskState) {
		rs, err := b.exits.Process(guid)
		if err != nil || len(rs) != 1 {
			u.t.Fatalf("records = %+v, %v, want one: of the sidecar", rs, err)
		}
		if want := "APP/PROC/WEB/SIDECAR/CONFIG SERVER: Exited with status 137"; rs[0].Description != want {
			u.t.Errorf("description = %q, want %q", rs[0].Description, want)
		}
	})
}

// systemd's watchdog restarts a dewd that hangs, but not one that works. The apps keep
// running.
func TestUnitWatchdog(t *testing.T) {
	u := newUnit(t)
	if err := os.MkdirAll(filepath.Dir(dropIn), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dropIn, []byte("[Service]\nWatchdogSec=10\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	u.systemctl("daemon-reload")
	u.storeApp(forever, forever)
	u.systemctl("start", unitName)
	before := u.settled(1)
	first := u.number("WatchdogTimestampMonotonic")
	u.eventually("dewd tells the watchdog", func() error {
		if now := u.number("WatchdogTimestampMonotonic"); now <= first {
			return fmt.Errorf("still at %d", now)
		}
		return nil
	})
	u.check("while dewd works", "NRestarts", "0", "ActiveState", "active")
	pid := u.number("MainPID")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	u.restarted(1, pid)
	u.same("after the watchdog", before)
}

// The first connection to the socket starts dewd, even after a stop.
func TestUnitSocket(t *testing.T) {
	u := newUnit(t)
	u.systemctl("start", socketUnit)
	u.check("before a call", "ActiveState", "inactive")
	u.mustAnswer("first call")
	u.check("after a call", "ActiveState", "active")
	u.systemctl("stop", unitName)
	u.mustAnswer("call after a stop")
	u.systemctl("stop", socketUnit, unitName)
	if got, err := u.ask(); err == nil {
		t.Errorf("dewd answers %q after socket and service have stopped", got)
	}
}

// A wrong flag is reported once, because a restart would not fix it.
func TestUnitWithAWrongFlag(t *testing.T) {
	u := newUnit(t)
	if err := os.WriteFile(defaults, []byte("DEW_LOG_LEVEL=loud\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := trySystemctl("start", unitName); err == nil {
		t.Errorf("systemctl start = success, want a failure\n%s", out)
	}
	testkit.Stays(t, "systemd does not try again", showTime, func() error {
		if n := u.number("NRestarts"); n != 0 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	u.check("with a wrong flag", "ActiveState", "failed", "ExecMainStatus", strconv.Itoa(statusUsage), "NRestarts", "0")
}

// A missing requirement of the machine can appear later. The unit keeps trying, longer
// than systemd would by default, and recovers at the first success.
func TestUnitTriesOn(t *testing.T) {
	u := newUnit(t)
	if err := os.WriteFile(defaults, []byte("DEW_CONTAINERD=/nowhere/containerd.sock\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := trySystemctl("start", unitName); err == nil {
		t.Errorf("systemctl start = success, want a failure\n%s", out)
	}
	u.eventually("more tries than systemd's limit", func() error {
		if n := u.number("NRestarts"); n <= systemdTries {
			return fmt.Errorf("%d tries, unit is %s", n, u.property("ActiveState"))
		}
		return nil
	})
	if err := os.Remove(defaults); err != nil {
		t.Fatal(err)
	}
	u.eventually("dewd works", func() error {
		if got := u.property("ActiveState"); got != "active" {
			return fmt.Errorf("unit is %s", got)
		}
		return nil
	})
	u.mustAnswer("after the machine is right")
}
