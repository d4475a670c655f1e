package marketplace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dewrun/dew/services"
)

// request asks the broker to do what the operation is about. That the broker may have
// heard of it is written down before.
func (w *worker) request(ctx context.Context, op operation, r *runner) (time.Duration, error) {
	again := op.Asked || r.fails > 0
	if !op.Asked {
		op.Asked, op.State = true, services.InProgress
		err := w.settle(op.GUID, func(tx records, op operation) error {
			op.Asked, op.State = true, services.InProgress
			return put(tx.operations, "operation", op.GUID, op)
		})
		if err != nil {
			return 0, err
		}
	}
	client, err := w.client(op.Broker)
	if err != nil {
		return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.brokerGone(op, err) })
	}
	var p services.Progress
	if op.Kind == services.OfBinding {
		p, err = client.Binding(ctx, *op.Bind)
	} else {
		p, err = client.Instance(ctx, *op.Instance)
	}
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err() // the daemon leaves; the next one asks again
	}
	if op.retry(err, r) {
		r.fails++
		return pollAfter(r.next(), op.maxWait()), nil
	}
	if err != nil {
		return op.waitAfterFailure(r), w.settle(op.GUID, func(tx records, op operation) error { return tx.rejectOperation(op, err, again) })
	}
	return w.applyProgress(ctx, client, op, p, r)
}

// maxWait is how long to wait at most before the broker is asked again.
func (op operation) maxWait() time.Duration {
	if op.Orphan {
		return maxOrphanPoll
	}
	return maxPoll
}

// retry tells whether a request that failed is worth to be repeated: a delete is,
// when the broker did not answer or is in trouble.
func (op operation) retry(err error, r *runner) bool {
	if err == nil || op.Action != services.Delete {
		return false
	}
	var be *services.BrokerError
	forNow := !errors.As(err, &be) || be.Status == 0 || be.Status >= http.StatusInternalServerError ||
		be.Status == http.StatusTooManyRequests || be.Code == services.CodeConcurrency
	return forNow && (op.Orphan || r.fails+1 < deleteTries)
}

// poll asks the broker how far it is.
func (w *worker) poll(ctx context.Context, op operation, r *runner) (time.Duration, error) {
	client, err := w.client(op.Broker)
	if err != nil {
		return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.brokerGone(op, err) })
	}
	p, err := client.LastOperation(ctx, op.lastOperationRequest())
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	var be *services.BrokerError
	if errors.As(err, &be) && (be.Status == http.StatusBadRequest || be.Status == http.StatusGone) {
		return op.waitAfterFailure(r), w.settle(op.GUID, func(tx records, op operation) error { return tx.rejectOperation(op, be, true) })
	}
	if err != nil {
		w.cfg.Logger.Warn("cannot hear how far a service broker is", "operation", op.GUID, "err", err)
		return op.wait(0, r), nil
	}
	return w.applyProgress(ctx, client, op, p, r)
}

// lastOperationRequest is the question how far an operation is.
func (op operation) lastOperationRequest() services.LastOperationRequest {
	if op.Kind == services.OfBinding {
		return services.LastOperationRequest{
			Action: op.Action, Instance: op.Bind.Instance, Binding: op.Bind.Binding, Offering: op.Bind.Offering, Plan: op.Bind.Plan,
			Operation: op.BrokerOperationID, By: op.By,
		}
	}
	return services.LastOperationRequest{
		Action: op.Action, Instance: op.Instance.Instance, Offering: op.Instance.Offering, Plan: op.Instance.Plan,
		Operation: op.BrokerOperationID, By: op.By,
	}
}

// wait is how long until the next look: as the broker likes, but never beyond the
// time that the operation has.
func (op operation) wait(likes time.Duration, r *runner) time.Duration {
	d := pollAfter(r.next(), op.maxWait())
	if likes > 0 {
		d = likes
	}
	return max(min(d, time.Until(op.Until)), 0)
}

// waitAfterFailure is how long to wait after a failure: that ends an operation, but what takes
// back orphans goes on.
func (op operation) waitAfterFailure(r *runner) time.Duration {
	if op.Orphan {
		return op.wait(0, r)
	}
	return 0
}

// applyProgress goes on with what the broker says.
func (w *worker) applyProgress(ctx context.Context, client services.Broker, op operation, p services.Progress, r *runner) (time.Duration, error) {
	p.Description = services.Shorten(p.Description)
	switch {
	case p.State == services.InProgress && op.Kind == services.OfBinding && op.Action == services.Create && !op.Fetched:
		return 0, w.settle(op.GUID, func(tx records, op operation) error {
			return tx.rejectOperation(op, &services.BrokerError{
				Status: http.StatusAccepted, Orphan: true,
				Description: "The broker responded asynchronously but does not support fetching binding data",
			}, true)
		})
	case p.State == services.InProgress:
		if op.Accepted && op.Description == p.Description {
			return op.wait(p.RetryAfter, r), nil // nothing new
		}
		err := w.settle(op.GUID, func(tx records, op operation) error { return tx.acceptOperation(op, p) })
		return op.wait(p.RetryAfter, r), err
	case p.State == services.Failed:
		return op.waitAfterFailure(r), w.settle(op.GUID, func(tx records, op operation) error { return tx.failOperation(op, p.Description) })
	case p.State != services.Succeeded:
		return op.waitAfterFailure(r), w.settle(op.GUID, func(tx records, op operation) error {
			return tx.rejectOperation(op, &services.BrokerError{
				Orphan:      true,
				Description: fmt.Sprintf("The service broker returned an invalid response: state %q", p.State),
			}, true)
		})
	}
	if op.Action == services.Create && op.Kind == services.OfBinding {
		return w.finishBindingCreate(ctx, client, op, p, r)
	}
	if teller, can := client.(services.InstanceFetcher); can && op.Kind == services.OfInstance && op.Accepted && op.Fetched && op.Action != services.Delete {
		// Only for the dashboard: without it the instance is as good.
		if told, err := teller.FetchInstance(ctx, *op.Instance); err == nil && told.Dashboard != "" {
			p.Dashboard = told.Dashboard
		}
	}
	return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.finishOperation(op, p) })
}

// finishBindingCreate goes on with a binding that the broker has made.
func (w *worker) finishBindingCreate(ctx context.Context, client services.Broker, op operation, p services.Progress, r *runner) (time.Duration, error) {
	if p.Binding == nil {
		bound, err := client.FetchBinding(ctx, *op.Bind)
		if err != nil {
			return w.fetchFailed(ctx, op, err, r)
		}
		p.Binding = &bound
	}
	return 0, w.settle(op.GUID, func(tx records, op operation) error {
		if err := p.Binding.CheckRequires(op.Requires); err != nil {
			return tx.rejectOperation(op, err, true)
		}
		return tx.finishOperation(op, p)
	})
}

// fetchFailed goes on when a binding was made and cannot be read.
func (w *worker) fetchFailed(ctx context.Context, op operation, err error, r *runner) (time.Duration, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	var be *services.BrokerError
	if errors.As(err, &be) && (be.Status == 0 || be.Status >= http.StatusInternalServerError) {
		return op.wait(0, r), nil
	}
	return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.rejectOperation(op, err, true) })
}
