package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// A store whose file was cut is either refused, or has all its values.
func TestCutStoreIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.db")
	db := open(t, whole)
	const count = 300
	for i := range count {
		must(t, things(db).Put(fmt.Sprint(i), thing{Name: fmt.Sprint(i), Group: strings.Repeat("x", i)}))
	}
	must(t, db.Close())
	data := testkit.Must(os.ReadFile(whole))(t)
	refused := 0
	for i := range 200 {
		cut := 1 + rand.IntN(len(data)-1)
		if i%2 == 0 {
			cut = max(cut-cut%os.Getpagesize(), 1)
		}
		n, err := countThings(testkit.WriteFile(t, filepath.Join(dir, "cut.db"), string(data[:cut])))
		if err != nil {
			refused++
		} else if n != count {
			t.Errorf("cut at byte %d of %d: %d values, want %d or an error", cut, len(data), n, count)
		}
	}
	if refused == 0 {
		t.Error("no cut store was refused")
	}
}

func countThings(path string) (int, error) {
	db, err := Open(path, Options{NoSync: true})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	all, err := things(db).All()
	return len(all), err
}
