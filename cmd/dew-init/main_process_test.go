package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/runtime/mainfile"
	"github.com/dewrun/dew/testkit"
)

// someUser is the user of the processes in these tests.
const someUser = 65534

// mainWorld is PID 1 with a main process.
type mainWorld struct {
	t      *testing.T
	cmd    *exec.Cmd
	file   string
	gate   *os.File
	stdout *os.File
}

// startWithMain runs dew-init as PID 1, which starts a process.
func startWithMain(t *testing.T, r mainfile.Request) *mainWorld {
	t.Helper()
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &mainWorld{t: t, file: filepath.Join(dir, "main")}
	if err := os.WriteFile(w.file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, gate := pipe(t)
	stdout, in := pipe(t)
	w.gate, w.stdout = gate, stdout
	w.cmd = exec.Command(program, "init", "--main", w.file, "--capture", dir, "--freezer", dir, "--freeze", "1", "--thaw", "0", "--limit", "1", "--reserve", "1", "--", "none")
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = stdin, in, in
	if err := w.cmd.Start(); err != nil {
		t.Fatalf("cannot start PID 1 (root is needed): %v", err)
	}
	stdin.Close()
	in.Close()
	t.Cleanup(func() { _ = w.cmd.Process.Kill(); _ = w.cmd.Wait() })
	return w
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func (w *mainWorld) read() []byte {
	w.t.Helper()
	b, err := os.ReadFile(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// started returns the report of the start.
func (w *mainWorld) started() (s mainfile.Start) {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, "the report of the start", func() (ok bool) {
		s, ok = mainfile.ReadStart(w.read())
		return ok
	})
	return s
}

// exited returns the report of the exit.
func (w *mainWorld) exited() (x mainfile.Exit) {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, "the report of the exit", func() (ok bool) {
		x, ok = mainfile.ReadExit(w.read())
		return ok
	})
	return x
}

func shell(script string) mainfile.Request {
	return mainfile.Request{UID: someUser, GID: someUser, Dir: "/", Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}}
}

// The main process has its user, and none of the capabilities and settings of PID 1. PID 1
// has given them up as well.
func TestMainProcessIsConfined(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil { // only root can enter it
		t.Fatal(err)
	}
	r := shell(`read -r line; echo "line $line"; echo "home $HOME"; pwd; cat /proc/self/status; echo more > /dev/stdout; cut -d' ' -f4,6 /proc/self/stat`)
	r.Dir, r.Env = dir, []string{"PATH=/usr/bin:/bin", "HOME="}
	w := startWithMain(t, r)
	if s := w.started(); s.PID < 2 || s.Failure != "" {
		t.Fatalf("start = %+v", s)
	}
	for key, want := range map[string]string{"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapBnd": "0000000000000000"} {
		if got := procStatus(t, w.cmd.Process.Pid, key); got != want {
			t.Errorf("PID 1 has %s %s, want none", key, got)
		}
	}
	for fd := range 3 {
		if path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", w.cmd.Process.Pid, fd)); path != "/dev/null" {
			t.Errorf("PID 1 has the stream %d: %s, %v", fd, path, err)
		}
	}
	if _, err := w.gate.WriteString("now\n"); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(w.stdout) // it ends although PID 1 runs
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(string(b), "\n")
	none := "0000000000000000"
	for _, want := range []string{
		"line now", "home " + homeOfSomeUser(t), dir, "CapEff:\t" + none, "CapPrm:\t" + none, "CapInh:\t" + none, "CapBnd:\t" + none, "SigIgn:\t" + procStatus(t, os.Getpid(), "SigIgn"), "SigBlk:\t" + none,
		"Uid:\t65534\t65534\t65534\t65534", "Gid:\t65534\t65534\t65534\t65534", "Groups:\t ", "more",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no line %q in:\n%s", want, b)
		}
	}
	var parent, session int // of cut
	if _, err := fmt.Sscan(got[len(got)-2], &parent, &session); err != nil || parent != session {
		t.Errorf("process %d is in session %d, %v, want its own", parent, session, err)
	}
	if x := w.exited(); x.Code != 0 || time.Since(x.At) < 0 || time.Since(x.At) > testkit.Patience {
		t.Errorf("exit = %+v, want 0 now", x)
	}
}

