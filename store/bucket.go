package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"
)

// Bucket is a typed bucket of the store: values by key, and by their indexes. Values
// are encoded as JSON, so callers never share memory with stored values.
type Bucket[T any] struct {
	db      *DB
	tx      *Tx // nil: every call is a separate transaction
	name    string
	indexes []index[T]
	cache   *cache[T] // nil: Sorted decodes every time
}

type index[T any] struct {
	name   string
	unique bool
	key    func(T) string
}

// Option declares a property of a bucket.
type Option[T any] func(*Bucket[T])

// Unique declares an index in which every value has at most one key: otherwise Put
// returns ErrTaken. Values for which key returns "" are not in the index. If you change
// the result of key, also change the name of the index, which is on disk.
func Unique[T any](name string, key func(T) string) Option[T] {
	return func(b *Bucket[T]) {
		b.indexes = append(b.indexes, index[T]{name: name, unique: true, key: key})
	}
}

// Index declares an index for By. See Unique for the result of key.
func Index[T any](name string, key func(T) string) Option[T] {
	return func(b *Bucket[T]) {
		b.indexes = append(b.indexes, index[T]{name: name, key: key})
	}
}

// In declares a bucket. The first Put creates it on disk and fills indexes that were
// declared later. Declaring a bucket twice with different indexes would corrupt them,
// so it panics.
func In[T any](db *DB, name string, opts ...Option[T]) *Bucket[T] {
	b := &Bucket[T]{db: db, name: name}
	for _, o := range opts {
		o(b)
	}
	var names []string
	for _, x := range b.indexes {
		names = append(names, fmt.Sprintf("%s unique=%t", x.name, x.unique))
	}
	slices.Sort(names)
	shape := strings.Join(names, "\n")

	db.mu.Lock()
	defer db.mu.Unlock()
	if old, ok := db.declared[name]; ok && old.shape != shape {
		panic("store: bucket " + name + " is declared twice with different indexes")
	}
	db.declared[name] = declaration{shape: shape, recode: recode[T]}
	return b
}

// With returns the same bucket inside tx.
func (b *Bucket[T]) With(tx *Tx) *Bucket[T] {
	c := *b
	c.tx = tx
	return &c
}

// Get returns the value of key, or ErrNotFound.
func (b *Bucket[T]) Get(key string) (v T, err error) {
	err = b.read(func(s *txBucket) error {
		v, err = b.get(s, key)
		return err
	})
	return v, err
}

// Put stores v under key and replaces an existing value. It returns ErrTaken and
// changes nothing if a unique index already has that entry for another key.
func (b *Bucket[T]) Put(key string, v T) error {
	return b.write(func(s *txBucket) error { return b.put(s, key, v) })
}

// Delete removes key. If key does not exist, it is not an error, and listeners are not
// called.
func (b *Bucket[T]) Delete(key string) error {
	return b.write(func(s *txBucket) error { return b.remove(s, key) })
}

// Update changes the value of key in one transaction and returns the new value. It
// returns ErrNotFound if key does not exist.
func (b *Bucket[T]) Update(key string, fn func(v *T) error) (v T, err error) {
	err = b.write(func(s *txBucket) error {
		v, err = b.get(s, key)
		if err != nil {
			return err
		}
		if err := fn(&v); err != nil {
			return err
		}
		return b.put(s, key, v)
	})
	return v, err
}

// Touch calls the listeners of key without a change of its value. It is for values
// whose meaning depends on another bucket that changed.
func (b *Bucket[T]) Touch(key string) error {
	return b.write(func(s *txBucket) error {
		s.tx.changed(b.name, key)
		return nil
	})
}

// All returns all values in the order of their keys.
func (b *Bucket[T]) All() ([]T, error) { return b.Where(nil) }

// Last returns the value with the greatest key that starts with prefix, or ErrNotFound.
// It reads no other value.
func (b *Bucket[T]) Last(prefix string) (v T, err error) {
	err = b.read(func(s *txBucket) error {
		k, raw := lastOf(s.values(), []byte(prefix))
		if k == nil {
			return fmt.Errorf("%s: no key starts with %q: %w", b.name, prefix, ErrNotFound)
		}
		v, err = b.decode(string(k), raw)
		return err
	})
	return v, err
}

