//go:build integration

package world

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// An open keeps the pages that the kernel has of a file. Otherwise, the kernel drops them
// at each open, and can then read a page from the file system before a write that it has
// already copied into the old page. Later reads of the page return zeros: about four times
// in 50,000 writes while another program opens the file.
func TestOpenKeepsPages(t *testing.T) {
	testkit.NeedRoot(t)
	root, below := t.TempDir(), t.TempDir()
	v := testkit.Must(mountFaults(root, below))(t)
	defer func() {
		if err := v.unmount(); err != nil {
			t.Error(err)
		}
	}()
	testkit.WriteFile(t, filepath.Join(root, "file"), "written")
	read := func() string { return string(testkit.Must(os.ReadFile(filepath.Join(root, "file")))(t)) }
	first := read()
	// Only a read of the file system can see this change.
	testkit.WriteFile(t, filepath.Join(below, "file"), "changed")
	if second := read(); first != "written" || second != "written" {
		t.Errorf("read %q, then %q, want the pages of the first read", first, second)
	}
}
