//go:build integration

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// If the machine lacks a requirement, dewd prints one line that says what to do. It
// exits with 9, and leaves no files.
func TestMissingRequirements(t *testing.T) {
	runParallel(t)
	tests := []struct {
		name  string
		ready func(t *testing.T, c *cell) // prepares the fault before dewd starts
		flags []string
		user  uint32
		want  string
	}{
		{name: "no containerd binary", flags: []string{"--containerd-binary", "no-such-containerd"}, want: "install the package containerd"},
		{name: "no runc", ready: withoutRunc, want: "install the package runc"},
		{name: "wrong socket", flags: []string{"--containerd", "/nowhere/containerd.sock"}, ready: noPrivate, want: "the socket /nowhere/containerd.sock does not exist"},
		{name: "dead socket", ready: deadSocket, want: "no process answers at the socket"},
		{name: "not root", user: 65534, want: "cannot run without root permissions"},
		{name: "root in use", ready: func(t *testing.T, c *cell) { c.start() }, want: "dewd with pid"},
		{name: "store of a newer format", ready: newerStore, want: "newer"},
		{name: "no dew-init", flags: []string{"--init", "/nowhere/dew-init"}, want: "make build"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCell(t)
			if tt.ready != nil {
				tt.ready(t, c)
			}
			cmd := c.command()
			cmd.Args = append(cmd.Args, append(tt.flags, c.flags...)...) // the last flag of a name wins
			cmd.Env = append(os.Environ(), c.env...)
			if tt.user != 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.user, Gid: tt.user}}
			}
			out, err := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != statusInfrastructure {
				t.Errorf("exit status = %d (%v), want %d", got, err, statusInfrastructure)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if last := lines[len(lines)-1]; len(lines) != 1 || !strings.HasPrefix(last, "dewd: ") || !strings.Contains(last, tt.want) {
				t.Errorf("output = %q, want one line with %q", out, tt.want)
			}
		})
	}
}

// withoutRunc leaves only containerd on the PATH.
func withoutRunc(t *testing.T, c *cell) {
	t.Helper()
	program, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(program, filepath.Join(dir, "containerd")); err != nil {
		t.Fatal(err)
	}
	c.env = []string{"PATH=" + dir}
}

// noPrivate removes the private containerd of a root, as if it never had one.
func noPrivate(t *testing.T, c *cell) {
	t.Helper()
	if err := os.Remove(filepath.Join(c.root, "containerd")); err != nil {
		t.Fatal(err)
	}
}

// deadSocket leaves a socket file without a listener.
func deadSocket(t *testing.T, c *cell) {
	t.Helper()
	noPrivate(t, c)
	path := filepath.Join(filepath.Dir(c.root), "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	c.flags = []string{"--containerd", path}
}

// newerStore writes a store of a later dewd.
func newerStore(t *testing.T, c *cell) {
	t.Helper()
	c.read(func(diskState) {})
	setFormat(t, c, storeFormat+1)
	t.Cleanup(func() { setFormat(t, c, storeFormat) })
}

func setFormat(t *testing.T, c *cell, n int) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(c.root, "dew.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			if k := []byte("format"); b.Get(k) != nil {
				return b.Put(k, []byte(strconv.Itoa(n)))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
