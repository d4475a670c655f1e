package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// maxResident is the maximum memory of PID 1 in every container, in KiB.
const maxResident = 4096

// lastIgnored is the signal that PID 1 ignores last. Once it is set, all are set.
const lastIgnored = syscall.SIGUSR2

// startInit runs dew-init as PID 1 of a new pid namespace. Before that, the shell that
// becomes it runs before, which can leave children.
func startInit(t *testing.T, before string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", before + ` exec "$0" init "$@"`, program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start PID 1 (root is needed): %v", err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	testkit.EventuallyTrue(t, "PID 1 to listen to signals", func() bool {
		return procStatus(t, cmd.Process.Pid, "Name") == "dew-init" && ignores(t, cmd.Process.Pid, lastIgnored)
	})
	return cmd
}

func procStatus(t *testing.T, pid int, key string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s in the status of %d", key, pid)
	return ""
}

func ignores(t *testing.T, pid int, sig syscall.Signal) bool {
	t.Helper()
	mask, err := strconv.ParseUint(procStatus(t, pid, "SigIgn"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask&(1<<(uint(sig)-1)) != 0
}

// children lists the children of pid, including dead ones.
func children(t *testing.T, pid int) []string {
	t.Helper()
	var all []string
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil && !os.IsNotExist(err) { // a thread can exit during this loop
			t.Fatal(err)
		}
		all = append(all, strings.Fields(string(b))...)
	}
	return all
}

// Children that exited before PID 1 listened, and children that exit long after, are
// both reaped.
func TestReapsInheritedChildren(t *testing.T) {
	cmd := startInit(t, `true & false & (sleep 0.05 &) & (sleep 0.1; exit 7) &`)
	testkit.EventuallyTrue(t, "the children to be collected", func() bool { return len(children(t, cmd.Process.Pid)) == 0 })
}

// Processes enter the namespace of a container from outside, as execs do, and leave
// orphans in it. PID 1 reaps them.
func TestReapsOrphans(t *testing.T) {
	cmd := startInit(t, "")
	const orphans = 40
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (read -r _ <&3 & echo started) & i=$((i+1)); done; wait`, orphans)
	enter := exec.Command("nsenter", "-t", strconv.Itoa(cmd.Process.Pid), "-p", "/bin/sh", "-c", script)
	hold, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	enter.ExtraFiles = []*os.File{hold}
	out, err := enter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := enter.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for s := bufio.NewScanner(out); lines < orphans && s.Scan(); {
		lines++
	}
	if err := enter.Wait(); err != nil || lines != orphans {
		t.Fatalf("started %d orphans, %v; want %d", lines, err, orphans)
	}
	testkit.EventuallyTrue(t, "PID 1 to get the orphans", func() bool { return len(children(t, cmd.Process.Pid)) == orphans })
	_ = hold.Close()
	_ = release.Close() // all exit at once: many children, few signals
	testkit.EventuallyTrue(t, "the orphans to be collected", func() bool { return len(children(t, cmd.Process.Pid)) == 0 })
}

func TestResidentMemory(t *testing.T) {
	cmd := startInit(t, `i=0; while [ $i -lt 50 ]; do true & i=$((i+1)); done;`)
	testkit.EventuallyTrue(t, "the children to be collected", func() bool { return len(children(t, cmd.Process.Pid)) == 0 })
	rss, _, _ := strings.Cut(procStatus(t, cmd.Process.Pid, "VmRSS"), " ")
	kib, err := strconv.Atoi(rss)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("resident: %d KiB", kib)
	if kib == 0 || kib > maxResident {
		t.Errorf("VmRSS = %d KiB, want at most %d", kib, maxResident)
	}
}

// SIGTERM stops PID 1 with status 0. Other signals that stop programs by default do
// not.
func TestSignals(t *testing.T) {
	cmd := startInit(t, "")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !ignores(t, cmd.Process.Pid, sig) {
			t.Errorf("%v is not ignored", sig)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatalf("PID 1 is gone before %v: %v", sig, err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("PID 1 ended with %v, want status 0", err)
	}
}

// Without arguments dew-init also runs as PID 1.
func TestNoArguments(t *testing.T) {
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "PID 1 to listen", func() bool { return ignores(t, cmd.Process.Pid, lastIgnored) })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("PID 1 ended with %v, want status 0", err)
	}
}
