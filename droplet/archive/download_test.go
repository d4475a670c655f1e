package archive

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A droplet has the names of Cloud Foundry, with the folders that images lack.
func TestWriteDroplet(t *testing.T) {
	t.Parallel()
	write := func(hs ...*tar.Header) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range hs {
			if h.Typeflag == tar.TypeReg {
				h.Size = int64(len("text"))
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := io.WriteString(w, "text"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	read := func(image io.Reader) (names []string) {
		var out bytes.Buffer
		if err := WriteDroplet(&out, image); err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(&out); ; {
			h, err := r.Next()
			if err != nil {
				return names
			}
			raw, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name+"|"+h.Linkname+"|"+string(raw))
		}
	}
	got := read(write(
		&tar.Header{Typeflag: tar.TypeDir, Name: "app/"},
		&tar.Header{Typeflag: tar.TypeReg, Name: "app/a"},
		&tar.Header{Typeflag: tar.TypeLink, Name: "app/b", Linkname: "app/a"},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "app/c", Linkname: "a"},
		&tar.Header{Typeflag: tar.TypeReg, Name: "staging_info.yml"},
	))
	want := []string{"./app/||", "./app/a||text", "./app/b|./app/a|", "./app/c|a|", "./staging_info.yml||text", "./tmp/||", "./logs/||"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = read(write(&tar.Header{Typeflag: tar.TypeDir, Name: "./tmp/"}, &tar.Header{Typeflag: tar.TypeReg, Name: "./tmp/x"}, &tar.Header{Typeflag: tar.TypeDir, Name: "logs/"}))
	if diff := cmp.Diff([]string{"./tmp/||", "./tmp/x||text", "./logs/||"}, got); diff != "" {
		t.Errorf("existing folders are written once: %s", diff)
	}
	if err := WriteDroplet(io.Discard, bytes.NewReader([]byte("not a tar, and long enough to be one"))); err == nil {
		t.Error("a file that is no tar became a droplet")
	}
}
