package folders

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestHoldIsExclusive(t *testing.T) {
	dir := t.TempDir()
	root, run := filepath.Join(dir, "root"), filepath.Join(dir, "run")
	h, err := Hold(t.Context(), root, run, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(os.Getpid())
	if got := HolderOf(filepath.Join(root, "lock")); got != pid {
		t.Errorf("holder = %q, want %q", got, pid)
	}
	other := filepath.Join(dir, "other")
	for _, tt := range []struct{ name, root, run, says string }{
		{"same root", root, other, "dewd with pid " + pid + " already uses it (stop that dewd"},
		{"same run folder", other, run, "dewd with pid " + pid + " already uses it (choose another folder with --run)"},
	} {
		if _, err := Hold(t.Context(), tt.root, tt.run, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error = %v, want one with %q", tt.name, err, tt.says)
		}
		if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the refused daemon left %s behind", tt.name, other)
		}
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if got := HolderOf(filepath.Join(root, "lock")); got != "" {
		t.Errorf("holder after release = %q, want none", got)
	}
	h, err = Hold(t.Context(), root, run, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("cannot hold what was released: %v", err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
}

// A daemon that stops removes its PID file and the empty folders that it created.
func TestReleaseLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	root, run := filepath.Join(dir, "a", "b", "root"), filepath.Join(dir, "a", "run")
	begin := func() *Holder {
		t.Helper()
		h, err := Hold(t.Context(), root, run, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	make := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := func(h *Holder, want ...string) {
		t.Helper()
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		var left []string
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if path != dir {
				left = append(left, strings.TrimPrefix(path, dir+"/"))
			}
			return err
		})
		if err != nil || !slices.Equal(left, want) {
			t.Errorf("%q is left, %v, want %q", left, err, want)
		}
	}
	h := begin()
	make(filepath.Join(run, "netns"), filepath.Join(run, "instances"))
	end(h)
	h = begin()
	make(filepath.Join(root, "logs"), filepath.Join(run, "netns", "cni-1"), filepath.Join(run, "mnt"))
	end(h, "a", "a/b", "a/b/root", "a/b/root/lock", "a/b/root/logs", "a/run", "a/run/netns", "a/run/netns/cni-1")
	end(begin(), "a", "a/b", "a/b/root", "a/b/root/lock", "a/b/root/logs", "a/run", "a/run/netns", "a/run/netns/cni-1")
}

// A daemon that waited for a stopping one gets an effective lock, not a lock on the
// removed file.
func TestHoldAfterRelease(t *testing.T) {
	dir := t.TempDir()
	root, run := filepath.Join(dir, "root"), filepath.Join(dir, "run")
	log := slog.New(slog.DiscardHandler)
	for range 5 {
		first, err := Hold(t.Context(), root, run, log)
		if err != nil {
			t.Fatal(err)
		}
		begun := make(chan *Holder)
		go func() {
			for {
				if h, err := Hold(t.Context(), root, run, log); err == nil {
					begun <- h
					return
				} else if !errors.Is(err, errHeld) {
					t.Error(err)
					close(begun)
					return
				}
			}
		}()
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		second := <-begun
		if second == nil {
			return
		}
		if !isAt(filepath.Join(root, RootLock), second.lock) || !isAt(filepath.Join(run, pidFile), second.pids) {
			t.Fatal("the second daemon holds files that nobody else finds")
		}
		if err := second.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHoldNeedsAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(t.Context(), filepath.Join(file, "root"), t.TempDir(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "(choose another folder with --root)") {
		t.Errorf("error = %v, want one with the remedy", err)
	}
}

func TestCellIDStays(t *testing.T) {
	h := &Holder{root: t.TempDir()}
	first, err := h.CellID()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := h.CellID(); err != nil || second != first {
		t.Errorf("second = %q, %v, want %q", second, err, first)
	}
	path := filepath.Join(h.root, "cell-id")
	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.CellID(); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("error = %v, want one with the remedy", err)
	}
}

func TestPlaceInit(t *testing.T) {
	h := &Holder{root: t.TempDir()}
	from := filepath.Join(t.TempDir(), "dew-init")
	if _, err := h.PlaceProgram("dew-init", from); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("error = %v, want one with the remedy", err)
	}
	place := func(content string) string {
		t.Helper()
		if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		path, err := h.PlaceProgram("dew-init", from)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := place("one")
	two := place("two")
	if one == two || place("one") != one {
		t.Errorf("paths = %s, %s, want one per content", one, two)
	}
	got, err := os.ReadFile(one)
	if err != nil || !bytes.Equal(got, []byte("one")) {
		t.Errorf("content = %q, %v, want that of the older one", got, err)
	}
	if info, err := os.Stat(one); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode = %v, %v, want 0755", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(h.root, "bin", ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestClearRun(t *testing.T) {
	fill := func(names ...string) *Holder {
		h := &Holder{run: filepath.Join(t.TempDir(), "run")}
		for _, name := range names {
			if err := os.MkdirAll(filepath.Join(h.run, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return h
	}
	t.Run("known things go with the folder", func(t *testing.T) {
		h := fill("netns/a", "instances/b/c")
		pids, err := lockFile(t.Context(), filepath.Join(h.run, pidFile), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		h.pids = pids
		if err := errors.Join(h.ClearRun("netns", "instances"), h.Release()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(h.run); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	})
	t.Run("what is not ours stays", func(t *testing.T) {
		h := fill("netns", "letters")
		if err := h.ClearRun("netns"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(h.run, "letters")); err != nil {
			t.Error(err)
		}
	})
	t.Run("a socket that is served stays", func(t *testing.T) {
		h := fill("netns")
		socket := filepath.Join(h.run, SocketName)
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := h.ClearRun("netns"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(socket); err != nil {
			t.Error(err)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		if err := (&Holder{run: filepath.Join(t.TempDir(), "run")}).ClearRun("netns"); err != nil {
			t.Error(err)
		}
	})
}
