//go:build integration

package stack

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// A dewd that ran mmdebstrap was killed, and mounts of the machine were bound into its
// folder. The next dewd kills the processes, unmounts, and removes only this folder.
func TestOpenStacksClearsAKilledBuild(t *testing.T) {
	stacks, precious := t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "link") // the root can be a symbolic link
	dir := filepath.Join(link, "debian-1"+archive.Unfinished)
	at := func(name string) string { return filepath.Join(stacks, "debian-1"+archive.Unfinished, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Symlink(stacks, link))
	check(os.WriteFile(filepath.Join(precious, "file"), nil, 0o600))
	for _, d := range []string{"tree/sys", "tree/proc"} {
		check(os.MkdirAll(at(d), 0o755))
	}
	check(unix.Mount("proc", at("tree/proc"), "proc", unix.MS_RDONLY, ""))
	check(unix.Mount(precious, at("tree/sys"), "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		_ = unix.Unmount(at("tree/sys"), unix.MNT_DETACH)
		_ = unix.Unmount(at("tree/proc"), unix.MNT_DETACH)
	})
	run := func(tmp string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		cmd.Dir, cmd.Env = at("tree"), []string{"TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH")}
		check(cmd.Start())
		return cmd
	}
	orphan, bystander := run(dir), run(t.TempDir())
	defer func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	}()
	waited := make(chan error, 1)
	go func() { waited <- orphan.Wait() }()

	db, err := store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{Format: 1})
	check(err)
	defer db.Close()
	s, err := Open(db, Options{Dir: link})
	check(err)
	check(s.Sweep())
	if err := <-waited; err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process of the build ended with %v, want it killed", err)
	}
	if err := bystander.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("a process that only stands in the folder was ended: %v", err)
	}
	if _, err := os.Stat(at("")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("a file of the machine was removed through a mount: %v", err)
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(b), stacks) {
		t.Errorf("mounts are left below %s, %v", stacks, err)
	}
}

// A stack that was built only for a service is abandoned with it, while it is built or
// before its build starts. Other stacks stay.
func TestAbandonStopsTheStackOfAService(t *testing.T) {
	db := testkit.Open(store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{Format: 1}))(t)
	bin := t.TempDir()
	began := filepath.Join(bin, "began")
	script := "#!/bin/sh\ntouch " + began + "\nsleep 1000\n"
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s, err := Open(db, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for name, service := range map[string]bool{"user": false, "service": true, "later": true} {
		if _, err := s.Begin(name, Source{Debian: &DebianSource{}, Service: service}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	for _, name := range []string{"later", "user"} {
		if err := s.Abandon(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ByName("later"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a stack before its turn: %v, want it gone", err)
	}
	k, err := s.ByName("service")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.createOne(ctx, k) }()
	for {
		if _, err := os.Stat(began); err == nil {
			break
		}
		select {
		case err := <-done:
			kept, _ := s.ByName("service")
			t.Fatalf("the build ended by itself: %v %+v", err, kept)
		default:
		}
	}
	if err := s.Abandon("service"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("makeOne = %v", err)
	}
	cancel()
	if _, err := s.ByName("service"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the abandoned stack: %v, want it gone", err)
	}
	if k, err := s.ByName("user"); err != nil || k.State != StateMaking {
		t.Errorf("the stack of a user: %v, %v, want it to wait for its turn", k.State, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.o.Dir, "*"+archive.Unfinished)); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