// Prefix returns the values whose keys start with prefix, in the order of keys.
func (b *Bucket[T]) Prefix(prefix string) (vs []T, err error) {
	err = b.read(func(s *txBucket) error {
		if b.cache != nil {
			b.cache.mu.Lock()
			defer b.cache.mu.Unlock()
		}
		return s.each(s.values(), []byte(prefix), func(k, raw []byte) error {
			v, err := b.decodeCached(string(k), raw)
			vs = append(vs, v)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if b.cache != nil && prefix == "" {
		b.cache.prune(len(vs))
	}
	return vs, nil
}

// By returns the values with this entry in the index, in the order of keys. An
// undeclared index is a bug of the caller, so it panics.
func (b *Bucket[T]) By(index, value string) (vs []T, err error) {
	x := b.index(index)
	if value == "" {
		return nil, nil
	}
	err = b.read(func(s *txBucket) error {
		keys, err := b.lookup(s, x, value)
		if err != nil {
			return err
		}
		for _, k := range keys {
			v, err := b.get(s, k)
			if err != nil {
				return fmt.Errorf("index %s of %s refers to key %s: %w", index, b.name, k, err)
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

// Listen calls fn with every key that a transaction wrote or deleted. The calls happen
// after the commit, in the order of commits, one at a time, and never inside a
// transaction. fn can use the store; it must be fast, because others wait.
func (b *Bucket[T]) Listen(fn func(key string)) { b.db.listen(b.name, fn) }

func (b *Bucket[T]) index(name string) index[T] {
	for _, x := range b.indexes {
		if x.name == name {
			return x
		}
	}
	panic("store: bucket " + b.name + " has no index " + name)
}

// read runs fn on the bucket inside the current transaction, or a new one.
func (b *Bucket[T]) read(fn func(s *txBucket) error) error {
	if b.tx != nil {
		if err := b.tx.checkOpen(); err != nil {
			return err
		}
		return fn(&txBucket{tx: b.tx, root: b.tx.bolt.Bucket([]byte(b.name))})
	}
	return b.db.View(func(tx *Tx) error { return b.With(tx).read(fn) })
}

// write runs fn on the bucket, and creates the bucket if needed.
func (b *Bucket[T]) write(fn func(s *txBucket) error) error {
	if b.tx == nil {
		return b.db.Update(func(tx *Tx) error { return b.With(tx).write(fn) })
	}
	if err := b.tx.checkOpen(); err != nil {
		return err
	}
	if !b.tx.bolt.Writable() {
		return fmt.Errorf("cannot write to %s: the transaction is read-only", b.name)
	}
	root, err := b.tx.bolt.CreateBucketIfNotExists([]byte(b.name))
	if err != nil {
		return fmt.Errorf("cannot create bucket %s: %w", b.name, err)
	}
	return fn(&txBucket{tx: b.tx, root: root})
}

func (b *Bucket[T]) get(s *txBucket, key string) (v T, err error) {
	vals := s.values()
	if vals == nil {
		return v, fmt.Errorf("%s %q: %w", b.name, key, ErrNotFound)
	}
	raw := vals.Get([]byte(key))
	if raw == nil {
		return v, fmt.Errorf("%s %q: %w", b.name, key, ErrNotFound)
	}
	return b.decode(key, raw)
}

func (b *Bucket[T]) decode(key string, raw []byte) (v T, err error) {
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("cannot read %s %q: %w", b.name, key, err)
	}
	return v, nil
}

func (b *Bucket[T]) put(s *txBucket, key string, v T) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot write %s %q: %w", b.name, key, err)
	}
	if key == "" || len(key) > bbolt.MaxKeySize {
		return fmt.Errorf("cannot write to %s: a key must have 1 to %d bytes, not %d", b.name, bbolt.MaxKeySize, len(key))
	}
	// The index uses the value that a reader will see. JSON may have dropped a part of
	// v, and an entry made from v could not be found again for its removal.
	kept, err := b.decode(key, raw)
	if err != nil {
		return err
	}
	if err := b.fill(s); err != nil {
		return s.tx.markBroken(err)
	}
	if err := b.check(s, key, kept); err != nil {
		return err
	}
	if err := b.unlink(s, key); err != nil {
		return s.tx.markBroken(err)
	}
	if err := b.link(s, key, kept); err != nil {
		return s.tx.markBroken(err)
	}
	vals, err := s.root.CreateBucketIfNotExists(valuesBucket)
	if err != nil {
		return s.tx.markBroken(err)
	}
	if err := vals.Put([]byte(key), raw); err != nil {
		return s.tx.markBroken(fmt.Errorf("cannot write %s %q: %w", b.name, key, err))
	}
	s.tx.changed(b.name, key)
	return nil
}

func (b *Bucket[T]) remove(s *txBucket, key string) error {
	vals := s.values()
	if vals == nil || vals.Get([]byte(key)) == nil {
		return nil
	}
	if err := b.fill(s); err != nil {
		return s.tx.markBroken(err)
	}
	if err := b.unlink(s, key); err != nil {
		return s.tx.markBroken(err)
	}
	if err := vals.Delete([]byte(key)); err != nil {
		return s.tx.markBroken(fmt.Errorf("cannot delete %s %q: %w", b.name, key, err))
	}
	s.tx.changed(b.name, key)
	return nil
}

// check refuses an invalid v before anything is written.
func (b *Bucket[T]) check(s *txBucket, key string, v T) error {
	for _, x := range b.indexes {
		value := x.key(v)
		if n := len(indexKey(value, key)); n > bbolt.MaxKeySize {
			return fmt.Errorf("cannot write %s %q: the value of index %s is too long", b.name, key, x.name)
		}
		if !x.unique || value == "" {
			continue
		}
		keys, err := b.lookup(s, x, value)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(keys, func(k string) bool { return k != key }) {
			return &TakenError{Bucket: b.name, Index: x.name, Value: value, Key: keys[0]}
		}
	}
	return nil
}

// link adds the index entries of v.
func (b *Bucket[T]) link(s *txBucket, key string, v T) error {
	for _, x := range b.indexes {
		value := x.key(v)
		if value == "" {
			continue
		}
		if err := s.index(x.name).Put(indexKey(value, key), nil); err != nil {
			return fmt.Errorf("cannot write index %s of %s %q: %w", x.name, b.name, key, err)
		}
	}
	return nil
}

// unlink removes the index entries of the value under key, if it exists.
func (b *Bucket[T]) unlink(s *txBucket, key string) error {
	old, err := b.get(s, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, x := range b.indexes {
		if err := s.index(x.name).Delete(indexKey(x.key(old), key)); err != nil {
			return fmt.Errorf("cannot write index %s of %s %q: %w", x.name, b.name, key, err)
		}
	}
	return nil
}

// fill creates missing indexes on disk from the stored values.
func (b *Bucket[T]) fill(s *txBucket) error {
	for _, x := range b.indexes {
		if s.index(x.name) != nil {
			continue
		}
		entries, err := s.root.CreateBucket(indexBucket(x.name))
		if err != nil {
			return fmt.Errorf("cannot create index %s of %s: %w", x.name, b.name, err)
		}
		err = b.scan(s, func(key string, v T) error {
			if x.key(v) == "" {
				return nil
			}
			return entries.Put(indexKey(x.key(v), key), nil)
		})
		if err != nil {
			return fmt.Errorf("cannot fill index %s of %s: %w", x.name, b.name, err)
		}
	}
	return nil
}

// lookup returns the keys under value. It computes an index that is not on disk yet,
// because a read transaction cannot create it.
func (b *Bucket[T]) lookup(s *txBucket, x index[T], value string) (keys []string, err error) {
	entries := s.index(x.name)
	if entries == nil {
		err = b.scan(s, func(key string, v T) error {
			if x.key(v) == value {
				keys = append(keys, key)
			}
			return nil
		})
		return keys, err
	}
	prefix := indexPrefix(value)
	err = s.each(entries, prefix, func(k, _ []byte) error {
		keys = append(keys, string(k[len(prefix):]))
		return nil
	})
	return keys, err
}

func (b *Bucket[T]) scan(s *txBucket, fn func(key string, v T) error) error {
	return s.each(s.values(), nil, func(k, raw []byte) error {
		v, err := b.decode(string(k), raw)
		if err != nil {
			return err
		}
		return fn(string(k), v)
	})
}

// TakenError says which unique index has a conflict, and the key that has the value.
type TakenError struct {
	Bucket, Index, Value string
	Key                  string // of the existing value
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("%s %q of %s is %v", e.Index, e.Value, e.Bucket, ErrTaken)
}

// Is makes errors.Is(err, ErrTaken) true.
func (e *TakenError) Is(target error) bool { return target == ErrTaken }

// txBucket is a bucket inside a transaction; root is nil if it is not on disk.
type txBucket struct {
	tx   *Tx
	root *bbolt.Bucket
}

var valuesBucket = []byte("values")

func indexBucket(name string) []byte { return []byte("index " + name) }

func (s *txBucket) values() *bbolt.Bucket {
	if s.root == nil {
		return nil
	}
	return s.root.Bucket(valuesBucket)
}

func (s *txBucket) index(name string) *bbolt.Bucket {
	if s.root == nil {
		return nil
	}
	return s.root.Bucket(indexBucket(name))
}

// each calls fn for the keys of b that start with prefix; b can be nil.
func (s *txBucket) each(b *bbolt.Bucket, prefix []byte, fn func(k, v []byte) error) error {
	if b == nil {
		return nil
	}
	c := b.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}

// lastOf returns the greatest key of b that starts with prefix; b can be nil.
func lastOf(b *bbolt.Bucket, prefix []byte) (k, v []byte) {
	if b == nil {
		return nil, nil
	}
	c := b.Cursor()
	after := bytes.TrimRight(slices.Clone(prefix), "\xff") // a key of only 0xff bytes has no successor
	if len(after) == 0 {
		k, v = c.Last()
	} else {
		after[len(after)-1]++
		if k, _ = c.Seek(after); k == nil {
			k, v = c.Last()
		} else {
			k, v = c.Prev()
		}
	}
	if !bytes.HasPrefix(k, prefix) {
		return nil, nil
	}
	return k, v
}

// checkOpen returns an error if a transaction is used after its function returned.
func (tx *Tx) checkOpen() error {
	if tx.bolt.DB() == nil {
		return errors.New("cannot use a transaction after its function returned")
	}
	return nil
}

// markBroken records that a write stopped half-way, so that the transaction is rolled back
// even if the caller continues.
func (tx *Tx) markBroken(err error) error {
	tx.broken = err
	return err
}
