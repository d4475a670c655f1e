package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// ErrNoMessage is returned for a message that does not exist, or that ended more than a
// day ago.
var ErrNoMessage = errors.New("message could not be found")

// EndedRetention is how long a message is stored after it has ended.
const EndedRetention = 24 * time.Hour

// sweepBatch is the number of messages that one cleanup transaction removes.
const sweepBatch = 200

// Queue stores messages on disk until they have ended, and for a day after that.
//
//	Enqueue ─▶ notices, messages, due (by time) ─▶ Courier ─▶ settle ─▶ ended (by time) ─▶ sweep
type Queue struct {
	// FirstRetry is the time until the first retry; it doubles with each. NewQueue sets
	// it to a minute, and tests to less.
	FirstRetry time.Duration

	db       *store.DB
	notices  store.Bucket[Notice]
	messages store.Bucket[Message]
	tallies  store.Bucket[noticeTally]
	due      store.Bucket[dueMessage] // messages to deliver, by time
	ended    store.Bucket[dueMessage] // messages to drop, by time
	receipts store.Bucket[receipt]

	wake chan struct{} // capacity 1: a message is due
}

// dueMessage is a message with the time of its next step.
type dueMessage struct {
	At      time.Time `json:"at"`
	Message string    `json:"message"`
}

// key sorts due messages by time.
func (a dueMessage) key() string { return TimeKey(a.At) + "/" + a.Message }

// TimeKey returns a store key for a time. Keys sort by time.
func TimeKey(at time.Time) string { return fmt.Sprintf("%020d", max(at.UnixNano(), 0)) }

type noticeTally struct {
	Notice   string `json:"notice"`
	Campaign string `json:"campaign,omitempty"`
	Stored   int    `json:"kept"` // messages that are still stored
	Tally
}

// receipt says that a client has sent something to a user.
type receipt struct {
	User   string `json:"user"`
	Client string `json:"client"`
}

// NewQueue returns the queue that is stored in db.
func NewQueue(db *store.DB) *Queue {
	q := &Queue{
		FirstRetry: firstRetry,

		db:       db,
		notices:  store.In[Notice](db, "notify notices"),
		messages: store.In(db, "notify messages", store.Index(failedIndex, failedKey)),
		tallies: store.In(db, "notify tallies",
			store.Index("campaign", func(t noticeTally) string { return t.Campaign })),
		due:      store.In[dueMessage](db, "notify due"),
		ended:    store.In[dueMessage](db, "notify ended"),
		receipts: store.In[receipt](db, "notify receipts"),
		wake:     make(chan struct{}, 1),
	}
	q.due.Listen(func(string) {
		select {
		case q.wake <- struct{}{}:
		default: // already notified
		}
	})
	return q
}

// Enqueue stores one message of n for each person, without duplicates, and that the
// client sent it to them. When it returns, all of this is on disk, or nothing.
func (q *Queue) Enqueue(ctx context.Context, n Notice, to []Person) (ms []Message, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = q.db.Batch(func(tx *store.Tx) (err error) {
		ms, err = q.EnqueueIn(tx, n, to)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ms, nil
}

// EnqueueIn is like Enqueue, inside tx.
func (q *Queue) EnqueueIn(tx *store.Tx, n Notice, to []Person) ([]Message, error) {
	to = unique(to)
	if len(to) == 0 {
		return nil, nil
	}
	now := time.Now()
	n.ID = nextID()
	if err := q.notices.With(tx).Put(n.ID, n); err != nil {
		return nil, fmt.Errorf("cannot store a notice: %w", err)
	}
	ms := make([]Message, len(to))
	for i, p := range to {
		ms[i] = Message{ID: nextID(), Notice: n.ID, User: p.GUID, Email: p.Email, Status: Queued, Due: now, Updated: now}
		if err := q.schedule(tx, ms[i]); err != nil {
			return nil, err
		}
		if err := q.storeReceipt(tx, receipt{User: p.GUID, Client: n.Client}); err != nil {
			return nil, fmt.Errorf("cannot store that client %s sent a message to user %s: %w", n.Client, p.GUID, err)
		}
	}
	t := noticeTally{Notice: n.ID, Campaign: n.Campaign, Stored: len(ms), Tally: Tally{Total: len(ms), Queued: len(ms), Started: now}}
	if err := q.tallies.With(tx).Put(n.ID, t); err != nil {
		return nil, fmt.Errorf("cannot store the message counts of a notice: %w", err)
	}
	return ms, nil
}

// nextID returns an id that is greater than all earlier ones. So new records are
// written at the end of a bucket.
func nextID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString()
	}
	return id.String()
}

