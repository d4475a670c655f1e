//go:build integration

package private

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// A dewd that is killed after it has started containerd leaves an old pid in the file. The
// next one finds the containerd that serves the socket, and stores its pid.
func TestStalePIDIsReplaced(t *testing.T) {
	testkit.NeedRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := testkit.ShortDir(t)
	cfg := Config{Binary: "containerd", Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Logger: slog.New(slog.DiscardHandler)}
	first := testkit.Must(Start(ctx, cfg))(t)
	defer func() {
		if err := first.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	testkit.WriteFile(t, first.pidFile(), "999999999")
	next := testkit.Must(Start(ctx, cfg))(t)
	if next.pid != first.pid || next.StoredPID() != first.pid {
		t.Errorf("the next dewd uses containerd %d and stores %d, want %d", next.pid, next.StoredPID(), first.pid)
	}
}
