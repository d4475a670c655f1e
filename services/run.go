package services

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dewrun/dew/app"
)

// How often brokers are asked.
const (
	firstPoll = time.Second
	maxPoll   = time.Minute
	// Of deletes that nobody waits for: what is left behind costs somebody something,
	// so they are repeated for long, but seldom.
	maxOrphanPoll = time.Hour
	// Of deletes that somebody waits for, when the broker does not answer or fails.
	deleteTries = 3

	operationAge = 24 * time.Hour // of ended operations
	sweepEvery   = time.Hour
)

// pollAfter is how long to wait after the n-th look that found nothing new: half as
// long again each time.
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

// runner drives one operation. Its goroutine alone uses polls and fails.
type runner struct {
	record string        // guid
	parent string        // guid of the instance that may wait for its binding to go
	kick   chan struct{} // of 1: look now
	polls  int           // looks since something new was heard
	fails  int           // requests that failed for now
}

// worker carries out operations: it sends requests to brokers, polls them, and takes
// back what failed requests may have left behind.
type worker struct {
	*base
	wake  chan struct{} // of 1: there may be operations to begin
	sweep chan struct{} // of 1: an app or a route is gone, perhaps with bindings

	mu      sync.Mutex
	runners map[string]*runner // by operation; guarded by mu
}

func newWorker(b *base) *worker {
	return &worker{base: b, wake: make(chan struct{}, 1), sweep: make(chan struct{}, 1), runners: map[string]*runner{}}
}

// Kick says that there is something new to hear of an instance, of its bindings, or
// of one binding from its broker, so that Run asks at once.
func (w *worker) Kick(guid string) {
	if guid == "" {
		return // nobody waits for nothing; operations of instances have no parent
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runners {
		if r.record == guid || r.parent == guid {
			nudge(r.kick)
		}
	}
}

// operationChanged wakes the runner of an operation that ended elsewhere, and Run.
func (w *worker) operationChanged(guid string) {
	op, err := w.operations.Get(guid)
	w.mu.Lock()
	r := w.runners[guid]
	w.mu.Unlock()
	if r != nil && (err != nil || !op.Open) {
		nudge(r.kick)
	}
	nudge(w.wake)
}

// Run drives operations to their end until ctx ends, those that an earlier daemon
// left undone first. It returns when no broker is being asked any more.
func (w *worker) Run(ctx context.Context) error {
	ended := make(chan string)
	running := map[string]bool{}
	defer func() {
		for range running {
			<-ended
		}
	}()
	ctx, cancel := context.WithCancel(ctx) // before that wait
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
			nudge(w.wake) // perhaps it was begun anew meanwhile
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

// startAll starts to drive every open operation that is not driven yet.
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
		r := &runner{record: op.Record, kick: make(chan struct{}, 1)}
		if op.Bind != nil {
			r.parent = op.Bind.Instance
		}
		w.mu.Lock()
		w.runners[op.GUID] = r
		w.mu.Unlock()
		go func() {
			w.drive(ctx, op.GUID, r)
			w.mu.Lock()
			delete(w.runners, op.GUID)
			w.mu.Unlock()
			ended <- op.GUID
		}()
	}
	return nil
}

// drive takes step after step until the operation is closed or ctx ends.
func (w *worker) drive(ctx context.Context, guid string, r *runner) {
	for ctx.Err() == nil {
		op, err := get(w.operations, "operation", guid)
		if errors.Is(err, ErrNotFound) || err == nil && !op.Open {
			w.cfg.Logger.Info("service operation ended", "operation", guid, "kind", op.Kind, "action", op.Action, "record", op.Record, "state", op.State)
			w.Kick(r.parent)
			return
		}
		wait := maxPoll
		if err == nil {
			wait, err = w.safely(ctx, op, r)
		}
		if err != nil && ctx.Err() == nil {
			// The store, or a bug: nothing that a broker did.
			w.cfg.Logger.Error("cannot go on with a service operation", "operation", guid, "err", err)
			wait = maxPoll
		}
		if wait <= 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-r.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// safely keeps a bug inside its operation.
func (w *worker) safely(ctx context.Context, op operation, r *runner) (wait time.Duration, err error) {
	defer func() {
		if v := recover(); v != nil {
			w.cfg.Logger.Error("service operation panicked", "operation", op.GUID, "err", v, "stack", string(debug.Stack()))
			err = errors.New("cannot go on: an error in the daemon")
		}
	}()
	return w.step(ctx, op, r)
}

// step does the next thing of an operation, and returns how long to wait for the one
// after it.
func (w *worker) step(ctx context.Context, op operation, r *runner) (time.Duration, error) {
	switch {
	case op.Kind == OfBroker:
		return 0, w.readCatalog(ctx, op)
	case !time.Now().Before(op.Until):
		if op.Orphan {
			w.cfg.Logger.Warn("gave up to take back what a failed create may have left", "kind", op.Kind, "record", op.Record, "err", op.Description)
		}
		return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.expireOperation(op) })
	case op.Kind == OfInstance && op.Action == Delete && !op.Orphan && !op.Asked:
		if left, err := w.unbindAll(op); left || err != nil {
			return pollAfter(r.next(), maxPoll), err
		}
	}
	if op.Accepted {
		return w.poll(ctx, op, r)
	}
	return w.request(ctx, op, r)
}

