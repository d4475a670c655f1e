package disk

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFull(t *testing.T) {
	for name, tt := range map[string]struct {
		u    Usage
		want bool
	}{
		"empty":         {Usage{Limit: 1 << 20}, false},
		"almost":        {Usage{Limit: 100 << 20, Used: 98 << 20}, false},
		"the last 1%":   {Usage{Limit: 100 << 20, Used: 99 << 20}, true},
		"full":          {Usage{Limit: 1 << 20, Used: 1 << 20}, true},
		"no more files": {Usage{Limit: 1 << 20, NoInodes: true}, true},
		"no limit":      {Usage{Used: 1 << 20}, false},
	} {
		if got := tt.u.Full(); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestNearly(t *testing.T) {
	for name, tt := range map[string]struct {
		u    Usage
		want bool
	}{
		"space for a large write": {Usage{Limit: 1 << 30, Used: 1<<30 - 3<<20}, false},
		"no space for one":        {Usage{Limit: 1 << 30, Used: 1<<30 - 2<<20}, true},
		"small limit":             {Usage{Limit: 4 << 20, Used: 3 << 20}, false},
		"small limit, used":       {Usage{Limit: 4 << 20, Used: 3<<20 + 600<<10}, true},
		"no limit":                {Usage{Used: 1 << 20}, false},
	} {
		if got := tt.u.Nearly(); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestImageBytes(t *testing.T) {
	for _, limit := range []int64{1, 1 << 20, 64 << 20, 1 << 30, fewInodes, fewInodes + 1, 100 << 30} {
		n := imageBytes(limit)
		tables := n / inodeRatio(limit) * inodeSize
		if n%block != 0 || n-tables < limit || n > limit+limit/10+2<<20 {
			t.Errorf("limit %d: image of %d bytes, %d of them for inodes", limit, n, tables)
		}
	}
}

func TestLargest(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, kib int) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, make([]byte, kib<<10), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if got, size := largest(t.Context(), dir); got != "/" || size != 0 {
		t.Errorf("empty: %s, %d", got, size)
	}
	write("etc/hosts", 4)
	write("home/vcap/app/tmp/a/1", 64)
	write("home/vcap/app/tmp/b/2", 64)
	write("home/vcap/logs/3", 16)
	if got, size := largest(t.Context(), dir); got != "/home/vcap/app/tmp" || size != 128<<10 {
		t.Errorf("largest = %s, %d", got, size)
	}
	write("var/cache/4", 200)
	if got, _ := largest(t.Context(), dir); got != "/" && got != "/var/cache" {
		t.Errorf("largest = %s", got)
	}
	if got, _ := largest(t.Context(), filepath.Join(dir, "none")); got != "/" {
		t.Errorf("largest of nothing = %s", got)
	}
}

// Without a folder there are no limits, and nothing fails.
func TestOff(t *testing.T) {
	l, err := Open(Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil || l.Enabled() {
		t.Fatal(err)
	}
	if err := errors.Join(l.Remove("i"), l.Unmount("i"), l.Attach("i"), l.Detach("i"), l.Sweep(nil, nil)); err != nil {
		t.Error(err)
	}
	if got := l.Check(time.Now()); got != nil {
		t.Error(got)
	}
	if _, ok := l.Of("i"); ok {
		t.Error("a layer has a limit")
	}
}

func TestRemedy(t *testing.T) {
	for err, want := range map[error]string{
		ErrNoMkfs:   "install e2fsprogs",
		unix.ENODEV: "load the kernel module ext4 (modprobe ext4)",
		unix.EPERM:  "see the log of dewd, and dewd doctor",
	} {
		if got := Remedy(errors.Join(errors.New("cannot"), err)); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}
