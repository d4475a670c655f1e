package buildcache

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/packing"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// files is a container with these files in its cache, or an error.
type files struct {
	text string
	err  error
}

func (f files) Pack(_ context.Context, w io.Writer, _ packing.Packing) error {
	_, err := io.WriteString(w, f.text)
	return errors.Join(err, f.err)
}

func newCaches(t *testing.T) *Caches {
	t.Helper()
	db := testkit.Must(store.Open(filepath.Join(t.TempDir(), "db"), store.Options{}))(t)
	t.Cleanup(func() { db.Close() })
	return New(db, filepath.Join(t.TempDir(), "caches"), 1<<20, 100)
}

func names(t *testing.T, c *Caches) (out []string) {
	t.Helper()
	for _, e := range testkit.Must(os.ReadDir(c.dir))(t) {
		out = append(out, e.Name())
	}
	return out
}

func TestCaches(t *testing.T) {
	t.Parallel()
	c := newCaches(t)
	if c.Has("a") {
		t.Error("a new app has a cache")
	}
	if err := c.Store(t.Context(), "a", files{text: "one"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Store(t.Context(), "a", files{text: "two", err: errors.New("too large")}); err == nil {
		t.Error("stored an incomplete cache")
	}
	if got := string(testkit.Must(os.ReadFile(c.File("a")))(t)); got != "one" || !c.Has("a") {
		t.Errorf("the cache has %q, want that of the last good build", got)
	}
	was := c.Generation("a")
	if err := c.ClearOf("a"); err != nil || c.Has("a") || c.Generation("a") == was {
		t.Errorf("cleared: %v, still there: %v", err, c.Has("a"))
	}
	was = c.Generation("b")
	if err := c.Clear(); err != nil || c.Generation("b") == was {
		t.Errorf("all cleared: %v, with a new generation: %v", err, c.Generation("b") != was)
	}
	if left := names(t, c); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

// Without a folder nothing is stored, and nothing fails.
func TestNoCaches(t *testing.T) {
	t.Parallel()
	c := newCaches(t)
	c.dir = ""
	err := errors.Join(
		c.Store(t.Context(), "a", files{text: "one"}), c.StoreStart(t.Context(), "go", "s", "1", files{}),
		c.Clear(), c.ClearOf("a"), c.Delete("a"), c.Sweep(nil))
	if _, ok := c.Start("go", "s"); err != nil || ok || c.Has("a") || c.NeedsStart("go", "s", "1") {
		t.Errorf("without a folder: %v", err)
	}
}

// There is one start cache per language and stack. Another version of the language
// replaces it.
func TestStart(t *testing.T) {
	t.Parallel()
	c := newCaches(t)
	if _, ok := c.Start("go", "s"); ok || !c.NeedsStart("go", "s", "1") {
		t.Error("there is one already")
	}
	if err := c.StoreStart(t.Context(), "go", "s", "1", files{text: "std"}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		language, stack, version string
		needs                    bool
	}{{"go", "s", "1", false}, {"go", "s", "2", true}, {"go", "other", "1", true}, {"ruby", "s", "1", true}} {
		if got := c.NeedsStart(tt.language, tt.stack, tt.version); got != tt.needs {
			t.Errorf("%v: needed = %v", tt, got)
		}
	}
	file, ok := c.Start("go", "s")
	if !ok || string(testkit.Must(os.ReadFile(file))(t)) != "std" {
		t.Errorf("the start cache is %q", file)
	}
	if err := c.Clear(); err != nil || !c.NeedsStart("go", "s", "1") {
		t.Errorf("it is not needed after all caches were cleared (%v)", err)
	}
}

// A sweep removes what no app uses: incomplete caches, those of deleted apps, and old start
// caches.
func TestSweep(t *testing.T) {
	t.Parallel()
	c := newCaches(t)
	for _, app := range []string{"here", "gone", "unknown"} {
		if err := c.Store(t.Context(), app, files{text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, stack := range []string{"old", "used"} {
		if err := c.StoreStart(t.Context(), "go", stack, "1", files{text: "x"}); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-maxUnused - time.Hour)
		if err := os.Chtimes(c.File(startName("go", stack)), old, old); err != nil {
			t.Fatal(err)
		}
	}
	c.Start("go", "used")
	testkit.WriteFile(t, filepath.Join(c.dir, "cache-1"+archive.Unfinished), "x")
	unknown := errors.New("cannot read")
	err := c.Sweep(func(app string) (bool, error) {
		if app == "unknown" {
			return true, unknown
		}
		return app == "gone", nil
	})
	if !errors.Is(err, unknown) {
		t.Errorf("error = %v, want %v", err, unknown)
	}
	if diff := cmp.Diff([]string{"here.tar", startName("go", "used") + ".tar", "unknown.tar"}, names(t, c)); diff != "" {
		t.Error(diff)
	}
}
