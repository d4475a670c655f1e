package delivery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dewrun/dew/store"
)

// Outcome is the result of one attempt.
type Outcome struct {
	Message string
	Client  string // the sending client
	Status  Status // Retry and Queued: try again if retries are left
	Problem error
	// Postponed means that there was no attempt: the message is due again later.
	Postponed bool

	kind     string    // of the notice
	received time.Time // time of the request
	domain   string    // of the recipient
	parked   bool      // there was no attempt, because the domain is slow
}

// Next returns up to n messages that are due and not under way. It also returns when
// the next message after them is due, or zero if there is none.
func (q *Queue) Next(now time.Time, n int, underWay map[string]bool) (ids []string, later time.Time, err error) {
	// Messages under way come before the others.
	as, err := q.due.Range("", n+len(underWay)+1)
	if err != nil {
		return nil, later, fmt.Errorf("cannot list the messages that are due: %w", err)
	}
	for _, a := range as {
		switch {
		case underWay[a.Message]:
		case a.At.After(now):
			return ids, a.At, nil
		case len(ids) < n:
			ids = append(ids, a.Message)
		}
	}
	return ids, later, nil
}

// Settle records the results of messages in one transaction.
func (q *Queue) Settle(os []Outcome, now time.Time) error {
	return q.db.Batch(func(tx *store.Tx) error {
		tallies := map[string]*noticeTally{}
		for _, o := range os {
			m, err := q.messages.With(tx).Get(o.Message)
			if errors.Is(err, store.ErrNotFound) || err == nil && m.Status.Ended() {
				continue // another caller has ended it
			}
			if err == nil {
				err = q.settleOne(tx, m, o, now, tallies)
			}
			if err != nil {
				return fmt.Errorf("cannot store the delivery result of message %s: %w", o.Message, err)
			}
		}
		for _, id := range slices.Sorted(maps.Keys(tallies)) {
			if err := q.tallies.With(tx).Put(id, *tallies[id]); err != nil {
				return fmt.Errorf("cannot store the message counts of notice %s: %w", id, err)
			}
		}
		return nil
	})
}

func (q *Queue) settleOne(tx *store.Tx, m Message, o Outcome, now time.Time, tallies map[string]*noticeTally) error {
	t, err := q.tallyOf(tx, m.Notice, tallies)
	if err != nil {
		return err
	}
	if err := q.due.With(tx).Delete(dueMessage{At: m.Due, Message: m.ID}.key()); err != nil {
		return err
	}
	t.add(m.Status, -1)
	m = m.withOutcome(o, now, q.FirstRetry)
	t.add(m.Status, 1)
	t.Ended = time.Time{}
	if t.Waiting() == 0 {
		t.Ended = now
	}
	// For messages that an older dewd has enqueued: Enqueue stores the receipts now.
	if err := q.storeReceipt(tx, receipt{User: m.User, Client: o.Client}); err != nil {
		return err
	}
	if !m.Status.Ended() {
		return q.schedule(tx, m)
	}
	if err := q.messages.With(tx).Put(m.ID, m); err != nil {
		return err
	}
	a := dueMessage{At: now, Message: m.ID}
	return q.ended.With(tx).Put(a.key(), a)
}

// withOutcome returns the message with the result of an attempt.
func (m Message) withOutcome(o Outcome, now time.Time, firstRetry time.Duration) Message {
	if o.Postponed {
		m.Due = now.Add(postponeFor)
		return m
	}
	m.Status, m.Problem, m.Updated, m.Due = o.Status, "", now, time.Time{}
	if o.Problem != nil {
		m.Problem = o.Problem.Error()
	}
	if o.Status.Ended() {
		return m
	}
	m.Attempts++
	wait, more := retryAfter(m.Attempts, firstRetry)
	if !more {
		m.Status = Failed
		return m
	}
	m.Due = now.Add(wait)
	return m
}

// tallyOf reads a tally once per transaction.
func (q *Queue) tallyOf(tx *store.Tx, notice string, tallies map[string]*noticeTally) (*noticeTally, error) {
	if t, ok := tallies[notice]; ok {
		return t, nil
	}
	t, err := q.tallies.With(tx).Get(notice)
	if err != nil {
		return nil, err
	}
	tallies[notice] = &t
	return &t, nil
}

// storeReceipt records that a client has sent a message to a user.
func (q *Queue) storeReceipt(tx *store.Tx, r receipt) error {
	if r.User == "" || r.Client == "" {
		return nil
	}
	rs := q.receipts.With(tx)
	if _, err := rs.Get(receiptKey(r)); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return rs.Put(receiptKey(r), r)
}

// Sweep drops messages that ended before a point in time, and notices without messages.
func (q *Queue) Sweep(before time.Time) error {
	for {
		n, err := q.sweepSome(before)
		if err != nil {
			return fmt.Errorf("cannot delete old notification messages: %w", err)
		}
		if n < sweepBatch {
			return nil
		}
	}
}

func (q *Queue) sweepSome(before time.Time) (n int, err error) {
	as, err := q.ended.Range("", sweepBatch)
	if err != nil {
		return 0, err
	}
	as = slices.DeleteFunc(as, func(a dueMessage) bool { return !a.At.Before(before) })
	if len(as) == 0 {
		return 0, nil
	}
	return len(as), q.db.Update(func(tx *store.Tx) error {
		tallies := map[string]*noticeTally{}
		for _, a := range as {
			if err := q.deleteMessage(tx, a, tallies); err != nil {
				return err
			}
		}
		for id, t := range tallies {
			if err := q.storeTally(tx, id, *t); err != nil {
				return err
			}
		}
		return nil
	})
}

func (q *Queue) deleteMessage(tx *store.Tx, a dueMessage, tallies map[string]*noticeTally) error {
	m, err := q.messages.With(tx).Get(a.Message)
	if errors.Is(err, store.ErrNotFound) || err == nil && !m.Status.Ended() {
		return q.ended.With(tx).Delete(a.key()) // an operator queued it again
	}
	if err != nil {
		return err
	}
	t, err := q.tallyOf(tx, m.Notice, tallies)
	if err != nil {
		return err
	}
	t.Stored--
	if err := q.messages.With(tx).Delete(m.ID); err != nil {
		return err
	}
	return q.ended.With(tx).Delete(a.key())
}

// storeTally drops a notice that has no more messages. The counts of a campaign are
// stored until the campaign is dropped, because clients can query them.
func (q *Queue) storeTally(tx *store.Tx, id string, t noticeTally) error {
	if t.Stored > 0 {
		return q.tallies.With(tx).Put(id, t)
	}
	if err := q.notices.With(tx).Delete(id); err != nil {
		return err
	}
	if t.Campaign != "" {
		return q.tallies.With(tx).Put(id, t)
	}
	return q.tallies.With(tx).Delete(id)
}

// DeleteCampaign drops the counts of a campaign. It returns false if the campaign still
// has messages.
func (q *Queue) DeleteCampaign(tx *store.Tx, id string) (bool, error) {
	all, err := q.tallies.With(tx).By("campaign", id)
	if err != nil {
		return false, fmt.Errorf("cannot count the messages of campaign %s: %w", id, err)
	}
	if slices.ContainsFunc(all, func(t noticeTally) bool { return t.Stored > 0 }) {
		return false, nil
	}
	for _, t := range all {
		if err := q.tallies.With(tx).Delete(t.Notice); err != nil {
			return false, fmt.Errorf("cannot delete the message counts of campaign %s: %w", id, err)
		}
	}
	return true, nil
}
