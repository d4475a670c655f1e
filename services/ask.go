package services

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"
)

// maxText bounds what a broker says to users, in bytes.
const maxText = 8 << 10

// request asks the broker to do what the operation is about. That the broker may have
// heard of it is written down before.
func (w *worker) request(ctx context.Context, op operation, r *runner) (time.Duration, error) {
	again := op.Asked || r.fails > 0
	if !op.Asked {
		op.Asked, op.State = true, InProgress
		err := w.settle(op.GUID, func(tx records, op operation) error {
			op.Asked, op.State = true, InProgress
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
	var p Progress
	if op.Kind == OfBinding {
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
	if err == nil || op.Action != Delete {
		return false
	}
	var be *BrokerError
	forNow := !errors.As(err, &be) || be.Status == 0 || be.Status >= http.StatusInternalServerError ||
		be.Status == http.StatusTooManyRequests || be.Code == codeConcurrency
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
	var be *BrokerError
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
func (op operation) lastOperationRequest() LastOperationRequest {
	if op.Kind == OfBinding {
		return LastOperationRequest{
			Action: op.Action, Instance: op.Bind.Instance, Binding: op.Bind.Binding, Offering: op.Bind.Offering, Plan: op.Bind.Plan,
			Operation: op.BrokerOperationID, By: op.By,
		}
	}
	return LastOperationRequest{
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
func (w *worker) applyProgress(ctx context.Context, client Broker, op operation, p Progress, r *runner) (time.Duration, error) {
	p.Description = shorten(p.Description)
	switch {
	case p.State == InProgress && op.Kind == OfBinding && op.Action == Create && !op.Fetched:
		return 0, w.settle(op.GUID, func(tx records, op operation) error {
			return tx.rejectOperation(op, &BrokerError{
				Status: http.StatusAccepted, Orphan: true,
				Description: "The broker responded asynchronously but does not support fetching binding data",
			}, true)
		})
	case p.State == InProgress:
		if op.Accepted && op.Description == p.Description {
			return op.wait(p.RetryAfter, r), nil // nothing new
		}
		err := w.settle(op.GUID, func(tx records, op operation) error { return tx.acceptOperation(op, p) })
		return op.wait(p.RetryAfter, r), err
	case p.State == Failed:
		return op.waitAfterFailure(r), w.settle(op.GUID, func(tx records, op operation) error { return tx.failOperation(op, p.Description) })
	case p.State != Succeeded:
		return op.waitAfterFailure(r), w.settle(op.GUID, func(tx records, op operation) error {
			return tx.rejectOperation(op, &BrokerError{
				Orphan:      true,
				Description: fmt.Sprintf("The service broker returned an invalid response: state %q", p.State),
			}, true)
		})
	}
	if op.Action == Create && op.Kind == OfBinding {
		return w.finishBindingCreate(ctx, client, op, p, r)
	}
	if teller, can := client.(InstanceFetcher); can && op.Kind == OfInstance && op.Accepted && op.Fetched && op.Action != Delete {
		// Only for the dashboard: without it the instance is as good.
		if told, err := teller.FetchInstance(ctx, *op.Instance); err == nil && told.Dashboard != "" {
			p.Dashboard = told.Dashboard
		}
	}
	return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.finishOperation(op, p) })
}

// finishBindingCreate goes on with a binding that the broker has made.
func (w *worker) finishBindingCreate(ctx context.Context, client Broker, op operation, p Progress, r *runner) (time.Duration, error) {
	if p.Binding == nil {
		bound, err := client.FetchBinding(ctx, *op.Bind)
		if err != nil {
			return w.fetchFailed(ctx, op, err, r)
		}
		p.Binding = &bound
	}
	return 0, w.settle(op.GUID, func(tx records, op operation) error {
		if err := p.Binding.checkRequires(op.Requires); err != nil {
			return tx.rejectOperation(op, err, true)
		}
		return tx.finishOperation(op, p)
	})
}

// checkRequires tells whether a binding gives only what its offering says that it may.
func (b BindingData) checkRequires(requires []string) error {
	what := ""
	switch {
	case b.SyslogDrain != "" && !slices.Contains(requires, requiresSyslog):
		return &BrokerError{Orphan: true, Description: "The service is attempting to stream logs from your application, but is not registered as a logging service. Please contact the service provider."}
	case b.RouteService != "" && !slices.Contains(requires, requiresRoute):
		what = "route service"
	case len(b.VolumeMounts) > 2 && string(b.VolumeMounts) != "null" && !slices.Contains(requires, requiresVolume):
		what = "volume mount service"
	default:
		return nil
	}
	return &BrokerError{Orphan: true, Description: "The service is not registered as a " + what + ". Please contact the service provider."}
}

// fetchFailed goes on when a binding was made and cannot be read.
func (w *worker) fetchFailed(ctx context.Context, op operation, err error, r *runner) (time.Duration, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	var be *BrokerError
	if errors.As(err, &be) && (be.Status == 0 || be.Status >= http.StatusInternalServerError) {
		return op.wait(0, r), nil
	}
	return 0, w.settle(op.GUID, func(tx records, op operation) error { return tx.rejectOperation(op, err, true) })
}

// acceptOperation writes down that the broker works on it.
func (tx records) acceptOperation(op operation, p Progress) error {
	first := !op.Accepted
	op.Accepted, op.State, op.Description, op.UpdatedAt = true, InProgress, p.Description, now()
	if first {
		op.BrokerOperationID = p.Operation
	}
	if err := put(tx.operations, "operation", op.GUID, op); err != nil || op.Orphan {
		return err
	}
	if op.Kind == OfBinding {
		bi, err := tx.binding(op.Record)
		if err != nil {
			return err
		}
		bi.Last.State, bi.Last.Description, bi.Last.UpdatedAt = InProgress, p.Description, now()
		if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil || !first || op.Action == Delete {
			return err
		}
		return tx.bindingEvent("start_create", bi, op.By)
	}
	i, err := tx.instance(op.Record)
	if err != nil {
		return err
	}
	i.Last.State, i.Last.Description, i.Last.UpdatedAt = InProgress, p.Description, now()
	if p.Dashboard != "" {
		i.Dashboard = p.Dashboard
	}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil || !first || op.Action == Delete {
		return err
	}
	return tx.instanceEvent("start_"+string(op.Action), i, op.By, nil)
}

// rejectOperation ends an operation that the broker did not do. What it may have made
// nevertheless is taken back; with again, an earlier request for the same may have
// made it.
func (tx records) rejectOperation(op operation, err error, again bool) error {
	var be *BrokerError
	known := errors.As(err, &be)
	if known && be.Status == http.StatusGone && op.Action == Delete {
		return tx.finishOperation(op, Progress{State: Succeeded})
	}
	if op.Action == Create && (again || !known || be.Orphan) {
		if err := tx.mitigateOrphan(op); err != nil {
			return err
		}
	}
	return tx.failOperation(op, shorten(err.Error()))
}

// mitigateOrphan begins to take back what a failed create may have left.
func (tx records) mitigateOrphan(op operation) error {
	undo := operation{
		Operation: Operation{Kind: op.Kind, Binding: op.Binding, Record: op.Record, Action: Delete},
		Orphan:    true, Broker: op.Broker, Until: now().Add(tx.polling),
	}
	if op.Kind == OfBinding {
		r := *op.Bind
		r.Action, r.Parameters = Delete, nil
		undo.Bind = &r
	} else {
		r := *op.Instance
		r.Action, r.Parameters = Delete, nil
		undo.Instance = &r
	}
	_, err := tx.beginOperation(undo)
	return err
}

// expireOperation ends an operation that takes longer than it may.
func (tx records) expireOperation(op operation) error {
	if op.Action == Create {
		if err := tx.mitigateOrphan(op); err != nil {
			return err
		}
	}
	return tx.failOperation(op, fmt.Sprintf("Service Broker failed to %s within the required time.", op.platformVerb()))
}

// brokerGone ends an operation whose broker is not there any more.
func (tx records) brokerGone(op operation, why error) error {
	if op.Orphan {
		return tx.closeOperation(op, Failed, why.Error())
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
	if err := tx.closeOperation(op, Failed, why); err != nil || op.Orphan {
		return err
	}
	last := LastOperation{Type: op.Action, State: Failed, Description: why, CreatedAt: op.CreatedAt, UpdatedAt: now()}
	if op.Kind == OfBinding {
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
func (tx records) finishOperation(op operation, p Progress) error {
	if err := tx.closeOperation(op, Succeeded, p.Description); err != nil || op.Orphan {
		return err
	}
	last := LastOperation{Type: op.Action, State: Succeeded, Description: p.Description, CreatedAt: op.CreatedAt, UpdatedAt: now()}
	if op.Kind == OfBinding {
		return tx.finishBinding(op, p, last)
	}
	i, err := tx.instance(op.Record)
	if err != nil {
		return err
	}
	if op.Action == Delete {
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
func (tx instanceRecords) applyUpdate(i *Instance, w wantedInstance) error {
	i.Tags, i.Plan, i.Maintenance, i.Metadata = w.Tags, w.Plan, w.Maintenance, w.Metadata
	err := tx.checkNameFree(i.Space, w.Name, i.GUID)
	if isRefusal(err) {
		i.Last.Description = "updated, but not renamed: " + err.Error()
		return nil
	}
	i.Name = w.Name
	return err
}

// finishBinding ends an operation of a binding.
func (tx bindingRecords) finishBinding(op operation, p Progress, last LastOperation) error {
	bi, err := tx.binding(op.Record)
	if err != nil {
		return err
	}
	if op.Action == Delete {
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
		bi.SetBy = sb.bindingOrigin()
	}
	if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
		return err
	}
	return tx.bindingEvent("create", bi, op.By)
}

// shorten bounds what a broker says to users.
func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	cut := s[:maxText]
	for !utf8.ValidString(cut) && len(cut) > maxText-utf8.UTFMax {
		cut = cut[:len(cut)-1]
	}
	return cut + "...This message has been truncated due to size."
}
