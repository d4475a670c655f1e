package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// startProcess starts a program and waits for its first line.
func startProcess(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it can have exited
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestReadStat(t *testing.T) {
	t.Parallel()
	s, ok := ReadStat(Dir(os.Getpid()))
	if !ok || s.Parent != os.Getppid() || !strings.ContainsRune("RSD", rune(s.state)) || s.exiting || s.threads < 1 || s.born == 0 {
		t.Errorf("own stat = %+v, %v, want a living process with parent %d", s, ok, os.Getppid())
	}
	for _, pid := range []int{testkit.NoPID, 0, -1} {
		if _, ok := ReadStat(Dir(pid)); ok {
			t.Errorf("pid %d has a state", pid)
		}
	}
}

// The name of a program can look like the rest of the line.
func TestReadStatOfAnOddName(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), ") Z 1 (")
	target, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	cmd := testkit.Sleeper(t, path, "60")
	if s, ok := ReadStat(Dir(cmd.Process.Pid)); !ok || s.Parent != os.Getpid() {
		t.Errorf("parent = %d, %v, want %d", s.Parent, ok, os.Getpid())
	}
	if !Alive(cmd.Process.Pid) {
		t.Error("it counts as dead")
	}
}

// The test distinguishes a running process, a stopped one, a zombie and one that does
// not exist.
func TestEnded(t *testing.T) {
	t.Parallel()
	cmd := startProcess(t, "sh", "-c", "echo up; exec sleep 1000")
	pid := cmd.Process.Pid
	born := BornAt(pid)
	if Ended(pid, born) {
		t.Error("a living process has ended")
	}
	if !Ended(pid, born+1) {
		t.Error("a later process with the same number was taken for it")
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if Ended(pid, born) {
		t.Error("a stopped process has ended")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the process is a zombie", func() error {
		if s, ok := ReadStat(Dir(pid)); !ok || s.state != 'Z' {
			return fmt.Errorf("stat = %+v, %v", s, ok)
		}
		return nil
	})
	if !Ended(pid, born) {
		t.Error("a zombie has not ended")
	}
	_ = cmd.Wait() // killed: an error is expected
	if !Ended(pid, born) || !Ended(pid, 0) {
		t.Error("a process that is gone has not ended")
	}
	if Ended(0, 0) {
		t.Error("a process that was never started has ended")
	}
}

// The first thread of a process can exit and leave the others running: the process
// lives until the last one exits.
func TestEndedWithoutItsFirstThread(t *testing.T) {
	t.Parallel()
	const headless = `
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
`
	cmd := startProcess(t, "python3", "-c", headless)
	pid := cmd.Process.Pid
	born := BornAt(pid)
	testkit.EventuallyTrue(t, "the first thread ends", func() bool {
		s, _ := ReadStat(Dir(pid))
		return s.state == 'Z'
	})
	if Ended(pid, born) {
		t.Error("a process that has lost its first thread has ended")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "all of it has ended", func() bool { return Ended(pid, born) })
}

// PID 1 of a container exits only after all processes that it terminates. From their
// exits on it counts as ended.
func TestEndedPID1(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a PID namespace")
	}
	t.Parallel()
	// The peer joins the namespace, but its parent is outside and does not reap it.
	first := exec.Command("sleep", "1000")
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Process.Kill() }) // it has already exited if the test passed
	pid := first.Process.Pid
	born := BornAt(pid)
	reaped := make(chan error, 1)
	go func() { reaped <- first.Wait() }()
	peer := startProcess(t, "nsenter", "-t", fmt.Sprint(pid), "-p", "--no-fork", "sh", "-c", "echo up; exec sleep 1000 & wait")
	child := childOf(t, peer.Process.Pid)
	childBorn := BornAt(child)
	if err := peer.Process.Signal(syscall.SIGSTOP); err != nil { // it must not reap
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "the peer is dead", func() bool { return Ended(child, childBorn) })
	if !Ended(pid, born) {
		t.Error("PID 1 lives, though what it took along is dead")
	}
	select {
	case err := <-reaped:
		t.Fatalf("PID 1 was reaped (%v) before its peer: the test shows nothing", err)
	default:
	}
	if err := peer.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-reaped
}

// childOf waits for the child of a process and returns its pid.
func childOf(t *testing.T, pid int) (child int) {
	t.Helper()
	testkit.EventuallyTrue(t, "it has a child", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return false
		}
		_, err = fmt.Sscan(string(b), &child)
		return err == nil
	})
	return child
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (sh) S 1 7 7 0 -1 4194560 89 0 0 0 0 0 0 0 20 0 1 0 12345 2 3")
	f.Add("7 (a) b) Z 1 7 7 0 -1 4228364 89 0 0 0 0 0 0 0 20 0 1 0 12345")
	f.Add(strings.Repeat("x ", 30))
	f.Add("")
	f.Fuzz(func(t *testing.T, line string) {
		if s, ok := parseStat(line); ok && s.state == 0 {
			t.Errorf("parseStat(%q) = %+v", line, s)
		}
	})
}

// A zombie is dead, although signals to it succeed.
func TestAlive(t *testing.T) {
	t.Parallel()
	if !Alive(os.Getpid()) {
		t.Error("we count as dead")
	}
	child := testkit.Sleeper(t, "true")
	awaitDeath(t, child)
	if err := child.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the zombie does not answer signal 0: %v", err)
	}
	if Alive(child.Process.Pid) {
		t.Error("a zombie counts as alive")
	}
	_ = child.Wait()
	if Alive(child.Process.Pid) {
		t.Error("a reaped child counts as alive")
	}
}

// A file has the same id under every path.
func TestOpenFilesOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "main.out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Symlink(dir, filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	id, err := FileID(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if other, err := FileID(filepath.Join(dir, "again", "main.out")); err != nil || other != id {
		t.Errorf("by another path it is %q, %v, want %q", other, err, id)
	}
	if !OpenFiles(os.Getpid())[id] {
		t.Errorf("%s is not among the own open files", id)
	}
	if got := CountFiles(os.Getpid()); got < 4 { // standard input, output and error, and f
		t.Errorf("%d own open files, want at least 4", got)
	}
	if got := CountFiles(testkit.NoPID); got != 0 {
		t.Errorf("%d open files of no process, want 0", got)
	}
	f.Close()
	if OpenFiles(os.Getpid())[id] {
		t.Errorf("%s is among them after it was closed", id)
	}
	if got := OpenFiles(testkit.NoPID); got != nil {
		t.Errorf("open files of nobody = %v", got)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	if got, err := Numbers(os.Getpid()); err != nil || len(got) == 0 || got[len(got)-1] != os.Getpid() {
		t.Errorf("own numbers = %v, %v, want %d last", got, err, os.Getpid())
	}
	if got, err := Numbers(testkit.NoPID); got != nil || err != nil {
		t.Errorf("numbers of no process = %v, %v", got, err)
	}
	for status, want := range map[string][]int{
		"Name:\tsh\nNSpid:\t4711\t7\nNSpgid:\t4711\t7\n": {4711, 7},
		"Name:\tsh\n":             nil,
		"NSpid:\t4711\tseven\n":   nil,
		"NSpid:":                  nil,
		"xNSpid:\t1\nNSpid:\t2\n": {2},
	} {
		if got := parseNumbers(status); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", status, got, want)
		}
	}
}
