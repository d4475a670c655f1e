//go:build integration

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/api/v3"
)

// Users without permission are refused, and the refusal is recorded.
func sshRefused(t *testing.T, s *shop, clients []sshClient) {
	used := s.code()
	c, err := s.tryDial("cf:"+s.guid+"/0", used)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	wrong := s.code()
	wrong.Code = "wrong"
	for _, tt := range []struct {
		name, user string
		code       v3.SSHCode
	}{
		{"used code", "cf:" + s.guid + "/0", used},
		{"wrong code", "cf:" + s.guid + "/0", wrong},
		{"unknown guid", "cf:ffffffff-ffff-4fff-8fff-ffffffffffff/0", s.code()},
		{"unknown index", "cf:" + s.guid + "/2", s.code()},
		{"no such user", "root", s.code()},
	} {
		if c, err := s.tryDial(tt.user, tt.code); err == nil {
			_ = c.Close()
			t.Errorf("%s: was let in", tt.name)
		}
	}
	s.dew("disable-ssh", "shop")
	if got := s.output("ssh-enabled", "shop"); !strings.Contains(got, "Disabled for app") {
		t.Errorf("ssh-enabled says %q", got)
	}
	for _, c := range clients {
		if got := finish(t, c.args(sshLogin{command: "echo in"})); got.code == 0 || strings.Contains(got.out, "in\n") {
			t.Errorf("%s: entered an app that is closed: %+v", c.name, got)
		}
	}
	s.dew("enable-ssh", "shop")
	if got := finish(t, s.byDew(sshLogin{command: "echo in"})); got.out != "in\n" {
		t.Errorf("after enable-ssh: %+v", got)
	}
	counts := map[string]int{}
	for _, kind := range []string{"audit.app.ssh-authorized", "audit.app.ssh-unauthorized"} {
		var page v3.List[map[string]any]
		s.curl("/v3/audit_events?target_guids="+s.guid+"&types="+kind, &page)
		counts[kind] = len(page.Resources)
	}
	if counts["audit.app.ssh-authorized"] == 0 || counts["audit.app.ssh-unauthorized"] < 1+len(clients) {
		t.Errorf("events: %v, want those who entered, and those who did not", counts)
	}
	if got := s.output("logs", "shop", "--recent"); !strings.Contains(got, "[SSH/0] OUT Successful remote access by 127.0.0.1:") {
		t.Errorf("the app's log does not tell who entered:\n%s", got)
	}
	garbage(t, used.Address)
	if got := finish(t, s.byDew(sshLogin{command: "echo in"})); got.out != "in\n" {
		t.Errorf("after garbage on the port: %+v", got)
	}
}

// garbage sends invalid data.
func garbage(t *testing.T, address string) {
	t.Helper()
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n" + strings.Repeat("\xff", 70000), strings.Repeat("x", 100000)} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
}

// Processes of a client stop when it disconnects for any reason.
func sshVanishing(t *testing.T, s *shop, clients []sshClient) {
	for _, c := range clients {
		cmd := c.args(sshLogin{command: "trap '' HUP TERM; echo here; (trap '' HUP; sleep 1000) & sleep 1000"})
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("here\n"))); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		s.nothingLeft()
	}
}

