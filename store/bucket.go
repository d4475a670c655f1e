package store

import (
	"encoding/json"
	"fmt"
)

// bucket is the Bucket of a database.
type bucket[T any] struct {
	raw *table

	keys  []func(T) string // of the indexes
	cache *cache[T]        // nil: values are decoded every time
}

func (b *bucket[T]) With(tx *Tx) Bucket[T] {
	c := *b
	c.raw = b.raw.within(tx)
	return &c
}

func (b *bucket[T]) Get(key string) (v T, err error) {
	err = b.raw.read(func(s *txBucket) error {
		v, err = b.value(s, key)
		return err
	})
	return v, err
}

func (b *bucket[T]) Put(key string, v T) error {
	return b.raw.write(func(s *txBucket) error { return b.store(s, key, v) })
}

func (b *bucket[T]) Update(key string, fn func(v *T) error) (v T, err error) {
	err = b.raw.write(func(s *txBucket) error {
		v, err = b.value(s, key)
		if err != nil {
			return err
		}
		if err := fn(&v); err != nil {
			return err
		}
		return b.store(s, key, v)
	})
	return v, err
}

func (b *bucket[T]) Delete(key string) error { return b.raw.erase(key) }

func (b *bucket[T]) Touch(key string) error { return b.raw.touch(key) }

func (b *bucket[T]) Keys(prefix string) ([]string, error) { return b.raw.keys(prefix) }

func (b *bucket[T]) Listen(fn func(key string)) { b.raw.db.listen(b.raw.name, fn) }

func (b *bucket[T]) All() ([]T, error) { return b.Where(nil) }

func (b *bucket[T]) Last(prefix string) (v T, err error) {
	err = b.raw.read(func(s *txBucket) error {
		k, raw := lastOf(s.values(), []byte(prefix))
		if k == nil {
			return fmt.Errorf("%s: no key starts with %q: %w", b.raw.name, prefix, ErrNotFound)
		}
		v, err = b.decode(string(k), raw)
		return err
	})
	return v, err
}

func (b *bucket[T]) Prefix(prefix string) (vs []T, err error) {
	err = b.raw.read(func(s *txBucket) error {
		vs, err = b.collect(func(add func(key string, raw []byte) error) error {
			return s.each(s.values(), []byte(prefix), func(k, raw []byte) error { return add(string(k), raw) })
		})
		return err
	})
	if b.cache != nil && prefix == "" && err == nil {
		b.cache.prune(len(vs))
	}
	return vs, err
}

func (b *bucket[T]) Range(from string, limit int) (vs []T, err error) {
	err = b.raw.read(func(s *txBucket) error {
		values := s.values()
		if values == nil {
			return nil
		}
		c := values.Cursor()
		for k, raw := c.Seek([]byte(from)); k != nil && len(vs) < limit; k, raw = c.Next() {
			v, err := b.decode(string(k), raw)
			if err != nil {
				return err
			}
			vs = append(vs, v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return vs, nil
}

func (b *bucket[T]) By(index, value string) (vs []T, err error) {
	x := b.raw.index(index)
	if value == "" {
		return nil, nil
	}
	err = b.raw.read(func(s *txBucket) error {
		keys, err := b.raw.lookup(s, x, value)
		if err != nil {
			return err
		}
		for _, k := range keys {
			v, err := b.value(s, k)
			if err != nil {
				return fmt.Errorf("index %s of %s refers to key %s: %w", index, b.raw.name, k, err)
			}
			vs = append(vs, v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return vs, nil
}

func (b *bucket[T]) KeysBy(index, prefix string) ([]string, error) {
	return b.raw.keysBy(index, prefix)
}

func (b *bucket[T]) value(s *txBucket, key string) (v T, err error) {
	raw, err := b.raw.get(s, key)
	if err != nil {
		return v, err
	}
	if b.cache != nil {
		b.cache.mu.Lock()
		defer b.cache.mu.Unlock()
	}
	return b.decodeCached(key, raw)
}

func (b *bucket[T]) store(s *txBucket, key string, v T) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot write %s %q: %w", b.raw.name, key, err)
	}
	return b.raw.put(s, key, raw)
}

func (b *bucket[T]) decode(key string, raw []byte) (v T, err error) {
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("cannot read %s %q: %w", b.raw.name, key, err)
	}
	return v, nil
}

// entriesOf returns the entries of an encoded value, one for each index.
func (b *bucket[T]) entriesOf(key string, raw []byte) ([]string, error) {
	v, err := b.decode(key, raw)
	if err != nil {
		return nil, err
	}
	entries := make([]string, len(b.keys))
	for i, entry := range b.keys {
		entries[i] = entry(v)
	}
	return entries, nil
}

// collect returns the values that each adds. It takes unchanged values from the cache.
func (b *bucket[T]) collect(each func(add func(key string, raw []byte) error) error) (vs []T, err error) {
	if b.cache != nil {
		b.cache.mu.Lock()
		defer b.cache.mu.Unlock()
	}
	err = each(func(key string, raw []byte) error {
		v, err := b.decodeCached(key, raw)
		vs = append(vs, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return vs, nil
}
