package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/cli/console"
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
		want   string // empty: it does not count
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
			w, err := newWatcher([]string{filepath.Join(root, "manifest.yml"), filepath.Join(root, "code")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = w.close() })
			want := tt.want
			if err := tt.change(root); err != nil {
				t.Fatal(err)
			}
			if want == "" { // then the next change is the first
				want = "code/end"
				if err := write(want)(root); err != nil {
					t.Fatal(err)
				}
			}
			got, err := w.wait(t.Context())
			if err != nil || got != filepath.Join(root, want) {
				t.Errorf("%s changed, %v; want %s", got, err, want)
			}
		})
	}
}

// A file in a folder that came after the start counts, too.
func TestWatcherFollows(t *testing.T) {
	root := folder(t, map[string]string{"a": "x"})
	w, err := newWatcher([]string{root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.close() })
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
		if got, err := w.wait(t.Context()); err != nil || got != path {
			t.Errorf("%s changed, %v; want %s", got, err, path)
		}
	}
}

// A push that is watched goes on after a manifest that cannot be read.
func TestPushWatch(t *testing.T) {
	d := newDaemon(t)
	root := folder(t, map[string]string{"manifest.yml": "applications: [{name: shop, path: code}]\n", "code/a": "one"})
	ctx, stop := context.WithCancel(t.Context())
	talk := &told{said: make(chan string, 1000)}
	var data bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		c := &console.Console{Out: &data, Err: talk, In: strings.NewReader("")}
		ended <- newApp("dev", c).RunContext(ctx, []string{"dew", "--run", d.run, "push", "-f", root, "--watch"})
	}()
	for _, step := range []struct{ name, text, want string }{
		{"", "", "Starting app shop"},
		{"manifest.yml", "applications: [{nam", "manifest.yml"},
		{"manifest.yml", "applications: [{name: shop, path: code}]\n", "Starting app shop"},
		{"code/a", "two", "Starting app shop"},
	} {
		if step.name != "" {
			replace(t, filepath.Join(root, step.name), step.text)
		}
		talk.until(t, step.want)
		talk.until(t, "Watching for changes")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end = %v", err)
	}
	if got := d.sent["a"]; !strings.HasSuffix(got, "two") {
		t.Errorf("a was sent as %q", got)
	}
}

// replace puts a new file in the place of one, in a single change: what is emptied and
// then written could be seen as two.
func replace(t *testing.T, name, text string) {
	t.Helper()
	beside := filepath.Join(t.TempDir(), "new")
	if err := os.WriteFile(beside, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(beside, name); err != nil {
		t.Fatal(err)
	}
}

// told hands on what is written.
type told struct {
	mu   sync.Mutex
	said chan string
}

func (w *told) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said <- string(b)
	return len(b), nil
}

// until reads on until somebody says the text.
func (w *told) until(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case s := <-w.said:
			if strings.Contains(s, text) {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("nobody says %q", text)
		}
	}
}
