package smoke

import (
	"os"
	"path/filepath"
	"testing"
)

// Folders of other users are never swept, because their contents cannot be trusted.
func TestIsOwn(t *testing.T) {
	root := t.TempDir()
	open, closed := filepath.Join(root, "open"), filepath.Join(root, "closed")
	for dir, mode := range map[string]os.FileMode{open: 0o755, closed: 0o700} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(closed, link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{closed: true, open: false, link: false, filepath.Join(root, "none"): false} {
		if got := isOwn(dir); got != want {
			t.Errorf("ours(%s) = %v", filepath.Base(dir), got)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(closed, 1, 1); err != nil {
			t.Fatal(err)
		}
		if isOwn(closed) {
			t.Error("a folder of another user is ours")
		}
	}
}
