package store

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// After a failed transaction, the next one opens the file again. Readers are not
// disturbed, the file stays locked, and listeners hear of the failed transaction.
func TestRepair(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "dew.db")
	db := open(t, path)
	must(t, things(db).Put("a", thing{Name: "a"}))
	var mu sync.Mutex
	var heard []string
	things(db).Listen(func(key string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, key)
	})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := things(db).Get("a"); err != nil {
					t.Errorf("a reader failed: %v", err)
					return
				}
			}
		})
	}
	for range 5 {
		before := db.bolt
		db.writing.Lock()
		db.uncertain = &Tx{changes: []change{{"things", "failed"}}}
		db.writing.Unlock()
		must(t, things(db).Put("b", thing{Name: "b"}))
		if db.bolt == before {
			t.Fatal("the file was not opened again")
		}
		if _, err := Open(path, Options{LockTimeout: time.Millisecond}); !errors.Is(err, ErrInUse) {
			t.Fatalf("another store could be opened: %v", err)
		}
	}
	close(stop)
	readers.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(heard) != 10 || heard[0] != "failed" || heard[1] != "b" {
		t.Errorf("listeners heard of %v, want failed and b five times", heard)
	}
	must(t, db.Close())
	db.uncertain = &Tx{changes: []change{{"things", "failed"}}}
	if err := things(db).Put("c", thing{Name: "c"}); !errors.Is(err, ErrClosed) {
		t.Errorf("Put to a closed store = %v, want ErrClosed", err)
	}
	db = open(t, path)
	if all := testkit.Must(things(db).All())(t); len(all) != 2 {
		t.Errorf("%d values, want 2", len(all))
	}
}
