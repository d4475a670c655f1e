package droplet

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
)

// newPackages opens packages with small limits, on any disk.
func newPackages(t testing.TB) *Packages {
	t.Helper()
	dir := t.TempDir()
	p, err := NewPackages(openDB(t, filepath.Join(dir, "dew.db")), PackageOptions{
		Dir: filepath.Join(dir, "packages"), MaxBytes: 1 << 17, MaxFiles: 50, MaxFileBytes: 1 << 16, MinFree: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func resource(path, mode, text string) pool.Resource {
	sum := sha1.Sum([]byte(text))
	return pool.Resource{Path: path, Mode: mode, SHA1: hex.EncodeToString(sum[:]), Size: int64(len(text))}
}

// upload creates a package of app "a" and uploads its bits. zipped is nil for no zip.
func upload(t testing.TB, p *Packages, matched []pool.Resource, zipped []byte) (Package, error) {
	t.Helper()
	return uploadTo(t, p, "a", matched, zipped)
}

func uploadTo(t testing.TB, p *Packages, app string, matched []pool.Resource, zipped []byte) (Package, error) {
	t.Helper()
	k, err := p.Create(app)
	if err != nil {
		t.Fatal(err)
	}
	var r io.ReaderAt
	if zipped != nil {
		r = bytes.NewReader(zipped)
	}
	return p.Upload(t.Context(), k.GUID, pool.Claim{Resources: matched}, r, int64(len(zipped)))
}

func mustUpload(t testing.TB, p *Packages, matched []pool.Resource, zipped []byte) Package {
	t.Helper()
	k, err := upload(t, p, matched, zipped)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// list returns type, mode, path, and content or target of every entry of a tree.
func list(t testing.TB, p *Packages, sha string) []string {
	t.Helper()
	f, done, err := p.open(sha)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var out []string
	tr := tar.NewReader(f)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(pool.Time) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s has the time %v and the owner %d %q", h.Name, h.ModTime, h.Uid, h.Uname)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%c %03o %s %s%s", h.Typeflag, h.Mode, h.Name, text, h.Linkname)))
	}
}

// Uploads that differ only in order, times, missing folders and modes of folders give
// one tree. It is sorted, and named after its entries.
func TestUploadStoresEqualFilesOnce(t *testing.T) {
	p := newPackages(t)
	first := mustUpload(t, p, nil, zipOf(t,
		member{name: "run.sh", text: "echo", mode: 0o755},
		member{name: "a/", mode: 0o700 | fs.ModeDir},
		member{name: "a/b/c.txt", text: "c"},
		member{name: "a-b", text: "", mode: 0o600},
		member{name: "README", text: "upper"},
		member{name: "readme", text: "lower", mode: 0o744},
		member{name: "setuid", text: "s", mode: 0o755 | fs.ModeSetuid},
		member{name: "a/up", link: "../run.sh"}))
	want := []string{
		"5 755 app/", "0 644 app/README upper", "5 755 app/a/", "0 600 app/a-b", "5 755 app/a/b/", "0 644 app/a/b/c.txt c",
		"2 777 app/a/up ../run.sh", "0 744 app/readme lower", "0 755 app/run.sh echo", "0 755 app/setuid s",
	}
	if diff := cmp.Diff(want, list(t, p, first.SHA256)); diff != "" {
		t.Error(diff)
	}
	if first.State != PackageReady || first.Size != int64(len("echocupperlowers")) || first.Type != PackageBits || first.App != "a" {
		t.Errorf("package = %+v", first)
	}
	second := mustUpload(t, p, nil, zipOf(t,
		member{name: "a/up", link: "../run.sh"},
		member{name: "setuid", text: "s", mode: 0o755},
		member{name: "./readme", text: "lower", mode: 0o744},
		member{name: "a//b/c.txt", text: "c"},
		member{name: "README", text: "upper"},
		member{name: "a-b", text: "", mode: 0o600},
		member{name: "run.sh", text: "echo", mode: 0o755}))
	if second.SHA256 != first.SHA256 {
		t.Errorf("the second tree is %s, want %s", second.SHA256, first.SHA256)
	}
	raw, err := os.ReadFile(p.pool.Tar(first.SHA256))
	if name := nameOfTar(t, raw); err != nil || name != first.SHA256 {
		t.Errorf("the tar does not have its own name, but %s, %v", first.SHA256, err)
	}
	if got := files(t, p.o.Dir); len(got) != 2 {
		t.Errorf("files = %v, want one tar and its index", got)
	}
	third := mustUpload(t, p, nil, zipOf(t, member{name: "run.sh", text: "echo"}))
	fourth := mustUpload(t, p, nil, zipOf(t, member{name: "run.sh", text: "echo", mode: 0o755}))
	if third.SHA256 == fourth.SHA256 {
		t.Error("the executable bit makes no difference")
	}
}

