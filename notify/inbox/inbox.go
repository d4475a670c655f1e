package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/store"
)

// ErrNoMail is returned for a mail that the inbox does not have, or no longer has.
var ErrNoMail = errors.New("mail could not be found")

// The size limits of the inbox. When one is reached, the oldest mails are dropped.
const (
	defaultInboxMails = 20000
	defaultInboxBytes = 64 << 20
)

// readBatch is the number of mails that are read at a time.
const readBatch = 500

// Inbox is a Mailer that stores the newest mails instead of sending them, so that users
// can read them without a mail server.
//
//	Send (several) ─▶ one transaction ─▶ heads, bodies ─▶ List, Get, Wait
type Inbox struct {
	db     *store.DB
	heads  store.Bucket[StoredMail] // without the bodies, which a list does not need
	bodies store.Bucket[mailBody]

	maxMails int
	maxBytes int64

	mu      sync.Mutex // guards the fields below
	pending []*arrival
	busy    bool          // a goroutine is writing
	arrived chan struct{} // closed when a mail arrives

	size    *inboxSize  // used by the writing goroutine; nil: not counted yet
	deleted atomic.Bool // size is no longer right
}

// StoredMail is a stored mail.
type StoredMail struct {
	Seq  uint64 `json:"seq"`  // counts all mails that ever arrived
	Size int    `json:"size"` // of the bodies
	delivery.Mail
}

type mailBody struct {
	Text string `json:"text,omitempty"`
	HTML string `json:"html,omitempty"`
}

type inboxSize struct {
	mails int
	bytes int64
	last  uint64
}

// arrival is a mail that waits to be stored.
type arrival struct {
	mail delivery.Mail
	done chan error
}

// Filter selects mails. Empty fields select all.
type Filter struct {
	To      string // the address, ignoring case, or the user's guid
	Kind    string
	Subject string // a part of it
	Text    string // a part of the address, the kind or the subject, ignoring case
	After   uint64 // only newer ones, by Seq
}

func (f Filter) matches(k StoredMail) bool {
	return k.Seq > f.After &&
		(f.To == "" || strings.EqualFold(f.To, k.To) || f.To == k.User) &&
		(f.Kind == "" || f.Kind == k.Kind) &&
		strings.Contains(k.Subject, f.Subject) && f.matchesText(k)
}

func (f Filter) matchesText(k StoredMail) bool {
	part := strings.ToLower(f.Text)
	return part == "" || slices.ContainsFunc([]string{k.To, k.Kind, k.Subject}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), part)
	})
}

// New returns the inbox that is stored in db.
func New(db *store.DB) *Inbox {
	i := &Inbox{
		db:      db,
		heads:   store.In(db, "inbox heads", store.Unique("id", func(k StoredMail) string { return k.ID })),
		bodies:  store.In[mailBody](db, "inbox bodies"),
		arrived: make(chan struct{}), maxMails: defaultInboxMails, maxBytes: defaultInboxBytes,
	}
	i.heads.Listen(func(string) { i.notifyWaiters() })
	return i
}

// Send stores a mail. A mail that is already stored is not stored twice. Mails that
// arrive at the same time are written together.
func (i *Inbox) Send(_ context.Context, m delivery.Mail) error {
	if _, err := delivery.Address(m.To); err != nil {
		return err
	}
	a := &arrival{mail: m, done: make(chan error, 1)}
	i.mu.Lock()
	i.pending = append(i.pending, a)
	first := !i.busy
	i.busy = true
	i.mu.Unlock()
	if first {
		i.write()
	}
	return <-a.done
}

// List returns up to limit of the mails that match f, newest first, without their
// bodies. With limit 0, it returns all.
func (i *Inbox) List(f Filter, limit int) ([]StoredMail, error) {
	all, err := i.heads.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read the inbox: %w", err)
	}
	all = slices.DeleteFunc(all, func(k StoredMail) bool { return !f.matches(k) })
	slices.Reverse(all)
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	return all, nil
}

// Get returns a mail by the id of its message, or ErrNoMail.
func (i *Inbox) Get(id string) (k StoredMail, err error) {
	err = i.db.View(func(tx *store.Tx) error {
		found, err := i.heads.With(tx).By("id", id)
		if err != nil {
			return fmt.Errorf("cannot read the inbox: %w", err)
		}
		if len(found) == 0 {
			return fmt.Errorf("mail %s: %w", id, ErrNoMail)
		}
		k, err = i.withBody(tx, found[0])
		return err
	})
	return k, err
}

// Delete deletes a mail by the id of its message, or returns ErrNoMail.
func (i *Inbox) Delete(id string) error {
	err := i.db.Update(func(tx *store.Tx) error {
		found, err := i.heads.With(tx).By("id", id)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("mail %s: %w", id, ErrNoMail)
		}
		key := seqKey(found[0].Seq)
		return errors.Join(i.heads.With(tx).Delete(key), i.bodies.With(tx).Delete(key))
	})
	if err != nil {
		return fmt.Errorf("cannot delete a mail: %w", err)
	}
	i.deleted.Store(true)
	return nil
}

