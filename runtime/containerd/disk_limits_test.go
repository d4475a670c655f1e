//go:build integration

package containerd

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/names"
	"github.com/dewrun/dew/runtime/disk"
	"github.com/dewrun/dew/testkit"
)

// filler writes more than its disk quota of 16M, says how that ended, and runs on.
const filler = "mkdir -p tmp; head -c 64M /dev/zero >tmp/big; echo wrote $(stat -c %s tmp/big) bytes, status $?; exec ./testapp sleep"

// images returns the disk images and records, without the templates.
func (w *world) images() []string {
	w.t.Helper()
	var out []string
	for _, d := range testkit.Must(os.ReadDir(w.disks.Dir))(w.t) {
		if !strings.HasPrefix(d.Name(), "template-") {
			out = append(out, d.Name())
		}
	}
	return out
}

// mounted counts the mounted images of this world.
func (w *world) mounted() (n int) {
	w.t.Helper()
	for _, f := range testkit.Must(filepath.Glob("/sys/block/loop*/loop/backing_file"))(w.t) {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), w.disks.Dir) {
			n++
		}
	}
	return n
}

func (w *world) wantNoImages() {
	w.t.Helper()
	w.eventually("no image is left", func() error {
		if left, n := w.images(), w.mounted(); len(left) > 0 || n > 0 {
			return fmt.Errorf("%d are mounted; files: %v", n, left)
		}
		return nil
	})
}

// beside runs a command next to main.
func (w *world) beside(p app.Process, command string) string {
	w.t.Helper()
	ses, err := w.sup.Exec(w.t.Context(), runtime.ExecTarget{Process: p.GUID}, runtime.ExecSpec{Kind: runtime.ExecCommand, Command: "(" + command + ") 2>&1"})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = ses.Close() }()
	return string(testkit.Must(io.ReadAll(ses.Streams().Out))(w.t))
}

// used returns the disk usage of the only instance of a process.
func (w *world) used(p app.Process) int64 {
	w.t.Helper()
	for _, c := range w.sup.Running() {
		if c.Spec().Slot.Process == p.GUID {
			return testkit.Must(c.Consumption(w.t.Context(), true))(w.t).Disk
		}
	}
	w.t.Fatal("it does not run")
	return 0
}

// The kernel refuses a write beyond the quota, and the app's log says so. The limit is for
// the writable layer, not for the droplet and not for memory file systems. It stays when
// another daemon adopts the instance.
func TestDiskQuota(t *testing.T) {
	w := newWorld(t)
	w.boot()
	p := w.put(testApp{name: "filler", memory: 128, disk: 16, command: filler})
	w.line(p.App, "PROC/WEB", "No space left on device")
	w.line(p.App, "PROC/WEB", "wrote 16")
	w.line(p.App, "CELL", "The app has used all of its disk quota (16M of 16M); the largest directory is /home/vcap/app/tmp (16M). Delete files or raise disk_quota.")
	if got := w.used(p); got < 15<<20 || got > 16<<20 {
		t.Errorf("used = %d, want 16M", got)
	}
	before := w.running(p)
	w.leave()
	w.boot()
	if st := w.running(p); st.Instance != before.Instance {
		t.Errorf("instance = %s, want %s as before", st.Instance, before.Instance)
	}
	if out := w.beside(p, "head -c 1M /dev/zero >more"); !strings.Contains(out, "No space left") {
		t.Errorf("a write after the adoption: %q", out)
	}
	if out := w.beside(p, "head -c 20M /dev/zero >/dev/shm/f && echo fine; rm /dev/shm/f"); out != "fine\n" {
		t.Errorf("a write to memory: %q", out)
	}
	if out := w.beside(p, "rm tmp/big more; head -c 8M /dev/zero >less && echo fine"); out != "fine\n" {
		t.Errorf("a write after a deletion: %q", out)
	}
	if got := w.used(p); got < 8<<20 || got > 9<<20 {
		t.Errorf("used = %d, want 8M", got)
	}
	w.stop(p)
	w.wantNoImages()
}

// Without a loop device the instance runs without a limit, and its log says why.
func TestDiskQuotaWithoutLoopDevice(t *testing.T) {
	w := newWorld(t)
	w.leave()
	w.disks.Attach = func(*os.File) (*os.File, error) { return nil, fmt.Errorf("%w: %w", disk.ErrNoLoop, unix.ENOSPC) }
	w.boot()
	p := w.put(testApp{name: "noloop", memory: 128, disk: 16, command: filler})
	w.line(p.App, "CELL", "The instance runs without its disk limit of 16M: no loop device is available")
	w.line(p.App, "PROC/WEB", "wrote 67108864 bytes")
	if got := w.used(p); got < 64<<20 {
		t.Errorf("used = %d, want 64M", got)
	}
	w.stop(p)
	w.wantNoImages()
}

