package push

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/testkit"
)

func TestIgnored(t *testing.T) {
	rules, err := parseIgnore("# notes\n*.log\n!keep.log\nbuild/\n/only-root\ndocs/*.md\n\\!odd\nsp\\ ace  \r\n")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"a.log": true, "deep/er/a.log": true, "keep.log": false, "deep/keep.log": false,
		"build/": true, "build/x": true, "src/build/x": true, "build": false, "builder": false,
		"only-root": true, "deep/only-root": false, "docs/a.md": true, "docs/deep/a.md": false, "x/docs/a.md": false,
		".git/": true, "vendor/.git/": true, "vendor/.git/config": true, ".gitignore": true, "manifest.yml": true, "manifest.yml.bak": false,
		"a": false, "!odd": true, "node_modules/x": false,
	} {
		name, isFolder := strings.CutSuffix(path, "/")
		if got := rules.ignored(name, isFolder); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestBrokenIgnore(t *testing.T) {
	root := folder(t, map[string]string{".cfignore": "a[", "a": "a"})
	if _, err := gather(root, quiet()); err == nil || !strings.Contains(err.Error(), `"a["`) {
		t.Errorf("the line is not told: %v", err)
	}
}

func FuzzIgnore(f *testing.F) {
	for _, s := range []string{"*.log\n!x", "/", "!", "!/", "a[", "**", "**/x/**", "\\", "a/\n/b", "[!a]"} {
		f.Add(s, "a/b.log")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		rules, err := parseIgnore(text)
		if err != nil {
			return
		}
		rules.ignored(path, false)
		if !rules.ignored("sub/.git", true) && !strings.Contains(text, "!") {
			t.Errorf("%q lets .git through", text)
		}
	})
}

func TestGatherArchive(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shop.jar")
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range []string{"META-INF/", "META-INF/MANIFEST.MF", "empty/", ".git/config"} {
		w, err := z.Create(e)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e, "/") {
			if _, err := io.WriteString(w, "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	bits, err := gather(name, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bits.close(); err != nil {
			t.Error(err)
		}
	})
	if err := bits.hash(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []v3.Resource
	for _, f := range bits.files {
		got = append(got, f.resource())
	}
	want := []v3.Resource{
		{Path: "META-INF/MANIFEST.MF", Mode: "744", Checksum: v3.Checksum{Value: "11f6ad8ec52a2984abaafd7c3b516503785c2072"}, Size: 1},
		{Path: "empty", Mode: "755"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other files (-want +got):\n%s", diff)
	}
}

func TestGatherRefuses(t *testing.T) {
	plain := filepath.Join(folder(t, map[string]string{"a.txt": "a"}), "a.txt")
	for root, text := range map[string]string{
		folder(t, map[string]string{".git/x": "x"}): "nothing to upload",
		plain:                     "folder, zip, jar or war",
		filepath.Join(plain, "b"): "cannot find",
	} {
		if _, err := gather(root, quiet()); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q is missing: %v", text, err)
		}
	}
}

// A file that cannot be read is an error with its name; the push does not omit it.
func TestHashFails(t *testing.T) {
	b := &bits{files: []file{{path: "a", size: 1, open: func() (io.ReadCloser, error) { return nil, errBroken }}}}
	if err := b.hash(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot read a") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.files[0].open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("a")), nil }
	if err := b.hash(ctx); err == nil {
		t.Error("it went on after its context had ended")
	}
}

// The checksums are computed while a push does other work. A push that ends before does not
// wait for them.
func TestStartHash(t *testing.T) {
	b := testkit.Must(gather(folder(t, map[string]string{"a.txt": "a"}), quiet()))(t)
	b.startHash(t.Context())
	for range 2 {
		if err := b.hash(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.files[0].sha1; got != "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8" {
		t.Errorf("checksum = %q", got)
	}
	slow := &bits{close: func() error { return errBroken }, files: []file{{path: "a", size: 1, open: func() (io.ReadCloser, error) {
		<-t.Context().Done()
		return nil, errBroken
	}}}}
	slow.startHash(t.Context())
	if err := slow.close(); !errors.Is(err, errBroken) {
		t.Errorf("close = %v, want the error of closing the files", err)
	}
}
