package services

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
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

// Run drives operations to their end until ctx ends, those that an earlier daemon
// left undone first. It returns when no broker is being asked any more.
func (b *Book) Run(ctx context.Context) error {
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
	nudge(b.wake)
	nudge(b.stray)
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case guid := <-ended:
			delete(running, guid)
			nudge(b.wake) // perhaps it was begun anew meanwhile
		case <-b.wake:
			err = b.beginAll(ctx, running, ended)
		case <-b.stray:
			err = b.sweepStrays()
		case <-sweep.C:
			err = errors.Join(b.sweepOperations(), b.sweepStrays())
		}
		if err != nil {
			return err
		}
	}
}

// beginAll starts to drive every open operation that is not driven yet.
func (b *Book) beginAll(ctx context.Context, running map[string]bool, ended chan<- string) error {
	open, err := b.tasks.By("open", "open")
	if err != nil {
		return fmt.Errorf("cannot list operations: %w", err)
	}
	for _, t := range open {
		if running[t.GUID] || ctx.Err() != nil {
			continue
		}
		running[t.GUID] = true
		r := &runner{record: t.Record, kick: make(chan struct{}, 1)}
		if t.Bind != nil {
			r.parent = t.Bind.Instance
		}
		b.mu.Lock()
		b.runners[t.GUID] = r
		b.mu.Unlock()
		go func() {
			b.drive(ctx, t.GUID, r)
			b.mu.Lock()
			delete(b.runners, t.GUID)
			b.mu.Unlock()
			ended <- t.GUID
		}()
	}
	return nil
}

