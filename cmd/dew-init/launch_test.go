package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// shells are used in every test that sources a script.
var shells = []string{"/bin/bash", "/bin/sh"}

// home creates a container's home folder from files by their path in it. It returns the
// app's folder, the working directory of a launch.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "app dir") // with a space: nothing must be split
	for _, d := range []string{dir, filepath.Join(dir, ".profile.d"), filepath.Join(root, "profile.d")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		path := filepath.Join(root, strings.Replace(name, "app/", "app dir/", 1))
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGate(t *testing.T) {
	tests := []struct {
		name string
		gate string
		want result
	}{
		{"one byte", "x", result{stdout: "ran\n"}},
		{"any byte", "\x00", result{stdout: "ran\n"}},
		{"more bytes", "yes please\n", result{stdout: "ran\n"}},
		{"end of file", "", result{status: exitGateClosed}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, args := range [][]string{{"launch", "--", "echo ran"}, {"launch", "--exec", "--", "echo", "ran"}} {
				if got := start(t, t.TempDir(), tt.gate, args...); got != tt.want {
					t.Errorf("%q = %+v, want %+v", args, got, tt.want)
				}
			}
		})
	}
}

// The line at the gate is the time of the start. Without one, the environment stays.
func TestStartTime(t *testing.T) {
	t.Parallel()
	const created, started = "2026-01-02 03:04:05 +0000", "2026-02-03 04:05:06 +0000"
	tests := []struct {
		name, application, line, want string
	}{
		{"replaced", `{"name":"a","start":"` + created + `","uris":[]}`, started + "\n", `{"name":"a","start":"` + started + `","uris":[]}`},
		{"a name that looks like the key", `{"name":"\"start\":\"x","start":"` + created + `"}`, started + "\n", `{"name":"\"start\":\"x","start":"` + started + `"}`},
		{"no line", `{"start":"` + created + `"}`, "\n", `{"start":"` + created + `"}`},
		{"cut line", `{"start":"` + created + `"}`, started, `{"start":"` + created + `"}`},
		{"no key", `{"name":"a"}`, started + "\n", `{"name":"a"}`},
		{"no JSON", `"start":"`, started + "\n", `"start":"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := withStart(tt.application, tt.line); got != tt.want {
				t.Errorf("application = %s, want %s", got, tt.want)
			}
		})
	}
}

// A gate that cannot be read counts as closed.
func TestGateError(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(program, "launch", "--", "echo ran")
	cmd.Stdin = dir
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != exitGateClosed || len(out) != 0 {
		t.Errorf("status %d and output %q, want %d and none", got, out, exitGateClosed)
	}
}

// Nothing runs before the byte, and the process that waited becomes the command. It has
// the same pid, stdin from /dev/null and no other files than 0, 1 and 2.
func TestGateFIFO(t *testing.T) {
	dir := home(t, map[string]string{"app/.profile": "export PROFILE_PID=$$"})
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	// Both ends, as the shim holds them, so that the launcher's read sees no end of
	// file.
	fifo, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	stray, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer stray.Close()
	var out bytes.Buffer
	cmd := exec.Command(program, "launch", "--", `touch ran; echo $$ $PROFILE_PID; exec sleep 60`)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, fifo, &out, os.Stderr
	cmd.ExtraFiles = []*os.File{stray} // a file leaked by the parent
	cmd.WaitDelay = testkit.Patience   // for the last of its output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	testkit.EventuallyTrue(t, "the launcher to wait at its gate", func() bool { return readsStdin(t, pid) })
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the command ran before the gate was opened")
	}
	if _, err := fifo.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the command to be the same process", func() bool { return procStatus(t, pid, "Name") == "sleep" })
	p := strconv.Itoa(pid)
	if got, err := os.Readlink("/proc/" + p + "/fd/0"); got != "/dev/null" {
		t.Errorf("stdin of the command is %q, %v; want /dev/null", got, err)
	}
	// It could still be loading its libraries.
	testkit.EventuallyTrue(t, "the command to have the files 0, 1 and 2 alone", func() bool {
		fds, err := os.ReadDir("/proc/" + p + "/fd")
		return err == nil && len(fds) == 3
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got, want := out.String(), p+" "+p+"\n"; got != want {
		t.Errorf("pids of command and profile = %q, want %q", got, want)
	}
}

// readsStdin reports whether a thread of pid is in read(0, …).
func readsStdin(t *testing.T, pid int) bool {
	t.Helper()
	calls, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/syscall")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range calls {
		call, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(call), strconv.Itoa(syscall.SYS_READ)+" 0x0 ") {
			return true
		}
	}
	return false
}

// The scripts run in order, in both shells, and pass their environment to the command.
// Dotfiles, folders and missing files are skipped.
func TestProfileOrder(t *testing.T) {
	add := func(s string) string { return "export SEEN=\"$SEEN " + s + "\"\n" }
	dir := home(t, map[string]string{
		"profile.d/1.sh":          add("one") + "set -- changed arguments\n",
		"profile.d/0 first.sh":    add("zero"),
		"profile.d/.hidden":       add("hidden"),
		"app/.profile.d/b":        add("b") + "set -f\ncd /\n",
		"app/.profile.d/a":        add("a") + "read -r line && export SEEN=stdin\n",
		"app/.profile":            add("profile") + "here=local\n",
		"app/.profile.d/a_return": add("c") + "return 3\n" + add("never"),
	})
	if err := os.Mkdir(filepath.Join(dir, ".profile.d", "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, shell := range shells {
		got := start(t, dir, "x", "launch", "--shell", shell, "--", `echo $SEEN, $# "$PWD" "$here"; env | grep __dew`)
		if want := (result{status: 1, stdout: "zero one a c b profile, 0 / \n"}); got != want {
			t.Errorf("%s: result = %+v, want %+v", shell, got, want)
		}
		got = start(t, dir, "x", "launch", "--no-profile", "--shell", shell, "--", `echo "$SEEN, $PWD"`)
		if want := (result{stdout: ", " + dir + "\n"}); got != want {
			t.Errorf("%s: result without profile = %+v, want %+v", shell, got, want)
		}
	}
}

// A script of a buildpack can write one for the app, even in the same start.
func TestProfileWritesProfile(t *testing.T) {
	dir := home(t, map[string]string{
		"profile.d/make": `echo 'export LATE=1' >.profile.d/late; echo 'export LATER=2' >.profile`,
	})
	for _, shell := range shells {
		got := start(t, dir, "x", "launch", "--shell", shell, "--", `echo "$LATE$LATER"`)
		if want := (result{stdout: "12\n"}); got != want {
			t.Errorf("%s: result = %+v, want %+v", shell, got, want)
		}
	}
}

// The command runs even if a script fails, but not if a script exits.
func TestProfileFailures(t *testing.T) {
	tests := []struct {
		name   string
		script string
		status int
		stdout string
		stderr string // part of it
	}{
		{"false", "false", 0, "ran\n", ""},
		{"no such command", "no-such-command", 0, "ran\n", "no-such-command"},
		{"syntax error", "if then", 0, "ran\n", "yntax error"},
		{"exit", "echo leaving; exit 9", 9, "leaving\n", ""},
		{"exit 0", "exit 0", 0, "", ""},
		{"killed", "kill -KILL $$", -1, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, file := range []string{"profile.d/x.sh", "app/.profile.d/x.sh", "app/.profile"} {
				dir := home(t, map[string]string{file: tt.script})
				for _, shell := range shells {
					got := start(t, dir, "x", "launch", "--shell", shell, "--", "echo ran")
					if got.status != tt.status || got.stdout != tt.stdout || !strings.Contains(got.stderr, tt.stderr) || (tt.stderr == "" && got.stderr != "") {
						t.Errorf("%s in %s: result = %+v, want %d %q %q", file, shell, got, tt.status, tt.stdout, tt.stderr)
					}
				}
			}
		})
	}
}