// A client sends only files that are not stored yet. If all are stored, the tree is
// built from the pool. An existing tree is not written again.
func TestMatchAndUploadFromThePool(t *testing.T) {
	p := newPackages(t)
	first := mustUpload(t, p, nil, zipOf(t,
		member{name: "run.sh", text: "echo", mode: 0o755}, member{name: "b", text: "bbb"}, member{name: "copy of b", text: "bbb"}, member{name: "empty"}))

	same := []pool.Resource{resource("run.sh", "755", "echo"), resource("b", "644", "bbb"), resource("copy of b", "0100644", "bbb")}
	shorter := resource("b", "644", "bbb")
	shorter.Size--
	asked := append(slices.Clone(same), resource("new", "644", "new"), shorter, pool.Resource{Path: "bad", SHA1: "xyz", Size: 3}, resource("empty", "644", ""))
	got, err := p.Match(pool.Claim{Resources: asked})
	if diff := cmp.Diff(same, got); diff != "" || err != nil {
		t.Fatalf("Match: %v\n%s", err, diff)
	}
	if got, err := p.Match(pool.Claim{}); got == nil || len(got) != 0 || err != nil {
		t.Errorf("Match of nothing = %v, %v, want an empty list", got, err)
	}

	// All files matched, with and without a zip for files that are never matched.
	before := stamps(t, p.o.Dir)
	second := mustUpload(t, p, same, zipOf(t, member{name: "empty"}))
	third := mustUpload(t, p, append(same, resource("empty", "644", "")), nil)
	if second.SHA256 != first.SHA256 || third.SHA256 != first.SHA256 || second.Size != first.Size {
		t.Errorf("trees are %s and %s, want %s", second.SHA256, third.SHA256, first.SHA256)
	}
	if diff := cmp.Diff(before, stamps(t, p.o.Dir)); diff != "" {
		t.Errorf("a tree that was there was written again:\n%s", diff)
	}

	// Other paths and modes, and one new file.
	k := mustUpload(t, p, []pool.Resource{resource("bin/run", "744", "echo"), resource("x", "", "bbb")}, zipOf(t, member{name: "new", text: "new"}))
	want := []string{"5 755 app/", "5 755 app/bin/", "0 744 app/bin/run echo", "0 644 app/new new", "0 644 app/x bbb"}
	if diff := cmp.Diff(want, list(t, p, k.SHA256)); diff != "" {
		t.Error(diff)
	}
	if got, err := p.Match(pool.Claim{Resources: asked}); len(got) != 4 || err != nil {
		t.Errorf("the new file is not matched: %v, %v", got, err)
	}

	// A later daemon has the same pool.
	q, err := NewPackages(openDB(t, filepath.Join(t.TempDir(), "db")), PackageOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := q.Match(pool.Claim{Resources: asked}); len(got) != 0 || err != nil {
		t.Errorf("an empty pool matches %v, %v", got, err)
	}
}

// A user claims only files that the user can read. The promise of Match holds even if
// the package is deleted before the upload.
func TestClaimsOfOtherUsers(t *testing.T) {
	p := newPackages(t)
	file := []pool.Resource{resource("f", "644", "secret")}
	readers := func(id string, apps ...string) pool.Reader {
		return pool.Reader{ID: id, Reads: p.Readable(func(app string) bool { return slices.Contains(apps, app) }, func(string) bool { return false })}
	}
	owner, other := readers("owner", "a"), readers("other", "b")
	first := mustUpload(t, p, nil, zipOf(t, member{name: "f", text: "secret"}))
	claim := func(by pool.Reader, files []pool.Resource) error {
		k, err := p.Create("b")
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Upload(t.Context(), k.GUID, pool.Claim{Resources: files, By: by}, nil, 0)
		return err
	}
	if got, err := p.Match(pool.Claim{Resources: file, By: other}); len(got) != 0 || err != nil {
		t.Errorf("another user matches %v, %v", got, err)
	}
	// The same tree, and another tree with the same file.
	var refused *pool.Error
	for _, path := range []string{"f", "g"} {
		if err := claim(other, []pool.Resource{resource(path, "644", "secret")}); !errors.As(err, &refused) {
			t.Errorf("the claim of %s = %v, want a refusal", path, err)
		}
	}
	if got, err := p.Match(pool.Claim{Resources: file, By: owner}); len(got) != 1 || err != nil {
		t.Errorf("the owner matches %v, %v", got, err)
	}
	if err := p.remove([]Package{first}); err != nil {
		t.Fatal(err)
	}
	if err := claim(other, file); !errors.As(err, &refused) {
		t.Errorf("the claim of a deleted package = %v, want a refusal", err)
	}
	if err := claim(owner, file); err != nil {
		t.Errorf("the promise to the owner: %v", err)
	}
	if err := claim(other, file); err != nil {
		t.Errorf("the file is in a package of the other user now: %v", err)
	}
}

// stamps returns the modification time of each file.
func stamps(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	out := map[string]time.Time{}
	for _, name := range files(t, dir) {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = fi.ModTime()
	}
	return out
}

func TestUploadRefuses(t *testing.T) {
	p := newPackages(t)
	long := strings.Repeat("x", 256)
	ok := member{name: "ok", text: "ok"}
	for name, tt := range map[string]struct {
		matched []pool.Resource
		members []member
		entry   string
		reason  string
	}{
		"nothing":                  {nil, nil, "", "no files"},
		"slip":                     {nil, []member{ok, {name: "../x", text: "x"}}, "../x", ".."},
		"slip inside":              {nil, []member{ok, {name: "a/../../x", text: "x"}}, "a/../../x", ".."},
		"slip at the end":          {nil, []member{ok, {name: "a/.."}}, "a/..", ".."},
		"slip by a folder":         {nil, []member{ok, {name: "../", mode: fs.ModeDir | 0o755}}, "../", ".."},
		"slip by a match":          {[]pool.Resource{resource("../x", "644", "x")}, []member{ok}, "../x", ".."},
		"absolute":                 {nil, []member{ok, {name: "/etc/passwd", text: "x"}}, "/etc/passwd", "relative"},
		"absolute match":           {[]pool.Resource{resource("/x", "644", "x")}, []member{ok}, "/x", "relative"},
		"no name":                  {nil, []member{ok, {name: "", text: "x"}}, "", "no name"},
		"zero byte":                {nil, []member{ok, {name: "a\x00b", text: "x"}}, "a\x00b", "zero byte"},
		"long name":                {nil, []member{ok, {name: long, text: "x"}}, long, "255"},
		"long path":                {nil, []member{ok, {name: strings.Repeat("d/", 1600) + "f", text: "x"}}, strings.Repeat("d/", 1600) + "f", "3072"},
		"whiteout":                 {nil, []member{ok, {name: "a/.wh.b"}}, "a/.wh.b", ".wh."},
		"the tree as a file":       {nil, []member{ok, {name: ".", text: "x"}}, ".", "folder"},
		"twice":                    {nil, []member{{name: "a", text: "1"}, {name: "a", text: "1"}}, "a", "twice"},
		"twice, not as it looks":   {nil, []member{{name: "a/b", text: "1"}, {name: "a/./b", text: "2"}}, "a/./b", "twice"},
		"twice by a match":         {[]pool.Resource{resource("a", "644", "1")}, []member{{name: "a", text: "1"}}, "a", "twice"},
		"file and folder":          {nil, []member{{name: "a", text: "1"}, {name: "a/", mode: fs.ModeDir | 0o755}}, "a/", "twice"},
		"file below a file":        {nil, []member{{name: "a", text: "1"}, {name: "a/b", text: "1"}}, "a/b", `inside "a"`},
		"file in place of parents": {nil, []member{{name: "a/b", text: "1"}, {name: "a", text: "1"}}, "a", "inside it"},
		"through a link":           {nil, []member{ok, {name: "l", link: "ok"}, {name: "l/x", text: "x"}}, "l/x", `inside "l"`},
		"link in place of parents": {nil, []member{{name: "l/x", text: "x"}, {name: "l", link: "."}}, "l", "inside it"},
		"link up":                  {nil, []member{{name: "l", link: "../x"}}, "l", "outside the app"},
		"link deep up":             {nil, []member{{name: "a/b/l", link: "../../../x"}}, "a/b/l", "outside the app"},
		"link down and up":         {nil, []member{{name: "l", link: "a/../../x"}}, "l", "outside the app"},
		"link absolute":            {nil, []member{{name: "l", link: "/etc/passwd"}}, "l", `"/etc/passwd"`},
		"link by way of a link":    {nil, []member{{name: "a/b/back", link: ".."}, {name: "a/l", link: "b/back/../.."}}, "a/l", "outside the app"},
		"link with a zero byte":    {nil, []member{{name: "l", link: "a\x00b"}}, "l", "zero byte"},
		"link to far too much":     {nil, []member{{name: "l", link: strings.Repeat("x", 5000)}}, "l", "5000 bytes"},
		"link to nothing":          {nil, []member{{name: "l", mode: fs.ModeSymlink | 0o777}}, "l", "0 bytes"},
		"device":                   {nil, []member{ok, {name: "null", mode: fs.ModeDevice | fs.ModeCharDevice | 0o666}}, "null", "neither"},
		"pipe":                     {nil, []member{ok, {name: "fifo", mode: fs.ModeNamedPipe | 0o666}}, "fifo", "neither"},
		"one file too large":       {nil, []member{{name: "big", text: strings.Repeat("\x00", 1<<16+1)}}, "big", "64K"},
		"one match too large":      {[]pool.Resource{{Path: "big", SHA1: resource("", "", "x").SHA1, Size: 1 << 60}}, nil, "big", "64K"},
		"too much together": {nil, []member{
			{name: "1", text: strings.Repeat("\x00", 1<<16)}, {name: "2", text: strings.Repeat("\x00", 1<<16)}, {name: "3", text: "x"},
		}, "3", "128K"},
		"too many":            {nil, manyMembers(51), "", "more than 50 entries"},
		"too many folders":    {nil, []member{{name: strings.Repeat("d/", 60) + "f", text: "x"}}, "", "more than 50 entries"},
		"match that is not":   {[]pool.Resource{resource("gone", "644", "gone")}, nil, "gone", "push again"},
		"bad mode":            {[]pool.Resource{resource("m", "rwx", "x")}, nil, "m", "octal"},
		"bad sum":             {[]pool.Resource{{Path: "m", SHA1: "abc", Size: 3}}, nil, "m", "not a SHA-1 checksum"},
		"negative size":       {[]pool.Resource{{Path: "m", SHA1: resource("", "", "x").SHA1, Size: -1}}, nil, "m", "negative"},
		"match that is a dir": {[]pool.Resource{resource("m/", "755", "x")}, nil, "m/", "folder"},
	} {
		t.Run(name, func(t *testing.T) {
			var zipped []byte
			if tt.members != nil {
				zipped = zipOf(t, tt.members...)
			}
			k, err := uploadTo(t, p, name, tt.matched, zipped)
			var bad *pool.Error
			if !errors.As(err, &bad) || bad.Entry != tt.entry || !strings.Contains(bad.Reason, tt.reason) {
				t.Fatalf("Upload = %v, %v, want an error about %q with %q", k, err, tt.entry, tt.reason)
			}
			checkNothingStored(t, p, name, bad.Error())
		})
	}
}

// checkNothingStored checks the app's only package after a refused upload, and returns
// it.
func checkNothingStored(t *testing.T, p *Packages, app, reason string) Package {
	t.Helper()
	if got := files(t, p.o.Dir); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
	ks, err := p.OfApp(app)
	if err != nil || len(ks) != 1 || ks[0].State != PackageFailed || ks[0].Error != reason || ks[0].SHA256 != "" {
		t.Fatalf("packages = %+v, %v, want one that failed by %q", ks, err, reason)
	}
	return ks[0]
}

type brokenReaderAt struct {
	io.ReaderAt
	below int64 // offsets below this cannot be read
}

var errBroken = errors.New("broken disk")

func (b brokenReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off < b.below {
		return 0, errBroken
	}
	return b.ReaderAt.ReadAt(p, off)
}

// An error that the upload did not cause leaves the package unchanged.
func TestUploadThatCannotBeRead(t *testing.T) {
	z := zipOf(t, member{name: "a", text: "hello"}, member{name: "b", text: "hello"})
	for name, tt := range map[string]struct {
		below int64
		ctx   func(ctx context.Context) context.Context
		want  error
	}{
		"directory": {int64(len(z)), nil, errBroken},
		"file":      {20, nil, errBroken},
		"given up": {0, func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPackages(t)
			k, err := p.Create("a")
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if tt.ctx != nil {
				ctx = tt.ctx(ctx)
			}
			_, err = p.Upload(ctx, k.GUID, pool.Claim{}, brokenReaderAt{bytes.NewReader(z), tt.below}, int64(len(z)))
			if !errors.Is(err, tt.want) || isPackageError(err) {
				t.Fatalf("error = %v, want %v", err, tt.want)
			}
			if got := files(t, p.o.Dir); len(got) != 0 {
				t.Errorf("left over: %v", got)
			}
			if got, err := p.Get(k.GUID); err != nil || got.State != PackageAwaiting {
				t.Errorf("package = %+v, %v, want it to wait", got, err)
			}
		})
	}
}

