package containerd_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/runtime/containerd/scratch"
)

func TestSweepWithoutFolder(t *testing.T) {
	t.Parallel()
	m := scratch.New(filepath.Join(t.TempDir(), "mnt"), slog.New(slog.DiscardHandler))
	if err := m.Sweep(); err != nil {
		t.Error(err)
	}
	if err := m.Retry(); err != nil {
		t.Error(err)
	}
}
