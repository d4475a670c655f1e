package runtime

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/store"
)

var update = flag.Bool("update", false, "write the golden files again")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, string(want)); diff != "" {
		t.Errorf("%s (-got +want):\n%s", name, diff)
	}
}

func testDB(t *testing.T) *store.DB {
	t.Helper()
	db, err := store.Open(filepath.Join(t.TempDir(), "dew.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Ids have the platform's format and are all different.
func TestInstanceIDForm(t *testing.T) {
	t.Parallel()
	seen := map[InstanceID]bool{}
	for range 1000 {
		id := NewInstanceID()
		if !id.Valid() || seen[id] {
			t.Fatalf("id %q is not valid, or came twice", id)
		}
		seen[id] = true
	}
}

func FuzzInstanceIDValid(f *testing.F) {
	for _, s := range []string{"", "01234567-89ab-cdef-0123-4567", "01234567-89AB-cdef-0123-4567", "0123456-789ab-cdef-0123-4567", "../../../../../../etc/passwd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts := strings.Split(s, "-")
		want := len(parts) == 5 && len(parts[0]) == 8
		for i, p := range parts {
			want = want && (i == 0 || len(p) == 4) && strings.Trim(p, "0123456789abcdef") == ""
		}
		if got := InstanceID(s).Valid(); got != want {
			t.Errorf("Valid(%q) = %v, want %v", s, got, want)
		}
	})
}
