package scratch

import (
	"log/slog"
	"path/filepath"
	"testing"
)

func TestSweepWithoutFolder(t *testing.T) {
	t.Parallel()
	m := New(filepath.Join(t.TempDir(), "mnt"), slog.New(slog.DiscardHandler))
	if err := m.Sweep(); err != nil {
		t.Error(err)
	}
	if err := m.Retry(); err != nil {
		t.Error(err)
	}
}
