package notify

import (
	"context"
	"errors"
	"time"

	"github.com/dewrun/dew/store"
)

// ErrNoMail is a mail that the inbox does not have, or no more.
var ErrNoMail = errors.New("mail could not be found")

// Inbox is a Post that keeps the newest mails instead of sending them, so that
// they can be read where there is no mail server.
type Inbox struct {
	db *store.DB
}

// Kept is a mail in the inbox.
type Kept struct {
	Seq uint64 `json:"seq"` // counts the mails that ever came
	Mail
}

// Filter chooses mails. Empty fields choose all.
type Filter struct {
	To      string // the address or the user's guid
	Kind    string
	Subject string // a part of it
	After   uint64 // only newer ones, by Seq
}

// NewInbox returns the inbox that lives in db.
func NewInbox(db *store.DB) *Inbox { return &Inbox{db: db} }

// Send keeps a mail.
func (i *Inbox) Send(context.Context, Mail) error { return nil }

// List returns the mails that f chooses, the newest first, without their bodies.
func (i *Inbox) List(Filter) ([]Kept, error) { return nil, nil }

// Get returns a mail by the id of its message, or ErrNoMail.
func (i *Inbox) Get(string) (Kept, error) { return Kept{}, ErrNoMail }

// Wait returns the oldest mail that f chooses, which may be there already. It
// waits no longer than limit, and then returns ErrNoMail.
func (i *Inbox) Wait(context.Context, Filter, time.Duration) (Kept, error) { return Kept{}, ErrNoMail }
