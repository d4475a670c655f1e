package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/egress"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/store"
)

// defaultMaxPolling bounds operations of plans that say nothing.
const defaultMaxPolling = 7 * 24 * time.Hour

// Config is what a Book needs.
type Config struct {
	DB       *store.DB
	Registry *registry.Registry
	Events   *registry.Events // told of everything, by whoever asked for it
	Logger   *slog.Logger
	Builtin  Broker // the broker that is always there; nil: none
	// Client returns how to speak with a broker; nil: by HTTP.
	Client func(b ServiceBroker) Broker
	// Egress decides where brokers may be that administrators did not register.
	Egress egress.Policy
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
	ledger // outside of transactions
	cfg    Config
	log    *slog.Logger
	wake   chan struct{} // of 1: there may be operations to begin
	stray  chan struct{} // of 1: an app or a route is gone, perhaps with bindings

	mu      sync.Mutex
	runners map[string]*runner // by operation; guarded by mu
	news    chan struct{}      // closed and replaced when an operation changes; guarded by mu
}

// New returns the book that lives in cfg.DB.
func New(cfg Config) *Book {
	if cfg.MaxPolling == 0 {
		cfg.MaxPolling = defaultMaxPolling
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Book{
		ledger: newLedger(cfg), cfg: cfg, log: cfg.Logger,
		wake: make(chan struct{}, 1), stray: make(chan struct{}, 1),
		runners: map[string]*runner{}, news: make(chan struct{}),
	}
	b.tasks.Listen(b.operationChanged)
	if cfg.Changed != nil {
		b.bindings.Listen(cfg.Changed)
	}
	cfg.Registry.Listen(func(guid string) {
		if _, err := cfg.Registry.Process(guid); errors.Is(err, app.ErrNotFound) {
			nudge(b.stray)
		}
	})
	cfg.Registry.ListenRoutes(func(guid string) {
		if _, err := cfg.Registry.Route(guid); errors.Is(err, app.ErrNotFound) {
			nudge(b.stray)
		}
	})
	return b
}

// Kick says that there is something new to hear of an instance, of its bindings, or
// of one binding from its broker, so that Run asks at once.
func (b *Book) Kick(guid string) {
	if guid == "" {
		return // nobody waits for nothing; operations of instances have no parent
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runners {
		if r.record == guid || r.parent == guid {
			nudge(r.kick)
		}
	}
}

// Operation returns the operation with guid: what a client polls.
func (b *Book) Operation(guid string) (Operation, error) {
	t, err := get(b.tasks, "operation", guid)
	if err == nil && t.Orphan {
		return Operation{}, fmt.Errorf("operation %s: %w", guid, ErrNotFound)
	}
	return t.Operation, err
}

// Wait returns the operation with guid when it has ended.
func (b *Book) Wait(ctx context.Context, guid string) (Operation, error) {
	for {
		b.mu.Lock()
		news := b.news
		b.mu.Unlock()
		o, err := b.Operation(guid)
		if err != nil || o.Ended() {
			return o, err
		}
		select {
		case <-ctx.Done():
			return o, fmt.Errorf("cannot wait for operation %s: %w", guid, ctx.Err())
		case <-news:
		}
	}
}

// operationChanged tells who waits, and Run.
func (b *Book) operationChanged(guid string) {
	t, err := b.tasks.Get(guid)
	b.mu.Lock()
	close(b.news)
	b.news = make(chan struct{})
	r := b.runners[guid]
	b.mu.Unlock()
	if r != nil && (err != nil || !t.Open) {
		nudge(r.kick) // somebody else may have closed it
	}
	nudge(b.wake)
}

// update runs fn in one transaction.
func (b *Book) update(fn func(l ledger) error) error {
	return b.cfg.DB.Update(func(tx *store.Tx) error { return fn(b.with(tx)) })
}

// ledger is the shelves of the marketplace, and what else a transaction needs.
type ledger struct {
	brokers   *store.Bucket[ServiceBroker]
	offerings *store.Bucket[Offering]
	plans     *store.Bucket[Plan]
	instances *store.Bucket[Instance]
	bindings  *store.Bucket[Binding]
	tasks     *store.Bucket[task]
	registry  *registry.Registry
	events    *registry.Events
	polling   time.Duration
}

func newLedger(cfg Config) ledger {
	return ledger{
		brokers: store.In(cfg.DB, "service brokers",
			store.Unique("name", func(b ServiceBroker) string { return b.Name })),
		offerings: store.In(cfg.DB, "service offerings",
			store.Index("broker", func(o Offering) string { return o.Broker }),
			store.Unique("broker and id", func(o Offering) string { return o.Broker + "\x00" + o.ID })),
		plans: store.In(cfg.DB, "service plans",
			store.Index("offering", func(p Plan) string { return p.Offering }),
			store.Index("broker", func(p Plan) string { return p.Broker }),
			store.Unique("offering and id", func(p Plan) string { return p.Offering + "\x00" + p.ID })),
		instances: store.In(cfg.DB, "service instances",
			store.Index("plan", func(i Instance) string { return i.Plan }),
			store.Index("space", func(i Instance) string { return i.Space }),
			store.Unique("space and name", func(i Instance) string { return i.Space + "\x00" + i.Name })),
		bindings: store.In(cfg.DB, "service bindings",
			store.Index("instance", func(b Binding) string { return b.Instance }),
			store.Index("app", func(b Binding) string { return b.App }),
			store.Index("route", func(b Binding) string { return b.Route })),
		tasks: store.In(cfg.DB, "service operations",
			store.Index("record", func(t task) string { return t.Record }),
			store.Index("open", func(t task) string {
				if t.Open {
					return "open"
				}
				return ""
			})),
		registry: cfg.Registry,
		events:   cfg.Events,
		polling:  cfg.MaxPolling,
	}
}

// with returns the shelves inside tx.
func (l ledger) with(tx *store.Tx) ledger {
	l.brokers, l.offerings, l.plans = l.brokers.With(tx), l.offerings.With(tx), l.plans.With(tx)
	l.instances, l.bindings, l.tasks = l.instances.With(tx), l.bindings.With(tx), l.tasks.With(tx)
	l.registry, l.events = l.registry.With(tx), l.events.With(tx)
	return l
}

// get reads a value that must be there.
func get[T any](b *store.Bucket[T], noun, guid string) (v T, err error) {
	v, err = b.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("%s %s: %w", noun, guid, ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read %s %s: %w", noun, guid, err)
	}
	return v, nil
}

// put keeps a value.
func put[T any](b *store.Bucket[T], noun, guid string, v T) error {
	if err := b.Put(guid, v); err != nil {
		return fmt.Errorf("cannot keep %s %s: %w", noun, guid, err)
	}
	return nil
}

// drop removes a value.
func drop[T any](b *store.Bucket[T], noun, guid string) error {
	if err := b.Delete(guid); err != nil {
		return fmt.Errorf("cannot delete %s %s: %w", noun, guid, err)
	}
	return nil
}

// choose returns the values that keep chooses, in the order of compare.
func choose[T any](b *store.Bucket[T], nouns string, keep func(T) bool, compare func(a, b T) int) ([]T, error) {
	all, err := b.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", nouns, err)
	}
	all = slices.DeleteFunc(all, func(v T) bool { return !keep(v) })
	slices.SortStableFunc(all, compare)
	return all, nil
}

// among tells whether a filter's list chooses s.
func among(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is awake already
	}
}

func now() time.Time { return time.Now().UTC().Round(0) }
