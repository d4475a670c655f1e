package droplet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/testkit"
)

func newTestDroplets(t *testing.T) *Droplets {
	t.Helper()
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "dew.db"))
	s, err := NewDroplets(db, filepath.Join(dir, "a", "images"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAddImageStoresBytesByHash(t *testing.T) {
	s := newTestDroplets(t)
	image := pack(t, dir("app/"), file("app/run.sh"), file("staging_info.yml"))
	image = append(image, make([]byte, 8192)...) // padding as in GNU tar
	sum := sha256.Sum256(image)
	want := hex.EncodeToString(sum[:])
	for range 2 { // the second time is not an error
		sha, err := s.AddImage(iotest.OneByteReader(bytes.NewReader(image)))
		if err != nil || sha != want {
			t.Fatalf("AddImage = %s, %v, want %s", sha, err, want)
		}
	}
	r, err := s.OpenImage(want)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, image) {
		t.Errorf("image read back has %d bytes (%v), want the %d put in", len(got), err, len(image))
	}
	if diff := cmp.Diff(files(t, s.dir), []string{want + ".tar"}); diff != "" {
		t.Errorf("files (-got +want):\n%s", diff)
	}
}

// A refused or interrupted image leaves no files.
func TestAddImageFailureLeavesNoFile(t *testing.T) {
	s := newTestDroplets(t)
	image := pack(t, file("app/run.sh"))
	lost := errors.New("connection lost")
	_, err := s.AddImage(io.MultiReader(bytes.NewReader(image[:700]), iotest.ErrReader(lost)))
	if !errors.Is(err, lost) {
		t.Errorf("error of a broken stream = %v, want %v", err, lost)
	}
	_, err = s.AddImage(io.MultiReader(bytes.NewReader(image), iotest.ErrReader(lost)))
	if !errors.Is(err, lost) {
		t.Errorf("error behind the end = %v, want %v", err, lost)
	}
	_, err = s.AddImage(bytes.NewReader(pack(t, file("../evil"))))
	var bad *archive.Error
	if !errors.As(err, &bad) || bad.Entry != "../evil" {
		t.Errorf("error of a bad image = %v, want one that names the entry", err)
	}
	if got := files(t, s.dir); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

func TestAddImageConcurrently(t *testing.T) {
	s := newTestDroplets(t)
	images := [][]byte{pack(t, file("app/a")), pack(t, file("app/b"))}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := s.AddImage(bytes.NewReader(images[i%2])); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := files(t, s.dir); len(got) != 2 {
		t.Errorf("files = %v, want the two images", got)
	}
}

func TestNewDropletsSweepsUnfinishedImages(t *testing.T) {
	s := newTestDroplets(t)
	sha, err := s.AddImage(bytes.NewReader(pack(t, file("app/a"))))
	if err != nil {
		t.Fatal(err)
	}
	// AddImage chooses the name itself, so the reader looks it up.
	var unfinished string
	_, err = s.AddImage(readerFunc(func([]byte) (int, error) {
		for _, f := range files(t, s.dir) {
			if f != sha+".tar" {
				unfinished = f
			}
		}
		return 0, io.EOF
	}))
	if err == nil || unfinished == "" {
		t.Fatalf("no unfinished file while adding (%v)", err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, unfinished), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDroplets(openDB(t, filepath.Join(t.TempDir(), "dew.db")), s.dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files(t, s.dir), []string{sha + ".tar"}); diff != "" {
		t.Errorf("files (-got +want):\n%s", diff)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestOpenMissingImage(t *testing.T) {
	s := newTestDroplets(t)
	outside := filepath.Join(filepath.Dir(s.dir), "secret.tar")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sha := range []string{strings.Repeat("0", 64), "", "../secret", strings.Repeat("0", 63) + "/"} {
		_, err := s.OpenImage(sha)
		if !errors.Is(err, ErrNoImage) {
			t.Errorf("OpenImage(%q) = %v, want ErrNoImage", sha, err)
		}
	}
	_, err := s.OpenImage(strings.Repeat("0", 64))
	if !strings.Contains(err.Error(), "restage") {
		t.Errorf("error = %v, want the remedy", err)
	}
}

func TestDroplets(t *testing.T) {
	s := newTestDroplets(t)
	sha, err := s.AddImage(bytes.NewReader(pack(t, file("app/a"))))
	if err != nil {
		t.Fatal(err)
	}
	want := Droplet{
		GUID: "d1", App: "a1", Stack: stack.HostName, Image: sha,
		Commands:  map[string]string{"web": "./run"},
		Sidecars:  []FoundSidecar{{Name: "agent", Command: "./agent", ProcessTypes: []string{"web"}, MemoryMB: 64}},
		CreatedAt: time.Unix(1, 2).UTC(),
	}
	if err := s.Put(want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get("d1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("droplet (-got +want):\n%s", diff)
	}
	if err := s.Put(Droplet{GUID: "d2"}); err != nil {
		t.Errorf("a droplet of the bare stack: %v", err)
	}
	if d, _ := s.Get("d2"); d.CreatedAt.IsZero() {
		t.Error("a droplet without a time did not get one")
	}
	if err := s.Put(Droplet{GUID: "d3", Image: strings.Repeat("1", 64)}); !errors.Is(err, ErrNoImage) {
		t.Errorf("a droplet without its image: %v, want ErrNoImage", err)
	}
	if err := s.Put(Droplet{}); err == nil {
		t.Error("a droplet without a guid was kept")
	}
	if _, err := s.Get("d3"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of what is not there = %v, want ErrNotFound", err)
	}
}

func TestNewDropletsFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := NewDroplets(openDB(t, filepath.Join(t.TempDir(), "dew.db")), filepath.Join(file, "images"))
	var perr *fs.PathError
	if !errors.As(err, &perr) {
		t.Errorf("error = %v, want one with the path", err)
	}
}

// An image without droplets is collected, but not between AddImage and its first
// droplet.
func TestCollect(t *testing.T) {
	s := newTestDroplets(t)
	add := func(name string) string {
		t.Helper()
		sha, err := s.AddImage(bytes.NewReader(pack(t, file("app/"+name))))
		if err != nil {
			t.Fatal(err)
		}
		return sha
	}
	collect := func(want ...string) {
		t.Helper()
		got, err := s.Collect()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	fresh, named := add("fresh"), add("named")
	for _, guid := range []string{"d1", "d2"} {
		if err := s.Put(Droplet{GUID: guid, App: guid, Image: named}); err != nil {
			t.Fatal(err)
		}
	}
	collect()
	for _, tt := range []struct {
		guid string
		want []string
	}{{"d1", nil}, {"d2", []string{named}}} {
		if err := s.remove([]Droplet{{GUID: tt.guid}}); err != nil {
			t.Fatal(err)
		}
		collect(tt.want...)
	}
	if err := s.Put(Droplet{GUID: "d3", Image: named}); !errors.Is(err, ErrNoImage) {
		t.Errorf("Put of a collected image = %v, want ErrNoImage", err)
	}
	s.releaseImage(fresh)
	collect(fresh)
	if got := files(t, s.dir); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
}

// Two callers can add the same image. If one of them releases it, the other still has
// it.
func TestCollectKeepsSharedImages(t *testing.T) {
	s := newTestDroplets(t)
	var sha string
	for range 2 {
		var err error
		if sha, err = s.AddImage(bytes.NewReader(pack(t, file("app/a")))); err != nil {
			t.Fatal(err)
		}
	}
	s.releaseImage(sha)
	if got, err := s.Collect(); len(got) != 0 || err != nil {
		t.Errorf("collected %v, %v, want nothing", got, err)
	}
	if err := s.Put(Droplet{GUID: "d", Image: sha}); err != nil {
		t.Error(err)
	}
	if err := s.remove([]Droplet{{GUID: "d"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Collect(); len(got) != 1 || err != nil {
		t.Errorf("collected %v, %v, want the image", got, err)
	}
}

// An image can be read as soon as it is complete, before it is on disk and has its final
// name.
func TestImageBeforeSync(t *testing.T) {
	s := newTestDroplets(t)
	image := pack(t, file("app/a"))
	read := func(sha string) []byte {
		t.Helper()
		f := testkit.Must(s.OpenImage(sha))(t)
		defer f.Close()
		return testkit.Must(io.ReadAll(f))(t)
	}
	calls := 0
	sha, err := s.addImage(bytes.NewReader(image), func(sha string) {
		calls++
		if _, err := os.Stat(s.path(sha)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the image has its final name already: %v", err)
		}
		if got := read(sha); !bytes.Equal(got, image) {
			t.Errorf("got %d bytes before the end, want %d", len(got), len(image))
		}
	})
	if err != nil || calls != 1 {
		t.Fatalf("%d calls and the error %v, want one call", calls, err)
	}
	if got := read(sha); !bytes.Equal(got, image) {
		t.Errorf("got %d bytes, want %d", len(got), len(image))
	}
}

// An image that exists already is not written again, unless it is incomplete or a restage
// asks for it. It stays until it is released.
func TestAddNamedImageTwice(t *testing.T) {
	s := newTestDroplets(t)
	image, sha := pack(t, file("app/a")), strings.Repeat("ab", 32)
	calls := 0
	for _, r := range []io.Reader{bytes.NewReader(image), iotest.ErrReader(errors.New("the image was read again"))} {
		err := s.addNamed(namedImage{name: sha, size: int64(len(image)), bytes: r}, func(got string) {
			calls++
			if got != sha {
				t.Errorf("complete got %s, want %s", got, sha)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls, want 2", calls)
	}
	for _, fresh := range []bool{false, true} {
		damaged := image[:len(image)/2]
		if fresh {
			damaged = bytes.Repeat([]byte("x"), len(image))
		}
		if err := os.WriteFile(s.path(sha), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.addNamed(namedImage{name: sha, size: int64(len(image)), bytes: bytes.NewReader(image), fresh: fresh}, func(string) {}); err != nil {
			t.Fatal(err)
		}
		if got := testkit.Must(os.ReadFile(s.path(sha)))(t); !bytes.Equal(got, image) {
			t.Errorf("a damaged image was kept, fresh: %t", fresh)
		}
	}
	for _, left := range []int{1, 1, 1, 1, 0} {
		if _, err := s.Collect(); err != nil {
			t.Fatal(err)
		}
		if got := files(t, s.dir); len(got) != left {
			t.Fatalf("files = %v, want %d", got, left)
		}
		s.releaseImage(sha)
	}
}