// A hundred simultaneous sessions are served or refused, and the app keeps running.
func sshMany(t *testing.T, s *shop, _ []sshClient) {
	before := slices.Sorted(maps.Keys(s.leaves()))
	var codes []v3.SSHCode
	for range 100 {
		codes = append(codes, s.code())
	}
	var mu sync.Mutex
	var served, refused int
	var all sync.WaitGroup
	for i, code := range codes {
		all.Go(func() {
			ok, err := s.oneOfMany(code)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ok:
				served++
			case err == nil:
				refused++
			default:
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if served == 0 || served+refused != 100 {
		t.Errorf("%d were served and %d refused, want 100 in all", served, refused)
	}
	t.Logf("%d were served, %d refused", served, refused)
	s.nothingLeft()
	if after := slices.Sorted(maps.Keys(s.leaves())); !slices.Equal(before, after) {
		t.Errorf("instances %v became %v", before, after)
	}
}

// oneOfMany returns true if the session was served. Without an error, it was refused
// with a reason.
func (s *shop) oneOfMany(code v3.SSHCode) (bool, error) {
	c, err := s.tryDial("cf:"+s.worker+"/0", code)
	if err != nil {
		// With too many handshakes, dewd closes the connection before any data. A valid
		// code that is not accepted would be an error.
		if strings.Contains(err.Error(), "handshake failed") && !strings.Contains(err.Error(), "unable to authenticate") {
			return false, nil
		}
		return false, err
	}
	defer c.Close()
	ses, err := c.NewSession()
	if full := (*ssh.OpenChannelError)(nil); errors.As(err, &full) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var says bytes.Buffer
	ses.Stderr = &says
	out, err := ses.Output("echo hello")
	if err != nil || string(out) != "hello\n" {
		return false, fmt.Errorf("printed %q and said %q: %w", out, says.String(), err)
	}
	return true, nil
}

// A sidecar that a shell in the instance kills stops the instance. The exit is
// recorded, the session closes with the reason, and the app restarts.
func sshSeed(t *testing.T, s *shop, clients []sshClient) {
	for n, c := range clients {
		var errs, out bytes.Buffer
		cmd := c.args(sshLogin{})
		cmd.Stdout, cmd.Stderr = &out, &errs
		in, err := cmd.StdinPipe() // stays open: only the end of the instance stops the shell
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "pkill -9 -f 127.0.0.1:8181\n"); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Fatalf("%s: the session did not end", c.name)
		}
		if text := errs.String() + out.String(); !strings.Contains(text, "the session has ended: its instance has ended (APP/PROC/WEB/SIDECAR/CONFIG SERVER: Exited with status 137)") {
			t.Errorf("%s: the session said %q, want why it ended", c.name, text)
		}
		if cmd.ProcessState.ExitCode() == 0 {
			t.Errorf("%s: exit status 0, want another", c.name)
		}
		s.up()
		var crashes v3.Crashes
		s.curl("/dew/v1/apps/"+s.guid+"/crashes", &crashes)
		if len(crashes.Crashes) != n+1 || !strings.Contains(crashes.Crashes[0].Description, "SIDECAR/CONFIG SERVER: Exited with status 137") {
			t.Fatalf("%s: %d records, the newest: %+v", c.name, len(crashes.Crashes), crashes.Crashes)
		}
	}
}

// A killed daemon leaves sessions. The next one stops them, and changes nothing else.
func sshDaemonKilled(t *testing.T, s *shop, _ []sshClient) {
	c := s.dial("cf:" + s.guid + "/0")
	ses, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := ses.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// It prints more than a pipe holds, and the client does not read it.
	if err := ses.Start("echo here; yes"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("here\n"))); err != nil {
		t.Fatal(err)
	}
	before := slices.Sorted(maps.Keys(s.leaves()))
	s.kill(syscall.SIGKILL)
	left := false
	for _, leaves := range s.leaves() {
		left = left || len(leaves["ssh-1"]) > 0 || slices.ContainsFunc(slices.Collect(maps.Keys(leaves)), func(l string) bool { return strings.HasPrefix(l, "ssh-") })
	}
	if !left {
		t.Error("the session did not outlive the daemon: this test shows nothing")
	}
	s.start()
	s.nothingLeft()
	s.up()
	if after := slices.Sorted(maps.Keys(s.leaves())); !slices.Equal(before, after) {
		t.Errorf("instances %v became %v", before, after)
	}
	if got := finish(t, s.byDew(sshLogin{command: `echo "$FROM_PROFILE"; pwd`})); got.out != "with two  blanks\n/home/vcap/app/sub\n" {
		t.Errorf("a session of the next daemon: %+v", got)
	}
}

func sshStopped(t *testing.T, s *shop, clients []sshClient) {
	s.dew("stop", "shop")
	for _, c := range clients {
		if got := finish(t, c.args(sshLogin{command: "echo in"})); got.code == 0 || got.out == "in\n" {
			t.Errorf("%s: entered an app that is stopped: %+v", c.name, got)
		}
	}
}