// Wait returns the oldest mail that matches f, which can already exist. It waits at
// most for limit, and then returns ErrNoMail.
func (i *Inbox) Wait(ctx context.Context, f Filter, limit time.Duration) (StoredMail, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		arrived := i.nextArrival()
		k, err := i.oldest(&f)
		if err == nil || !errors.Is(err, ErrNoMail) {
			return k, err
		}
		select {
		case <-arrived:
		case <-timeout.C:
			return StoredMail{}, fmt.Errorf("no matching mail arrived within %s: %w", limit, ErrNoMail)
		case <-ctx.Done():
			return StoredMail{}, ctx.Err()
		}
	}
}

// oldest returns the first mail that matches f. It updates f to start after the mails
// it has checked.
func (i *Inbox) oldest(f *Filter) (k StoredMail, err error) {
	err = i.db.View(func(tx *store.Tx) error {
		for {
			some, err := i.heads.With(tx).Range(seqKey(f.After+1), readBatch)
			if err != nil {
				return fmt.Errorf("cannot read the inbox: %w", err)
			}
			for _, head := range some {
				if f.matches(head) {
					k, err = i.withBody(tx, head)
					return err
				}
				f.After = head.Seq
			}
			if len(some) < readBatch {
				return ErrNoMail
			}
		}
	})
	return k, err
}

func (i *Inbox) withBody(tx *store.Tx, head StoredMail) (StoredMail, error) {
	body, err := i.bodies.With(tx).Get(seqKey(head.Seq))
	if err != nil {
		return head, fmt.Errorf("cannot read mail %s: %w", head.ID, err)
	}
	head.Text, head.HTML = body.Text, body.HTML
	return head, nil
}

func seqKey(seq uint64) string { return fmt.Sprintf("%020d", seq) }

func (i *Inbox) nextArrival() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.arrived
}

func (i *Inbox) notifyWaiters() {
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.arrived)
	i.arrived = make(chan struct{})
}

// write stores waiting mails until there are none.
func (i *Inbox) write() {
	for {
		i.mu.Lock()
		batch := i.pending
		i.pending = nil
		i.busy = len(batch) > 0
		i.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		err := i.storeBatch(batch)
		for _, a := range batch {
			a.done <- err
		}
	}
}

// storeBatch stores mails in one transaction and drops old ones. Only one goroutine
// calls it at a time.
func (i *Inbox) storeBatch(batch []*arrival) error {
	var after inboxSize
	err := i.db.Batch(func(tx *store.Tx) (err error) {
		if after, err = i.currentSize(tx); err != nil {
			return err
		}
		for _, a := range batch {
			if err := i.storeOne(tx, a.mail, &after); err != nil {
				return err
			}
		}
		return i.deleteOldest(tx, &after)
	})
	if err != nil {
		return fmt.Errorf("cannot store mails in the inbox: %w", err)
	}
	i.size = &after
	return nil
}

// currentSize returns the size of the inbox. It counts only once.
func (i *Inbox) currentSize(tx *store.Tx) (s inboxSize, err error) {
	if i.size != nil && !i.deleted.Load() {
		return *i.size, nil
	}
	i.deleted.Store(false)
	if i.size != nil {
		last := i.size.last // numbers are not used again
		defer func() { s.last = max(s.last, last) }()
	}
	for {
		some, err := i.heads.With(tx).Range(seqKey(s.last+1), readBatch)
		if err != nil {
			return s, err
		}
		for _, k := range some {
			s.mails, s.bytes, s.last = s.mails+1, s.bytes+int64(k.Size), k.Seq
		}
		if len(some) < readBatch {
			return s, nil
		}
	}
}

func (i *Inbox) storeOne(tx *store.Tx, m delivery.Mail, s *inboxSize) error {
	if existing, err := i.heads.With(tx).By("id", m.ID); err != nil || len(existing) > 0 {
		return err
	}
	s.last++
	k := StoredMail{Seq: s.last, Size: len(m.Text) + len(m.HTML), Mail: m}
	k.Text, k.HTML = "", ""
	if err := i.heads.With(tx).Put(seqKey(k.Seq), k); err != nil {
		return err
	}
	s.mails, s.bytes = s.mails+1, s.bytes+int64(k.Size)
	return i.bodies.With(tx).Put(seqKey(k.Seq), mailBody{Text: m.Text, HTML: m.HTML})
}

// deleteOldest drops the oldest mails, but never the last one.
func (i *Inbox) deleteOldest(tx *store.Tx, s *inboxSize) error {
	full := func() bool { return s.mails > 1 && (s.mails > i.maxMails || s.bytes > i.maxBytes) }
	for full() {
		some, err := i.heads.With(tx).Range("", readBatch)
		if err != nil {
			return err
		}
		for _, k := range some {
			if !full() {
				return nil
			}
			if err := errors.Join(i.heads.With(tx).Delete(seqKey(k.Seq)), i.bodies.With(tx).Delete(seqKey(k.Seq))); err != nil {
				return err
			}
			s.mails, s.bytes = s.mails-1, s.bytes-int64(k.Size)
		}
	}
	return nil
}
