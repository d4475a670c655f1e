//go:build k8stest

package kubetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// another is a second cluster, which runs in the first one.
type another struct {
	*osexec.Cmd
	dir, cgroup string
	output      testkit.Buffer
}

// startAnother starts a cluster with a folder of its own for temporary files, and returns
// when it has its cgroups.
func startAnother(t *testing.T, command ...string) *another {
	t.Helper()
	c := Open(t)
	temporary := t.TempDir()
	a := &another{Cmd: osexec.Command(c.Program, append([]string{"up", "--"}, command...)...)}
	a.Env = append(os.Environ(), "TMPDIR="+temporary)
	a.Stdout, a.Stderr = &a.output, &a.output
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the cluster has a folder", func() error {
		found, err := filepath.Glob(filepath.Join(temporary, "*", "settings.json"))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%q: %w", found, err)
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			return err
		}
		a.dir = filepath.Dir(found[0])
		var settings struct{ Cgroup string }
		err = json.Unmarshal(text, &settings)
		a.cgroup = settings.Cgroup
		return err
	})
	return a
}

// exitCode waits for the end of the cluster.
func (a *another) exitCode(t *testing.T) int {
	t.Helper()
	err := a.Wait()
	var exit *osexec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("%s", bytes.TrimSpace([]byte(a.output.String())))
	return a.ProcessState.ExitCode()
}

// processes returns the processes of the cluster: those with its folder in their
// arguments, and those in its cgroups.
func (a *another) processes(t *testing.T) (found []string) {
	t.Helper()
	files := testkit.Must(filepath.Glob("/proc/[0-9]*/c[mg]*"))(t)
	for _, file := range files {
		if base := filepath.Base(file); base != "cmdline" && base != "cgroup" {
			continue
		}
		text, err := os.ReadFile(file)
		if err == nil && (strings.Contains(string(text), a.dir) || strings.Contains(string(text), a.cgroup)) {
			found = append(found, fmt.Sprintf("%s: %q", file, text))
		}
	}
	return found
}

// left returns an error if something of the cluster is left.
func (a *another) left(t *testing.T) error {
	t.Helper()
	left := a.processes(t)
	for _, pattern := range []string{"/sys/fs/cgroup/" + a.cgroup, "/sys/fs/cgroup/*/" + a.cgroup, a.dir} {
		left = append(left, testkit.Must(filepath.Glob(pattern))(t)...)
	}
	if len(left) > 0 {
		return fmt.Errorf("left: %s", strings.Join(left, "\n"))
	}
	return nil
}

// A cluster returns the exit code of its command, and leaves nothing.
func TestExitCode(t *testing.T) {
	a := startAnother(t, "/bin/sh", "-c", "exit 7")
	testkit.EventuallyTrue(t, "the test finds the processes of a running cluster", func() bool { return len(a.processes(t)) >= 2 })
	if got := a.exitCode(t); got != 7 {
		t.Errorf("exit code = %d, want 7", got)
	}
	if err := a.left(t); err != nil {
		t.Error(err)
	}
}

// A signal ends the command and then the cluster. During the start there is no command.
func TestTerminated(t *testing.T) {
	for name, test := range map[string]struct {
		wait bool
		want int
	}{
		"while it starts":        {wait: false, want: 125},
		"while the command runs": {wait: true, want: 128 + int(syscall.SIGTERM)},
	} {
		t.Run(name, func(t *testing.T) {
			ready := filepath.Join(t.TempDir(), "ready")
			a := startAnother(t, "/bin/sh", "-c", "touch "+ready+"; exec sleep 1000")
			testkit.EventuallyTrue(t, "the cluster has processes", func() bool {
				_, err := os.Stat(ready)
				return len(a.processes(t)) >= 2 && (err == nil || !test.wait)
			})
			if err := a.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if got := a.exitCode(t); got != test.want {
				t.Errorf("exit code = %d, want %d", got, test.want)
			}
			if err := a.left(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// If a cluster is killed, its processes die at once, and the next cluster removes what is
// left.
func TestKilledCluster(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	a := startAnother(t, "/bin/sh", "-c", "touch "+ready+"; exec sleep 1000")
	testkit.EventuallyTrue(t, "the command runs", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	if err := a.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	a.exitCode(t)
	testkit.Eventually(t, "all processes die", func() error {
		if found := a.processes(t); len(found) > 0 {
			return fmt.Errorf("%q", found)
		}
		return nil
	})
	next := osexec.Command(Open(t).Program, "up", "--", "/bin/true")
	next.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(a.dir))
	if out, err := next.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := a.left(t); err != nil {
		t.Error(err)
	}
}