func homeOfSomeUser(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	return homeOf(string(b), someUser)
}

func TestMainProcessExits(t *testing.T) {
	for script, want := range map[string]int{"exit 3": 3, "kill -9 $$": 137, "kill -15 $$": 143, "(exit 4) & wait; exit 5": 5} {
		w := startWithMain(t, shell("read -r line; "+script))
		w.started()
		if _, ok := mainfile.ReadExit(w.read()); ok {
			t.Errorf("%s: it exited before its gate was open", script)
		}
		if _, err := w.gate.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		if x := w.exited(); x.Code != want {
			t.Errorf("%s: status %d, want %d", script, x.Code, want)
		}
	}
}

// A process that cannot be started is reported, and PID 1 waits for its end.
func TestMainProcessCannotStart(t *testing.T) {
	missing, program := shell("true"), shell("true")
	missing.Dir, program.Args[0] = "/does/not/exist", "/bin/does-not-exist"
	for _, tt := range []struct {
		request mainfile.Request
		want    string
	}{
		{missing, "cannot start in the folder /does/not/exist: no such file or directory"},
		{program, "cannot execute /bin/does-not-exist: no such file or directory"},
	} {
		w := startWithMain(t, tt.request)
		if s := w.started(); s.Failure != tt.want {
			t.Errorf("start = %+v, want %q", s, tt.want)
		}
		testkit.EventuallyTrue(t, "PID 1 to listen", func() bool { return ignores(t, w.cmd.Process.Pid, lastIgnored) })
		if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("PID 1 ended with %v, want status 0", err)
		}
	}
}

// Without its file PID 1 ends, with a message.
func TestNoMainFile(t *testing.T) {
	got := start(t, t.TempDir(), "", "init", "--main", "/does/not/exist", "--capture", "/", "--freezer", "/", "--freeze", "1", "--thaw", "0", "--limit", "1", "--reserve", "1", "--", "none")
	if got.status != exitCannotExecute || !strings.HasPrefix(got.stderr, "dew-init: cannot start the main process: open /does/not/exist") {
		t.Errorf("result = %+v", got)
	}
}

// PID 1 stays small when it starts a process.
func TestResidentMemoryWithMain(t *testing.T) {
	r := shell("read -r line")
	for n := range 200 {
		r.Env = append(r.Env, fmt.Sprintf("V%d=%s", n, bytes.Repeat([]byte("x"), 200)))
	}
	w := startWithMain(t, r)
	w.started()
	rss, _, _ := strings.Cut(procStatus(t, w.cmd.Process.Pid, "VmRSS"), " ")
	var kib int
	if _, err := fmt.Sscan(rss, &kib); err != nil || kib == 0 || kib > maxResident {
		t.Errorf("VmRSS = %s KiB, %v, want at most %d", rss, err, maxResident)
	}
}

func TestHomeOf(t *testing.T) {
	passwd := "root:x:0:0:root:/root:/bin/sh\n+::::::\nbroken\nweb:x:33:33::/var/www:/bin/sh\nnone:x:34:34:::/bin/sh"
	for uid, want := range map[uint32]string{0: "/root", 33: "/var/www", 34: "/", 35: "/"} {
		if got := homeOf(passwd, uid); got != want {
			t.Errorf("home of %d = %s, want %s", uid, got, want)
		}
	}
	if got := withHome([]string{"A=1", "HOME=/x"}, 0); !slices.Equal(got, []string{"A=1", "HOME=/x"}) {
		t.Errorf("environment = %v, want it unchanged", got)
	}
}

// A main process that runs as root, as in some images, can neither open the file of the
// reports nor reach the files of PID 1.
func TestRootCannotReachPID1(t *testing.T) {
	r := shell(`read -r pid file; cat "/proc/$pid/fd/0" 2>&1; cat "$file" 2>&1; id -u`)
	r.UID, r.GID = 0, 0
	w := startWithMain(t, r)
	w.started()
	if _, err := fmt.Fprintln(w.gate, w.cmd.Process.Pid, w.file); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(w.stdout)
	if got := string(b); err != nil || strings.Count(got, "Permission denied") != 2 || !strings.HasSuffix(got, "\n0\n") {
		t.Errorf("root of the container got %q, %v, want to be refused twice", got, err)
	}
}
