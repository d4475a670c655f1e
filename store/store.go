// Package store stores values on disk in typed buckets. It has no types of dew itself:
// each package declares its own buckets and indexes.
//
//	DB ── Update(tx) ──┬─ Bucket[App]     values as JSON, with indexes
//	                   └─ Bucket[Process]
//	      commit ──▶ queue ──▶ listeners, in the order of the commits
//
// A transaction spans any number of buckets; values and indexes change together or not
// at all. When Update returns nil, its changes are on disk.
package store

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Errors that callers can check for.
var (
	ErrNotFound    = errors.New("not found")
	ErrTaken       = errors.New("already taken")
	ErrInUse       = errors.New("store is in use")
	ErrNewerFormat = errors.New("store has a newer format")
	ErrOlderFormat = errors.New("store has an older format")
	ErrClosed      = errors.New("store is closed")
)

// defaultLockTimeout is long enough for an earlier process that is just closing the
// file.
const defaultLockTimeout = 500 * time.Millisecond

// Options configures a store.
type Options struct {
	// Format is the format number that this program writes; 0 means 1.
	Format int
	// Upgrade converts a file of an older format to Format, inside the transaction that
	// raises the number. Without it, older files are refused.
	Upgrade func(db *DB, tx *Tx, from int) error
	// LockTimeout limits the wait until another process has closed the file.
	LockTimeout time.Duration
	// NoSync skips the wait for the disk, for the store and for the files that SyncFile
	// and SyncDir are called for. It is for tests: after a power failure such a file
	// may be corrupt.
	NoSync bool
	// Committed is called with the duration of each transaction. It can be nil.
	Committed func(took time.Duration)
}

// DB is an open store file. It is safe for concurrent use.
type DB struct {
	options Options

	opened sync.RWMutex // held during a transaction, so that the file is not replaced; guards the fields below
	bolt   *bbolt.DB
	file   *os.File // of bolt
	closed bool

	// writing is held from before a commit until its changes are in the queue. bbolt
	// starts the next writer before it reports a commit as done, so otherwise two
	// commits could be queued in the wrong order.
	writing   sync.Mutex
	uncertain *Tx // failed, and can be on disk or not, see repair; guarded by writing
	batches   batches

	counts sync.Map // of changes, by the name of the bucket: see changeCount

	mu        sync.Mutex // guards the fields below; never held while a listener runs
	declared  map[string]declaration
	listeners map[string][]func(key string)
	queue     []change
	notifying bool
}

// change is a key of a bucket that a committed transaction wrote.
type change struct{ bucket, key string }

// Tx is a transaction. It is valid until its function returns.
type Tx struct {
	bolt    *bbolt.Tx
	changes []change
	seen    map[change]bool
	broken  error // a write stopped half-way: the transaction must not commit
}

// Open opens the store at path, and creates it if it does not exist. It returns
// ErrInUse if another process has it open, and ErrNewerFormat or ErrOlderFormat if this
// program cannot read it.
func Open(path string, o Options) (*DB, error) {
	if o.Format == 0 {
		o.Format = 1
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = defaultLockTimeout
	}
	if o.NoSync {
		if err := makeEmpty(path); err != nil {
			return nil, fmt.Errorf("cannot open %s: %w", path, err)
		}
	}
	b, f, err := openFile(path, o)
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("cannot open %s: %w: another process has the file open; stop that process or choose another folder with --root", path, ErrInUse)
	}
	if errors.Is(err, berrors.ErrInvalid) || errors.Is(err, berrors.ErrChecksum) || errors.Is(err, berrors.ErrVersionMismatch) {
		return nil, fmt.Errorf("cannot open %s: the file is damaged or is not a store; move it to another folder or restore it from a backup: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	db := &DB{bolt: b, file: f, options: o, declared: map[string]declaration{}, listeners: map[string][]func(string){}}
	if err := db.checkFormat(o); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open %s: %w", path, err), b.Close())
	}
	return db, nil
}

// Close waits for running transactions and closes the file. It can be repeated.
func (db *DB) Close() error {
	db.opened.Lock()
	defer db.opened.Unlock()
	db.closed = true
	if err := db.bolt.Close(); err != nil {
		return fmt.Errorf("cannot close store: %w", err)
	}
	return nil
}

// Update runs fn in a transaction and commits it if fn returns nil; otherwise nothing
// changes. Inside fn use Bucket.With(tx): a bucket without it would wait for this same
// transaction. When Update returns, listeners were called, unless another goroutine is
// already calling them.
func (db *DB) Update(fn func(tx *Tx) error) error {
	if err := db.commit(fn); err != nil {
		return err
	}
	db.notifyListeners()
	return nil
}

