package store

import (
	"bytes"
	"sync"
)

// Cached keeps the decoded values of a bucket in memory, because decoding is most of the work
// of reading them. A value is decoded again when its bytes have changed, so the result
// is always that of the transaction. clone copies a value, so that callers share no
// memory.
func Cached[T any](clone func(T) T) Option[T] {
	return func(b *bucket[T]) { b.cache = &cache[T]{clone: clone, entries: map[string]cached[T]{}} }
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

func (b *bucket[T]) Where(keep func(T) bool) (vs []T, err error) {
	all := func() ([]T, error) { return b.Prefix("") }
	clone := func(v T) T { return v }
	if b.cache != nil && b.raw.tx == nil {
		clone = b.cache.clone
		all = func() ([]T, error) {
			return b.cache.sorted(b.raw.db, b.raw.name, "").Get(func() ([]T, error) { return b.Prefix("") })
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

func (b *bucket[T]) Sorted(name string) (vs []T, err error) {
	if b.cache == nil || b.raw.tx != nil {
		return b.sorted(name)
	}
	all, err := b.cache.sorted(b.raw.db, b.raw.name, name).Get(func() ([]T, error) { return b.sorted(name) })
	if err != nil {
		return nil, err
	}
	vs = make([]T, len(all))
	for i, v := range all {
		vs[i] = b.cache.clone(v)
	}
	return vs, nil
}

// sorted is Sorted without a Memo.
func (b *bucket[T]) sorted(name string) (vs []T, err error) {
	x := b.raw.index(name)
	err = b.raw.read(func(s *txBucket) error {
		vs, err = b.collect(func(add func(key string, raw []byte) error) error { return b.raw.eachSorted(s, x, add) })
		return err
	})
	if b.cache != nil && err == nil {
		b.cache.prune(len(vs))
	}
	return vs, err
}

// decodeCached is like decode. The caller holds the lock of the cache, if there is one.
func (b *bucket[T]) decodeCached(key string, raw []byte) (T, error) {
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