// next counts a look that found nothing new.
func (r *runner) next() int {
	r.polls++
	return r.polls - 1
}

// settle writes down what became of an operation, unless it was closed meanwhile:
// then nobody wants to know.
func (w *worker) settle(guid string, fn func(tx records, op operation) error) error {
	return w.update(func(tx records) error {
		op, err := get(tx.operations, "operation", guid)
		if errors.Is(err, ErrNotFound) || err == nil && !op.Open {
			return nil
		}
		if err != nil {
			return err
		}
		return fn(tx, op)
	})
}

// unbindAll begins to delete what is bound to an instance that is to be deleted, as
// far as that could not begin with it. It returns whether something is left to wait
// for. A binding that cannot be deleted fails the delete of the instance.
func (w *worker) unbindAll(op operation) (left bool, err error) {
	err = w.settle(op.GUID, func(tx records, op operation) error {
		bs, err := tx.bindings.By("instance", op.Record)
		if err != nil {
			return fmt.Errorf("cannot list bindings: %w", err)
		}
		for _, bi := range bs {
			left = true
			if bi.Last.Is(Delete, Failed) {
				return tx.failOperation(op, bi.Last.Description)
			}
		}
		return tx.deleteBindingsOf(op.Record, op.By)
	})
	return left, err
}

// sweepOperations drops operations that ended long ago.
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

// Offer makes the marketplace offer what the built-in broker has.
func (m *catalog) Offer(ctx context.Context) error {
	if m.cfg.Builtin == nil {
		return nil
	}
	catalog, err := m.cfg.Builtin.Catalog(ctx)
	if err == nil {
		err = checkCatalog(catalog)
	}
	if err != nil {
		return fmt.Errorf("cannot read the catalog of the built-in service broker: %w", err)
	}
	return m.update(func(tx records) error {
		sb, err := tx.broker(BuiltinBroker)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if err != nil {
			sb = ServiceBroker{GUID: BuiltinBroker, Name: BuiltinBroker, CreatedAt: now()}
		}
		sb.State, sb.UpdatedAt = Available, now()
		if err := put(tx.brokers, "service broker", sb.GUID, sb); err != nil {
			return err
		}
		_, err = tx.sync(sb, catalog)
		return err
	})
}

// readCatalog makes the marketplace offer what a broker has.
func (w *worker) readCatalog(ctx context.Context, op operation) error {
	sb, err := w.broker(op.Record)
	if err != nil {
		return err
	}
	if op.BrokerChange != nil {
		sb = sb.with(*op.BrokerChange)
	}
	client, err := w.clientOf(sb)
	if err != nil {
		return err
	}
	catalog, failure := client.Catalog(ctx)
	if failure != nil && ctx.Err() != nil {
		return ctx.Err() // the daemon leaves; the next one asks again
	}
	if failure == nil {
		failure = checkCatalog(catalog)
	}
	return w.settle(op.GUID, func(tx records, op operation) error {
		if failure != nil {
			return tx.syncFailed(op, failure)
		}
		sb, err := tx.desiredBroker(op)
		if isRefusal(err) || isA[*app.Invalid](err) {
			return tx.syncFailed(op, err)
		}
		if err != nil {
			return err
		}
		sb.State, sb.UpdatedAt = Available, now()
		warnings, err := tx.sync(sb, catalog)
		if err != nil {
			return err
		}
		op.Warnings = warnings
		if err := put(tx.brokers, "service broker", sb.GUID, sb); err != nil {
			return err
		}
		return tx.closeOperation(op, Succeeded, "")
	})
}

// desiredBroker is the broker after its operation. Its metadata may have changed while its
// catalog was read, and another broker may have taken the name.
func (tx catalogRecords) desiredBroker(op operation) (ServiceBroker, error) {
	sb, err := tx.broker(op.Record)
	if err != nil {
		return sb, err
	}
	if op.BrokerChange != nil {
		sb = sb.with(*op.BrokerChange)
	}
	return sb, tx.checkBroker(sb)
}

// syncFailed leaves a broker as it was, with a catalog that could not be read.
func (tx catalogRecords) syncFailed(op operation, failure error) error {
	sb, err := tx.broker(op.Record)
	if err != nil {
		return err
	}
	sb.State, sb.UpdatedAt = SynchronizationFailed, now()
	os, err := tx.offerings.By("broker", sb.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service offerings: %w", err)
	}
	if len(os) > 0 {
		sb.State = Available // with the catalog that it had
	}
	if err := put(tx.brokers, "service broker", sb.GUID, sb); err != nil {
		return err
	}
	var refused *Refused
	if errors.As(failure, &refused) {
		op.Failure = refused
	} else {
		op.Failure = &Refused{Status: http.StatusBadGateway, Code: 270022, Title: "CF-ServiceBrokerSyncFailed", Detail: failure.Error()}
	}
	return tx.closeOperation(op, Failed, op.Failure.Detail)
}
