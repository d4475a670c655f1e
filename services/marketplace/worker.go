package marketplace

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/dashboard"
)

// The intervals and limits of broker requests.
const (
	firstPoll = time.Second
	maxPoll   = time.Minute
	// For deletes of orphans, which no client waits for. Orphans can cost money, so the
	// requests are repeated for a long time, but rarely.
	maxOrphanPoll = time.Hour
	// For deletes that a client waits for, if the broker does not respond or fails.
	deleteTries = 3

	operationAge = 24 * time.Hour // for closed operations
	sweepEvery   = time.Hour
)

// pollAfter returns the time to wait after the n-th poll without news. It grows by half
// each time.
func pollAfter(n int, longest time.Duration) time.Duration {
	d := firstPoll
	for range n {
		if d >= longest {
			break
		}
		d += d / 2
	}
	return min(d, longest)
}

// runner drives one operation. Only its goroutine uses polls and fails.
type runner struct {
	record  string        // guid
	parent  string        // guid of the instance whose delete may wait for the binding
	pollNow chan struct{} // capacity 1: poll now
	polls   int           // polls since the last change
	fails   int           // temporary failures of the request
}

// worker runs operations: it sends requests to brokers, polls them, and deletes
// anything that failed requests may have left.
type worker struct {
	*base
	wake  chan struct{} // capacity 1: there may be operations to start
	sweep chan struct{} // capacity 1: an app or a route was deleted and may have had bindings

	mu      sync.Mutex
	runners map[string]*runner // by operation; guarded by mu
}

func newWorker(b *base) *worker {
	return &worker{base: b, wake: make(chan struct{}, 1), sweep: make(chan struct{}, 1), runners: map[string]*runner{}}
}

// PollNow says that a broker may have news of an instance, its bindings, or one
// binding. Run polls the broker at once.
func (w *worker) PollNow(guid string) {
	if guid == "" {
		return // operations of instances have no parent
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runners {
		if r.record == guid || r.parent == guid {
			nudge(r.pollNow)
		}
	}
}

// operationChanged wakes Run and the runner of an operation that was closed elsewhere.
func (w *worker) operationChanged(guid string) {
	op, err := w.operations.Get(guid)
	w.mu.Lock()
	r := w.runners[guid]
	w.mu.Unlock()
	if r != nil && (err != nil || !op.Open) {
		nudge(r.pollNow)
	}
	nudge(w.wake)
}

// Run drives operations until ctx is cancelled. It starts with those that an earlier
// daemon left open. It returns when no broker request is running.
func (w *worker) Run(ctx context.Context) error {
	ended := make(chan string)
	running := map[string]bool{}
	defer func() {
		for range running {
			<-ended
		}
	}()
	ctx, cancel := context.WithCancel(ctx) // cancel runs before the deferred wait above
	defer cancel()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	nudge(w.wake)
	nudge(w.sweep)
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case guid := <-ended:
			delete(running, guid)
			nudge(w.wake) // it may have been opened again
		case <-w.wake:
			err = w.startAll(ctx, running, ended)
		case <-w.sweep:
			err = w.sweepStrays()
		case <-sweep.C:
			err = errors.Join(w.sweepOperations(), w.sweepStrays())
		}
		if err != nil {
			return err
		}
	}
}

// startAll starts every open operation that is not running yet.
func (w *worker) startAll(ctx context.Context, running map[string]bool, ended chan<- string) error {
	open, err := w.operations.By("open", "open")
	if err != nil {
		return fmt.Errorf("cannot list operations: %w", err)
	}
	for _, op := range open {
		if running[op.GUID] || ctx.Err() != nil {
			continue
		}
		running[op.GUID] = true
		r := &runner{record: op.Record, pollNow: make(chan struct{}, 1)}
		if op.Bind != nil {
			r.parent = op.Bind.Instance
		}
		w.mu.Lock()
		w.runners[op.GUID] = r
		w.mu.Unlock()
		go func() {
			w.runOperation(ctx, op.GUID, r)
			w.mu.Lock()
			delete(w.runners, op.GUID)
			w.mu.Unlock()
			ended <- op.GUID
		}()
	}
	return nil
}

