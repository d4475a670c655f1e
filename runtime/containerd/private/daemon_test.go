package private

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/testkit"
)

func TestDaemonConfigFile(t *testing.T) {
	t.Parallel()
	d := &Daemon{cfg: Config{Root: "/var/lib/dew/containerd", Run: `/run/dew "odd"/containerd`}}
	want := string(testkit.Must(os.ReadFile(filepath.Join("testdata", "containerd.toml")))(t))
	if got := d.config(); got != want {
		t.Errorf("configuration = %s\nwant %s", got, want)
	}
}

func TestSocketAnswers(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	served, dead, file := filepath.Join(dir, "s"), filepath.Join(dir, "d"), filepath.Join(dir, "f")
	l := listen(t, served)
	defer l.Close()
	gone := listen(t, dead)
	gone.SetUnlinkOnClose(false)
	gone.Close()
	// A child of another test holds a copy of the closed listener between fork and exec.
	testkit.EventuallyTrue(t, "no process holds the closed listener", func() bool { return !answers(t.Context(), dead) })
	testkit.Touch(t, dir, "f")
	for _, tt := range []struct {
		name, path string
		answers    bool
		err        string
	}{
		{"absent", filepath.Join(dir, "absent"), false, ""},
		{"dead", dead, false, "no process answers at the socket " + dead},
		{"no socket", file, false, "no process answers at the socket " + file},
		{"served", served, true, ""},
	} {
		got, err := SocketAnswers(t.Context(), tt.path)
		if got != tt.answers || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, %v, want %v, %q", tt.name, got, err, tt.answers, tt.err)
		}
	}
}

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestStartDaemonWithoutBinary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Start(t.Context(), Config{
		Binary: filepath.Join(dir, "no-containerd"), Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		t.Fatal("it started")
	}
	for _, want := range []string{"no-containerd", "install the package containerd", "--containerd"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error = %q, want it to say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error = %q, want one line", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "root")); err == nil {
		t.Error("its root was made")
	}
}

func TestStartDaemonWithoutFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Touch(t, dir, "file")
	_, err := Start(t.Context(), Config{Binary: "containerd", Root: dir, Run: filepath.Join(dir, "file", "run"), Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "cannot create the folder of containerd") {
		t.Errorf("error = %v, want that the folder cannot be made", err)
	}
}

// A pid file is ignored if its pid does not exist or belongs to another process.
func TestTakeOverOnlyContainerd(t *testing.T) {
	t.Parallel()
	stranger := testkit.Sleeper(t)
	// The containerd of another daemon: same file name, different folder.
	other := testkit.Sleeper(t, "sh", "-c", "kill -STOP $$", "containerd", "--config", "/run/other/containerd.toml")
	for _, text := range []string{
		"", "garbage", "12 34", "-1", "0", "99999999999999999999", strconv.Itoa(testkit.NoPID),
		strconv.Itoa(stranger.Process.Pid), strconv.Itoa(other.Process.Pid), strconv.Itoa(os.Getpid()),
	} {
		d := &Daemon{cfg: Config{Run: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}}
		testkit.WriteFile(t, d.pidFile(), text)
		if d.takeOver(t.Context()) {
			t.Errorf("took over %q", text)
		}
	}
	if (&Daemon{cfg: Config{Run: t.TempDir()}}).takeOver(t.Context()) {
		t.Error("took over without a pid file")
	}
}

// fakeContainerd is a program that reports its pid and then waits. The test itself
// serves the socket.
type fakeContainerd struct {
	d    *Daemon
	pids *bufio.Reader
}

