//go:build integration

package disk

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/testkit"
)

// open returns limits whose layers are removed after the test.
func open(t *testing.T, change func(*Config)) *Limits {
	t.Helper()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "disks"), Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	l := testkit.Must(Open(cfg))(t)
	t.Cleanup(func() {
		if err := testkit.Must(Open(cfg))(t).Sweep(none, none); err != nil {
			t.Error(err)
		}
	})
	return l
}

func none(string) bool { return false }

// newFolder returns a folder as containerd prepares it.
func newFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "7")
	for _, d := range []string{dir, filepath.Join(dir, "fs"), filepath.Join(dir, "work")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "work"), 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// limited returns a layer with a limit.
func limited(t *testing.T, l *Limits, id string, bytes int64) string {
	t.Helper()
	dir := newFolder(t)
	if err := l.Limit(id, dir, bytes); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fillUp writes until the kernel refuses it, and returns the number of bytes and the
// error.
func fillUp(t *testing.T, path string) (int64, error) {
	t.Helper()
	f := testkit.Must(os.Create(path))(t)
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(zeros{}, 1<<30))
	return n, errors.Join(err, f.Sync())
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// loops counts the loop devices with images of a daemon.
func loops(t *testing.T, l *Limits) (n int) {
	t.Helper()
	files := testkit.Must(filepath.Glob("/sys/block/loop*/loop/backing_file"))(t)
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), l.cfg.Dir) {
			n++
		}
	}
	return n
}

// The kernel refuses a write beyond the limit. The whole limit is usable.
func TestWriteBeyondTheLimit(t *testing.T) {
	l := open(t, nil)
	for _, limit := range []int64{1 << 20, 2 << 20, 64 << 20} {
		dir := limited(t, l, "i", limit)
		n, err := fillUp(t, filepath.Join(dir, "fs", "big"))
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("limit %d: a write beyond it ended with %v, want ENOSPC", limit, err)
		}
		if n > limit || n < limit-limit/50 {
			t.Errorf("limit %d: %d bytes were written", limit, n)
		}
		if u, ok := l.Of("i"); !ok || !u.Full() || u.Limit != limit || u.Used > limit {
			t.Errorf("limit %d: usage = %+v, %t, want full", limit, u, ok)
		}
		if err := os.Remove(filepath.Join(dir, "fs", "big")); err != nil {
			t.Fatal(err)
		}
		if u, ok := l.Of("i"); !ok || u.Full() || u.Used != 0 {
			t.Errorf("limit %d: usage after a deletion = %+v, %t, want nothing", limit, u, ok)
		}
		if err := l.Remove("i"); err != nil {
			t.Fatal(err)
		}
	}
	if n := loops(t, l); n != 0 {
		t.Errorf("%d loop devices are left", n)
	}
}

// A new layer can use its whole limit, whatever its size is, and uses nothing yet.
func TestLimitIsExact(t *testing.T) {
	l := open(t, func(c *Config) { c.Free = func() (int64, error) { return 1 << 50, nil } })
	for _, limit := range []int64{1 << 20, 100 << 20, 1 << 30, 5 << 30, 20 << 30} {
		dir := limited(t, l, "i", limit)
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		if got := int64(st.Bavail) * st.Bsize; got < limit || got > limit+4*block {
			t.Errorf("limit %d: %d bytes are available", limit, got)
		}
		if u, _ := l.Of("i"); u.Used != 0 {
			t.Errorf("limit %d: used = %d, want 0", limit, u.Used)
		}
		info := testkit.Must(os.Stat(filepath.Join(l.cfg.Dir, "i.img")))(t)
		if got := allocated(info); got > 2<<20 {
			t.Errorf("limit %d: the new image uses %d bytes", limit, got)
		}
		if err := l.Remove("i"); err != nil {
			t.Fatal(err)
		}
	}
}

