package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The reference page has a row for every key.
func TestReferenceListsKeys(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "docs", "manifest.md"))
	if err != nil {
		t.Fatal(err)
	}
	d := &decoder{}
	for _, k := range slices.Concat(d.appKeys(&ManifestApp{}), d.processKeys(&ManifestProcess{})) {
		if !strings.Contains(string(b), "`"+k.Name+"`") {
			t.Errorf("docs/manifest.md has nothing about the key %q", k.Name)
		}
	}
}
