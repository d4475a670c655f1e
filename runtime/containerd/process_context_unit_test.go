package containerd

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime"
)

func TestParseEnviron(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string // nil: none
	}{
		{"variables", "A=1\x00B=two words\x00C=\x00", []string{"A=1", "B=two words", "C="}},
		{"newline in a value", "A=1\n2\x00", []string{"A=1\n2"}},
		{"a function of bash", "BASH_FUNC_f%%=() { echo; }\x00", []string{"BASH_FUNC_f%%=() { echo; }"}},
		{"empty", "", nil},
		{"zeros", "\x00\x00\x00", nil},
		{"overwritten by a title", "nginx: worker process\x00\x00\x00A=1\x00", nil},
		{"no name", "=x\x00", nil},
		{"no text", "A=1\x00B=\xff\xfe\x00", []string{"A=1"}},
	} {
		got, ok := parseEnviron([]byte(tt.in))
		if diff := cmp.Diff(got, tt.want); diff != "" || ok != (tt.want != nil) {
			t.Errorf("%s: %v (-got +want):\n%s", tt.name, ok, diff)
		}
	}
}

func FuzzParseEnviron(f *testing.F) {
	f.Add([]byte("A=1\x00B=2\x00"))
	f.Add([]byte("title"))
	f.Fuzz(func(t *testing.T, b []byte) {
		env, ok := parseEnviron(b)
		if ok != (len(env) > 0) {
			t.Errorf("%q: %v with %d variables", b, ok, len(env))
		}
		for _, kv := range env {
			if i := strings.IndexByte(kv, '='); i <= 0 || strings.ContainsRune(kv, 0) {
				t.Errorf("%q is no variable", kv)
			}
		}
	})
}

// Whoever comes before the command is not taken for it.
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
			// Each of them waits for something to read.
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
			for _, file := range []string{"cmdline", "environ"} { // which the kernel shows a moment later
				for b := []byte(nil); len(b) == 0; time.Sleep(time.Millisecond) {
					var err error
					if b, err = os.ReadFile(procFile(c.Process.Pid, file)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := launching(c.Process.Pid); got != tt.want {
				t.Errorf("launching = %v, want %v", got, tt.want)
			}
		})
	}
}

// The program behind a shell is what people mean by the app; where there are
// several, it is the shell in front of them.
func TestChain(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	start := func(script string, children int) (int, []int) {
		t.Helper()
		c := exec.Command("sh", "-c", script)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		buf := make([]byte, 256)
		n, err := out.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		var pids []int
		for _, f := range strings.Fields(string(buf[:n])) {
			pids = append(pids, atoi(t, f))
		}
		t.Cleanup(func() {
			for _, pid := range pids {
				if p, err := os.FindProcess(pid); err == nil {
					_ = p.Kill()
				}
			}
		})
		if len(pids) != children {
			t.Fatalf("%d children, want %d", len(pids), children)
		}
		return c.Process.Pid, append([]int{c.Process.Pid}, pids...)
	}
	leader, pids := start("sleep 1000 & echo $!; wait", 1)
	if got := chain(leader, pids); !slices.Equal(got, []int{pids[1], leader}) {
		t.Errorf("chain of one = %v, want %v and then its shell %d", got, pids[1], leader)
	}
	leader, pids = start("sleep 1000 & a=$!; sleep 1000 & echo $a $!; wait", 2)
	if got := chain(leader, pids); !slices.Equal(got, []int{leader}) {
		t.Errorf("chain of two = %v, want the shell %d", got, leader)
	}
	if env, ok := environOf(leader); !ok || !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }) {
		t.Errorf("environment of the shell = %v, %v", env, ok)
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			t.Fatalf("%q is no number", s)
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// What a process was started with is known to the next daemon.
func TestGiven(t *testing.T) {
	dir := t.TempDir()
	first := &container{dir: dir}
	first.spec.Stack.Shell = "/bin/bash"
	p := &proc{ProcessSpec: runtime.ProcessSpec{Exec: "main", Dir: "/home/vcap/app", Env: []string{"A=1", "B=x\ny"}}}
	if err := first.saveStartContext(p); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "main.given"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file: %v, %v; want mode 600", info, err)
	}
	next := &container{dir: dir}
	got, err := next.startContext(&proc{ProcessSpec: runtime.ProcessSpec{Exec: "main"}})
	want := processContext{Dir: "/home/vcap/app", Env: []string{"A=1", "B=x\ny"}, Shell: "/bin/bash"}
	if diff := cmp.Diff(got, want, cmp.AllowUnexported(processContext{})); diff != "" || err != nil {
		t.Errorf("given: %v (-got +want):\n%s", err, diff)
	}
	if got, err := next.startContext(&proc{ProcessSpec: runtime.ProcessSpec{Exec: "sidecar-0"}}); err != nil || got.Dir != "/" {
		t.Errorf("of an earlier dewd: %+v, %v; want the root folder and no error", got, err)
	}
}

func TestLookups(t *testing.T) {
	hosts := "127.0.0.1 localhost\n::1 localhost ip6-localhost\n# 1.2.3.4 db\n10.0.0.1 api.dew.internal # door\nbroken\n"
	for name, want := range map[string][]netip.Addr{
		"localhost":        {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		"LOCALHOST.":       {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		"api.dew.internal": {netip.MustParseAddr("10.0.0.1")},
		"db":               nil,
		"door":             nil,
	} {
		if got := inHosts(hosts, name); !slices.Equal(got, want) {
			t.Errorf("inHosts(%q) = %v, want %v", name, got, want)
		}
	}
	got := nameservers("# nameserver 9.9.9.9\nsearch x\nnameserver 10.0.0.53\nnameserver fe80::1%eth0\nnameserver nonsense\n")
	if want := []netip.Addr{netip.MustParseAddr("10.0.0.53"), netip.MustParseAddr("fe80::1%eth0")}; !slices.Equal(got, want) {
		t.Errorf("nameservers = %v, want %v", got, want)
	}
}

func TestSessionProcess(t *testing.T) {
	c := &container{e: &Engine{cg: &cgroups{unified: "/sys/fs/cgroup"}, base: baseSpec{uid: 2000, gid: 2000}}}
	around := processContext{Dir: "/home/vcap/app", Env: []string{"A=1", "TERM=dumb"}, Shell: "/bin/bash"}
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
		around.profile = tt.profile
		p := c.sessionProcess("ssh-3", around, tt.spec)
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