// A command reaches the shell unchanged.
func TestCommands(t *testing.T) {
	tests := []struct {
		command string
		want    result
	}{
		{`echo "$GREETING"`, result{stdout: "hello  world\n"}},
		{`echo '$GREETING' "it's" \"quoted\"`, result{stdout: "$GREETING it's \"quoted\"\n"}},
		{"echo one\necho two # three\n", result{stdout: "one\ntwo\n"}},
		{"printf '%s' \"a\nb\"", result{stdout: "a\nb"}},
		{`printf %s '\n\t\\'`, result{stdout: `\n\t\\`}},
		{`echo "$0 $#"`, result{stdout: "SHELL 0\n"}},
		{`echo $(echo nested) | tr a-z A-Z && (exit 3)`, result{status: 3, stdout: "NESTED\n"}},
		{`echo “ünïcode”`, result{stdout: "“ünïcode”\n"}},
		{`-x`, result{status: 127}},
		{`'; echo spliced; '`, result{status: 127}},
		{`"; echo spliced; "`, result{status: 127}},
		{`exec env true`, result{}},
		{``, result{}},
		{`cat; echo empty`, result{stdout: "empty\n"}},
		{`kill -TERM $$`, result{status: -1}},
	}
	dir := home(t, nil)
	for _, tt := range tests {
		t.Run(tt.command, func(t *testing.T) {
			for _, shell := range shells {
				for _, args := range [][]string{{"launch", "--shell", shell, "--", tt.command}, {"launch", "--no-profile", "--shell", shell, "--", tt.command}} {
					got := start(t, dir, "x", args...)
					if tt.want.status == 127 {
						got.stderr = "" // each shell has its own message
					}
					want := tt.want
					want.stdout = strings.Replace(want.stdout, "SHELL", shell, 1)
					if got != want {
						t.Errorf("%q = %+v, want %+v", args, got, want)
					}
				}
			}
		})
	}
}

