package session

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/testkit"
)

// A launcher is not mistaken for the command.
func TestLaunching(t *testing.T) {
	const pipe = "_LIBCONTAINER_INITPIPE=3"
	for _, tt := range []struct {
		name, program string
		args          []string
		env           []string
		want          bool
	}{
		{"the container runtime", "/bin/cat", []string{"runc", "init"}, []string{"GOMAXPROCS=2", pipe}, true},
		{"another program's init", "/bin/cat", []string{"git", "init"}, []string{"HOME=/"}, false},
		{"a program that the runtime's variables were left to", "/bin/cat", []string{"runc", "-"}, []string{pipe}, false},
		{"the shell for profile scripts", "/bin/sh", []string{"sh", "-c", "read x", "dew-init"}, nil, true},
		{"another shell", "/bin/sh", []string{"sh", "-c", "read x", "other"}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := exec.Command(tt.program)
			c.Args, c.Env, c.Dir = tt.args, tt.env, t.TempDir()
			// Each of them waits for input.
			if err := unix.Mkfifo(filepath.Join(c.Dir, "init"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := c.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
			for _, file := range []string{"cmdline", "environ"} { // the kernel shows it a moment later
				testkit.Eventually(t, file+" is not empty", func() error {
					b, err := os.ReadFile(process.File(c.Process.Pid, file))
					if err != nil {
						return testkit.Finally(err)
					}
					if len(b) == 0 {
						return errors.New("it is empty")
					}
					return nil
				})
			}
			if got := process.Launching(c.Process.Pid, ocispec.InitPath); got != tt.want {
				t.Errorf("launching = %v, want %v", got, tt.want)
			}
		})
	}
}

// The next daemon knows the settings that a process was started with.
func TestContextIsReadBack(t *testing.T) {
	dir := t.TempDir()
	p := runtime.ProcessSpec{Exec: "main", Dir: "/home/vcap/app", Env: []string{"A=1", "B=x\ny"}}
	if err := WriteContext(dir, p, "/bin/bash"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "main.given"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file: %v, %v; want mode 600", info, err)
	}
	got, err := ReadContext(dir, "main")
	want := Context{Dir: "/home/vcap/app", Env: []string{"A=1", "B=x\ny"}, Shell: "/bin/bash"}
	if diff := cmp.Diff(got, want); diff != "" || err != nil {
		t.Errorf("context: %v (-got +want):\n%s", err, diff)
	}
	if got, err := ReadContext(dir, "sidecar-0"); err != nil || got.Dir != "/" {
		t.Errorf("of an earlier dewd: %+v, %v; want the root folder and no error", got, err)
	}
}

func TestSessionProcess(t *testing.T) {
	ss := &Sessions{cfg: Config{Cgroups: &cgroup.Hierarchies{Unified: "/sys/fs/cgroup"}, Base: ocispec.Base{UID: 2000, GID: 2000}}}
	env := Context{Dir: "/home/vcap/app", Env: []string{"A=1", "TERM=dumb"}, Shell: "/bin/bash"}
	for _, tt := range []struct {
		name    string
		profile bool
		spec    runtime.ExecSpec
		want    string
	}{
		{"shell", false, runtime.ExecSpec{Kind: runtime.ExecShell}, "--shell /bin/bash"},
		{"command", false, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "ls -l"}, "--shell /bin/bash -- ls -l"},
		{"before its profile", true, runtime.ExecSpec{Kind: runtime.ExecShell}, "--shell /bin/bash --profile"},
		{"files", false, runtime.ExecSpec{Kind: runtime.ExecFiles}, "--shell /bin/bash --exec -- /.dew/sftp"},
		{"socket", false, runtime.ExecSpec{Kind: runtime.ExecSocket, Command: "/tmp/s"}, "--shell /bin/bash --socket /tmp/s"},
		{
			"terminal", false, runtime.ExecSpec{Kind: runtime.ExecShell, Env: []string{"TERM=xterm"}, TTY: &runtime.Terminal{
				Size: runtime.Size{Columns: 80, Rows: 24}, Modes: []runtime.TerminalMode{{Opcode: 53}, {Opcode: 42, Value: 1}},
			}}, "--shell /bin/bash --modes 53=0,42=1",
		},
	} {
		env.Profile = tt.profile
		p := ss.process("ssh-3", env, tt.spec)
		if got := strings.Join(p.Args, " "); got != "/.dew/init session --cgroup :ssh-3 "+tt.want {
			t.Errorf("%s: %s, want … %s", tt.name, got, tt.want)
		}
		if p.Terminal != (tt.spec.TTY != nil) || p.User.UID != 2000 || p.Cwd != "/home/vcap/app" || !p.NoNewPrivileges {
			t.Errorf("%s: %+v", tt.name, p)
		}
		if tt.spec.TTY != nil && !slices.Contains(p.Env, "TERM=xterm") {
			t.Errorf("%s: environment %v, want the client's TERM", tt.name, p.Env)
		}
	}
}