// An instance without a limit is adopted by a daemon with limits, and its next start has
// one. A daemon without limits keeps those of running instances.
func TestDiskLimitsOnAndOff(t *testing.T) {
	w := newWorld(t)
	w.leave()
	w.disks.Off = true
	w.boot()
	p := w.put(testApp{name: "onoff", memory: 128, disk: 16, command: filler})
	w.line(p.App, "PROC/WEB", "wrote 67108864 bytes")
	before := w.running(p)
	w.leave()
	w.disks.Off = false
	w.boot()
	if st := w.running(p); st.Instance != before.Instance {
		t.Errorf("instance = %s, want %s as before", st.Instance, before.Instance)
	}
	if got := w.used(p); got < 64<<20 {
		t.Errorf("used = %d, want 64M", got)
	}
	kill(t, w.mainPID(before.Instance, "main"))
	st := w.running(p, before.Instance)
	w.line(p.App, "PROC/WEB", "wrote 16")
	w.leave()
	w.disks.Off = true
	w.boot()
	w.running(p, before.Instance)
	if out := w.beside(p, "head -c 1M /dev/zero >more"); !strings.Contains(out, "No space left") {
		t.Errorf("a write in %s: %q", st.Instance, out)
	}
	w.stop(p)
	if err := w.reg.DeleteApp(p.App); err != nil {
		t.Fatal(err)
	}
	w.wantNoImages()
}

// A daemon that is killed after it mounted a layer, and before the instance runs, leaves
// nothing for the next one but work.
func TestKilledBetweenMountAndStart(t *testing.T) {
	for name, step := range map[string]func(c *container) error{
		"before the container": func(c *container) error {
			ctx := t.Context()
			parent, err := c.e.images.Parent(ctx, c.spec)
			if err != nil {
				return err
			}
			ms, err := c.e.images.Prepare(ctx, c.spec, parent)
			return errors.Join(err, c.e.disks.apply(c, ms))
		},
		"before the task": func(c *container) error { _, err := c.prepare(t.Context()); return err },
		"before the gates": func(c *container) error {
			ms, err := c.prepare(t.Context())
			return errors.Join(err, c.create(t.Context(), ms), c.startAll(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := runtime.Spec{
				Kind: runtime.KindInstance, Instance: runtime.NewInstanceID(), App: guidOf("killed"), Type: "web", Memory: 64 << 20, Disk: 16 << 20,
				Slot: runtime.SlotID{Process: "p"}, Stack: testkit.Must(w.stack("host"))(t), Image: w.image, Address: netip.PrefixFrom(w.prefix().Addr().Next().Next(), w.prefix().Bits()),
				Processes: []runtime.ProcessSpec{{Exec: runtime.MainExec, Source: "APP/PROC/WEB", Command: "sleep 1000", Dir: "/home/vcap/app"}},
			}
			c := testkit.Must(w.engine.newContainer(t.Context(), s))(t)
			if err := step(c); err != nil {
				t.Fatal(err)
			}
			c.detach()
			if n := w.mounted(); n != 1 {
				t.Fatalf("%d images are mounted, want 1", n)
			}
			w.leave()
			w.boot()
			w.wantNoImages()
			w.eventually("the snapshot is gone", func() error {
				if _, err := w.engine.images.Snapshotter().Stat(t.Context(), names.Container(s.Instance)); err == nil {
					return errors.New("it is there")
				}
				return nil
			})
		})
	}
}

// The files of a crashed instance are readable while its image is not mounted otherwise,
// even after a restart of the daemon, and go with the app.
func TestCrashFilesOfLimitedLayer(t *testing.T) {
	w := newWorld(t)
	w.policy = crashLoop
	w.boot()
	p := w.put(testApp{name: "crfile", memory: 128, disk: 16, command: leaver})
	id := w.crash(t, p)
	for _, restart := range []bool{false, true} {
		if restart {
			w.leave()
			w.boot()
		}
		w.running(p, id)
		w.eventually("only the running instance is mounted", func() error {
			if n := w.mounted(); n != 1 {
				return fmt.Errorf("%d images are mounted", n)
			}
			return nil
		})
		if out, _ := w.among(id, "", "cat left ../tmp/core"); out != string(id)+"\nsecret\n" {
			t.Errorf("files of the crashed instance: %q", out)
		}
	}
	if err := w.reg.DeleteApp(p.App); err != nil {
		t.Fatal(err)
	}
	w.wantNoImages()
}
