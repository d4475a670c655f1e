package cli

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

// dew push --watch continues after a manifest that cannot be read.
func TestPushWatch(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	root := folder(t, map[string]string{"manifest.yml": "applications: [{name: shop, path: code}]\n", "code/a": "one"})
	ctx, stop := context.WithCancel(t.Context())
	talk := &channelWriter{lines: make(chan string, 1000)}
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

// replace replaces a file in a single change. Truncating and writing it could be seen
// as two changes.
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

// channelWriter passes on its input through a channel.
type channelWriter struct {
	mu    sync.Mutex
	lines chan string
}

func (w *channelWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines <- string(b)
	return len(b), nil
}

// until waits until the text is written.
func (w *channelWriter) until(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case s := <-w.lines:
			if strings.Contains(s, text) {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("nobody says %q", text)
		}
	}
}
