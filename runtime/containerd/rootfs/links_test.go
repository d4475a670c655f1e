package rootfs

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// The files of a droplet are the same whether or not those of an earlier one are used.
func TestUnpackChanged(t *testing.T) {
	testkit.NeedRoot(t)
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 0))
		first := randomTree(r)
		second := changedTree(r, first)
		dir := t.TempDir()
		old, want, got := emptyRoot(t, dir, "old"), emptyRoot(t, dir, "want"), emptyRoot(t, dir, "got")
		o := Owner{2000, 2000}
		unpack := func(root string, tree []tar.Header) {
			t.Helper()
			if err := UnpackDroplet(t.Context(), root, bytes.NewReader(encode(t, tree)), o); err != nil {
				t.Fatal(err)
			}
		}
		unpack(old, first)
		unpack(want, second)
		l, err := UnpackChanged(t.Context(), got, bytes.NewReader(encode(t, second)), o, old)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Create(got); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if a, b := listing(t, want), listing(t, got); a != b {
			t.Errorf("seed %d: with the earlier droplet:\n%s\nwithout it:\n%s", seed, b, a)
		}
		kept := 0
		for _, h := range second {
			if path.Base(h.Name) == "kept" {
				kept++
			}
		}
		if n := shared(t, old, got); n < kept {
			t.Errorf("seed %d: %d files are links, want at least %d", seed, n, kept)
		}
	}
}

// Names that lead out of the folder, and links instead of folders, are handled as without
// an earlier droplet, or refused.
func TestUnpackChangedStaysInside(t *testing.T) {
	testkit.NeedRoot(t)
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	testkit.WriteFile(t, filepath.Join(outside, "secret"), "secret")
	for _, tree := range [][]tar.Header{
		{{Typeflag: tar.TypeSymlink, Name: "app", Linkname: outside}, file("app/secret", "secret", 1)},
		{file("../../outside/secret", "secret", 1)},
		{{Typeflag: tar.TypeLink, Name: "copy", Linkname: "../../outside/secret"}},
		{{Typeflag: tar.TypeSymlink, Name: "app", Linkname: outside}, {Typeflag: tar.TypeLink, Name: "app/copy", Linkname: "app/secret"}},
	} {
		old, got := emptyRoot(t, t.TempDir(), "old"), emptyRoot(t, t.TempDir(), "got")
		if err := os.Symlink(outside, filepath.Join(old, home, "app")); err != nil {
			t.Fatal(err)
		}
		l, err := UnpackChanged(t.Context(), got, bytes.NewReader(encode(t, tree)), Owner{os.Getuid(), os.Getgid()}, old)
		if err == nil {
			_ = l.Create(got)
			_ = l.Close()
		}
		if b, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(b) != "secret" {
			t.Errorf("%s: the file outside has %q, %v", tree[0].Name, b, err)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("%s: files outside: %v, %v", tree[0].Name, entries, err)
		}
		if n := shared(t, outside, got); n != 0 {
			t.Errorf("%s: %d files are links to files outside", tree[0].Name, n)
		}
	}
}

// A damaged droplet is an error.
func TestUnpackChangedReportsErrors(t *testing.T) {
	testkit.NeedRoot(t)
	dir := t.TempDir()
	old, got := emptyRoot(t, dir, "old"), emptyRoot(t, dir, "got")
	whole := encode(t, []tar.Header{file("a", strings.Repeat("x", 10_000), 1)})
	if _, err := UnpackChanged(t.Context(), got, bytes.NewReader(whole[:3000]), Owner{}, old); err == nil {
		t.Error("a cut droplet was unpacked")
	}
	if _, err := UnpackChanged(t.Context(), got, bytes.NewReader(whole), Owner{}, filepath.Join(dir, "none")); err == nil {
		t.Error("a missing droplet was used")
	}
}

func emptyRoot(t *testing.T, dir, name string) string {
	t.Helper()
	root := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Join(root, home), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// file returns a file whose content is in Uname, which encode moves.
func file(name, text string, seconds int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Uname: text, Mode: 0o644, ModTime: time.Unix(seconds, 0)}
}

func encode(t *testing.T, tree []tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range tree {
		text := h.Uname
		h.Uname, h.Size = "", int64(len(text))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func randomTree(r *rand.Rand) (tree []tar.Header) {
	for d := range 1 + r.IntN(4) {
		dir := fmt.Sprintf("app/%d%s", d, strings.Repeat("long", d*20)) // other formats of tar
		tree = append(tree, tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(int64(100+d), 0)})
		for i := range 1 + r.IntN(6) {
			tree = append(tree, file(fmt.Sprintf("%s/%d", dir, i), strings.Repeat(fmt.Sprint(i), r.IntN(3)*compareSize+r.IntN(100)), int64(i)))
		}
		tree = append(tree,
			file(dir+"/kept", "kept", 1),
			tar.Header{Typeflag: tar.TypeSymlink, Name: dir + "/symlink", Linkname: "0", Mode: 0o777, ModTime: time.Unix(7, 0)},
			tar.Header{Typeflag: tar.TypeLink, Name: dir + "/hardlink", Linkname: dir + "/0", Mode: 0o644, ModTime: time.Unix(0, 0)})
	}
	return append(tree, file("staging_info.yml", "{}", 1), file("kept", "kept", 1))
}

// changedTree changes the content, the mode and the time of some files, removes some and
// adds some.
func changedTree(r *rand.Rand, tree []tar.Header) (out []tar.Header) {
	for _, h := range tree {
		if h.Typeflag != tar.TypeReg || path.Base(h.Name) == "kept" {
			out = append(out, h)
			continue
		}
		switch r.IntN(8) {
		case 0:
			h.Uname = strings.Repeat("y", len(h.Uname))
		case 1:
			h.Uname += "more"
		case 2:
			if !strings.HasSuffix(h.Name, "/0") { // it has a hard link
				h.Mode = 0o755
			}
		case 3:
			if !strings.HasSuffix(h.Name, "/0") {
				h.ModTime = h.ModTime.Add(time.Second)
			}
		case 4:
			if len(h.Uname) > 0 {
				h.Uname = h.Uname[:len(h.Uname)-1] + "z"
			}
		case 5:
			out = append(out, file(h.Name+"-new", "new", 5))
		case 6:
			if !strings.HasSuffix(h.Name, "/0") {
				continue
			}
		}
		out = append(out, h)
	}
	return out
}

// listing describes all files below a root.
func listing(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		st, _ := fi.Sys().(*syscall.Stat_t)
		content := ""
		switch {
		case fi.Mode().IsRegular():
			raw, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%d %.20q %.20q", len(raw), raw, raw[max(0, len(raw)-20):])
		case fi.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(p)
		}
		when := fi.ModTime().UnixNano()
		if !strings.HasPrefix(name, home+"/app/") {
			when = 0 // the tar has no time for these folders
		}
		if fi.Mode().IsRegular() {
			when = fi.ModTime().UnixNano()
		}
		fmt.Fprintf(&b, "%s %v %d:%d %d %s\n", name, fi.Mode(), st.Uid, st.Gid, when, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// shared counts the files below two folders that are the same inode.
func shared(t *testing.T, a, b string) (n int) {
	t.Helper()
	seen := map[uint64]bool{}
	for i, root := range []string{a, b} {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			st, _ := fi.Sys().(*syscall.Stat_t)
			if i == 0 {
				seen[st.Ino] = true
			} else if seen[st.Ino] {
				n++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}