func TestShellChoice(t *testing.T) {
	notAShell := filepath.Join(t.TempDir(), "shell")
	if err := os.WriteFile(notAShell, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		want result
	}{
		{"default", nil, result{stdout: "/bin/bash\n"}},
		{"asked", []string{"--shell", "/bin/sh"}, result{stdout: "/bin/sh\n"}},
		{"fallback", []string{"--shell", "/no/such/shell"}, result{stdout: "/bin/sh\n"}},
		{"not executable", []string{"--shell", notAShell}, result{status: exitCannotExecute, stderr: "dew-init: cannot execute " + notAShell + ": permission denied\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append(append([]string{"launch"}, tt.args...), "--", `echo "$0"`)
			if got := start(t, home(t, nil), "x", args...); got != tt.want {
				t.Errorf("result = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// On a stack without any shell (an empty root with dew-init and /dev/null in it), a
// simple command runs directly and any other is refused.
func TestNoShell(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"dev", "bin"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/dew-init"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"echo ran":  "dew-init: cannot execute echo: program not found in PATH\n", // run without a shell
		"echo | ls": "dew-init: cannot run the command: " + errNeedsShell.Error() + " (neither /bin/bash nor /bin/sh exists)\n",
	} {
		var stderr bytes.Buffer
		cmd := exec.Command("/bin/dew-init", "launch", "--", command)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		cmd.Dir, cmd.Stdin, cmd.Stderr = "/", strings.NewReader("x"), &stderr
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != exitNotFound {
			t.Errorf("%s: status = %d, want %d", command, got, exitNotFound)
		}
		if got := stderr.String(); got != want {
			t.Errorf("%s: stderr = %q, want %q", command, got, want)
		}
	}
}

// For image apps, the program runs unchanged and no script is sourced.
func TestExec(t *testing.T) {
	dir := home(t, map[string]string{"app/.profile": "export SEEN=1", "app/plain": "text"})
	tests := []struct {
		name string
		argv []string
		want result
	}{
		{"by path", []string{"/bin/echo", "$GREETING", "a  b", "'"}, result{stdout: "$GREETING a  b '\n"}},
		{"in PATH", []string{"printenv", "GREETING"}, result{stdout: "hello  world\n"}},
		{"nothing sourced", []string{"printenv", "SEEN"}, result{status: 1}},
		{"options of its own", []string{"sh", "-c", "echo \"$0\" \"$1\"", "--", "--exec"}, result{stdout: "-- --exec\n"}},
		{"not in PATH", []string{"no-such-program"}, result{status: exitNotFound, stderr: "dew-init: cannot execute no-such-program: program not found in PATH\n"}},
		{"no such path", []string{"./no-such"}, result{status: exitNotFound, stderr: "dew-init: cannot execute ./no-such: no such file or directory\n"}},
		{"not executable", []string{"./plain"}, result{status: exitCannotExecute, stderr: "dew-init: cannot execute ./plain: permission denied\n"}},
		{"empty", []string{""}, result{status: exitNotFound, stderr: "dew-init: cannot execute : program not found in PATH\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := start(t, dir, "x", append([]string{"launch", "--exec", "--"}, tt.argv...)...); got != tt.want {
				t.Errorf("result = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestCandidates(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		want []string
	}{
		{"a/b", []string{"PATH=/bin"}, []string{"a/b"}},
		{"ls", []string{"X=1", "PATH=/usr/bin:/bin", "PATH=/later"}, []string{"/usr/bin/ls", "/bin/ls"}},
		{"ls", []string{"PATH=:/bin"}, []string{"./ls", "/bin/ls"}},
		{"ls", nil, []string{"/usr/local/sbin/ls", "/usr/local/bin/ls", "/usr/sbin/ls", "/usr/bin/ls", "/sbin/ls", "/bin/ls"}},
		{"", []string{"PATH=/bin"}, nil},
	}
	for _, tt := range tests {
		if got := candidates(tt.name, tt.env); !slices.Equal(got, tt.want) {
			t.Errorf("candidates(%q, %q) = %q, want %q", tt.name, tt.env, got, tt.want)
		}
	}
}

// For any arguments, a launch that is accepted has a command.
func FuzzParseLaunch(f *testing.F) {
	for _, seed := range []string{"--\x00echo", "--shell\x00/bin/sh\x00--\x00a b", "--exec\x00--\x00a\x00b", "--no-profile\x00--\x00--", "--shell\x00--\x00x", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\x00")
		l, err := parseLaunch(args)
		if err != nil {
			return
		}
		if len(l.argv) == 0 || (!l.direct && len(l.argv) != 1) {
			t.Errorf("accepted %q as %+v", args, l)
		}
		if end := len(args) - len(l.argv); args[end-1] != "--" || !slices.Equal(args[end:], l.argv) {
			t.Errorf("command of %q = %q", args, l.argv)
		}
	})
}