// Bits can be uploaded once, even if several clients send them at the same time.
func TestUploadOnce(t *testing.T) {
	p := newPackages(t)
	k, err := p.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			z := zipOf(t, member{name: fmt.Sprint("f", i), text: "x"})
			_, errs[i] = p.Upload(t.Context(), k.GUID, pool.Claim{}, bytes.NewReader(z), int64(len(z)))
		})
	}
	wg.Wait()
	good := 0
	for _, err := range errs {
		if err == nil {
			good++
		} else if !errors.Is(err, ErrUploaded) {
			t.Error(err)
		}
	}
	if got := files(t, p.o.Dir); good != 1 || len(got) != 2 {
		t.Errorf("%d uploads succeeded and left %v, want one tree", good, got)
	}
	if _, err := p.Upload(t.Context(), "nobody", pool.Claim{}, nil, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("Upload to no package = %v", err)
	}
	if _, err := p.Get("nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of no package = %v", err)
	}
}

// slowReaderAt waits before its first byte.
type slowReaderAt struct {
	io.ReaderAt
	wait chan struct{}
}

func (s slowReaderAt) ReadAt(p []byte, off int64) (int, error) {
	<-s.wait
	return s.ReaderAt.ReadAt(p, off)
}

// A package with an upload in progress shows that state, and is not deleted as surplus.
func TestUploadUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPackages(t)
		k, err := p.Create("a")
		if err != nil {
			t.Fatal(err)
		}
		z := zipOf(t, member{name: "a", text: "x"})
		slow := slowReaderAt{bytes.NewReader(z), make(chan struct{})}
		go func() {
			if _, err := p.Upload(t.Context(), k.GUID, pool.Claim{}, slow, int64(len(z))); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		for range 2 * keepPackages {
			time.Sleep(time.Second)
			if _, err := p.Create("a"); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := p.Get(k.GUID); err != nil || got.State != PackageProcessing {
			t.Errorf("package = %+v, %v, want it to be processing", got, err)
		}
		close(slow.wait)
		synctest.Wait()
		if got, err := p.Get(k.GUID); err != nil || got.State != PackageReady {
			t.Errorf("package = %+v, %v, want it to be ready", got, err)
		}
	})
}

