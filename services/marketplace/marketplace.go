package marketplace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/egress"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/dashboard"
	"github.com/dewrun/dew/store"
)

// Config configures a Marketplace.
type Config struct {
	DB       *store.DB
	Registry *registry.Registry
	Events   *registry.Events // receives the audit events of all operations
	Logger   *slog.Logger
	Builtin  services.Broker // the built-in broker (nil: none)
	// Client returns the client for a broker; nil: an HTTP client.
	Client func(b services.ServiceBroker) services.Broker
	// Egress limits the addresses of brokers that administrators did not register.
	Egress egress.Policy
	// Dashboards stores the OAuth clients of dashboards. It can be nil.
	Dashboards *dashboard.Clients
	// MaxPolling limits how long an operation can be in progress; 0: a week.
	MaxPolling time.Duration
	// Changed is called after the commit with the guid of every binding that was
	// created, changed or deleted. It can be nil.
	Changed func(binding string)
}

// Marketplace owns the records of the marketplace. Its methods check requests and
// record the desired state; Run sends the requests to the brokers. It records the audit
// events of everything it does, so its callers record none.
type Marketplace struct {
	*base
	*catalog   // brokers, offerings, plans and their visibility
	*instances // service instances, their sharing and usage
	*bindings  // bindings of apps and routes, and keys
	*worker    // runs operations

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when an operation changes; guarded by mu
}

// base is shared by all parts of the Marketplace.
type base struct {
	records // outside of transactions
	cfg     Config
}

// The parts of the Marketplace, by subject.
type (
	catalog   struct{ *base }
	instances struct{ *base }
	bindings  struct{ *base }
)

// New returns the Marketplace that is stored in cfg.DB.
func New(cfg Config) *Marketplace {
	if cfg.MaxPolling == 0 {
		cfg.MaxPolling = services.DefaultMaxPolling
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &base{records: newRecords(newTables(cfg)), cfg: cfg}
	m := &Marketplace{
		base: b, catalog: &catalog{b}, instances: &instances{b}, bindings: &bindings{b}, worker: newWorker(b),
		changed: make(chan struct{}),
	}
	b.operations.Listen(m.operationChanged)
	if cfg.Changed != nil {
		b.tables.bindings.Listen(cfg.Changed)
	}
	cfg.Registry.Listen(func(guid string) {
		if _, err := cfg.Registry.Process(guid); errors.Is(err, app.ErrNotFound) {
			nudge(m.sweep)
		}
	})
	cfg.Registry.ListenRoutes(func(guid string) {
		if _, err := cfg.Registry.Route(guid); errors.Is(err, app.ErrNotFound) {
			nudge(m.sweep)
		}
	})
	return m
}

// Operation returns the operation with guid. Clients poll it.
func (m *Marketplace) Operation(guid string) (services.Operation, error) {
	op, err := get(m.operations, "operation", guid)
	if err == nil && op.Orphan {
		return services.Operation{}, fmt.Errorf("operation %s: %w", guid, services.ErrNotFound)
	}
	return op.Operation, err
}

// Wait waits until the operation with guid is in the given state, and returns it.
func (m *Marketplace) Wait(ctx context.Context, guid string, until func(services.Operation) bool) (services.Operation, error) {
	for {
		m.mu.Lock()
		news := m.changed
		m.mu.Unlock()
		o, err := m.Operation(guid)
		if err != nil || until(o) {
			return o, err
		}
		select {
		case <-ctx.Done():
			return o, fmt.Errorf("cannot wait for operation %s: %w", guid, ctx.Err())
		case <-news:
		}
	}
}

// operationChanged wakes the callers of Wait and the worker.
func (m *Marketplace) operationChanged(guid string) {
	m.mu.Lock()
	close(m.changed)
	m.changed = make(chan struct{})
	m.mu.Unlock()
	m.worker.operationChanged(guid)
}

// update runs fn in one transaction.
func (b *base) update(fn func(tx records) error) error {
	return b.cfg.DB.Update(func(tx *store.Tx) error { return fn(newRecords(b.with(tx))) })
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // already awake
	}
}

func now() time.Time { return time.Now().UTC().Round(0) }
