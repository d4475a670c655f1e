package marketplace

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/dashboard"
	"github.com/dewrun/dew/store"
)

// records are the stored records of the marketplace and the rules for them, by subject.
// Its methods run inside one transaction, or outside of any to read.
type records struct {
	catalogRecords
	instanceRecords
}

// Each subject uses the ones before it.
type (
	operationRecords struct{ *tables }
	catalogRecords   struct{ operationRecords }
	bindingRecords   struct{ operationRecords }
	instanceRecords  struct{ bindingRecords }
)

func newRecords(t *tables) records {
	ops := operationRecords{t}
	return records{catalogRecords{ops}, instanceRecords{bindingRecords{ops}}}
}

// tables are the buckets of the marketplace and the other data that a transaction
// needs.
type tables struct {
	brokers    store.Bucket[services.ServiceBroker]
	offerings  store.Bucket[services.Offering]
	plans      store.Bucket[services.Plan]
	instances  store.Bucket[services.Instance]
	bindings   store.Bucket[services.Binding]
	operations store.Bucket[operation]
	registry   *registry.Registry
	events     *registry.Events
	polling    time.Duration
	dashboards *dashboard.Clients
}

func newTables(cfg Config) *tables {
	return &tables{
		brokers: store.In(cfg.DB, "service brokers",
			store.Unique("name", func(b services.ServiceBroker) string { return b.Name })),
		offerings: store.In(cfg.DB, "service offerings",
			store.Index("broker", func(o services.Offering) string { return o.Broker }),
			store.Unique("broker and id", func(o services.Offering) string { return o.Broker + "\x00" + o.ID })),
		plans: store.In(cfg.DB, "service plans",
			store.Index("offering", func(p services.Plan) string { return p.Offering }),
			store.Index("broker", func(p services.Plan) string { return p.Broker }),
			store.Unique("offering and id", func(p services.Plan) string { return p.Offering + "\x00" + p.ID })),
		instances: store.In(cfg.DB, "service instances",
			store.Index("plan", func(i services.Instance) string { return i.Plan }),
			store.Index("space", func(i services.Instance) string { return i.Space }),
			store.Unique("space and name", func(i services.Instance) string { return i.Space + "\x00" + i.Name })),
		bindings: store.In(cfg.DB, "service bindings",
			store.Index("instance", func(b services.Binding) string { return b.Instance }),
			store.Index("app", func(b services.Binding) string { return b.App }),
			store.Index("route", func(b services.Binding) string { return b.Route })),
		operations: store.In(cfg.DB, "service operations",
			store.Index("record", func(op operation) string { return op.Record }),
			store.Index("open", func(op operation) string {
				if op.Open {
					return "open"
				}
				return ""
			})),
		registry: cfg.Registry,
		events:   cfg.Events,
		polling:  cfg.MaxPolling, dashboards: cfg.Dashboards,
	}
}

// with returns the tables inside a transaction.
func (tx *tables) with(in *store.Tx) *tables {
	t := *tx
	t.brokers, t.offerings, t.plans = tx.brokers.With(in), tx.offerings.With(in), tx.plans.With(in)
	t.instances, t.bindings, t.operations = tx.instances.With(in), tx.bindings.With(in), tx.operations.With(in)
	t.registry, t.events, t.dashboards = tx.registry.With(in), tx.events.With(in), tx.dashboards.With(in)
	return &t
}

// get reads a value and returns services.ErrNotFound if it does not exist.
func get[T any](b store.Bucket[T], noun, guid string) (v T, err error) {
	v, err = b.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return v, fmt.Errorf("%s %s: %w", noun, guid, services.ErrNotFound)
	}
	if err != nil {
		return v, fmt.Errorf("cannot read %s %s: %w", noun, guid, err)
	}
	return v, nil
}

// put stores a value.
func put[T any](b store.Bucket[T], noun, guid string, v T) error {
	if err := b.Put(guid, v); err != nil {
		return fmt.Errorf("cannot store %s %s: %w", noun, guid, err)
	}
	return nil
}

// drop removes a value.
func drop[T any](b store.Bucket[T], noun, guid string) error {
	if err := b.Delete(guid); err != nil {
		return fmt.Errorf("cannot delete %s %s: %w", noun, guid, err)
	}
	return nil
}

// selectSorted returns the values that keep selects, in the order of compare.
func selectSorted[T any](b store.Bucket[T], nouns string, keep func(T) bool, compare func(a, b T) int) ([]T, error) {
	all, err := b.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", nouns, err)
	}
	all = slices.DeleteFunc(all, func(v T) bool { return !keep(v) })
	slices.SortStableFunc(all, compare)
	return all, nil
}

// matches reports whether a filter's list matches s.
func matches(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
