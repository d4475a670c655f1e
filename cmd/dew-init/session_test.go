package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

func TestParseSession(t *testing.T) {
	for _, tt := range []struct {
		name string
		args string
		want session
		err  string
	}{
		{name: "shell", args: "--cgroup :ssh-1", want: session{leaf: "ssh-1"}},
		{
			name: "command", args: "--cgroup pids:ssh-1 --shell /bin/bash --profile -- ls",
			want: session{controller: "pids", leaf: "ssh-1", shell: "/bin/bash", profile: true, argv: []string{"ls"}},
		},
		{name: "program", args: "--cgroup :a --exec -- /.dew/sftp -x", want: session{leaf: "a", direct: true, argv: []string{"/.dew/sftp", "-x"}}},
		{name: "socket", args: "--cgroup :a --socket /tmp/s", want: session{leaf: "a", socket: "/tmp/s"}},
		{name: "modes", args: "--cgroup :a --modes 53=0,128=9600", want: session{leaf: "a", modes: []mode{{53, 0}, {128, 9600}}}},
		{name: "no leaf", args: "-- ls", want: session{argv: []string{"ls"}}},
		{name: "half a leaf", args: "--cgroup ssh-1", err: "--cgroup needs CONTROLLER:LEAF"},
		{name: "no value", args: "--cgroup", err: "--cgroup needs a value"},
		{name: "value missing", args: "--cgroup :a --shell -- ls", err: "--shell needs a value"},
		{name: "wrong modes", args: "--cgroup :a --modes 300=1", err: "--modes needs OPCODE=VALUE pairs, separated by commas"},
		{name: "no program", args: "--cgroup :a --exec", err: "the program after -- is missing"},
		{name: "several commands", args: "--cgroup :a -- ls -l", err: "the command must be one argument (use --exec for several arguments)"},
		{name: "unknown", args: "--cgroup :a --colour", err: "unknown option --colour"},
	} {
		got, err := parseSession(strings.Fields(tt.args))
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.err)
			}
			continue
		}
		same := err == nil && got.controller == tt.want.controller && got.leaf == tt.want.leaf && got.shell == tt.want.shell &&
			got.profile == tt.want.profile && got.direct == tt.want.direct && got.socket == tt.want.socket &&
			slices.Equal(got.argv, tt.want.argv) && slices.Equal(got.modes, tt.want.modes)
		if !same {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
}

func TestInLeaf(t *testing.T) {
	v1 := "9:name=systemd:/\n8:pids:/../ssh-1\n7:cpu,cpuacct:/\n3:memory:/../ssh-1\n0::/\n"
	for _, tt := range []struct {
		lines, controller, leaf string
		want                    bool
	}{
		{v1, "pids", "ssh-1", true},
		{v1, "", "ssh-1", false}, // not moved there yet
		{v1, "pids", "ssh-2", false},
		{v1, "pids", "sh-1", false},
		{v1, "cpuacct", "ssh-1", false},
		{"0::/../ssh-12\n", "", "ssh-12", true},
		{"0::/dew/x/ssh-12", "", "ssh-12", true},
		{"0::/../ssh-12\n", "", "2", false},
		{"", "", "ssh-1", false},
		{"nonsense\n:\n", "", "ssh-1", false},
	} {
		if got := inLeaf(tt.lines, tt.controller, tt.leaf); got != tt.want {
			t.Errorf("inLeaf(%q, %q, %q) = %v, want %v", tt.lines, tt.controller, tt.leaf, got, tt.want)
		}
	}
}

func TestShellArgs(t *testing.T) {
	for _, tt := range []struct {
		s    session
		want []string
	}{
		{session{}, []string{"/bin/sh"}},
		{session{argv: []string{"-x"}}, []string{"/bin/sh", "-c", "--", "-x"}},
		{session{profile: true}, []string{"/bin/sh", "-c", profileScript, "dew-init", "/bin/sh", "exec /bin/sh"}},
		{session{profile: true, argv: []string{"ls"}}, []string{"/bin/sh", "-c", profileScript, "dew-init", "/bin/sh", "ls"}},
	} {
		if got := tt.s.shellArgs("/bin/sh"); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.s, got, tt.want)
		}
	}
}

func TestSetMode(t *testing.T) {
	term := syscall.Termios{Lflag: syscall.ECHO | syscall.ICANON}
	for _, m := range []mode{{53, 0}, {42, 1}, {1, 7}, {3, 255}, {72, 1}, {128, 9600}, {99, 1}} {
		setMode(&term, m)
	}
	if term.Lflag != syscall.ICANON || term.Iflag != syscall.IUTF8 || term.Oflag != syscall.ONLCR || term.Cc[syscall.VINTR] != 7 || term.Cc[syscall.VERASE] != 0 {
		t.Errorf("termios = %+v", term)
	}
}

// leafOf creates a cgroup for a session on this machine, with a unique name, and
// returns its controller.
func leafOf(t *testing.T) (dir, controller string) {
	t.Helper()
	base, controller := "/sys/fs/cgroup/pids", "pids"
	for _, unified := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(unified, "cgroup.procs")); err == nil {
			base, controller = unified, ""
			break
		}
	}
	dir, err := os.MkdirTemp(base, "dew-init-test-")
	if err != nil {
		t.Skipf("cannot make a cgroup: %v", err)
	}
	// A group that was just emptied can stay busy for a moment.
	t.Cleanup(func() {
		testkit.EventuallyTrue(t, dir+" to be removed", func() bool { return syscall.Rmdir(dir) == nil })
	})
	return dir, controller
}

// A session runs nothing before it is in its leaf, and keeps its input.
func TestSessionWaitsForItsLeaf(t *testing.T) {
	dir, controller := leafOf(t)
	cmd := exec.Command(program, "session", "--cgroup", controller+":"+filepath.Base(dir), "--", "echo begun; cat; exit 7")
	cmd.Stdin = strings.NewReader("input\n")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Stays(t, "it does not run the command", 50*time.Millisecond, func() error {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/comm")
		if err == nil && string(b) != "dew-init\n" {
			err = fmt.Errorf("it is %q already, want dew-init", b)
		}
		return err
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the test checks its status
	if cmd.ProcessState.ExitCode() != 7 || out.String() != "begun\ninput\n" {
		t.Errorf("status %d, printed %q; want 7 and its input", cmd.ProcessState.ExitCode(), out.String())
	}
}
