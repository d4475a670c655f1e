package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// Calls at the same time share a transaction. Each gets its own result, and the changes
// of those that fail are undone.
func TestBatch(t *testing.T) {
	var commits atomic.Int32
	db, err := Open(filepath.Join(t.TempDir(), "dew.db"), Options{NoSync: true, Committed: func(time.Duration) { commits.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	b := In[int](db, "numbers")
	var heard atomic.Int32
	b.Listen(func(string) { heard.Add(1) })
	before := commits.Load()
	const calls = 200
	errOdd := errors.New("odd")
	var wait sync.WaitGroup
	call := func(n int) {
		err := db.Batch(func(tx *Tx) error {
			if err := b.With(tx).Put(fmt.Sprint(n), n); err != nil {
				return err
			}
			if n%50 == 1 {
				return errOdd
			}
			return nil
		})
		if (n%50 == 1) != errors.Is(err, errOdd) {
			t.Errorf("call %d = %v", n, err)
		}
	}
	waiting := func(n int) func() bool {
		return func() bool {
			db.batches.mu.Lock()
			defer db.batches.mu.Unlock()
			return db.batches.busy && len(db.batches.waiting) == n
		}
	}
	// The calls wait for this transaction. The first one is alone in its batch, and the
	// others collect behind it.
	if err := db.Update(func(*Tx) error {
		wait.Go(func() { call(0) })
		testkit.EventuallyTrue(t, "the first call commits", waiting(0))
		for n := 1; n < calls; n++ {
			wait.Go(func() { call(n) })
		}
		testkit.EventuallyTrue(t, "the other calls wait", waiting(calls-1))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	all, err := b.All()
	if want := calls - calls/50; err != nil || len(all) != want {
		t.Errorf("stored = %d, %v; want %d", len(all), err, want)
	}
	if got := int(heard.Load()); got != len(all) {
		t.Errorf("listeners heard of %d changes, want %d", got, len(all))
	}
	if got := commits.Load() - before; got > calls/4 {
		t.Errorf("commits = %d for %d calls", got, calls)
	}
}

// A function that panics does so in the goroutine of its caller, and the others go on.
func TestBatchPanic(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "dew.db"), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	b := In[int](db, "numbers")
	func() {
		defer func() {
			if p := recover(); p != "thirteen" {
				t.Errorf("panic = %v", p)
			}
		}()
		_ = db.Batch(func(*Tx) error { panic("thirteen") })
	}()
	if err := db.Batch(func(tx *Tx) error { return b.With(tx).Put("a", 1) }); err != nil {
		t.Errorf("after a panic: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Batch(func(*Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("on a closed store = %v, want ErrClosed", err)
	}
}
