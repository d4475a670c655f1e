package push

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWatcher(t *testing.T) {
	files := map[string]string{
		"manifest.yml": "x", "other.txt": "x", "code/a": "x", "code/.cfignore": "*.log\nnode_modules/\n",
		"code/lib/b": "x", "code/node_modules/c": "x", "code/.git/index": "x",
	}
	write := func(name string) func(root string) error {
		return func(root string) error { return os.WriteFile(filepath.Join(root, name), []byte("y"), 0o644) }
	}
	for _, tt := range []struct {
		name   string
		change func(root string) error
		want   string // empty: the change is ignored
	}{
		{"a file", write("code/a"), "code/a"},
		{"a file deeper down", write("code/lib/b"), "code/lib/b"},
		{"a new file", write("code/lib/new"), "code/lib/new"},
		{"a file that goes", func(root string) error { return os.Remove(filepath.Join(root, "code/a")) }, "code/a"},
		{"a new folder", func(root string) error { return os.Mkdir(filepath.Join(root, "code/deep"), 0o755) }, "code/deep"},
		{"another file in its place", func(root string) error {
			return os.Rename(filepath.Join(root, "other.txt"), filepath.Join(root, "manifest.yml"))
		}, "manifest.yml"},
		{"what is to be left out", write("code/.cfignore"), "code/.cfignore"},
		{"a file that is left out", write("code/x.log"), ""},
		{"a folder that is left out", write("code/node_modules/c"), ""},
		{"what is never pushed", write("code/.git/index"), ""},
		{"a neighbour of the manifest", write("other.txt"), ""},
		{"a mode", func(root string) error { return os.Chmod(filepath.Join(root, "code/a"), 0o755) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := folder(t, files)
			w, err := NewWatcher([]string{filepath.Join(root, "manifest.yml"), filepath.Join(root, "code")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = w.Close() })
			w.settle = 10 * time.Millisecond
			want := tt.want
			if err := tt.change(root); err != nil {
				t.Fatal(err)
			}
			if want == "" { // then the next change must be the first one
				want = "code/end"
				if err := write(want)(root); err != nil {
					t.Fatal(err)
				}
			}
			got, err := w.Wait(t.Context())
			if err != nil || got != filepath.Join(root, want) {
				t.Errorf("%s changed, %v; want %s", got, err, want)
			}
		})
	}
}

// A change in a folder that was created later is detected.
func TestWatcherFollows(t *testing.T) {
	root := folder(t, map[string]string{"a": "x"})
	w, err := NewWatcher([]string{root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	w.settle = 10 * time.Millisecond
	for _, step := range []struct {
		name   string
		change func(path string) error
	}{
		{"new", func(path string) error { return os.Mkdir(path, 0o755) }},
		{"new/file", func(path string) error { return os.WriteFile(path, nil, 0o644) }},
	} {
		path := filepath.Join(root, step.name)
		if err := step.change(path); err != nil {
			t.Fatal(err)
		}
		if got, err := w.Wait(t.Context()); err != nil || got != path {
			t.Errorf("%s changed, %v; want %s", got, err, path)
		}
	}
}
