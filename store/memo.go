package store

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Memo keeps a value that was computed from buckets, until a transaction changes one of
// them. Its value is shared: callers do not change it.
type Memo[T any] struct {
	db      *DB
	buckets []string

	mu    sync.Mutex // guards the fields below
	at    []uint64   // change counts of the buckets before value was computed; nil: none
	value T
}

// NewMemo returns an empty Memo of a value that depends on the named buckets.
func NewMemo[T any](db *DB, buckets ...string) *Memo[T] {
	return &Memo[T]{db: db, buckets: buckets}
}

// Get returns the value, and computes it if a bucket has changed. The value has all
// changes that were committed before the call. compute reads the buckets in transactions
// of its own; do not call Get inside a transaction.
func (m *Memo[T]) Get(compute func() (T, error)) (T, error) {
	before, quiet := m.db.changeCounts(m.buckets)
	if quiet {
		m.mu.Lock()
		value, current := m.value, m.at != nil && slices.Equal(m.at, before)
		m.mu.Unlock()
		if current {
			return value, nil
		}
	}
	value, err := compute()
	if err != nil || !quiet {
		return value, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.value = before, value
	return value, nil
}

// changeCounts returns how often the buckets were changed. It returns false while a
// transaction that changes one of them is being committed: its result is not known yet.
func (db *DB) changeCounts(buckets []string) (counts []uint64, quiet bool) {
	quiet = true
	for _, name := range buckets {
		n := db.changeCount(name).Load()
		counts = append(counts, n)
		quiet = quiet && n%2 == 0
	}
	return counts, quiet
}

// changeCount returns the counter of a bucket. It is odd during a commit that changes the
// bucket, and even otherwise.
func (db *DB) changeCount(bucket string) *atomic.Uint64 {
	n, ok := db.counts.Load(bucket)
	if !ok {
		n, _ = db.counts.LoadOrStore(bucket, &atomic.Uint64{})
	}
	count, _ := n.(*atomic.Uint64) // nothing else is stored
	return count
}

// countChanges advances the counters of the buckets that a transaction changes. It is
// called before and after the commit, by one writer at a time.
func (db *DB) countChanges(changes []change) {
	seen := map[string]bool{}
	for _, c := range changes {
		if !seen[c.bucket] {
			seen[c.bucket] = true
			db.changeCount(c.bucket).Add(1)
		}
	}
}