// After a daemon was killed, the next one keeps only the trees of packages.
func TestNewPackagesSweeps(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "db"))
	o := PackageOptions{Dir: filepath.Join(dir, "packages"), MinFree: -1}
	p, err := NewPackages(db, o)
	if err != nil {
		t.Fatal(err)
	}
	kept := mustUpload(t, p, nil, zipOf(t, member{name: "kept", text: "kept"}))
	lost := mustUpload(t, p, nil, zipOf(t, member{name: "lost", text: "lost"}))
	if err := p.packages.Delete(lost.GUID); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"package-1" + archive.Unfinished, strings.Repeat("a", 64) + pool.IndexEnd} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	q, err := NewPackages(db, o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{kept.SHA256 + pool.IndexEnd, kept.SHA256 + ".tar"}, files(t, o.Dir)); diff != "" {
		t.Error(diff)
	}
	rs := []pool.Resource{resource("x", "644", "kept"), resource("y", "644", "lost")}
	if got, err := q.Match(pool.Claim{Resources: rs}); len(got) != 1 || err != nil {
		t.Errorf("Match = %v, %v, want what is kept", got, err)
	}
	if k := mustUpload(t, q, rs[:1], nil); k.SHA256 == kept.SHA256 {
		t.Error("another path gave the same tree")
	}
	if k := mustUpload(t, q, []pool.Resource{resource("kept", "644", "kept")}, nil); k.SHA256 != kept.SHA256 {
		t.Errorf("tree = %s, want %s", k.SHA256, kept.SHA256)
	}
}

