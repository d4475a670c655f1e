package sshd

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/runtime"
)

func itoa(n int) string { return strconv.Itoa(n) }

// status returns the exit status of a session, as a client sees it.
func status(t *testing.T, err error) int {
	t.Helper()
	if exit := (*ssh.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitStatus()
	}
	if err != nil {
		t.Fatalf("the session ended with %v, want a status", err)
	}
	return 0
}

func TestCommand(t *testing.T) {
	w := newWorld(t, Limits{})
	for _, user := range []string{"cf:" + appGUID + "/0", "cf:" + workerGUID + "/0", "cf:" + appGUID + "/0/config server"} {
		ses := w.session(w.client(user))
		var out, errs bytes.Buffer
		ses.Stdout, ses.Stderr = &out, &errs
		code := status(t, ses.Run("echo hello; echo trouble >&2; exit 7"))
		if out.String() != "hello\n" || errs.String() != "trouble\n" || code != 7 {
			t.Errorf("%s: stdout %q, stderr %q, status %d; want hello, trouble, 7", user, out.String(), errs.String(), code)
		}
	}
	w.eventually("all sessions ended", func() bool { return w.sessions() == 0 })
}

func TestShellReadsInput(t *testing.T) {
	w := newWorld(t, Limits{})
	ses := w.session(w.client("cf:" + appGUID + "/0"))
	var out bytes.Buffer
	ses.Stdout, ses.Stdin = &out, strings.NewReader("echo one\necho two\nexit 3\n")
	if err := ses.Shell(); err != nil {
		t.Fatal(err)
	}
	if code := status(t, ses.Wait()); code != 3 || out.String() != "one\ntwo\n" {
		t.Errorf("printed %q, status %d; want both lines and 3", out.String(), code)
	}
}

func TestTerminal(t *testing.T) {
	w := newWorld(t, Limits{})
	ses := w.session(w.client("cf:" + appGUID + "/0"))
	var out bytes.Buffer
	ses.Stdout = &out
	in, err := ses.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ses.RequestPty("vt100", 24, 80, ssh.TerminalModes{ssh.ECHO: 0}), ses.Shell(), ses.WindowChange(50, 132)); err != nil {
		t.Fatal(err)
	}
	// The reply to this request shows that the change before it was handled.
	if _, err := ses.SendRequest("nothing", true, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "size\n"); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if code := status(t, ses.Wait()); code != 0 || out.String() != "132x50\n" {
		t.Errorf("printed %q, status %d; want the new size", out.String(), code)
	}
}

