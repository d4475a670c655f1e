package store

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Cached keeps the decoded values of a bucket in memory for Sorted, Prefix, All and Where,
// because decoding is most of their work. A value is decoded again when its bytes have changed, so the result
// is always that of the transaction. clone copies a value, so that callers share no
// memory.
func Cached[T any](clone func(T) T) Option[T] {
	return func(b *Bucket[T]) { b.cache = &cache[T]{clone: clone, entries: map[string]cached[T]{}} }
}

// cache has the decoded values of a bucket, by key.
type cache[T any] struct {
	clone func(T) T

	mu      sync.Mutex // guards entries
	entries map[string]cached[T]

	memos sync.Map // the values in the order of an index, by its name (empty: of their keys): *Memo[[]T]
}

// sorted returns the Memo of the values in the order of an index, or of their keys.
func (c *cache[T]) sorted(db *DB, bucket, index string) *Memo[[]T] {
	m, ok := c.memos.Load(index)
	if !ok {
		m, _ = c.memos.LoadOrStore(index, NewMemo[[]T](db, bucket))
	}
	memo, _ := m.(*Memo[[]T]) // nothing else is stored
	return memo
}

type cached[T any] struct {
	raw   []byte
	value T
}

// Where returns the values for which keep returns true, in the order of their keys. keep
// does not change a value. A nil keep means all values.
func (b *Bucket[T]) Where(keep func(T) bool) (vs []T, err error) {
	all := func() ([]T, error) { return b.Prefix("") }
	clone := func(v T) T { return v }
	if b.cache != nil && b.tx == nil {
		clone = b.cache.clone
		all = func() ([]T, error) {
			return b.cache.sorted(b.db, b.name, "").Get(func() ([]T, error) { return b.Prefix("") })
		}
	}
	values, err := all()
	for _, v := range values {
		if keep == nil || keep(v) {
			vs = append(vs, clone(v))
		}
	}
	return vs, err
}

// Sorted returns all values that are in an index, in the order of the index. An
// undeclared index is a bug of the caller, so it panics.
func (b *Bucket[T]) Sorted(name string) (vs []T, err error) {
	if b.cache == nil || b.tx != nil {
		return b.sorted(name)
	}
	all, err := b.cache.sorted(b.db, b.name, name).Get(func() ([]T, error) { return b.sorted(name) })
	if err != nil {
		return nil, err
	}
	vs = make([]T, len(all))
	for i, v := range all {
		vs[i] = b.cache.clone(v)
	}
	return vs, nil
}

// sorted is Sorted, without a Memo.
func (b *Bucket[T]) sorted(name string) (vs []T, err error) {
	x := b.index(name)
	err = b.read(func(s *txBucket) error {
		vs = nil
		entries, values := s.index(x.name), s.values()
		if entries == nil || values == nil {
			vs, err = b.sortedByScan(s, x)
			return err
		}
		if b.cache != nil {
			b.cache.mu.Lock()
			defer b.cache.mu.Unlock()
		}
		return s.each(entries, nil, func(k, _ []byte) error {
			key := keyOfIndex(k)
			raw := values.Get(key)
			if raw == nil {
				return fmt.Errorf("index %s of %s refers to key %q: %w", name, b.name, key, ErrNotFound)
			}
			v, err := b.decodeCached(string(key), raw)
			vs = append(vs, v)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if b.cache != nil {
		b.cache.prune(len(vs))
	}
	return vs, nil
}

// sortedByScan is Sorted for an index that is not on disk yet.
func (b *Bucket[T]) sortedByScan(s *txBucket, x index[T]) (vs []T, err error) {
	err = b.scan(s, func(_ string, v T) error {
		if x.key(v) != "" {
			vs = append(vs, v)
		}
		return nil
	})
	slices.SortStableFunc(vs, func(p, q T) int { return strings.Compare(x.key(p), x.key(q)) })
	return vs, err
}

// decodeCached is like decode. The caller holds the lock of the cache, if there is one.
func (b *Bucket[T]) decodeCached(key string, raw []byte) (T, error) {
	if b.cache == nil {
		return b.decode(key, raw)
	}
	if c, ok := b.cache.entries[key]; ok && bytes.Equal(c.raw, raw) {
		return b.cache.clone(c.value), nil
	}
	v, err := b.decode(key, raw)
	if err == nil {
		b.cache.entries[key] = cached[T]{bytes.Clone(raw), b.cache.clone(v)}
	}
	return v, err
}

// prune empties the cache if most of its values no longer exist.
func (c *cache[T]) prune(existing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) > 2*existing+100 {
		clear(c.entries)
	}
}
