package marketplace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dewrun/dew/services"
)

// request sends the operation's request to the broker. Before that, it records that the
// broker may have received it.
func (w *worker) request(ctx context.Context, op operation, r *runner) (time.Duration, error) {
	again := op.Requested || r.fails > 0
	if !op.Requested {
		op.Requested, op.State = true, services.InProgress
		err := w.settle(op.GUID, func(tx records, op operation) error {
			op.Requested, op.State = true, services.InProgress
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
		return 0, ctx.Err() // the daemon exits; the next one repeats the request
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

// maxWait returns the longest time to wait between two requests to the broker.
func (op operation) maxWait() time.Duration {
	if op.Orphan {
		return maxOrphanPoll
	}
	return maxPoll
}

// retry reports whether to repeat a failed request: a delete whose broker did not
// respond or has a temporary failure.
func (op operation) retry(err error, r *runner) bool {
	if err == nil || op.Action != services.Delete {
		return false
	}
	var be *services.BrokerError
	temporary := !errors.As(err, &be) || be.Status == 0 || be.Status >= http.StatusInternalServerError ||
		be.Status == http.StatusTooManyRequests || be.Code == services.CodeConcurrency
	return temporary && (op.Orphan || r.fails+1 < deleteTries)
}

// poll requests the state of the operation from the broker.
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
		w.cfg.Logger.Warn("cannot get the state of an operation from the service broker", "operation", op.GUID, "err", err)
		return op.wait(0, r), nil
	}
	return w.applyProgress(ctx, client, op, p, r)
}

// lastOperationRequest returns the request for the state of an operation.
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

// wait returns the time until the next poll. It uses the broker's preferred time, but
// does not exceed the deadline of the operation.
func (op operation) wait(preferred time.Duration, r *runner) time.Duration {
	d := pollAfter(r.next(), op.maxWait())
	if preferred > 0 {
		d = preferred
	}
	return max(min(d, time.Until(op.Until)), 0)
}

// waitAfterFailure returns the time to wait after a failure. A failure closes an
// operation, except one that deletes orphans: that one continues.
func (op operation) waitAfterFailure(r *runner) time.Duration {
	if op.Orphan {
		return op.wait(0, r)
	}
	return 0
}

// applyProgress handles the progress that the broker reports.
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
			return op.wait(p.RetryAfter, r), nil // no change
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
	if fetcher, ok := client.(services.InstanceFetcher); ok && op.Kind == services.OfInstance && op.Accepted && op.Fetched && op.Action != services.Delete {
		// FetchInstance is needed only for the dashboard; the instance works without
		// it.
		if fetched, err := fetcher.FetchInstance(ctx, *op.Instance); err == nil && fetched.Dashboard != "" {
			p.Dashboard = fetched.Dashboard
		}
	}
	return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.finishOperation(op, p) })
}

// finishBindingCreate completes a binding that the broker has created.
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

// fetchFailed handles a binding that was created but cannot be fetched.
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