func TestSignal(t *testing.T) {
	w := newWorld(t, Limits{})
	ses := w.session(w.client("cf:" + appGUID + "/0"))
	if err := errors.Join(ses.Start("sleep 1000"), ses.Signal(ssh.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	if code := status(t, ses.Wait()); code != 128+int(syscall.SIGTERM) {
		t.Errorf("status = %d, want 143", code)
	}
}

// A channel runs one command, and invalid requests are refused without harm.
func TestRequestsOfASession(t *testing.T) {
	w := newWorld(t, Limits{})
	ses := w.session(w.client("cf:" + appGUID + "/0"))
	text := func(s string) []byte { return ssh.Marshal(struct{ S string }{s}) }
	for _, tt := range []struct {
		kind    string
		payload []byte
		want    bool
	}{
		{"env", ssh.Marshal(struct{ N, V string }{"LANG", "C"}), true},
		{"env", ssh.Marshal(struct{ N, V string }{"A=B", "C"}), false},
		{"env", ssh.Marshal(struct{ N, V string }{"BIG", strings.Repeat("x", maxEnv)}), false},
		{"env", []byte{1}, false},
		{"pty-req", []byte("garbage"), false},
		{"window-change", []byte{0}, false},
		{"signal", text("TERM"), false}, // nothing runs yet
		{"exec", []byte{0, 0, 0, 9}, false},
		{"exec", text("nul\x00byte"), false},
		{"subsystem", text("netconf"), false},
		{"x11-req", nil, false},
		{"auth-agent-req@openssh.com", nil, false},
		{"exec", text("sleep 1000"), true},
		{"exec", text("exit 0"), false},
		{"shell", nil, false},
		{"env", ssh.Marshal(struct{ N, V string }{"LATE", "1"}), false},
		{"signal", text("NONSENSE"), false},
		{"signal", text("KILL"), true},
	} {
		if got, err := ses.SendRequest(tt.kind, true, tt.payload); err != nil || got != tt.want {
			t.Errorf("%s %q = %v, %v; want %v", tt.kind, tt.payload, got, err, tt.want)
		}
	}
}

// A session is closed with its instance, and reports that.
func TestInstanceEnds(t *testing.T) {
	w := newWorld(t, Limits{})
	ses := w.session(w.client("cf:" + appGUID + "/0"))
	var errs bytes.Buffer
	ses.Stderr = &errs
	if err := ses.Start("sleep 1000"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the session runs", func() bool { return w.sessions() == 1 })
	if err := w.containers[appGUID].Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := status(t, ses.Wait()); code == 0 || !has(errs.String(), "dew: the session has ended", "instance") {
		t.Errorf("status %d, stderr %q; want to be told that the instance ended", code, errs.String())
	}
}

// A failed start is reported like a program's error, with an exit status.
func TestExecFails(t *testing.T) {
	w := newWorld(t, Limits{})
	ses := w.session(w.client("cf:" + appGUID + "/0/nobody"))
	var errs bytes.Buffer
	ses.Stderr = &errs
	if code := status(t, ses.Run("echo hello")); code != failureStatus || !has(errs.String(), "instance or process not found") {
		t.Errorf("status %d, stderr %q; want 255 and the reason", code, errs.String())
	}
}

func TestParsePTY(t *testing.T) {
	payload := ssh.Marshal(struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}{"xterm", 80, 70000, 0, 0, string([]byte{53, 0, 0, 0, 0, 128, 0, 1, 0xc2, 0, 0, 9})})
	got, err := parsePTY(payload)
	if err != nil {
		t.Fatal(err)
	}
	want := pty{term: "xterm", terminal: runtime.Terminal{
		Size:  runtime.Size{Columns: 80, Rows: 65535},
		Modes: []runtime.TerminalMode{{Opcode: 53}, {Opcode: 128, Value: 115200}},
	}}
	if diff := cmp.Diff(got, want, cmp.AllowUnexported(pty{})); diff != "" {
		t.Errorf("pty (-got +want):\n%s", diff)
	}
	if _, err := parseModes([]byte{53, 0}); err == nil {
		t.Error("half a mode was taken")
	}
	if got, err := parseModes([]byte{200, 1, 2, 3}); err != nil || got != nil {
		t.Errorf("an unknown opcode = %v, %v; want the end of the list", got, err)
	}
}

func FuzzSessionRequests(f *testing.F) {
	f.Add("pty-req", []byte{0, 0, 0, 1, 'x', 0, 0, 0, 80, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0})
	f.Add("exec", []byte{0, 0, 0, 2, 'l', 's'})
	f.Add("window-change", make([]byte, 16))
	f.Add("signal", []byte{0, 0, 0, 4, 'T', 'E', 'R', 'M'})
	f.Add("env", []byte{0, 0, 0, 1, 'a', 0, 0, 0, 1, 'b'})
	f.Fuzz(func(t *testing.T, kind string, payload []byte) {
		if s, err := parseStart(kind, payload); err == nil && len(s.Command) > maxCommand {
			t.Errorf("a command of %d bytes was taken", len(s.Command))
		}
		if p, err := parsePTY(payload); err == nil && len(p.terminal.Modes) > len(payload) {
			t.Errorf("%d modes from %d bytes", len(p.terminal.Modes), len(payload))
		}
		_, _ = parseWindow(payload)
		if sig, err := parseSignal(payload); err == nil && (sig <= 0 || sig > 64) {
			t.Errorf("signal %d", sig)
		}
	})
}