// The folders have their permissions, and a deleted file gives its space back.
func TestFoldersAndDiscard(t *testing.T) {
	l := open(t, nil)
	dir := limited(t, l, "i", 32<<20)
	if info := testkit.Must(os.Stat(filepath.Join(dir, "work")))(t); info.Mode().Perm() != 0o711 {
		t.Errorf("mode = %v", info.Mode())
	}
	image := filepath.Join(l.cfg.Dir, "i.img")
	if _, err := fillUp(t, filepath.Join(dir, "fs", "big")); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	unix.Sync()
	if got := allocated(testkit.Must(os.Stat(image))(t)); got < 31<<20 {
		t.Errorf("the full image uses %d bytes", got)
	}
	if err := os.Remove(filepath.Join(dir, "fs", "big")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the image is small again", func() error {
		unix.Sync()
		if got := allocated(testkit.Must(os.Stat(image))(t)); got > 4<<20 {
			return errors.New("it is large")
		}
		return nil
	})
}

// The next daemon finds the layers, keeps those of running instances, and removes the
// others.
func TestNextDaemon(t *testing.T) {
	l := open(t, nil)
	running, stray, crashed := limited(t, l, "running", 8<<20), limited(t, l, "stray", 8<<20), limited(t, l, "crashed", 8<<20)
	if err := os.WriteFile(filepath.Join(crashed, "fs", "note"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	next := testkit.Must(Open(l.cfg))(t)
	err := next.Sweep(func(id string) bool { return id == "running" }, func(id string) bool { return id == "crashed" })
	if err != nil {
		t.Fatal(err)
	}
	if !isMount(running) || isMount(stray) || isMount(crashed) {
		t.Errorf("mounted: running %t, stray %t, crashed %t", isMount(running), isMount(stray), isMount(crashed))
	}
	if _, ok := next.Of("running"); !ok || next.Has("stray") || !next.Has("crashed") {
		t.Error("the layers differ")
	}
	for range 2 {
		if err := next.Attach("crashed"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if b, err := os.ReadFile(filepath.Join(crashed, "fs", "note")); err != nil || string(b) != "hello" {
			t.Errorf("the file of a crashed instance = %q, %v", b, err)
		}
		if err := errors.Join(next.Unmount("crashed"), next.Detach("crashed")); err != nil {
			t.Fatal(err)
		}
	}
	if isMount(crashed) {
		t.Error("it is still mounted after the last session")
	}
	if n := loops(t, l); n != 1 {
		t.Errorf("%d loop devices, want that of the running instance", n)
	}
}

// A daemon can be killed at any step. The next one removes the rest.
func TestKilledDaemon(t *testing.T) {
	l := open(t, nil)
	for id, files := range map[string]map[string]string{
		"a": {"a.json": ""},
		"b": {"b.json": `{"layer":"` + newFolder(t) + `","bytes":1048576}`},
		"c": {"c.json": `{"layer":"/no/such/folder","bytes":1048576}`, "c.img": "half"},
		"d": {"d.img": "no record"},
		"e": {"template-5.img.draft": "half"},
	} {
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(l.cfg.Dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(id, err)
			}
		}
	}
	next := testkit.Must(Open(l.cfg))(t)
	if err := next.Sweep(none, none); err != nil {
		t.Fatal(err)
	}
	if left := testkit.Must(os.ReadDir(l.cfg.Dir))(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Without a loop device the layer stays as it is.
func TestNoLoopDevice(t *testing.T) {
	l := open(t, func(c *Config) {
		c.Attach = func(*os.File) (*os.File, error) { return nil, ErrNoLoop }
	})
	dir := newFolder(t)
	err := l.Limit("i", dir, 8<<20)
	if !errors.Is(err, ErrNoLoop) || !strings.Contains(Remedy(err), "modprobe loop") {
		t.Errorf("err = %v", err)
	}
	if isMount(dir) || l.Has("i") {
		t.Error("something is left")
	}
	if err := errors.Join(l.Remove("i"), l.Unmount("i"), l.Attach("i"), l.Detach("i")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fs", "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Limit("i", dir, 8<<20); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a layer with files: %v", err)
	}
}

// While the disk of the machine is nearly full, writes fail at once instead of being lost
// later. They work again as soon as there is space.
func TestMachineNearlyFull(t *testing.T) {
	left := int64(DefaultReserve + 4<<20)
	var log bytes.Buffer
	l := open(t, func(c *Config) {
		c.Free = func() (int64, error) { return left, nil }
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	dir := limited(t, l, "i", 64<<20)
	n, err := fillUp(t, filepath.Join(dir, "fs", "big"))
	if !errors.Is(err, unix.ENOSPC) || n > 4<<20 || n < 3<<20 {
		t.Errorf("wrote %d bytes, %v; want 4 MiB and ENOSPC", n, err)
	}
	left = DefaultReserve
	now := time.Now()
	got := l.Check(now)
	if len(got) != 1 || got[0].ID != "i" || got[0].Free != left || got[0].Full() {
		t.Errorf("notices = %+v", got)
	}
	if got := l.Check(now.Add(noticeEvery / 2)); len(got) != 0 {
		t.Errorf("a second notice within a minute: %+v", got)
	}
	if !strings.Contains(log.String(), "less free space") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log of dewd:\n%s", &log)
	}
	left = 1 << 40
	if got := l.Check(now.Add(2 * noticeEvery)); len(got) != 0 {
		t.Errorf("notices = %+v", got)
	}
	if n, err := fillUp(t, filepath.Join(dir, "fs", "more")); !errors.Is(err, unix.ENOSPC) || n < 59<<20 {
		t.Errorf("wrote %d bytes, %v; want the rest of the limit", n, err)
	}
	if got := l.Check(now.Add(4 * noticeEvery)); len(got) != 1 || !got[0].Full() || got[0].Free != -1 {
		t.Errorf("notices = %+v", got)
	}
}

// An app whose large writes fail gets one notice, although a little space is left.
func TestLargeWrites(t *testing.T) {
	l := open(t, nil)
	dir := limited(t, l, "i", 64<<20)
	f := testkit.Must(os.Create(filepath.Join(dir, "fs", "big")))(t)
	defer f.Close()
	if err := f.Truncate(1 << 30); err != nil { // the file has no blocks yet
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 62<<20); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if got := l.Check(now); len(got) != 1 || got[0].Full() || !got[0].Nearly() || got[0].Free != -1 {
		t.Errorf("notices = %+v", got)
	}
	if got := l.Check(now.Add(2 * noticeEvery)); len(got) != 0 {
		t.Errorf("notices later = %+v", got)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if got := l.Check(now.Add(3 * noticeEvery)); len(got) != 0 {
		t.Errorf("notices after a deletion = %+v", got)
	}
}

// On a disk that is really small, a layer refuses what the disk cannot store, and
// everything that it accepted is there.
func TestSmallMachine(t *testing.T) {
	machine := open(t, nil)
	small := filepath.Join(limited(t, machine, "machine", 16<<20), "fs")
	l := open(t, func(c *Config) { c.Dir, c.Reserve = filepath.Join(small, "disks"), 2<<20 })
	dir := limited(t, l, "i", 64<<20)
	n, err := fillUp(t, filepath.Join(dir, "fs", "big"))
	if !errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EIO) || n < 8<<20 {
		t.Errorf("wrote %d bytes, %v; want ENOSPC", n, err)
	}
	if err := errors.Join(l.Unmount("i"), l.Attach("i")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "fs", "big"))
	if err != nil || int64(len(b)) != n || len(bytes.Trim(b, "\x00")) > 0 {
		t.Errorf("read %d bytes, %v; want %d", len(b), err, n)
	}
	if err := errors.Join(l.Detach("i"), l.Remove("i")); err != nil {
		t.Fatal(err)
	}
}
