package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"
)

// table is a bucket of encoded values. Its code does not depend on their type, so it is
// compiled once.
type table struct {
	db      *DB
	tx      *Tx // nil: every call is a separate transaction
	name    string
	indexes []index

	// entries returns the entries of an encoded value, one for each index.
	entries func(key string, raw []byte) ([]string, error)
}

type index struct {
	name   string
	at     int // in indexes
	unique bool
}

// erase removes a key in a transaction.
func (t *table) erase(key string) error {
	return t.write(func(s *txBucket) error { return t.remove(s, key) })
}

func (t *table) touch(key string) error {
	return t.write(func(s *txBucket) error {
		s.tx.changed(t.name, key)
		return nil
	})
}

func (t *table) keys(prefix string) (keys []string, err error) {
	err = t.read(func(s *txBucket) error {
		return s.each(s.values(), []byte(prefix), func(k, _ []byte) error {
			keys = append(keys, string(k))
			return nil
		})
	})
	return keys, err
}

func (t *table) index(name string) index {
	for _, x := range t.indexes {
		if x.name == name {
			return x
		}
	}
	panic("store: bucket " + t.name + " has no index " + name)
}

// within returns the same table inside tx.
func (t *table) within(tx *Tx) *table {
	c := *t
	c.tx = tx
	return &c
}

// read runs fn on the table inside the current transaction, or a new one.
func (t *table) read(fn func(s *txBucket) error) error {
	if t.tx != nil {
		if err := t.tx.checkOpen(); err != nil {
			return err
		}
		return fn(&txBucket{tx: t.tx, root: t.tx.bolt.Bucket([]byte(t.name))})
	}
	return t.db.View(func(tx *Tx) error { return t.within(tx).read(fn) })
}

// write runs fn on the table, and creates it if needed.
func (t *table) write(fn func(s *txBucket) error) error {
	if t.tx == nil {
		return t.db.Update(func(tx *Tx) error { return t.within(tx).write(fn) })
	}
	if err := t.tx.checkOpen(); err != nil {
		return err
	}
	if !t.tx.bolt.Writable() {
		return fmt.Errorf("cannot write to %s: the transaction is read-only", t.name)
	}
	root, err := t.tx.bolt.CreateBucketIfNotExists([]byte(t.name))
	if err != nil {
		return fmt.Errorf("cannot create bucket %s: %w", t.name, err)
	}
	return fn(&txBucket{tx: t.tx, root: root})
}

