package delivery

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dewrun/dew/store"
)

// failedIndex is the index of the messages that failed.
const failedIndex = "failed"

// failedKey returns the entry of a message in failedIndex.
func failedKey(m Message) string {
	if m.Status.CanRetry() && m.Status.Ended() {
		return failedIndex
	}
	return ""
}

// CanRetry reports whether a message in this state can be tried now: it waits for an
// attempt, or it failed.
func (s Status) CanRetry() bool { return s != Delivered && s != Unsubscribed }

// Selection selects messages that wait, that failed, or both.
type Selection struct {
	Waiting, Failed bool
}

// Listed is a message with the notice that it belongs to.
type Listed struct {
	Message
	Notice Notice
}

// List returns at most limit messages and the number of all that are selected. It lists
// the failed ones, newest first, and then the waiting ones in the order of their next
// attempt.
func (q *Queue) List(s Selection, limit int) (out []Listed, total int, err error) {
	err = q.db.View(func(tx *store.Tx) (err error) {
		var ms []Message
		if ms, total, err = q.selected(tx, s, limit); err != nil {
			return err
		}
		notices := map[string]Notice{}
		for _, m := range ms {
			n, ok := notices[m.Notice]
			if !ok {
				if n, err = q.notices.With(tx).Get(m.Notice); err != nil {
					return err
				}
				notices[m.Notice] = n
			}
			out = append(out, Listed{Message: m, Notice: n})
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("cannot list messages: %w", err)
	}
	return out, total, nil
}

// selected returns at most limit selected messages, and their number.
func (q *Queue) selected(tx *store.Tx, s Selection, limit int) (out []Message, total int, err error) {
	if s.Failed {
		if out, err = q.messages.With(tx).By(failedIndex, failedIndex); err != nil {
			return nil, 0, err
		}
		slices.SortStableFunc(out, func(a, b Message) int { return b.Updated.Compare(a.Updated) })
		total = len(out)
		out = out[:min(limit, len(out))]
	}
	if !s.Waiting {
		return out, total, nil
	}
	keys, err := q.due.With(tx).Keys("")
	if err != nil {
		return nil, 0, err
	}
	due, err := q.due.With(tx).Range("", limit-len(out))
	if err != nil {
		return nil, 0, err
	}
	for _, a := range due {
		m, err := q.messages.With(tx).Get(a.Message)
		if err != nil {
			return nil, 0, err
		}
		out = append(out, m)
	}
	return out, total + len(keys), nil
}

// Failed returns the number of messages that failed and are still stored.
func (q *Queue) Failed() (n int, err error) {
	ms, err := q.messages.By(failedIndex, failedIndex)
	if err != nil {
		return 0, fmt.Errorf("cannot count the messages that failed: %w", err)
	}
	return len(ms), nil
}

// retryBatch is the number of messages that one transaction of RetryNow changes. Others
// can write in between.
const retryBatch = 500

// RetryAll makes the selected messages due now, like RetryNow. It returns their number.
func (q *Queue) RetryAll(s Selection) (retried int, err error) {
	var ms []Message
	err = q.db.View(func(tx *store.Tx) (err error) {
		ms, _, err = q.selected(tx, s, math.MaxInt)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cannot list messages: %w", err)
	}
	ids := make([]string, len(ms))
	for i, m := range ms {
		ids[i] = m.ID
	}
	return q.retry(ids)
}

// RetryNow makes messages due now. A message that failed is queued again, with all its
// retries. It returns ErrNoMessage, and changes nothing, if one of them does not exist
// or cannot be retried.
func (q *Queue) RetryNow(ids []string) (retried int, err error) {
	for _, id := range ids {
		m, err := q.Message(id)
		if err != nil {
			return 0, err
		}
		if !m.Status.CanRetry() {
			return 0, fmt.Errorf("message %s: %w", id, ErrSettled)
		}
	}
	return q.retry(ids)
}

// ErrSettled is returned for a message that is delivered, or whose recipient has
// unsubscribed.
var ErrSettled = errors.New("the message cannot be tried again: it was delivered, or its recipient has unsubscribed")

// retry makes messages due now, in several transactions. If a message has ended in the
// meantime, it is left as it is.
func (q *Queue) retry(ids []string) (retried int, err error) {
	for part := range slices.Chunk(ids, retryBatch) {
		n := 0
		err := q.db.Update(func(tx *store.Tx) error {
			n = 0
			tallies := map[string]*noticeTally{}
			for _, id := range part {
				done, err := q.retryOne(tx, id, tallies)
				if err != nil {
					return err
				}
				if done {
					n++
				}
			}
			for id, t := range tallies {
				if err := q.tallies.With(tx).Put(id, *t); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return retried, fmt.Errorf("cannot queue messages again: %w", err)
		}
		retried += n
	}
	return retried, nil
}

func (q *Queue) retryOne(tx *store.Tx, id string, tallies map[string]*noticeTally) (bool, error) {
	m, err := q.messages.With(tx).Get(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !m.Status.CanRetry() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	now := time.Now()
	if !m.Status.Ended() {
		if err := q.due.With(tx).Delete(dueMessage{At: m.Due, Message: m.ID}.key()); err != nil {
			return false, err
		}
		m.Due = now
		return true, q.schedule(tx, m)
	}
	t, err := q.tallyOf(tx, m.Notice, tallies)
	if err != nil {
		return false, err
	}
	if err := q.ended.With(tx).Delete(dueMessage{At: m.Updated, Message: m.ID}.key()); err != nil {
		return false, err
	}
	t.add(m.Status, -1)
	m.Status, m.Attempts, m.Due, m.Updated = Queued, 0, now, now
	t.add(m.Status, 1)
	t.Ended = time.Time{}
	return true, q.schedule(tx, m)
}
