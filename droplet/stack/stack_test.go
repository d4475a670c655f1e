package stack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"github.com/dewrun/dew/droplet/archive"
)

// stackWorld opens an empty folder of stacks.
func stackWorld(t testing.TB) *Stacks {
	t.Helper()
	db := openDB(t, filepath.Join(t.TempDir(), "dew.db"))
	s, err := Open(db, Options{Dir: filepath.Join(t.TempDir(), "stacks")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rootTar packs entries. A name that ends with / is a folder.
func rootTar(t testing.TB, files ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range files {
		text := h.Linkname
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, h.Size, h.Linkname = tar.TypeReg, int64(len(text)), ""
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = w.Write([]byte(text))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func aFile(t testing.TB, data []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// anImage returns an image with layers and a run configuration.
func anImage(t testing.TB, layers ...[]byte) v1.Image {
	t.Helper()
	image := v1.Image(empty.Image)
	for _, raw := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
		if err == nil {
			image, err = mutate.AppendLayers(image, l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	image, err := mutate.ConfigFile(image, withConfig(t, image, v1.Config{
		Entrypoint: []string{"/serve", "a b"}, Cmd: []string{"-v"}, Env: []string{"COLOUR=green", "=bad"}, User: "app",
		WorkingDir: "srv", ExposedPorts: map[string]struct{}{"9000/tcp": {}, "53/udp": {}, "8000": {}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func withConfig(t testing.TB, image v1.Image, c v1.Config) *v1.ConfigFile {
	t.Helper()
	f, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	f = f.DeepCopy()
	f.OS, f.Architecture, f.Config = "linux", goruntime.GOARCH, c
	return f
}

var smallRoot = []tar.Header{
	{Name: "./", Typeflag: tar.TypeDir},
	{Name: "./etc/", Typeflag: tar.TypeDir},
	{Name: "./etc/passwd", Linkname: "root:x:0:0:root:/root:/bin/sh\napp:x:77:78:app:/srv:/bin/sh\n"},
	{Name: "./serve", Linkname: "#!/bin/sh\n"},
}

// A file becomes a stack if it is a tar, compressed or not, or an image.
func TestAddStack(t *testing.T) {
	raw := rootTar(t, smallRoot...)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	image := anImage(t, raw, rootTar(t, tar.Header{Name: "more", Linkname: "x"}))
	var archive bytes.Buffer
	if err := tarball.Write(name.MustParseReference("shop:1"), image, &archive); err != nil {
		t.Fatal(err)
	}
	for kind, c := range map[string]struct {
		data   []byte
		kind   Kind
		layers int
	}{
		"plain": {raw, KindTarball, 1}, "gzip": {gzipped(t, raw), KindTarball, 1}, "zstd": {enc.EncodeAll(raw, nil), KindTarball, 1},
		"docker": {archive.Bytes(), KindImage, 2}, "docker-gzip": {gzipped(t, archive.Bytes()), KindImage, 2},
		"layout": {layoutTar(t, image), KindImage, 2},
	} {
		t.Run(kind, func(t *testing.T) {
			s := stackWorld(t)
			k, err := s.Add(t.Context(), "mine", aFile(t, c.data))
			if err != nil {
				t.Fatal(err)
			}
			if k.Kind != c.kind || k.State != StateReady || len(k.Tree) != c.layers || k.Size == 0 || k.ID == "" {
				t.Errorf("stack = %+v, want %s with %d layers", k, c.kind, c.layers)
			}
			st, err := s.Get("mine")
			if err != nil || st.ID != k.ID {
				t.Fatalf("stack %s, %v, want id %s", st.ID, err, k.ID)
			}
			if !slices.Contains(names(t, st), "serve") {
				t.Errorf("files = %q, want serve among them", names(t, st))
			}
		})
	}
}

// names returns the file names in the trees of a stack.
func names(t testing.TB, st Stack) (out []string) {
	t.Helper()
	for _, tree := range st.Tree {
		r, err := tree.Open()
		if err != nil {
			t.Fatal(err)
		}
		for tr := tar.NewReader(r); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, strings.TrimPrefix(h.Name, "./"))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	return out
}

// layoutTar packs an image as an OCI layout.
func layoutTar(t testing.TB, image v1.Image) []byte {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = p.AppendImage(image)
	}
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A file that is not a stack is refused with a reason, and none of it is stored.
func TestAddRefuses(t *testing.T) {
	raw := rootTar(t, smallRoot...)
	for want, data := range map[string][]byte{
		"not a tar archive":          []byte(strings.Repeat("no archive at all ", 100)),
		"must not contain ..":        rootTar(t, tar.Header{Name: "../../etc/passwd", Linkname: "x"}),
		"is a hard link":             rootTar(t, tar.Header{Name: "etc/shadow", Typeflag: tar.TypeLink, Linkname: "../../etc/shadow"}),
		"is incomplete":              raw[:len(raw)/2+100],
		"empty archive":              rootTar(t),
		"cannot be read as an image": rootTar(t, tar.Header{Name: "manifest.json", Linkname: "{}"}),
		"cannot be decompressed":     {0x1f, 0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		s := stackWorld(t)
		_, err := s.Add(t.Context(), "mine", aFile(t, data))
		if bad := (*archive.Error)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want an ImageError with %q", err, want)
		}
		if left, _ := os.ReadDir(s.o.Dir); len(left) != 0 {
			t.Errorf("%s: %v stayed", want, left)
		}
	}
}

// Names are unique. The names of the host stack and of Cloud Foundry's stacks are
// reserved.
func TestStackNames(t *testing.T) {
	s := stackWorld(t)
	for name, want := range map[string]error{
		"host": ErrOwn, "cflinuxfs4": ErrRefused, "Big": ErrRefused, "": ErrRefused, "../x": ErrRefused, "mine": nil,
	} {
		if _, err := s.Add(t.Context(), name, aFile(t, rootTar(t, smallRoot...))); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
	_, err := s.Add(t.Context(), "mine", aFile(t, rootTar(t, smallRoot...)))
	if !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "dew stack remove mine") {
		t.Errorf("error = %v, want ErrStackTaken and the remedy", err)
	}
	if err := s.Check("other"); err == nil || !strings.Contains(err.Error(), "use 'host' or 'mine'") {
		t.Errorf("error = %v, want a list of stacks", err)
	}
	if err := s.Remove(GUID(Default)); !errors.Is(err, ErrOwn) {
		t.Errorf("error = %v, want ErrStackOwn", err)
	}
}

// Two stacks with the same content share it, and it is removed with the last of them. A
// missing layer is reported.
func TestStacksShareLayers(t *testing.T) {
	s := stackWorld(t)
	var all []Record
	for _, name := range []string{"one", "two"} {
		k, err := s.Add(t.Context(), name, aFile(t, rootTar(t, smallRoot...)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	var kept []string
	s.o.Prune = func(_ context.Context, keep func(string) bool) {
		kept = nil
		for _, k := range all {
			if keep(k.ID) {
				kept = append(kept, k.Name)
			}
		}
	}
	for i, want := range [][]string{{"two"}, nil} {
		if err := errors.Join(s.Remove(all[i].GUID), s.collect(t.Context())); err != nil {
			t.Fatal(err)
		}
		left, _ := filepath.Glob(s.layers.path("*"))
		if len(left) != len(want) || !slices.Equal(kept, want) {
			t.Errorf("after removing %s: layers %v, kept %v, want %v", all[i].Name, left, kept, want)
		}
	}
	st, err := s.ofTree("gone", all[0].Tree)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Tree[0].Open(); !errors.Is(err, ErrNoImage) {
		t.Errorf("error = %v, want errNoImage", err)
	}
}

// The tree gets the app's user and its folders. Its ID identifies the tree.
func TestStackOfTree(t *testing.T) {
	s := stackWorld(t)
	a, err := s.ofTree("a", []string{"1"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.ofTree("a", []string{"2"})
	if err != nil || a.ID == b.ID {
		t.Errorf("both ids are %s, %v", a.ID, err)
	}
	if !slices.ContainsFunc(a.Lines, func(l Line) bool {
		return l.Path == "/etc/passwd" && l.Text == "vcap:x:2000:2000:vcap:/home/vcap:/bin/sh"
	}) {
		t.Errorf("lines = %v, want vcap in /etc/passwd", a.Lines)
	}
}

func TestRunConfig(t *testing.T) {
	s := stackWorld(t)
	i, err := s.openImage(anImage(t, rootTar(t, smallRoot...)))
	if err != nil {
		t.Fatal(err)
	}
	m, who, err := s.StoreLayers(t.Context(), i, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	m.Done()
	got, err := ImageRunConfig(i, who)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Args, []string{"/serve", "a b", "-v"}) || got.UID != 77 || got.GID != 78 || got.Home != "/srv" || got.Dir != "/srv" ||
		!slices.Equal(got.Ports, []int{8000, 9000}) || !slices.Equal(got.Env, []string{"COLOUR=green"}) {
		t.Errorf("run = %+v", got)
	}
}

func TestImageUsers(t *testing.T) {
	u := Users{passwd: "root:x:0:0:root:/root:/bin/sh\nweb:x:101:102::/var/www:/bin/false\nbroken:x:-5:x\n", group: "web:x:102:\nmail:x:8:web\n"}
	for text, want := range map[string]user{
		"": {0, 0, "root", "/root"}, "root": {0, 0, "root", "/root"}, "web": {101, 102, "web", "/var/www"}, "101": {101, 102, "web", "/var/www"},
		"web:mail": {101, 8, "web", "/var/www"}, "web:9": {101, 9, "web", "/var/www"}, "5000": {5000, 0, "5000", ""}, "5000:5001": {5000, 5001, "5000", ""},
	} {
		if got, err := u.find(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"nobody", "broken", "-1", "99999999999", "web:nobody", "web:-1"} {
		if got, err := u.find(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
	if got, err := (Users{}).find(""); err != nil || got.uid != 0 || got.name != "root" {
		t.Errorf("without a passwd: %+v, %v, want root", got, err)
	}
}

// A later layer replaces and removes the users of those before it.
func TestImageUsersByLayer(t *testing.T) {
	scan := func(files ...tar.Header) layerFacts {
		l, err := scanLayer(bytes.NewReader(rootTar(t, files...)))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var u Users
	u.addLayer(scan(tar.Header{Name: "etc/passwd", Linkname: "one"}))
	u.addLayer(scan(tar.Header{Name: "bin/x", Linkname: "y"}))
	if u.passwd != "one" {
		t.Errorf("passwd = %q, want one", u.passwd)
	}
	u.addLayer(scan(tar.Header{Name: "etc/passwd", Linkname: "two"}, tar.Header{Name: "etc/.wh..wh..opq", Linkname: ""}))
	if u.passwd != "two" {
		t.Errorf("passwd = %q, want two", u.passwd)
	}
	u.addLayer(scan(tar.Header{Name: "etc/.wh.passwd", Linkname: ""}))
	if u.passwd != "" {
		t.Errorf("passwd = %q, want none", u.passwd)
	}
}

func TestImageRefs(t *testing.T) {
	for _, ref := range []string{"nginx", "127.0.0.1:5000/shop:1", "host/a/b@sha256:" + strings.Repeat("a", 64)} {
		if err := CheckImageRef(ref); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
	for _, ref := range []string{"", "https://host/a", "UPPER/x", "a b", "host/a@sha256:short", strings.Repeat("a", 600), "u:p@host/x"} {
		if err := CheckImageRef(ref); err == nil {
			t.Errorf("%q is taken", ref)
		}
	}
}

func FuzzImageRef(f *testing.F) {
	f.Add("127.0.0.1:5000/shop:1")
	f.Add("a@sha256:")
	f.Fuzz(func(t *testing.T, ref string) {
		if CheckImageRef(ref) == nil && strings.ContainsAny(ref, " \n\x00") {
			t.Errorf("%q is taken", ref)
		}
	})
}

// Every layer is read to its end or refused, and its facts are within the limits.
func FuzzScanLayer(f *testing.F) {
	f.Add(rootTar(f, smallRoot...))
	f.Add(gzipped(f, rootTar(f, smallRoot...)))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := scanLayer(bytes.NewReader(raw))
		if err == nil && (l.Size < 0 || l.Size > maxTreeBytes) {
			t.Errorf("size %d", l.Size)
		}
	})
}

func FuzzImageUser(f *testing.F) {
	f.Add("web:mail", "web:x:1:2::/:/bin/sh\n", "mail:x:8:\n")
	f.Fuzz(func(t *testing.T, text, passwd, group string) {
		u, err := (Users{passwd, group}).find(text)
		if err == nil && (u.uid < 0 || u.uid > maxID || u.gid < 0 || u.gid > maxID) {
			t.Errorf("%q is %d:%d", text, u.uid, u.gid)
		}
	})
}

// Debian packages are names, never options. The sources come from the machine's files.
func TestDebianSource(t *testing.T) {
	for name, ok := range map[string]bool{"ruby": true, "g++": true, "libc6:amd64": true, "--setup-hook=x": false, "a b": false, "": false, "x,y": false, "~n": false} {
		if err := (DebianSource{Include: []string{name}}).check(); (err == nil) != ok {
			t.Errorf("%q: %v, want ok %v", name, err, ok)
		}
	}
	dir := t.TempDir()
	if _, err := aptSources(dir); err == nil || !strings.Contains(err.Error(), "no apt sources") {
		t.Errorf("error = %v, want that there are no sources", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sources.list.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sources.list": "# deb only a comment\n", "sources.list.d/a.sources": "Types: deb\nURIs: http://example.com\n",
		"sources.list.d/b.list": "deb http://example.com stable main\n", "sources.list.d/c.list.off": "deb http://example.com x y\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := aptSources(dir)
	if err != nil || len(got) != 2 || !strings.HasSuffix(got[0], "b.list") || !strings.HasSuffix(got[1], "a.sources") {
		t.Errorf("sources = %v, %v", got, err)
	}
}