// A damaged index only costs uploads. Damaged content is never used.
func TestDamagedPool(t *testing.T) {
	dir := t.TempDir()
	db := openDB(t, filepath.Join(dir, "db"))
	o := PackageOptions{Dir: filepath.Join(dir, "packages"), MinFree: -1}
	p, err := NewPackages(db, o)
	if err != nil {
		t.Fatal(err)
	}
	k := mustUpload(t, p, nil, zipOf(t, member{name: "a", text: "content"}))
	raw, err := os.ReadFile(p.pool.Tar(k.SHA256))
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte("content"), []byte("CONTENT"), 1)
	if err := os.WriteFile(p.pool.Tar(k.SHA256), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = upload(t, p, []pool.Resource{resource("b", "644", "content")}, nil)
	if err == nil || isPackageError(err) || !strings.Contains(err.Error(), "damaged on disk") {
		t.Errorf("upload from a damaged tree: %v", err)
	}
	if err := os.WriteFile(p.pool.Index(k.SHA256), []byte("no index"), 0o600); err != nil {
		t.Fatal(err)
	}
	q, err := NewPackages(db, o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := q.Match(pool.Claim{Resources: []pool.Resource{resource("a", "644", "content")}}); len(got) != 0 || err != nil {
		t.Errorf("Match = %v, %v, want nothing", got, err)
	}
	if _, done, err := q.open(k.SHA256); err != nil {
		t.Error(err)
	} else {
		done()
	}
}

func TestSurplusPackages(t *testing.T) {
	const (
		r = PackageReady
		f = PackageFailed
		w = PackageAwaiting
		b = PackageProcessing
	)
	for name, tt := range map[string]struct {
		states []PackageState // newest first
		old    []int
	}{
		"none":                        {nil, nil},
		"few":                         {[]PackageState{r, f, w, r, r}, nil},
		"ready ones":                  {[]PackageState{r, r, r, r, r, r, r}, []int{5, 6}},
		"failures drive nothing out":  {[]PackageState{f, f, w, f, f, r, f, r, r, r, r, r}, []int{6, 11}},
		"an upload is never cut off":  {[]PackageState{r, r, r, r, r, b, w}, []int{6}},
		"those that wait for nothing": {[]PackageState{w, w, w, w, w, w}, []int{5}},
	} {
		t.Run(name, func(t *testing.T) {
			var all []Package
			for i, s := range tt.states {
				all = append(all, Package{GUID: fmt.Sprint(i), State: s})
			}
			var want []string
			for _, i := range tt.old {
				want = append(want, fmt.Sprint(i))
			}
			var got []string
			for _, k := range surplus(all) {
				got = append(got, k.GUID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Old trees are removed, but not while a client uploads the rest of matched files.
func TestTreesAreRemovedWithPackages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPackages(t)
		var all []Package
		for i := range keepPackages {
			all = append(all, mustUpload(t, p, nil, zipOf(t, member{name: "f", text: fmt.Sprint("text ", i)})))
			time.Sleep(time.Second)
		}
		promised := []pool.Resource{resource("f", "644", "text 0")}
		if got, err := p.Match(pool.Claim{Resources: promised}); len(got) != 1 || err != nil {
			t.Fatalf("Match = %v, %v", got, err)
		}
		next, err := p.Create("a") // now there is one package too many
		if err != nil {
			t.Fatal(err)
		}
		ready := mustUpload(t, p, nil, zipOf(t, member{name: "g", text: "g"}))
		time.Sleep(time.Second)
		if _, err := p.Create("a"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Get(all[0].GUID); !errors.Is(err, ErrNotFound) {
			t.Errorf("the oldest package is kept: %v", err)
		}
		k, err := p.Upload(t.Context(), next.GUID, pool.Claim{Resources: promised}, nil, 0)
		if err != nil || k.SHA256 != all[0].SHA256 {
			t.Errorf("what was promised is gone: %v", err)
		}
		if err := p.packages.Delete(k.GUID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pool.Lease)
		if _, err := p.Create("b"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(p.pool.Tar(all[0].SHA256)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the tree of the oldest package is kept: %v", err)
		}
		if err := p.DeleteApp("a"); err != nil {
			t.Fatal(err)
		}
		if got := files(t, p.o.Dir); len(got) != 0 {
			t.Errorf("left over: %v (%s)", got, ready.SHA256)
		}
	})
}

func TestUploadRefusesToFillTheDisk(t *testing.T) {
	p := newPackages(t)
	p.o.MinFree = 1 << 60
	_, err := upload(t, p, nil, zipOf(t, member{name: "a", text: "x"}))
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "a push needs 1048576T") {
		t.Errorf("error = %v, want ErrNoSpace with the figure", err)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1K", 1536: "1.5K", 1 << 30: "1G", 12_900_000: "12.3M", 1 << 60: "1048576T"} {
		if got := archive.Size(n); got != want {
			t.Errorf("inBytes(%d) = %s, want %s", n, got, want)
		}
	}
}

// The directory of a zip can contain false values about an entry.
func TestUploadRefusesFalseHeaders(t *testing.T) {
	const (
		flags, method, crc, size = 8, 10, 16, 24 // offsets in a header of the directory
	)
	for name, tt := range map[string]struct {
		forge  func(header []byte)
		reason string
	}{
		"longer than said":  {func(h []byte) { binary.LittleEndian.PutUint32(h[size:], 3) }, "damaged"},
		"shorter than said": {func(h []byte) { binary.LittleEndian.PutUint32(h[size:], 4000) }, "incomplete"},
		"said to be huge":   {func(h []byte) { binary.LittleEndian.PutUint32(h[size:], 0xfffffff0) }, "64K"},
		"other checksum":    {func(h []byte) { h[crc]++ }, "damaged"},
		"encrypted":         {func(h []byte) { h[flags] |= 1 }, "encrypted"},
		"unknown method":    {func(h []byte) { binary.LittleEndian.PutUint16(h[method:], 99) }, "method 99"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPackages(t)
			z := zipOf(t, member{name: "first", text: "1"}, member{name: "lie", text: strings.Repeat("truth ", 100)})
			tt.forge(z[bytes.LastIndex(z, []byte("PK\x01\x02")):])
			_, err := upload(t, p, nil, z)
			var bad *pool.Error
			if !errors.As(err, &bad) || bad.Entry != "lie" || !strings.Contains(bad.Reason, tt.reason) {
				t.Fatalf("error = %v, want one about the lie with %q", err, tt.reason)
			}
			k := checkNothingStored(t, p, "a", bad.Error())
			// The upload to the same package can be repeated.
			good := zipOf(t, member{name: "ok", text: "ok"})
			k, err = p.Upload(t.Context(), k.GUID, pool.Claim{}, bytes.NewReader(good), int64(len(good)))
			if err != nil || k.State != PackageReady || k.Error != "" {
				t.Errorf("second try: %+v, %v", k, err)
			}
		})
	}
}
