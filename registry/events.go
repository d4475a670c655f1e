package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// Limits of stored events, by age and by number: whichever is reached first.
const (
	eventAge       = 31 * 24 * time.Hour
	eventsPerApp   = 10_000
	sweepEvery     = 1000 // records between two checks of the limits
	sweepEveryTime = 24 * time.Hour
)

// readEventKey returns the target and the time in a key.
func readEventKey(key string) (target string, at time.Time, err error) {
	cut := strings.LastIndexByte(key, '/')
	if cut > 0 {
		cut = strings.LastIndexByte(key[:cut], '/')
	}
	if cut < 0 {
		return "", at, fmt.Errorf("the key of an event has no time: %q", key)
	}
	text, _, _ := strings.Cut(key[cut+1:], "/")
	nanos, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return "", at, fmt.Errorf("the key of an event has no time: %q", key)
	}
	return key[:cut], time.Unix(0, nanos), nil
}

// Events stores audit events for a month, and up to 10,000 per target.
type Events struct {
	db     *store.DB
	tx     *store.Tx // nil means that each method has its own
	bucket store.Bucket[app.Event]
	sweeps *sweeps
	bounds eventBounds
}

// eventBounds are the limits of the constants, except in tests.
type eventBounds struct{ perTarget, sweepEvery int }

// sweeps decides when to delete events beyond the limits.
type sweeps struct {
	mu    sync.Mutex
	count int // records since the last one; guarded by mu
	last  time.Time
}

// due counts a record and reports whether to sweep.
func (s *sweeps) due(every int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if s.count < every && time.Since(s.last) < sweepEveryTime {
		return false
	}
	s.count, s.last = 0, time.Now()
	return true
}

// NewEvents returns the events that are stored in db.
func NewEvents(db *store.DB) *Events {
	return &Events{
		db: db, bucket: store.In(db, "events", store.Index("guid", func(e app.Event) string { return e.GUID })), sweeps: &sweeps{},
		bounds: eventBounds{perTarget: eventsPerApp, sweepEvery: sweepEvery},
	}
}

// With returns the events inside tx.
func (es *Events) With(tx *store.Tx) *Events {
	c := *es
	c.tx, c.bucket = tx, es.bucket.With(tx)
	return &c
}

// Record stores e, and fills in a missing guid and time.
func (es *Events) Record(e app.Event) error {
	if e.GUID == "" {
		id, err := uuid.NewV7() // ordered by time, even within one tick of the clock
		if err != nil {
			return fmt.Errorf("cannot create a guid for an event: %w", err)
		}
		e.GUID = id.String()
	}
	if e.CreatedAt.IsZero() {
		e.CreatedAt = app.Now()
	}
	return es.update(func(es *Events) error {
		if err := es.bucket.Put(e.Key(), e); err != nil {
			return fmt.Errorf("cannot store event: %w", err)
		}
		if !es.sweeps.due(es.bounds.sweepEvery) {
			return nil
		}
		return es.sweep()
	})
}

// Get returns the event with guid.
func (es *Events) Get(guid string) (app.Event, error) {
	found, err := es.bucket.By("guid", guid)
	if err != nil {
		return app.Event{}, fmt.Errorf("cannot read event %s: %w", guid, err)
	}
	if len(found) == 0 || time.Since(found[0].CreatedAt) > eventAge {
		return app.Event{}, fmt.Errorf("event %s: %w", guid, app.ErrNotFound)
	}
	return found[0], nil
}

// List returns the events that match f.
func (es *Events) List(f app.EventFilter) ([]app.Event, error) {
	all, err := es.read(f.Targets)
	if err != nil {
		return nil, fmt.Errorf("cannot list events: %w", err)
	}
	oldest := time.Now().Add(-eventAge)
	all = slices.DeleteFunc(all, func(e app.Event) bool { return !f.Matches(e) || e.CreatedAt.Before(oldest) })
	slices.SortFunc(all, func(a, b app.Event) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.GUID, b.GUID))
	})
	if f.Newest {
		slices.Reverse(all)
	}
	return all, nil
}

func (es *Events) read(targets []string) ([]app.Event, error) {
	if len(targets) == 0 {
		return es.bucket.All()
	}
	var all []app.Event
	for _, t := range slices.Compact(slices.Sorted(slices.Values(targets))) {
		some, err := es.bucket.Prefix(t + "/")
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// sweep deletes events beyond the limits. Keys are sorted by target and time, so from
// the end the newest of each target come first. No event has to be read.
func (es *Events) sweep() error {
	keys, err := es.bucket.Keys("")
	if err != nil {
		return fmt.Errorf("cannot list events: %w", err)
	}
	oldest := time.Now().Add(-eventAge)
	kept := map[string]int{}
	for _, key := range slices.Backward(keys) {
		target, at, err := readEventKey(key)
		if err != nil {
			return err
		}
		if at.After(oldest) && kept[target] < es.bounds.perTarget {
			kept[target]++
			continue
		}
		if err := es.bucket.Delete(key); err != nil {
			return fmt.Errorf("cannot delete event %s: %w", key, err)
		}
	}
	return nil
}

func (es *Events) update(fn func(es *Events) error) error {
	if es.tx != nil {
		return fn(es)
	}
	return es.db.Update(func(tx *store.Tx) error { return fn(es.With(tx)) })
}
