package push

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/cli/console"
)

func quiet() *console.Console {
	return &console.Console{Out: io.Discard, Err: io.Discard, In: strings.NewReader("")}
}

var errBroken = errors.New("broken")

// folder creates a folder with files by content; a name with / at the end is a folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(root, name)
		dir := filepath.Dir(full)
		if strings.HasSuffix(name, "/") {
			dir = full
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir == full || strings.HasSuffix(name, "/") {
			continue
		}
		if err := os.WriteFile(full, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