// runOperation runs step after step until the operation is closed or ctx is cancelled.
func (w *worker) runOperation(ctx context.Context, guid string, r *runner) {
	for ctx.Err() == nil {
		op, err := get(w.operations, "operation", guid)
		if errors.Is(err, services.ErrNotFound) || err == nil && !op.Open {
			w.cfg.Logger.Info("service operation finished", "operation", guid, "kind", op.Kind, "action", op.Action, "record", op.Record, "state", op.State)
			w.PollNow(r.parent)
			return
		}
		wait := maxPoll
		if err == nil {
			wait, err = w.stepSafely(ctx, op, r)
		}
		if err != nil && ctx.Err() == nil {
			// An error of the store or a bug, not of a broker.
			w.cfg.Logger.Error("cannot continue a service operation", "operation", guid, "err", err)
			wait = maxPoll
		}
		if wait <= 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-r.pollNow:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// stepSafely recovers a panic, so that a bug affects only its own operation.
func (w *worker) stepSafely(ctx context.Context, op operation, r *runner) (wait time.Duration, err error) {
	defer func() {
		if v := recover(); v != nil {
			w.cfg.Logger.Error("service operation panicked", "operation", op.GUID, "err", v, "stack", string(debug.Stack()))
			err = errors.New("cannot continue the service operation: internal error")
		}
	}()
	return w.step(ctx, op, r)
}

// step runs the next step of an operation and returns how long to wait before the
// following one.
func (w *worker) step(ctx context.Context, op operation, r *runner) (time.Duration, error) {
	switch {
	case op.Kind == services.OfBroker:
		return 0, w.readCatalog(ctx, op)
	case !time.Now().Before(op.Until):
		if op.Orphan {
			w.cfg.Logger.Warn("stopped trying to delete the leftovers of a failed creation at the broker", "kind", op.Kind, "record", op.Record, "err", op.Description)
		}
		return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.expireOperation(op) })
	case op.Kind == services.OfInstance && op.Action == services.Delete && !op.Orphan && !op.Requested:
		if left, err := w.unbindAll(op); left || err != nil {
			return pollAfter(r.next(), maxPoll), err
		}
	}
	if op.Accepted {
		return w.poll(ctx, op, r)
	}
	return w.request(ctx, op, r)
}

// next counts a poll without news and returns the count before it.
func (r *runner) next() int {
	r.polls++
	return r.polls - 1
}

// settle records the result of an operation. It does nothing if the operation is
// already closed.
func (w *worker) settle(guid string, fn func(tx records, op operation) error) error {
	return w.update(func(tx records) error {
		op, err := get(tx.operations, "operation", guid)
		if errors.Is(err, services.ErrNotFound) || err == nil && !op.Open {
			return nil
		}
		if err != nil {
			return err
		}
		return fn(tx, op)
	})
}

// unbindAll starts to delete the bindings of an instance that is being deleted, unless
// that has already started. It reports whether bindings are left to wait for. A binding
// that cannot be deleted fails the delete of the instance.
func (w *worker) unbindAll(op operation) (left bool, err error) {
	err = w.settle(op.GUID, func(tx records, op operation) error {
		bs, err := tx.bindings.By("instance", op.Record)
		if err != nil {
			return fmt.Errorf("cannot list bindings: %w", err)
		}
		for _, bi := range bs {
			left = true
			if bi.Last.Is(services.Delete, services.Failed) {
				return tx.failOperation(op, bi.Last.Description)
			}
		}
		return tx.deleteBindingsOf(op.Record, op.By)
	})
	return left, err
}

// sweepOperations removes operations that were closed long ago.
func (w *worker) sweepOperations() error {
	return w.update(func(tx records) error {
		all, err := tx.operations.All()
		if err != nil {
			return fmt.Errorf("cannot list operations: %w", err)
		}
		for _, op := range all {
			if op.Open || time.Since(op.UpdatedAt) < operationAge {
				continue
			}
			if err := drop(tx.operations, "operation", op.GUID); err != nil {
				return err
			}
		}
		return nil
	})
}

// readCatalog loads a broker's catalog into the marketplace.
func (w *worker) readCatalog(ctx context.Context, op operation) error {
	sb, err := w.broker(op.Record)
	if err != nil {
		return err
	}
	if op.BrokerChange != nil {
		sb = withChange(sb, *op.BrokerChange)
	}
	client, err := w.clientOf(sb)
	if err != nil {
		return err
	}
	catalog, failure := client.Catalog(ctx)
	if failure != nil && ctx.Err() != nil {
		return ctx.Err() // the daemon exits; the next one repeats the request
	}
	if failure == nil {
		failure = services.CheckCatalog(catalog)
	}
	var clients []dashboard.Client
	if failure == nil && sb.Space == "" { // only administrators can add clients
		clients, failure = w.dashboards.Prepare(catalog)
	}
	if failure == nil {
		failure = w.settle(op.GUID, func(tx records, op operation) error { return tx.load(op, catalog, clients) })
		if failure == nil || !services.IsRefusal(failure) && !errors.As(failure, new(*app.Invalid)) {
			return failure
		}
	}
	return w.settle(op.GUID, func(tx records, op operation) error { return tx.syncFailed(op, failure) })
}

// load stores the desired state of a broker with its catalog and clients.
func (tx catalogRecords) load(op operation, catalog []services.CatalogOffering, clients []dashboard.Client) error {
	sb, err := tx.desiredBroker(op)
	if err == nil {
		err = tx.dashboards.Set(sb.GUID, clients)
	}
	if err != nil {
		return err
	}
	sb.State, sb.UpdatedAt = services.Available, now()
	if op.Warnings, err = tx.sync(sb, catalog); err != nil {
		return err
	}
	if err := put(tx.brokers, "service broker", sb.GUID, sb); err != nil {
		return err
	}
	return tx.closeOperation(op, services.Succeeded, "")
}
