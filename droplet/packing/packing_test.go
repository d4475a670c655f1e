package packing

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packed packs a folder and reads the tar: names to kinds and contents.
func packed(t *testing.T, dir string, p Packing) (map[string]string, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var out bytes.Buffer
	if err := Pack(t.Context(), root, &out, p); err != nil {
		return nil, err
	}
	got := map[string]string{}
	for tr := tar.NewReader(&out); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode&0o7000 != 0 || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s has mode %o and belongs to %d:%d", h.Name, h.Mode, h.Uid, h.Gid)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(h.Typeflag) + " " + h.Linkname + string(b)
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPack(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tmp/app/run"), "x")
	put(t, filepath.Join(dir, "tmp/app/lib/a"), "a")
	put(t, filepath.Join(dir, "etc/secret"), "secret")
	for _, err := range []error{
		os.Chmod(filepath.Join(dir, "tmp/app/run"), 0o755|os.ModeSetuid|os.ModeSetgid),
		os.Symlink("/etc/secret", filepath.Join(dir, "tmp/app/absolute")),
		os.Symlink("../../../etc", filepath.Join(dir, "tmp/app/lib/up")),
		os.Link(filepath.Join(dir, "tmp/app/lib/a"), filepath.Join(dir, "tmp/app/lib/b")),
		os.Mkdir(filepath.Join(dir, "tmp/app/empty"), 0o000),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "tmp/app/socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	limits := Packing{MaxBytes: 1 << 20, MaxFiles: 100}
	p := limits
	p.Folders = []Folder{{From: "/tmp/app", As: "app"}, {From: "/tmp/deps", As: "deps"}}
	p.Files = []File{{Path: "info", Mode: 0o644, Data: "i"}}
	got, err := packed(t, dir, p)
	if err != nil {
		t.Fatal(err)
	}
	hard := map[bool][2]string{true: {"0 a", "1 app/lib/a"}, false: {"1 app/lib/b", "0 a"}}[got["app/lib/a"] == "0 a"]
	want := map[string]string{
		"app": "5 ", "app/run": "0 x", "app/lib": "5 ", "app/lib/a": hard[0], "app/lib/b": hard[1], "app/lib/up": "2 ../../../etc",
		"app/absolute": "2 /etc/secret", "app/empty": "5 ", "deps": "5 ", "info": "0 i",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	p = limits
	p.Folders = []Folder{{From: "/tmp/app/lib"}}
	if got, err := packed(t, dir, p); err != nil || len(got) != 3 || got["up"] == "" {
		t.Errorf("at the top: %v, %v", got, err)
	}
}

func TestPackRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, app string)
		want string
	}{
		"a link in its place": {func(t *testing.T, app string) {
			if err := errors.Join(os.RemoveAll(app), os.Symlink("/etc", app)); err != nil {
				t.Fatal(err)
			}
		}, "is no longer a folder"},
		"holes": {func(t *testing.T, app string) {
			put(t, filepath.Join(app, "hole"), "")
			if err := os.Truncate(filepath.Join(app, "hole"), 1<<40); err != nil {
				t.Fatal(err)
			}
		}, "larger than 1M in total"},
		"many files": {func(t *testing.T, app string) {
			for i := range 30 {
				put(t, filepath.Join(app, string(rune('a'+i))), "")
			}
		}, "more than 20 staged files"},
		"many folders": {func(t *testing.T, app string) {
			for i := range 30 {
				put(t, filepath.Join(app, "d"+string(rune('a'+i)), "x"), "")
			}
		}, "more than 20 staged files"},
		"deep": {func(t *testing.T, app string) {
			deep := app
			for range 15 {
				deep = filepath.Join(deep, strings.Repeat("d", 250))
			}
			put(t, filepath.Join(deep, "x"), "")
		}, "is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			app := filepath.Join(dir, "app")
			put(t, filepath.Join(app, "x"), "x")
			c.make(t, app)
			_, err := packed(t, dir, Packing{Folders: []Folder{{From: "/app", As: "app"}}, MaxBytes: 1 << 20, MaxFiles: 20})
			if e := (*Refused)(nil); !errors.As(err, &e) || !strings.Contains(e.Reason, c.want) {
				t.Errorf("%v, want it to say %q", err, c.want)
			}
		})
	}
}
