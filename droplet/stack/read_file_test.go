package stack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/testkit"
)

// newSources returns the store of stacks in a folder of its own.
func newSources(t testing.TB) *sources {
	t.Helper()
	o := Options{Dir: filepath.Join(t.TempDir(), "stacks"), Space: func() error { return nil }}
	l := testkit.Must(openLayers(openDB(t, filepath.Join(t.TempDir(), "dew.db")), o))(t)
	return &sources{o: o, layers: l}
}

// readBytes reads raw as the file of a stack.
func readBytes(t testing.TB, s *sources, raw []byte) error {
	t.Helper()
	f := testkit.Must(os.CreateTemp(t.TempDir(), "stack"))(t)
	defer f.Close()
	if _, err := f.Write(raw); err != nil {
		t.Fatal(err)
	}
	m, err := s.readFile(t.Context(), f)
	if err == nil {
		m.Done()
	}
	return err
}

// tarOf returns a tar with files, given as names and contents in turn.
func tarOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}
		if err := errors.Join(w.WriteHeader(h), archive.WriteAll(w, []byte(files[i+1]))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compressed(t testing.TB, raw []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := errors.Join(archive.WriteAll(z, raw), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// layoutFiles returns the names and contents of an image layout.
func layoutFiles(t testing.TB) (files []string) {
	t.Helper()
	dir := t.TempDir()
	p := testkit.Must(layout.Write(dir, empty.Index))(t)
	if err := p.AppendImage(testkit.Must(random.Image(64, 1))(t)); err != nil {
		t.Fatal(err)
	}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		files = append(files, strings.TrimPrefix(path, dir+"/"), string(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// dockerImage returns an image as docker saves it.
func dockerImage(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tarball.Write(name.MustParseReference("example.com/a:b"), testkit.Must(random.Image(64, 1))(t), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A damaged file is refused with a sentence, and is not an internal error.
func TestReadFileRefusesDamagedFiles(t *testing.T) {
	t.Parallel()
	root := compressed(t, tarOf(t, "etc/passwd", "root:x:0:0::/root:/bin/sh\n", "bin/sh", strings.Repeat("x", 600)))
	files := layoutFiles(t)
	image := compressed(t, tarOf(t, files...))
	docker := compressed(t, dockerImage(t))
	s := newSources(t)
	for _, good := range [][]byte{root, image, docker} {
		if err := readBytes(t, s, good); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"root without its last bytes":    {root[:len(root)-3], "is incomplete: upload it again"},
		"root with a wrong checksum":     {append(root[:len(root)-8:len(root)-8], 1, 2, 3, 4, 5, 6, 7, 8), "cannot be read: gzip: invalid checksum"},
		"image without its last bytes":   {image[:len(image)-3], "is incomplete: upload it again"},
		"docker without its last bytes":  {docker[:len(docker)-3], "is incomplete: upload it again"},
		"image with half of its bytes":   {image[:len(image)/2], "is incomplete: upload it again"},
		"image layout with a file twice": {tarOf(t, append(files, files[:2]...)...), "is in the archive more than once"},
		"image layout without its blobs": {tarOf(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`, "index.json", files[indexOf(files, "index.json")+1]), "cannot be read as an image"},
	} {
		err := readBytes(t, s, c.raw)
		if bad, ok := errors.AsType[*archive.Error](err); !ok || !strings.Contains(bad.Error(), c.want) {
			t.Errorf("%s: error = %v, want a refusal with %q", what, err, c.want)
		}
	}
}

func indexOf(files []string, name string) int {
	for i := 0; i < len(files); i += 2 {
		if files[i] == name {
			return i
		}
	}
	return -1
}

// Whatever a file contains, it becomes a stack or is refused.
func FuzzReadFile(f *testing.F) {
	root, image := tarOf(f, "etc/passwd", "root:x:0:0::/root:/bin/sh\n"), tarOf(f, layoutFiles(f)...)
	for _, raw := range [][]byte{root, image, dockerImage(f)} {
		z := compressed(f, raw)
		f.Add(raw)
		f.Add(z)
		f.Add(z[:len(z)-3])
		f.Add(raw[:len(raw)/2])
	}
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0})
	s := newSources(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := readBytes(t, s, raw); err != nil && !errors.As(err, new(*archive.Error)) {
			t.Errorf("error = %v, want a refusal", err)
		}
	})
}
