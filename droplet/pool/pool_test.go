package pool

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

// A tree has the same name whether its contents were uploaded, or come from a tree with or
// without further checksums in its index.
func TestNamesOfTrees(t *testing.T) {
	t.Parallel()
	small, large := "small", strings.Repeat("large", aside)
	open := func(dir string) *Pool {
		t.Helper()
		db := testkit.Open(store.Open(filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true}))(t)
		return testkit.Must(Open(db, dir, slog.New(slog.DiscardHandler)))(t)
	}
	add := func(p *Pool, claim Claim, members ...member) string {
		t.Helper()
		zipped := zipOf(t, members...)
		u := testkit.Must(ReadUpload(claim, bytes.NewReader(zipped), int64(len(zipped)), Limits{MaxBytes: 1 << 30, MaxFiles: 10, MaxFileBytes: 1 << 30}))(t)
		name, done, err := p.Add(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		done()
		return name
	}
	known := func(path, text string) Resource {
		sum := sha1.Sum([]byte(text))
		return Resource{Path: path, SHA1: hex.EncodeToString(sum[:]), Size: int64(len(text))}
	}
	changed := member{name: "changed", text: "new"}
	want := add(open(t.TempDir()), Claim{}, member{name: "a", text: small}, member{name: "b", text: large}, changed)

	for name, old := range map[string]bool{"index": false, "old index": true} {
		dir := t.TempDir()
		p := open(dir)
		first := add(p, Claim{}, member{name: "a", text: small}, member{name: "b", text: large}, member{name: "changed", text: "old"})
		if first == want {
			t.Error("a change gives the same name")
		}
		if old {
			x := testkit.Must(p.readIndex(first))(t)
			if err := os.WriteFile(p.Index(first), oldIndex(x), 0o600); err != nil {
				t.Fatal(err)
			}
			p = open(dir)
		}
		if got := add(p, Claim{Resources: []Resource{known("a", small), known("b", large)}}, changed); got != want {
			t.Errorf("%s: the tree is %s, want %s", name, got, want)
		}
		for _, c := range testkit.Must(p.readIndex(want))(t).contents {
			if c.sums == (sums{}) {
				t.Errorf("%s: the new index has no checksums of a content of %d bytes", name, c.size)
			}
		}
	}
}
