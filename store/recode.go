package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// declaration is the declaration of a bucket.
type declaration struct {
	shape  string // names and kinds of its indexes
	recode func(raw []byte) ([]byte, error)
}

// Recode decodes a stored value as the type of its bucket and encodes it again. It
// fails if the bucket was not declared or the value has a field that the type does not
// have. Tests of stored formats use it.
func (db *DB) Recode(bucket string, raw []byte) ([]byte, error) {
	db.mu.Lock()
	d, ok := db.declared[bucket]
	db.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("bucket %s is not declared", bucket)
	}
	return d.recode(raw)
}

// Declared returns the names of the declared buckets.
func (db *DB) Declared() []string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Sorted(maps.Keys(db.declared))
}

func recode[T any](raw []byte) ([]byte, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("cannot decode: %w", err)
	}
	return json.Marshal(v)
}
