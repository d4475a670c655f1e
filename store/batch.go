package store

import (
	"errors"
	"fmt"
	"sync"
)

// maxBatch is the number of calls that one transaction commits together.
const maxBatch = 1000

// batches holds the calls of Batch that wait for a transaction.
type batches struct {
	mu      sync.Mutex // guards the fields below
	waiting []*batchCall
	busy    bool // one of the callers commits
}

// batchCall is one call of Batch.
type batchCall struct {
	fn   func(tx *Tx) error
	lead chan struct{} // capacity 1: this caller commits the calls that wait
	done chan error    // capacity 1
}

// errAlone is the result of a call that failed together with others.
var errAlone = errors.New("the function has to run in a transaction of its own")

// Batch is like Update, but calls from several goroutines at the same time are committed
// in one transaction, so that they wait for the disk only once. If a call fails, its
// changes are undone, but not those of the others.
//
// fn can run more than once, and in the goroutine of another caller. So it must set its
// results each time again, and must not depend on values that an earlier run has left.
func (db *DB) Batch(fn func(tx *Tx) error) error {
	c := &batchCall{fn: fn, lead: make(chan struct{}, 1), done: make(chan error, 1)}
	b := &db.batches
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	if !b.busy {
		b.busy = true
		c.lead <- struct{}{}
	}
	b.mu.Unlock()
	for {
		select {
		case err := <-c.done:
			if errors.Is(err, errAlone) {
				return db.Update(fn)
			}
			return err
		case <-c.lead:
			db.commitWaiting()
		}
	}
}

// commitWaiting commits the calls that wait, and passes the lead to a later one.
func (db *DB) commitWaiting() {
	b := &db.batches
	b.mu.Lock()
	n := min(len(b.waiting), maxBatch)
	calls := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	b.mu.Unlock()

	db.commitTogether(calls)

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy = len(b.waiting) > 0; b.busy {
		b.waiting[0].lead <- struct{}{}
	}
}

// commitTogether commits calls in one transaction. A call that fails is left out, and
// runs alone afterwards.
func (db *DB) commitTogether(calls []*batchCall) {
	for len(calls) > 0 {
		failed := -1
		err := db.commit(func(tx *Tx) error {
			for i, c := range calls {
				if err := c.run(tx); err != nil {
					failed = i
					return err
				}
			}
			return nil
		})
		if failed >= 0 {
			calls[failed].done <- errAlone
			calls = append(calls[:failed:failed], calls[failed+1:]...)
			continue
		}
		if err == nil {
			db.notifyListeners()
		}
		for _, c := range calls {
			c.done <- err
		}
		return
	}
}

// run runs the function of a call. A panic is an error here: the function panics again
// when it runs alone, in the goroutine of its caller.
func (c *batchCall) run(tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if err := c.fn(tx); err != nil {
		return err
	}
	return tx.broken
}