func newFakeContainerd(t *testing.T) *fakeContainerd {
	t.Helper()
	dir := testkit.ShortDir(t)
	fifo := func(name string) *os.File {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	pids, hold := fifo("pids"), fifo("hold")
	if err := pids.SetReadDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	// It exits when the other end is closed, which happens when the test ends.
	script := fmt.Sprintf("#!/bin/sh\necho $$ >'%s'\nread x <'%s'\n", pids.Name(), hold.Name())
	binary := filepath.Join(dir, "containerd")
	// A fork while the file is open for writing would make it busy for exec.
	syscall.ForkLock.RLock()
	err := os.WriteFile(binary, []byte(script), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{cfg: Config{Binary: binary, Root: filepath.Join(dir, "root"), Run: dir, Logger: slog.New(slog.DiscardHandler)}, binary: binary}
	l := listen(t, d.Address())
	t.Cleanup(func() { l.Close() })
	return &fakeContainerd{d: d, pids: bufio.NewReader(pids)}
}

// pid waits for the next start.
func (f *fakeContainerd) pid(t *testing.T) int {
	t.Helper()
	line, err := f.pids.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// It outlives the daemon that started it. The next daemon finds it, and can stop it.
func TestContainerdIsTakenOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	f := newFakeContainerd(t)
	if err := f.d.start(ctx); err != nil {
		t.Fatal(err)
	}
	pid := f.pid(t)
	next, err := Start(ctx, f.d.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if next.pid != pid || next.Address() != f.d.Address() {
		t.Errorf("took over pid %d at %s, want %d at %s", next.pid, next.Address(), pid, f.d.Address())
	}
	if err := next.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if process.Alive(pid) {
		t.Error("it lives on after Stop")
	}
	if _, err := os.Stat(next.pidFile()); err == nil {
		t.Error("its pid file is still there")
	}
	select {
	case <-f.d.ended:
	case <-ctx.Done():
		t.Error("whoever started it does not see its end")
	}
}

func TestContainerdIsStartedAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	f := newFakeContainerd(t)
	if err := f.d.start(ctx); err != nil {
		t.Fatal(err)
	}
	watched, leave := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.d.Supervise(watched)
	}()
	first := f.pid(t)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := f.pid(t)
	if second == first {
		t.Errorf("pid %d again", first)
	}
	// Canceling the context does not stop it. If the start is still in progress, it
	// returns an error, but containerd keeps running.
	leave()
	<-done
	if !process.Alive(second) {
		t.Error("it ended with its supervision")
	}
	if err := f.d.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if process.Alive(second) {
		t.Error("it lives on after Stop")
	}
}

func TestStopGivesUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := &Daemon{cfg: Config{Run: t.TempDir()}, pid: testkit.NoPID, ended: make(chan struct{})}
	if err := d.Stop(ctx); err == nil || !strings.Contains(err.Error(), "cannot stop containerd, pid "+strconv.Itoa(testkit.NoPID)) {
		t.Errorf("error = %v, want that it cannot be stopped", err)
	}
}

func TestContainerdThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	dir := testkit.ShortDir(t)
	d := &Daemon{cfg: Config{Root: filepath.Join(dir, "root"), Run: dir, Logger: slog.New(slog.DiscardHandler)}, binary: "/bin/false"}
	err := d.start(t.Context())
	if want := "containerd exited immediately: see the end of " + filepath.Join(dir, "root", "containerd.log"); err == nil || err.Error() != want {
		t.Errorf("error = %v, want %q", err, want)
	}
}

// containerd is killed while dewd waits for its socket: first the one that an earlier dewd
// started, then the next one.
func TestContainerdIsKilledDuringTheStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	f := newFakeContainerd(t)
	if err := os.Remove(f.d.Address()); err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "runc"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	earlier := testkit.Sleeper(t, "sh", "-c", "kill -STOP $$", "containerd", "--config", f.d.configFile())
	testkit.WriteFile(t, f.d.pidFile(), strconv.Itoa(earlier.Process.Pid))
	started := make(chan error, 1)
	var d *Daemon
	go func() {
		var err error
		d, err = Start(ctx, f.d.cfg)
		started <- err
	}()
	kill := func(pid int) {
		t.Helper()
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	kill(earlier.Process.Pid)
	kill(f.pid(t))
	last := f.pid(t)
	l := listen(t, f.d.Address())
	defer l.Close()
	if err := <-started; err != nil || d.pid != last {
		t.Fatalf("Start = pid %d, %v, want pid %d", d.pid, err, last)
	}
	if err := d.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// A killed containerd leaves the folders of tasks that it was deleting.
func TestDeletedTasksAreRemoved(t *testing.T) {
	t.Parallel()
	f := newFakeContainerd(t)
	tasks := filepath.Join("io.containerd.runtime.v2.task", "ns")
	for _, dir := range []string{f.d.cfg.Root, f.d.stateDir()} {
		for _, name := range []string{".deleted", "kept", ".mounted/rootfs"} {
			if err := os.MkdirAll(filepath.Join(dir, tasks, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		testkit.WriteFile(t, filepath.Join(dir, tasks, ".deleted", "config.json"), "{}")
	}
	if err := f.d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{f.d.cfg.Root, f.d.stateDir()} {
		entries := testkit.Must(os.ReadDir(filepath.Join(dir, tasks)))(t)
		if len(entries) != 2 || entries[0].Name() != ".mounted" || entries[1].Name() != "kept" {
			t.Errorf("%s has %v, want .mounted and kept", dir, entries)
		}
	}
	if err := f.d.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