// Message returns a message, or ErrNoMessage.
func (q *Queue) Message(id string) (Message, error) {
	m, err := q.messages.Get(id)
	if errors.Is(err, store.ErrNotFound) {
		return m, fmt.Errorf("message %s: %w", id, ErrNoMessage)
	}
	if err != nil {
		return m, fmt.Errorf("cannot read message %s: %w", id, err)
	}
	return m, nil
}

// Notice returns the notice of a message, or ErrNoMessage.
func (q *Queue) Notice(id string) (Notice, error) {
	n, err := q.notices.Get(id)
	if errors.Is(err, store.ErrNotFound) {
		return n, fmt.Errorf("notice %s: %w", id, ErrNoMessage)
	}
	if err != nil {
		return n, fmt.Errorf("cannot read notice %s: %w", id, err)
	}
	return n, nil
}

// Campaign counts the messages of a campaign. One without messages has a zero
// Tally.
func (q *Queue) Campaign(id string) (sum Tally, err error) {
	all, err := q.tallies.By("campaign", id)
	if err != nil {
		return sum, fmt.Errorf("cannot count the messages of campaign %s: %w", id, err)
	}
	for i, t := range all {
		sum.join(t.Tally, i == 0)
	}
	return sum, nil
}

// SendersTo returns the ids of the clients that have ever sent something to a
// user.
func (q *Queue) SendersTo(user string) (clients []string, err error) {
	rs, err := q.receipts.Prefix(user + "\x00")
	if err != nil {
		return nil, fmt.Errorf("cannot list the clients that sent messages to user %s: %w", user, err)
	}
	for _, r := range rs {
		clients = append(clients, r.Client)
	}
	return clients, nil
}

// Waiting returns the number of messages that have not ended.
func (q *Queue) Waiting() (n int, err error) {
	ts, err := q.tallies.All()
	if err != nil {
		return 0, fmt.Errorf("cannot count messages: %w", err)
	}
	for _, t := range ts {
		n += t.Waiting()
	}
	return n, nil
}

// Lengths returns the number of messages that were not tried yet, and of those that wait
// for another attempt.
func (q *Queue) Lengths() (queued, retrying int, err error) {
	ts, err := q.tallies.All()
	if err != nil {
		return 0, 0, fmt.Errorf("cannot count messages: %w", err)
	}
	for _, t := range ts {
		queued, retrying = queued+t.Queued, retrying+t.Retry
	}
	return queued, retrying, nil
}

func (q *Queue) schedule(tx *store.Tx, m Message) error {
	if err := q.messages.With(tx).Put(m.ID, m); err != nil {
		return fmt.Errorf("cannot store message %s: %w", m.ID, err)
	}
	a := dueMessage{At: m.Due, Message: m.ID}
	if err := q.due.With(tx).Put(a.key(), a); err != nil {
		return fmt.Errorf("cannot schedule message %s: %w", m.ID, err)
	}
	return nil
}

// join adds the counts of another part of the same campaign.
func (t *Tally) join(o Tally, first bool) {
	t.Total += o.Total
	t.Queued += o.Queued
	t.Retry += o.Retry
	t.Delivered += o.Delivered
	t.Failed += o.Failed
	t.Undeliverable += o.Undeliverable
	switch {
	case first:
		t.Started, t.Ended = o.Started, o.Ended
		return
	case o.Started.Before(t.Started):
		t.Started = o.Started
	}
	if t.Waiting() > 0 {
		t.Ended = time.Time{}
	} else if o.Ended.After(t.Ended) {
		t.Ended = o.Ended
	}
}

func receiptKey(r receipt) string { return strings.Join([]string{r.User, r.Client}, "\x00") }
