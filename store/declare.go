package store

import (
	"fmt"
	"slices"
	"strings"
)

// Bucket is a typed bucket of the store: values by key, and by their indexes. Values
// are encoded as JSON, so callers never share memory with stored values.
//
// It is an interface because of the compiler. Every package that uses a generic struct
// compiles all of its methods again, and each of the many packages that use the
// registry uses more than twenty buckets.
type Bucket[T any] interface {
	// With returns the same bucket inside tx.
	With(tx *Tx) Bucket[T]

	// Get returns the value of key, or ErrNotFound.
	Get(key string) (v T, err error)

	// Put stores v under key and replaces an existing value. It returns ErrTaken and
	// changes nothing if a unique index already has that entry for another key.
	Put(key string, v T) error

	// Delete removes key. If key does not exist, it is not an error, and listeners are not
	// called.
	Delete(key string) error

	// Update changes the value of key in one transaction and returns the new value. It
	// returns ErrNotFound if key does not exist.
	Update(key string, fn func(v *T) error) (v T, err error)

	// Touch calls the listeners of key without a change of its value. It is for values
	// whose meaning depends on another bucket that changed.
	Touch(key string) error

	// All returns all values in the order of their keys.
	All() ([]T, error)

	// Where returns the values for which keep returns true, in the order of their keys. keep
	// does not change a value. A nil keep means all values.
	Where(keep func(T) bool) (vs []T, err error)

	// Prefix returns the values whose keys start with prefix, in the order of keys.
	Prefix(prefix string) (vs []T, err error)

	// Range returns at most limit values in the order of keys, starting with the first key
	// that is not less than from. It reads no others, so that a large bucket can be read in
	// parts.
	Range(from string, limit int) (vs []T, err error)

	// Keys returns the keys that start with prefix, in order. It reads no values.
	Keys(prefix string) (keys []string, err error)

	// Last returns the value with the greatest key that starts with prefix, or ErrNotFound.
	// It reads no other value.
	Last(prefix string) (v T, err error)

	// By returns the values with this entry in the index, in the order of keys. An
	// undeclared index is a bug of the caller, so it panics.
	By(index, value string) (vs []T, err error)

	// KeysBy returns the keys of the values whose entry in the index starts with prefix, in
	// the order of the index. It reads no values. An undeclared index is a bug of the caller,
	// so it panics.
	KeysBy(index, prefix string) (keys []string, err error)

	// Sorted returns all values that are in an index, in the order of the index. An
	// undeclared index is a bug of the caller, so it panics.
	Sorted(name string) (vs []T, err error)

	// Listen calls fn with every key that a transaction wrote or deleted. The calls happen
	// after the commit, in the order of commits, one at a time, and never inside a
	// transaction. fn can use the store; it must be fast, because others wait.
	Listen(fn func(key string))
}

// Option declares a property of a bucket.
type Option[T any] func(*bucket[T])

// Unique declares an index in which every value has at most one key: otherwise Put
// returns ErrTaken. Values for which key returns "" are not in the index. If you change
// the result of key, also change the name of the index, which is on disk.
func Unique[T any](name string, key func(T) string) Option[T] {
	return func(b *bucket[T]) {
		b.addIndex(index{name: name, unique: true}, key)
	}
}

// Index declares an index for By. See Unique for the result of key.
func Index[T any](name string, key func(T) string) Option[T] {
	return func(b *bucket[T]) {
		b.addIndex(index{name: name}, key)
	}
}

func (b *bucket[T]) addIndex(x index, key func(T) string) {
	x.at = len(b.raw.indexes)
	b.raw.indexes, b.keys = append(b.raw.indexes, x), append(b.keys, key)
}

// In declares a bucket. The first Put creates it on disk and fills indexes that were
// declared later. Declaring a bucket twice with different indexes would corrupt them,
// so it panics.
func In[T any](db *DB, name string, opts ...Option[T]) Bucket[T] {
	b := &bucket[T]{raw: &table{db: db, name: name}}
	b.raw.entries = b.entriesOf
	for _, o := range opts {
		o(b)
	}
	var names []string
	for _, x := range b.raw.indexes {
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