// drive takes step after step until the operation is closed or ctx ends.
func (b *Book) drive(ctx context.Context, guid string, r *runner) {
	for ctx.Err() == nil {
		t, err := get(b.tasks, "operation", guid)
		if errors.Is(err, ErrNotFound) || err == nil && !t.Open {
			b.log.Info("service operation ended", "operation", guid, "kind", t.Kind, "action", t.Action, "record", t.Record, "state", t.State)
			b.Kick(r.parent)
			return
		}
		wait := maxPoll
		if err == nil {
			wait, err = b.safely(ctx, t, r)
		}
		if err != nil && ctx.Err() == nil {
			// The store, or a bug: nothing that a broker did.
			b.log.Error("cannot go on with a service operation", "operation", guid, "err", err)
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
func (b *Book) safely(ctx context.Context, t task, r *runner) (wait time.Duration, err error) {
	defer func() {
		if v := recover(); v != nil {
			b.log.Error("service operation panicked", "operation", t.GUID, "err", v, "stack", string(debug.Stack()))
			err = errors.New("cannot go on: an error in the daemon")
		}
	}()
	return b.step(ctx, t, r)
}

// step does the next thing of an operation, and returns how long to wait for the one
// after it.
func (b *Book) step(ctx context.Context, t task, r *runner) (time.Duration, error) {
	switch {
	case t.Kind == OfBroker:
		return 0, b.readCatalog(ctx, t)
	case !time.Now().Before(t.Until):
		if t.Orphan {
			b.log.Warn("gave up to take back what a failed create may have left", "kind", t.Kind, "record", t.Record, "err", t.Description)
		}
		return 0, b.settle(t.GUID, func(l ledger, t task) error { return l.expire(t) })
	case t.Kind == OfInstance && t.Action == Delete && !t.Orphan && !t.Asked:
		if left, err := b.unbindAll(t); left || err != nil {
			return pollAfter(r.next(), maxPoll), err
		}
	}
	if t.Accepted {
		return b.poll(ctx, t, r)
	}
	return b.ask(ctx, t, r)
}

// next counts a look that found nothing new.
func (r *runner) next() int {
	r.polls++
	return r.polls - 1
}

// settle writes down what became of an operation, unless it was closed meanwhile:
// then nobody wants to know.
func (b *Book) settle(guid string, fn func(l ledger, t task) error) error {
	return b.update(func(l ledger) error {
		t, err := get(l.tasks, "operation", guid)
		if errors.Is(err, ErrNotFound) || err == nil && !t.Open {
			return nil
		}
		if err != nil {
			return err
		}
		return fn(l, t)
	})
}

// unbindAll begins to delete what is bound to an instance that is to be deleted, as
// far as that could not begin with it. It returns whether something is left to wait
// for. A binding that cannot be deleted fails the delete of the instance.
func (b *Book) unbindAll(t task) (left bool, err error) {
	err = b.settle(t.GUID, func(l ledger, t task) error {
		bs, err := l.bindings.By("instance", t.Record)
		if err != nil {
			return fmt.Errorf("cannot list bindings: %w", err)
		}
		for _, bi := range bs {
			left = true
			if bi.Last.Is(Delete, Failed) {
				return l.fail(t, bi.Last.Description)
			}
		}
		return l.unbindFrom(t.Record, t.By)
	})
	return left, err
}

// sweepOperations drops operations that ended long ago.
func (b *Book) sweepOperations() error {
	return b.update(func(l ledger) error {
		all, err := l.tasks.All()
		if err != nil {
			return fmt.Errorf("cannot list operations: %w", err)
		}
		for _, t := range all {
			if t.Open || time.Since(t.UpdatedAt) < operationAge {
				continue
			}
			if err := drop(l.tasks, "operation", t.GUID); err != nil {
				return err
			}
		}
		return nil
	})
}

// Offer makes the marketplace offer what the built-in broker has.
func (b *Book) Offer(ctx context.Context) error {
	if b.cfg.Builtin == nil {
		return nil
	}
	catalog, err := b.cfg.Builtin.Catalog(ctx)
	if err == nil {
		err = checkCatalog(catalog)
	}
	if err != nil {
		return fmt.Errorf("cannot read the catalog of the built-in service broker: %w", err)
	}
	return b.update(func(l ledger) error {
		sb, err := l.broker(BuiltinBroker)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if err != nil {
			sb = ServiceBroker{GUID: BuiltinBroker, Name: BuiltinBroker, CreatedAt: now()}
		}
		sb.State, sb.UpdatedAt = Available, now()
		if err := put(l.brokers, "service broker", sb.GUID, sb); err != nil {
			return err
		}
		_, err = l.sync(sb, catalog)
		return err
	})
}

// readCatalog makes the marketplace offer what a broker has.
func (b *Book) readCatalog(ctx context.Context, t task) error {
	sb, err := b.broker(t.Record)
	if err != nil {
		return err
	}
	if t.Renewed != nil {
		sb = sb.renewed(*t.Renewed)
	}
	client, err := b.clientOf(sb)
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
	return b.settle(t.GUID, func(l ledger, t task) error {
		if failure != nil {
			return l.unsynced(t, failure)
		}
		sb, err := l.wished(t)
		if isRefusal(err) || isA[*app.Invalid](err) {
			return l.unsynced(t, err)
		}
		if err != nil {
			return err
		}
		sb.State, sb.UpdatedAt = Available, now()
		warnings, err := l.sync(sb, catalog)
		if err != nil {
			return err
		}
		t.Warnings = warnings
		if err := put(l.brokers, "service broker", sb.GUID, sb); err != nil {
			return err
		}
		return l.close(t, Succeeded, "")
	})
}

// wished is the broker as its operation leaves it. While its catalog was read its
// metadata may have changed, and somebody else may have taken the name.
func (l ledger) wished(t task) (ServiceBroker, error) {
	sb, err := l.broker(t.Record)
	if err != nil {
		return sb, err
	}
	if t.Renewed != nil {
		sb = sb.renewed(*t.Renewed)
	}
	return sb, l.checkBroker(sb)
}

// unsynced leaves a broker as it was, with a catalog that could not be read.
func (l ledger) unsynced(t task, failure error) error {
	sb, err := l.broker(t.Record)
	if err != nil {
		return err
	}
	sb.State, sb.UpdatedAt = SynchronizationFailed, now()
	os, err := l.offerings.By("broker", sb.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service offerings: %w", err)
	}
	if len(os) > 0 {
		sb.State = Available // with the catalog that it had
	}
	if err := put(l.brokers, "service broker", sb.GUID, sb); err != nil {
		return err
	}
	var refused *Refused
	if errors.As(failure, &refused) {
		t.Failure = refused
	} else {
		t.Failure = &Refused{Status: http.StatusBadGateway, Code: 270022, Title: "CF-ServiceBrokerSyncFailed", Detail: failure.Error()}
	}
	return l.close(t, Failed, t.Failure.Detail)
}
