package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dewrun/dew/testkit"
)

func TestMemo(t *testing.T) {
	db := testkit.Open(Open(filepath.Join(t.TempDir(), "dew.db"), Options{NoSync: true}))(t)
	watched, other := In[int](db, "watched"), In[int](db, "other")
	m := NewMemo[int](db, "watched")
	computed := 0
	get := func() int {
		t.Helper()
		return testkit.Must(m.Get(func() (int, error) {
			computed++
			all, err := watched.All()
			return len(all), err
		}))(t)
	}
	put := func(b Bucket[int], key string) {
		t.Helper()
		if err := b.Put(key, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name     string
		change   func()
		value, n int
	}{
		{"first", func() {}, 0, 1},
		{"again", func() {}, 0, 1},
		{"a change", func() { put(watched, "a") }, 1, 2},
		{"another bucket", func() { put(other, "a") }, 1, 2},
		{"a transaction that fails", func() {
			_ = db.Update(func(tx *Tx) error { return errors.Join(watched.With(tx).Put("b", 1), errors.New("no")) })
		}, 1, 2},
		{"a batch", func() {
			if err := db.Batch(func(tx *Tx) error { return watched.With(tx).Put("b", 1) }); err != nil {
				t.Fatal(err)
			}
		}, 2, 3},
		{"a deletion", func() {
			if err := watched.Delete("a"); err != nil {
				t.Fatal(err)
			}
		}, 1, 4},
	} {
		step.change()
		if got := get(); got != step.value || computed != step.n {
			t.Errorf("%s: %d, computed %d times, want %d and %d", step.name, got, computed, step.value, step.n)
		}
	}
	// An error is not kept.
	put(watched, "c")
	if _, err := m.Get(func() (int, error) { return 0, errors.New("no") }); err == nil {
		t.Error("the error is lost")
	}
	if got := get(); got != 2 {
		t.Errorf("after an error: %d, want 2", got)
	}
}

// While others write, a value is never older than the last write before the call.
func TestMemoIsCurrent(t *testing.T) {
	db := testkit.Open(Open(filepath.Join(t.TempDir(), "dew.db"), Options{NoSync: true}))(t)
	b := In(db, "b", Cached(func(n int) int { return n }), Index("all", func(int) string { return "x" }))
	m := NewMemo[int](db, "b")
	var written atomic.Int64
	var wait sync.WaitGroup
	wait.Go(func() {
		for n := range 300 {
			if err := b.Put(fmt.Sprint(n), n); err != nil {
				t.Error(err)
			}
			written.Store(int64(n + 1))
		}
	})
	for range 4 {
		wait.Go(func() {
			for written.Load() < 300 {
				least := int(written.Load())
				n, err := m.Get(func() (int, error) {
					keys, err := b.Keys("")
					return len(keys), err
				})
				if err != nil || n < least {
					t.Errorf("value = %d, %v, want at least %d", n, err, least)
				}
				if all, err := b.Sorted("all"); err != nil || len(all) < least {
					t.Errorf("sorted = %d, %v, want at least %d", len(all), err, least)
				}
			}
		})
	}
	wait.Wait()
}
