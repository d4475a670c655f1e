package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

type cachedValue struct {
	Name string
	Tags []string
}

// Sorted returns the values of the transaction in the order of the index, even if others
// change them, and callers share no memory with the cache.
func TestSorted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dew.db")
	for _, name := range []string{"cached", "not cached"} {
		t.Run(name, func(t *testing.T) {
			db, err := Open(path, Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			opts := []Option[cachedValue]{Unique("name", func(v cachedValue) string { return v.Name })}
			if name == "cached" {
				opts = append(opts, Cached(func(v cachedValue) cachedValue { v.Tags = slices.Clone(v.Tags); return v }))
			}
			b := In(db, name, opts...)
			put := func(b Bucket[cachedValue], key, value string) {
				t.Helper()
				if err := b.Put(key, cachedValue{value, []string{value}}); err != nil {
					t.Fatal(err)
				}
			}
			want := func(b Bucket[cachedValue], names ...string) {
				t.Helper()
				got, err := b.Sorted("name")
				if err != nil {
					t.Fatal(err)
				}
				var found []string
				for _, v := range got {
					found = append(found, v.Name+v.Tags[0])
					v.Tags[0] = "changed" // must not reach the next caller
				}
				var doubled []string
				for _, n := range names {
					doubled = append(doubled, n+n)
				}
				if !slices.Equal(found, doubled) {
					t.Errorf("Sorted = %q, want %q", found, doubled)
				}
			}
			want(b)
			put(b, "1", "c")
			put(b, "2", "a")
			put(b, "3", "b\x00\x01x")
			want(b, "a", "b\x00\x01x", "c")
			want(b, "a", "b\x00\x01x", "c")
			put(b, "1", "0")
			want(b, "0", "a", "b\x00\x01x")
			stop := fmt.Errorf("roll back")
			_ = db.Update(func(tx *Tx) error {
				put(b.With(tx), "1", "z")
				want(b.With(tx), "a", "b\x00\x01x", "z")
				return stop
			})
			want(b, "0", "a", "b\x00\x01x")
			if err := b.Delete("3"); err != nil {
				t.Fatal(err)
			}
			want(b, "0", "a")
		})
	}
}

// All and Where return the values of the transaction in the order of the keys, and callers
// share no memory with the cache.
func TestWhere(t *testing.T) {
	t.Parallel()
	for _, cached := range []bool{true, false} {
		t.Run(fmt.Sprintf("cached %v", cached), func(t *testing.T) {
			t.Parallel()
			db, err := Open(filepath.Join(t.TempDir(), "dew.db"), Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var opts []Option[cachedValue]
			if cached {
				opts = append(opts, Cached(func(v cachedValue) cachedValue { v.Tags = slices.Clone(v.Tags); return v }))
			}
			b := In(db, "values", opts...)
			put := func(b Bucket[cachedValue], key, value string) {
				t.Helper()
				if err := b.Put(key, cachedValue{value, []string{value}}); err != nil {
					t.Fatal(err)
				}
			}
			want := func(b Bucket[cachedValue], except string, names ...string) {
				t.Helper()
				got, err := b.Where(func(v cachedValue) bool { return v.Name != except })
				if err != nil {
					t.Fatal(err)
				}
				var found []string
				for _, v := range got {
					found = append(found, v.Name+v.Tags[0])
					v.Tags[0] = "changed" // must not reach the next caller
				}
				var doubled []string
				for _, n := range names {
					doubled = append(doubled, n+n)
				}
				if !slices.Equal(found, doubled) {
					t.Errorf("Where = %q, want %q", found, doubled)
				}
			}
			want(b, "")
			put(b, "1", "c")
			put(b, "2", "a")
			want(b, "", "c", "a")
			want(b, "c", "a")
			want(b, "", "c", "a")
			put(b, "1", "b")
			want(b, "", "b", "a")
			stop := errors.New("roll back")
			_ = db.Update(func(tx *Tx) error {
				put(b.With(tx), "1", "z")
				want(b.With(tx), "", "z", "a")
				return stop
			})
			want(b, "", "b", "a")
			if all, err := b.All(); err != nil || len(all) != 2 {
				t.Errorf("All = %v, %v, want two values", all, err)
			}
			if err := b.Delete("1"); err != nil {
				t.Fatal(err)
			}
			want(b, "", "a")
		})
	}
}
