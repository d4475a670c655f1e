package marketplace

import (
	"context"
	"errors"
	"fmt"
	"github.com/dewrun/dew/services"
	"net/http"
	"time"
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

// acceptOperation writes down that the broker works on it.
func (tx records) acceptOperation(op operation, p services.Progress) error {
	first := !op.Accepted
	op.Accepted, op.State, op.Description, op.UpdatedAt = true, services.InProgress, p.Description, now()
	if first {
		op.BrokerOperationID = p.Operation
	}
	if err := put(tx.operations, "operation", op.GUID, op); err != nil || op.Orphan {
		return err
	}
	if op.Kind == services.OfBinding {
		bi, err := tx.binding(op.Record)
		if err != nil {
			return err
		}
		bi.Last.State, bi.Last.Description, bi.Last.UpdatedAt = services.InProgress, p.Description, now()
		if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil || !first || op.Action == services.Delete {
			return err
		}
		return tx.bindingEvent("start_create", bi, op.By)
	}
	i, err := tx.instance(op.Record)
	if err != nil {
		return err
	}
	i.Last.State, i.Last.Description, i.Last.UpdatedAt = services.InProgress, p.Description, now()
	if p.Dashboard != "" {
		i.Dashboard = p.Dashboard
	}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil || !first || op.Action == services.Delete {
		return err
	}
	return tx.instanceEvent("start_"+string(op.Action), i, op.By, nil)
}

// rejectOperation ends an operation that the broker did not do. What it may have made
// nevertheless is taken back; with again, an earlier request for the same may have
// made it.
func (tx records) rejectOperation(op operation, err error, again bool) error {
	var be *services.BrokerError
	known := errors.As(err, &be)
	if known && be.Status == http.StatusGone && op.Action == services.Delete {
		return tx.finishOperation(op, services.Progress{State: services.Succeeded})
	}
	if op.Action == services.Create && (again || !known || be.Orphan) {
		if err := tx.mitigateOrphan(op); err != nil {
			return err
		}
	}
	return tx.failOperation(op, services.Shorten(err.Error()))
}

// mitigateOrphan begins to take back what a failed create may have left.
func (tx records) mitigateOrphan(op operation) error {
	undo := operation{
		Operation: services.Operation{Kind: op.Kind, Binding: op.Binding, Record: op.Record, Action: services.Delete},
		Orphan:    true, Broker: op.Broker, Until: now().Add(tx.polling),
	}
	if op.Kind == services.OfBinding {
		r := *op.Bind
		r.Action, r.Parameters = services.Delete, nil
		undo.Bind = &r
	} else {
		r := *op.Instance
		r.Action, r.Parameters = services.Delete, nil
		undo.Instance = &r
	}
	_, err := tx.beginOperation(undo)
	return err
}

// expireOperation ends an operation that takes longer than it may.
func (tx records) expireOperation(op operation) error {
	if op.Action == services.Create {
		if err := tx.mitigateOrphan(op); err != nil {
			return err
		}
	}
	return tx.failOperation(op, fmt.Sprintf("Service Broker failed to %s within the required time.", op.platformVerb()))
}

// brokerGone ends an operation whose broker is not there any more.
func (tx records) brokerGone(op operation, why error) error {
	if op.Orphan {
		return tx.closeOperation(op, services.Failed, why.Error())
	}
	return tx.failOperation(op, why.Error())
}

// failOperation ends an operation, with the record as it was but for its last operation. What
// takes back orphans begins anew instead, as long as it has time.
func (tx records) failOperation(op operation, why string) error {
	if op.Orphan && time.Now().Before(op.Until) {
		op.Accepted, op.BrokerOperationID, op.Description, op.UpdatedAt = false, "", why, now()
		return put(tx.operations, "operation", op.GUID, op)
	}
	if err := tx.closeOperation(op, services.Failed, why); err != nil || op.Orphan {
		return err
	}
	last := services.LastOperation{Type: op.Action, State: services.Failed, Description: why, CreatedAt: op.CreatedAt, UpdatedAt: now()}
	if op.Kind == services.OfBinding {
		bi, err := tx.binding(op.Record)
		if err != nil {
			return err
		}
		bi.Last = last
		return put(tx.bindings, "binding", bi.GUID, bi)
	}
	i, err := tx.instance(op.Record)
	if err != nil {
		return err
	}
	i.Last = last
	return put(tx.instances, "service instance", i.GUID, i)
}

// finishOperation ends an operation, with the record in its desired state.
func (tx records) finishOperation(op operation, p services.Progress) error {
	if err := tx.closeOperation(op, services.Succeeded, p.Description); err != nil || op.Orphan {
		return err
	}
	last := services.LastOperation{Type: op.Action, State: services.Succeeded, Description: p.Description, CreatedAt: op.CreatedAt, UpdatedAt: now()}
	if op.Kind == services.OfBinding {
		return tx.finishBinding(op, p, last)
	}
	i, err := tx.instance(op.Record)
	if err != nil {
		return err
	}
	if op.Action == services.Delete {
		if err := drop(tx.instances, "service instance", i.GUID); err != nil {
			return err
		}
		return tx.instanceEvent("delete", i, op.By, nil)
	}
	i.Last, i.UpdatedAt = last, now()
	if p.Dashboard != "" {
		i.Dashboard = p.Dashboard
	}
	if op.Wanted != nil {
		if err := tx.applyUpdate(&i, *op.Wanted); err != nil {
			return err
		}
	}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return err
	}
	return tx.instanceEvent(string(op.Action), i, op.By, map[string]any{"name": i.Name, "service_plan_guid": i.Plan})
}

// applyUpdate applies the desired state of an update to an instance. If another instance has
// taken the name since, it keeps the old name and says so.
func (tx instanceRecords) applyUpdate(i *services.Instance, w wantedInstance) error {
	i.Tags, i.Plan, i.Maintenance, i.Metadata = w.Tags, w.Plan, w.Maintenance, w.Metadata
	err := tx.checkNameFree(i.Space, w.Name, i.GUID)
	if services.IsRefusal(err) {
		i.Last.Description = "updated, but not renamed: " + err.Error()
		return nil
	}
	i.Name = w.Name
	return err
}

// finishBinding ends an operation of a binding.
func (tx bindingRecords) finishBinding(op operation, p services.Progress, last services.LastOperation) error {
	bi, err := tx.binding(op.Record)
	if err != nil {
		return err
	}
	if op.Action == services.Delete {
		return tx.forgetBinding(bi, op.By)
	}
	bi.Last, bi.UpdatedAt = last, now()
	bi.Credentials, bi.VolumeMounts = p.Binding.Credentials, p.Binding.VolumeMounts
	bi.SyslogDrain, bi.RouteService = p.Binding.SyslogDrain, p.Binding.RouteService
	if bi.SyslogDrain != "" || bi.RouteService != "" {
		sb, err := tx.broker(op.Broker)
		if err != nil {
			return err
		}
		bi.SetBy = bindingOrigin(sb)
	}
	if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
		return err
	}
	return tx.bindingEvent("create", bi, op.By)
}
