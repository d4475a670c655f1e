//go:build integration

package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
	"github.com/dewrun/dew/runtime/userns"
	"github.com/dewrun/dew/testkit"
)

// ownerOf returns the user of the machine that the main process of an instance runs as.
func (w *world) ownerOf(t *testing.T, id runtime.InstanceID) uint32 {
	t.Helper()
	info, err := os.Stat(process.Dir(w.pids(id, "main")[0]))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// Outside its container, no other program has the user of an instance. Inside
// nothing changes: the same user, its own files, standard output as a file. On disk the
// files have the same owners as always.
func TestOwnUsers(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{
		name: "mine", memory: 128, command: "echo hello > /dev/stdout; echo made > made; exec sleep 1000",
		sidecars: []app.Sidecar{sidecar("s", "exec sleep 1000", 32)},
	})
	other := w.put(testApp{name: "other", memory: 64, command: "exec sleep 1000"})
	a, b := w.running(p), w.running(other)
	w.line(p.App, "PROC/WEB", "hello")
	first, second := w.ownerOf(t, a.Instance), w.ownerOf(t, b.Instance)
	if first%userns.Size != 2000 || first < userns.Size || second%userns.Size != 2000 || first == second {
		t.Errorf("outside, the users are %d and %d; want two different ones, 2000 above the start of a range", first, second)
	}
	out, _ := w.command(p, "id -u; stat -c %u made /usr/bin/env; cat /proc/self/uid_map; touch /usr/x || echo refused; cat /sys/class/net/eth0/mtu")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) < 6 || lines[0] != "2000" || lines[1] != "2000" || lines[2] != "65534" || lines[len(lines)-2] != "refused" {
		t.Errorf("inside: %q; want user 2000, its file, nobody's program, and no write to /usr", lines)
	}
	if got := strings.Fields(lines[3]); len(got) != 3 || got[1] != fmt.Sprint(first-2000) {
		t.Errorf("map of users = %v, want one that starts at %d", got, first-2000)
	}
	if left, err := os.ReadDir(filepath.Join(w.run, "mnt")); err != nil || len(left) > 0 {
		t.Errorf("mounts left = %v, %v", left, err)
	}
}

// The run folder can be on a file system without programs and devices, as /run on Debian.
func TestOwnUsersWithRunNoexec(t *testing.T) {
	dir := testkit.ShortDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t)
	w.leave()
	w.run = filepath.Join(dir, "run")
	w.boot()
	p := w.put(testApp{name: "noexec", memory: 64, command: "cat /etc/hosts; exec sleep 1000"})
	w.running(p)
	w.line(p.App, "PROC/WEB", "localhost")
}

// An instance of a dewd without user namespaces is adopted as it is. The next life has
// its own users. The files of its crash stay readable.
func TestOwnUsersFromNextLife(t *testing.T) {
	w := newWorld(t)
	w.leave()
	w.hostUsers = true
	w.boot()
	p := w.put(testApp{name: "older", memory: 64, command: "echo life >> lives; exec sleep 1000"})
	old := w.running(p)
	if got := w.ownerOf(t, old.Instance); got != 2000 {
		t.Fatalf("the user outside is %d, want 2000", got)
	}
	w.hostUsers = false
	w.leave()
	w.boot()
	if again := w.running(p); again.Instance != old.Instance || w.ownerOf(t, again.Instance) != 2000 {
		t.Fatalf("after a restart of dewd: %+v, want the adopted %s with its user", again, old.Instance)
	}
	if err := syscall.Kill(w.pids(old.Instance, "main")[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.record(p, 1)
	if got := w.ownerOf(t, w.running(p, old.Instance).Instance); got%userns.Size != 2000 || got == 2000 {
		t.Errorf("in its next life, the user outside is %d", got)
	}
}
