package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/testkit"
)

func TestFillMakesWhatTheStackSays(t *testing.T) {
	t.Parallel()
	uid, gid, root := os.Getuid(), os.Getgid(), t.TempDir()
	s := stack.Stack{
		Dirs: []stack.Dir{
			{Path: "/etc", Mode: 0o755, UID: uid, GID: gid},
			{Path: "/tmp", Mode: 0o1777, UID: uid, GID: gid},
			{Path: "/home/vcap/app", Mode: 0o750, UID: uid, GID: gid},
			{Path: "/var/empty", Mode: 0o555, UID: uid, GID: gid},
		},
		Files: []stack.File{
			{Path: "/etc/passwd", Mode: 0o644, Data: "vcap:x:2000:2000::/home/vcap:/bin/sh\n"},
			{Path: "/etc/open", Mode: 0o666, Data: ""},
		},
		Links: []stack.Link{{Path: "/bin", Target: "usr/bin"}, {Path: "/etc/mtab", Target: "/proc/mounts"}},
	}
	if err := fill(root, s); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		"etc": fs.ModeDir | 0o755, "tmp": fs.ModeDir | fs.ModeSticky | 0o777, "home/vcap/app": fs.ModeDir | 0o750,
		"var/empty": fs.ModeDir | 0o555, "etc/passwd": 0o644, "etc/open": 0o666,
	} {
		if st, err := os.Lstat(filepath.Join(root, path)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, st, err, want)
		}
	}
	for path, want := range map[string]string{"bin": "usr/bin", "etc/mtab": "/proc/mounts"} {
		if got, err := os.Readlink(filepath.Join(root, path)); err != nil || got != want {
			t.Errorf("%s -> %q, %v, want %q", path, got, err, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(root, "etc/passwd")); err != nil || string(b) != s.Files[0].Data {
		t.Errorf("passwd = %q, %v", b, err)
	}
}

func TestFillSaysWhatCannotBeMade(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	testkit.Touch(t, root, "file")
	if err := fill(root, stack.Stack{Dirs: []stack.Dir{{Path: "/file/below", Mode: 0o755}}}); err == nil ||
		!strings.Contains(err.Error(), "cannot create folder") {
		t.Errorf("a folder below a file: %v", err)
	}
	if err := fill(root, stack.Stack{Files: []stack.File{{Path: "/absent/file"}}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file in no folder: %v", err)
	}
	if err := fill(root, stack.Stack{Links: []stack.Link{{Path: "/file", Target: "x"}}}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a link over a file: %v", err)
	}
}