func (t *table) get(s *txBucket, key string) ([]byte, error) {
	if values := s.values(); values != nil {
		if raw := values.Get([]byte(key)); raw != nil {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("%s %q: %w", t.name, key, ErrNotFound)
}

func (t *table) put(s *txBucket, key string, raw []byte) error {
	if key == "" || len(key) > bbolt.MaxKeySize {
		return fmt.Errorf("cannot write to %s: a key must have 1 to %d bytes, not %d", t.name, bbolt.MaxKeySize, len(key))
	}
	// The entries are those of the value that a reader will see. JSON may have dropped a
	// part of the original value, and its entry could not be found again for its removal.
	entries, err := t.entries(key, raw)
	if err != nil {
		return err
	}
	if err := t.fill(s); err != nil {
		return s.tx.markBroken(err)
	}
	if err := t.check(s, key, entries); err != nil {
		return err
	}
	if err := t.unlink(s, key); err != nil {
		return s.tx.markBroken(err)
	}
	if err := t.link(s, key, entries); err != nil {
		return s.tx.markBroken(err)
	}
	values, err := s.root.CreateBucketIfNotExists(valuesBucket)
	if err != nil {
		return s.tx.markBroken(err)
	}
	if err := values.Put([]byte(key), raw); err != nil {
		return s.tx.markBroken(fmt.Errorf("cannot write %s %q: %w", t.name, key, err))
	}
	s.tx.changed(t.name, key)
	return nil
}

func (t *table) remove(s *txBucket, key string) error {
	values := s.values()
	if values == nil || values.Get([]byte(key)) == nil {
		return nil
	}
	if err := t.fill(s); err != nil {
		return s.tx.markBroken(err)
	}
	if err := t.unlink(s, key); err != nil {
		return s.tx.markBroken(err)
	}
	if err := values.Delete([]byte(key)); err != nil {
		return s.tx.markBroken(fmt.Errorf("cannot delete %s %q: %w", t.name, key, err))
	}
	s.tx.changed(t.name, key)
	return nil
}

// check refuses a value with invalid entries before anything is written.
func (t *table) check(s *txBucket, key string, entries []string) error {
	for _, x := range t.indexes {
		value := entries[x.at]
		if n := len(indexKey(value, key)); n > bbolt.MaxKeySize {
			return fmt.Errorf("cannot write %s %q: the value of index %s is too long", t.name, key, x.name)
		}
		if !x.unique || value == "" {
			continue
		}
		keys, err := t.lookup(s, x, value)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(keys, func(k string) bool { return k != key }) {
			return &TakenError{Bucket: t.name, Index: x.name, Value: value, Key: keys[0]}
		}
	}
	return nil
}

// link adds the index entries of a value.
func (t *table) link(s *txBucket, key string, entries []string) error {
	for _, x := range t.indexes {
		if entries[x.at] == "" {
			continue
		}
		if err := s.index(x.name).Put(indexKey(entries[x.at], key), nil); err != nil {
			return fmt.Errorf("cannot write index %s of %s %q: %w", x.name, t.name, key, err)
		}
	}
	return nil
}

// unlink removes the index entries of the value under key, if it exists.
func (t *table) unlink(s *txBucket, key string) error {
	old, err := t.get(s, key)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := t.entries(key, old)
	if err != nil {
		return err
	}
	for _, x := range t.indexes {
		if err := s.index(x.name).Delete(indexKey(entries[x.at], key)); err != nil {
			return fmt.Errorf("cannot write index %s of %s %q: %w", x.name, t.name, key, err)
		}
	}
	return nil
}

// fill creates missing indexes on disk from the stored values.
func (t *table) fill(s *txBucket) error {
	for _, x := range t.indexes {
		if s.index(x.name) != nil {
			continue
		}
		onDisk, err := s.root.CreateBucket(indexBucket(x.name))
		if err != nil {
			return fmt.Errorf("cannot create index %s of %s: %w", x.name, t.name, err)
		}
		err = t.scan(s, x, func(key, entry string) error {
			if entry == "" {
				return nil
			}
			return onDisk.Put(indexKey(entry, key), nil)
		})
		if err != nil {
			return fmt.Errorf("cannot fill index %s of %s: %w", x.name, t.name, err)
		}
	}
	return nil
}

// lookup returns the keys under value. It computes an index that is not on disk yet,
// because a read transaction cannot create it.
func (t *table) lookup(s *txBucket, x index, value string) (keys []string, err error) {
	onDisk := s.index(x.name)
	if onDisk == nil {
		err = t.scan(s, x, func(key, entry string) error {
			if entry == value {
				keys = append(keys, key)
			}
			return nil
		})
		return keys, err
	}
	prefix := indexPrefix(value)
	err = s.each(onDisk, prefix, func(k, _ []byte) error {
		keys = append(keys, string(k[len(prefix):]))
		return nil
	})
	return keys, err
}

// keysBy is Bucket.KeysBy.
func (t *table) keysBy(name, prefix string) (keys []string, err error) {
	x, start := t.index(name), escaped(prefix)
	err = t.read(func(s *txBucket) error {
		if onDisk := s.index(x.name); onDisk != nil {
			return s.each(onDisk, start, func(k, _ []byte) error {
				keys = append(keys, string(keyOfIndex(k)))
				return nil
			})
		}
		var found [][]byte
		err := t.scan(s, x, func(key, entry string) error {
			if entry != "" && strings.HasPrefix(entry, prefix) {
				found = append(found, indexKey(entry, key))
			}
			return nil
		})
		slices.SortFunc(found, bytes.Compare)
		for _, k := range found {
			keys = append(keys, string(keyOfIndex(k)))
		}
		return err
	})
	return keys, err
}

// scan computes the entries of an index from all values.
func (t *table) scan(s *txBucket, x index, fn func(key, entry string) error) error {
	return s.each(s.values(), nil, func(k, raw []byte) error {
		entries, err := t.entries(string(k), raw)
		if err != nil {
			return err
		}
		return fn(string(k), entries[x.at])
	})
}

// eachSorted calls fn for the values in the order of an index. It computes an index that
// is not on disk yet.
func (t *table) eachSorted(s *txBucket, x index, fn func(key string, raw []byte) error) error {
	values, onDisk := s.values(), s.index(x.name)
	if values == nil {
		return nil
	}
	if onDisk != nil {
		return s.each(onDisk, nil, func(k, _ []byte) error {
			key := keyOfIndex(k)
			raw := values.Get(key)
			if raw == nil {
				return fmt.Errorf("index %s of %s refers to key %q: %w", x.name, t.name, key, ErrNotFound)
			}
			return fn(string(key), raw)
		})
	}
	var sorted [][]byte
	err := t.scan(s, x, func(key, entry string) error {
		if entry != "" {
			sorted = append(sorted, indexKey(entry, key))
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(sorted, bytes.Compare)
	for _, k := range sorted {
		key := keyOfIndex(k)
		if err := fn(string(key), values.Get(key)); err != nil {
			return err
		}
	}
	return nil
}

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