// View runs fn in a transaction that sees one state of all buckets and cannot write. Do
// not write inside fn through another transaction: the two can block each other.
func (db *DB) View(fn func(tx *Tx) error) error {
	db.opened.RLock()
	defer db.opened.RUnlock()
	return closed(db.bolt.View(func(btx *bbolt.Tx) error {
		return fn(&Tx{bolt: btx})
	}))
}

func (db *DB) commit(fn func(tx *Tx) error) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	if err := db.repair(); err != nil {
		return err
	}
	began := time.Now()
	tx := &Tx{seen: map[change]bool{}}
	counted, id := false, 0
	defer func() {
		if counted {
			db.countChanges(tx.changes)
		}
	}()
	err := db.update(func(btx *bbolt.Tx) error {
		tx.bolt, id = btx, btx.ID()
		if err := fn(tx); err != nil {
			return err
		}
		if tx.broken == nil {
			counted = true
			db.countChanges(tx.changes)
		}
		return tx.broken
	})
	if err != nil && counted {
		err = db.failed(tx, id, err)
	}
	if err != nil {
		return closed(err)
	}
	if db.options.Committed != nil {
		db.options.Committed(time.Since(began))
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.queue = append(db.queue, tx.changes...)
	return nil
}

func (db *DB) update(fn func(tx *bbolt.Tx) error) error {
	db.opened.RLock()
	defer db.opened.RUnlock()
	return db.bolt.Update(fn)
}

// notifyListeners calls the listeners for queued changes, one after the other. If a change is
// queued during that, even by a listener, the same goroutine also handles it.
func (db *DB) notifyListeners() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.notifying {
		return
	}
	db.notifying = true
	defer func() { db.notifying = false }()
	for len(db.queue) > 0 {
		c := db.queue[0]
		db.queue = db.queue[1:]
		db.notifyOne(c, db.listeners[c.bucket])
	}
}

// notifyOne is called with mu held. It releases mu for the listeners, and locks it again
// even if one of them panics.
func (db *DB) notifyOne(c change, fns []func(string)) {
	db.mu.Unlock()
	defer db.mu.Lock()
	for _, fn := range fns {
		fn(c.key)
	}
}

// Version returns a number that changes with every commit.
func (db *DB) Version() (version int, err error) {
	err = db.View(func(tx *Tx) error {
		version = tx.bolt.ID()
		return nil
	})
	return version, err
}

func (db *DB) listen(bucket string, fn func(key string)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	// A new slice each time, because notifyOne reads the old one without the lock.
	db.listeners[bucket] = append(db.listeners[bucket][:len(db.listeners[bucket]):len(db.listeners[bucket])], fn)
}

// changed queues a key for the listeners, once per transaction.
func (tx *Tx) changed(bucket, key string) {
	c := change{bucket, key}
	if tx.seen[c] {
		return
	}
	tx.seen[c] = true
	tx.changes = append(tx.changes, c)
}

var (
	metaBucket = []byte("store meta")
	formatKey  = []byte("format")
)

// checkFormat checks that the file has the format of the program, or upgrades it.
func (db *DB) checkFormat(o Options) error {
	found, err := db.format()
	if err != nil {
		return err
	}
	switch {
	case found == o.Format:
		return nil
	case found > o.Format:
		return fmt.Errorf("%w: the file has format %d and this program supports format %d: use the newer program that wrote the file, or choose another folder with --root", ErrNewerFormat, found, o.Format)
	case found != 0 && o.Upgrade == nil:
		return fmt.Errorf("%w: the file has format %d and this program supports format %d: first start a release that can upgrade the file", ErrOlderFormat, found, o.Format)
	}
	return db.Update(func(tx *Tx) error {
		if found != 0 {
			if err := o.Upgrade(db, tx, found); err != nil {
				return fmt.Errorf("cannot upgrade from format %d: %w", found, err)
			}
		}
		meta, err := tx.bolt.CreateBucketIfNotExists(metaBucket)
		if err != nil {
			return err
		}
		return meta.Put(formatKey, []byte(strconv.Itoa(o.Format)))
	})
}

// format reads the file's format number; 0 means a new file.
func (db *DB) format() (n int, err error) {
	err = db.View(func(tx *Tx) error {
		meta := tx.bolt.Bucket(metaBucket)
		if meta != nil {
			n, err = strconv.Atoi(string(meta.Get(formatKey)))
			if err != nil || n < 1 {
				return fmt.Errorf("the file has format %q, which is not a number: move the file to another folder or restore it from a backup", meta.Get(formatKey))
			}
			return nil
		}
		if name, _ := tx.bolt.Cursor().First(); name != nil {
			return errors.New("the file is a bbolt file of another program: choose another folder with --root")
		}
		return nil
	})
	return n, err
}

// closed returns ErrClosed if the file is not open any more.
func closed(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}
