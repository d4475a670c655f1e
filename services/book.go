package services

import (
	"context"
	"log/slog"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// Config is what a Book needs.
type Config struct {
	DB       *store.DB
	Registry *app.Registry
	Events   *app.Events // told of everything, by whoever asked for it
	Logger   *slog.Logger
	Builtin  Broker // the broker that is always there; nil: none
	// Client returns how to speak with a broker; nil: by HTTP.
	Client func(b ServiceBroker) Broker
	// MaxPolling bounds how long an operation may be in progress; 0: a week.
	MaxPolling time.Duration
	// Changed is told of the guid of every binding that was made, changed or deleted,
	// after the commit. It may be nil.
	Changed func(binding string)
}

// Book owns the records of the marketplace. Its methods check and write down what
// is wished; Run makes it so. It records the audit events of all that it does, so
// nobody else does.
type Book struct {
	cfg Config
}

// New returns the book that lives in cfg.DB.
func New(cfg Config) *Book { return &Book{cfg: cfg} }

// Run drives operations to their end until ctx ends, those that an earlier daemon
// left undone first.
func (b *Book) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Kick says that there is something new to hear of an instance or binding from its
// broker, so that Run asks at once.
func (b *Book) Kick(guid string) {}

// Operation returns the operation with guid: what a client polls.
func (b *Book) Operation(guid string) (o Operation, err error) { return o, err }

// Wait returns the operation with guid when it has ended.
func (b *Book) Wait(ctx context.Context, guid string) (o Operation, err error) { return o, err }
