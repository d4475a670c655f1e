package wrapper

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// tarOf returns a tar with entries.
func tarOf(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = 2
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, "hi"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	data := tarOf(t,
		&tar.Header{Name: "pack/", Typeflag: tar.TypeDir, Mode: 0o755},
		&tar.Header{Name: "pack/bin/run", Typeflag: tar.TypeReg, Mode: 0o755},
		&tar.Header{Name: "pack/again", Typeflag: tar.TypeLink, Linkname: "pack/bin/run"},
		&tar.Header{Name: "pack/link", Typeflag: tar.TypeSymlink, Linkname: "bin/run"},
		&tar.Header{Name: "pack/closed/", Typeflag: tar.TypeDir, Mode: 0o500},
		&tar.Header{Name: "pack/closed/file", Typeflag: tar.TypeReg, Mode: 0o400},
	)
	if err := Unpack(dir, "pack", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"bin/run": 0o755, "again": 0o755, "link": 0o755, "closed": 0o500 | os.ModeDir, "closed/file": 0o400} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != mode {
			t.Errorf("%s: %v, %v, want mode %v", name, fi, err, mode)
		}
	}
}

// No tar can write outside its folder.
func FuzzUnpack(f *testing.F) {
	f.Add("../outside", "x")
	f.Add("a/../../outside", "/etc")
	f.Add("link/outside", "../..")
	f.Fuzz(func(t *testing.T, name, target string) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "in")
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []*tar.Header{
			{Name: "link", Typeflag: tar.TypeSymlink, Linkname: target},
			{Name: name, Typeflag: tar.TypeReg, Mode: 0o644},
		} {
			if w.WriteHeader(h) != nil {
				return // not a name of a tar
			}
		}
		if w.Close() != nil {
			return
		}
		_ = Unpack(dir, "", &b) // refusing is fine
		entries, err := os.ReadDir(parent)
		if err != nil || len(entries) > 1 {
			t.Errorf("%q: %v, %v", name, entries, err)
		}
	})
}
