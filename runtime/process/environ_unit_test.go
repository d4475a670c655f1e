package process

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// The program started by a shell counts as the app. If there are several, it is their
// shell.
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
	if got := Chain(leader, pids); !slices.Equal(got, []int{pids[1], leader}) {
		t.Errorf("chain of one = %v, want %v and then its shell %d", got, pids[1], leader)
	}
	leader, pids = start("sleep 1000 & a=$!; sleep 1000 & echo $a $!; wait", 2)
	if got := Chain(leader, pids); !slices.Equal(got, []int{leader}) {
		t.Errorf("chain of two = %v, want the shell %d", got, leader)
	}
	if env, ok := Environ(leader); !ok || !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") }) {
		t.Errorf("environment of the shell = %v, %v", env, ok)
	}
}
