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

// ask asks the broker to do what the operation is about. That the broker may have
// heard of it is written down before.
func (b *Book) ask(ctx context.Context, t task, r *runner) (time.Duration, error) {
	again := t.Asked || r.fails > 0
	if !t.Asked {
		t.Asked, t.State = true, InProgress
		err := b.settle(t.GUID, func(l ledger, t task) error {
			t.Asked, t.State = true, InProgress
			return put(l.tasks, "operation", t.GUID, t)
		})
		if err != nil {
			return 0, err
		}
	}
	client, err := b.client(t.Broker)
	if err != nil {
		return 0, b.settle(t.GUID, func(l ledger, t task) error { return l.unreachable(t, err) })
	}
	var p Progress
	if t.Kind == OfBinding {
		p, err = client.Binding(ctx, *t.Bind)
	} else {
		p, err = client.Instance(ctx, *t.Instance)
	}
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err() // the daemon leaves; the next one asks again
	}
	if t.retry(err, r) {
		r.fails++
		return pollAfter(r.next(), t.longest()), nil
	}
	if err != nil {
		return t.rest(r), b.settle(t.GUID, func(l ledger, t task) error { return l.rejected(t, err, again) })
	}
	return b.progressed(ctx, client, t, p, r)
}

// longest is how long to wait at most before the broker is asked again.
func (t task) longest() time.Duration {
	if t.Orphan {
		return maxOrphanPoll
	}
	return maxPoll
}

// retry tells whether a request that failed is worth to be repeated: a delete is,
// when the broker did not answer or is in trouble.
func (t task) retry(err error, r *runner) bool {
	if err == nil || t.Action != Delete {
		return false
	}
	var be *BrokerError
	forNow := !errors.As(err, &be) || be.Status == 0 || be.Status >= http.StatusInternalServerError ||
		be.Status == http.StatusTooManyRequests || be.Code == codeConcurrency
	return forNow && (t.Orphan || r.fails+1 < deleteTries)
}

// poll asks the broker how far it is.
func (b *Book) poll(ctx context.Context, t task, r *runner) (time.Duration, error) {
	client, err := b.client(t.Broker)
	if err != nil {
		return 0, b.settle(t.GUID, func(l ledger, t task) error { return l.unreachable(t, err) })
	}
	p, err := client.Last(ctx, t.last())
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	var be *BrokerError
	if errors.As(err, &be) && (be.Status == http.StatusBadRequest || be.Status == http.StatusGone) {
		return t.rest(r), b.settle(t.GUID, func(l ledger, t task) error { return l.rejected(t, be, true) })
	}
	if err != nil {
		b.log.Warn("cannot hear how far a service broker is", "operation", t.GUID, "err", err)
		return t.wait(0, r), nil
	}
	return b.progressed(ctx, client, t, p, r)
}

// last is the question how far an operation is.
func (t task) last() LastRequest {
	if t.Kind == OfBinding {
		return LastRequest{
			Action: t.Action, Instance: t.Bind.Instance, Binding: t.Bind.Binding, Offering: t.Bind.Offering, Plan: t.Bind.Plan,
			Operation: t.Word, By: t.By,
		}
	}
	return LastRequest{
		Action: t.Action, Instance: t.Instance.Instance, Offering: t.Instance.Offering, Plan: t.Instance.Plan,
		Operation: t.Word, By: t.By,
	}
}

// wait is how long until the next look: as the broker likes, but never beyond the
// time that the operation has.
func (t task) wait(likes time.Duration, r *runner) time.Duration {
	d := pollAfter(r.next(), t.longest())
	if likes > 0 {
		d = likes
	}
	return max(min(d, time.Until(t.Until)), 0)
}

// rest is how long to wait after a failure: that ends an operation, but what takes
// back orphans goes on.
func (t task) rest(r *runner) time.Duration {
	if t.Orphan {
		return t.wait(0, r)
	}
	return 0
}

// progressed goes on with what the broker says.
func (b *Book) progressed(ctx context.Context, client Broker, t task, p Progress, r *runner) (time.Duration, error) {
	p.Description = shorten(p.Description)
	switch {
	case p.State == InProgress && t.Kind == OfBinding && t.Action == Create && !t.Fetched:
		return 0, b.settle(t.GUID, func(l ledger, t task) error {
			return l.rejected(t, &BrokerError{
				Status: http.StatusAccepted, Orphan: true,
				Description: "The broker responded asynchronously but does not support fetching binding data",
			}, true)
		})
	case p.State == InProgress:
		if t.Accepted && t.Description == p.Description {
			return t.wait(p.RetryAfter, r), nil // nothing new
		}
		err := b.settle(t.GUID, func(l ledger, t task) error { return l.accepted(t, p) })
		return t.wait(p.RetryAfter, r), err
	case p.State == Failed:
		return t.rest(r), b.settle(t.GUID, func(l ledger, t task) error { return l.fail(t, p.Description) })
	case p.State != Succeeded:
		return t.rest(r), b.settle(t.GUID, func(l ledger, t task) error {
			return l.rejected(t, &BrokerError{
				Orphan:      true,
				Description: fmt.Sprintf("The service broker returned an invalid response: state %q", p.State),
			}, true)
		})
	}
	if t.Action == Create && t.Kind == OfBinding {
		return b.made(ctx, client, t, p, r)
	}
	if teller, can := client.(Teller); can && t.Kind == OfInstance && t.Accepted && t.Fetched && t.Action != Delete {
		// Only for the dashboard: without it the instance is as good.
		if told, err := teller.Tell(ctx, *t.Instance); err == nil && told.Dashboard != "" {
			p.Dashboard = told.Dashboard
		}
	}
	return 0, b.settle(t.GUID, func(l ledger, t task) error { return l.succeed(t, p) })
}

// made goes on with a binding that the broker has made.
func (b *Book) made(ctx context.Context, client Broker, t task, p Progress, r *runner) (time.Duration, error) {
	if p.Bound == nil {
		bound, err := client.Fetch(ctx, *t.Bind)
		if err != nil {
			return b.unfetched(ctx, t, err, r)
		}
		p.Bound = &bound
	}
	return 0, b.settle(t.GUID, func(l ledger, t task) error {
		if err := p.Bound.fits(t.Requires); err != nil {
			return l.rejected(t, err, true)
		}
		return l.succeed(t, p)
	})
}

// fits tells whether a binding gives only what its offering says that it may.
func (b Bound) fits(requires []string) error {
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

// unfetched goes on when a binding was made and cannot be read.
func (b *Book) unfetched(ctx context.Context, t task, err error, r *runner) (time.Duration, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	var be *BrokerError
	if errors.As(err, &be) && (be.Status == 0 || be.Status >= http.StatusInternalServerError) {
		return t.wait(0, r), nil
	}
	return 0, b.settle(t.GUID, func(l ledger, t task) error { return l.rejected(t, err, true) })
}

// accepted writes down that the broker works on it.
func (l ledger) accepted(t task, p Progress) error {
	first := !t.Accepted
	t.Accepted, t.State, t.Description, t.UpdatedAt = true, InProgress, p.Description, now()
	if first {
		t.Word = p.Operation
	}
	if err := put(l.tasks, "operation", t.GUID, t); err != nil || t.Orphan {
		return err
	}
	if t.Kind == OfBinding {
		bi, err := l.binding(t.Record)
		if err != nil {
			return err
		}
		bi.Last.State, bi.Last.Description, bi.Last.UpdatedAt = InProgress, p.Description, now()
		if err := put(l.bindings, "binding", bi.GUID, bi); err != nil || !first || t.Action == Delete {
			return err
		}
		return l.bindingEvent("start_create", bi, t.By)
	}
	i, err := l.instance(t.Record)
	if err != nil {
		return err
	}
	i.Last.State, i.Last.Description, i.Last.UpdatedAt = InProgress, p.Description, now()
	if p.Dashboard != "" {
		i.Dashboard = p.Dashboard
	}
	if err := put(l.instances, "service instance", i.GUID, i); err != nil || !first || t.Action == Delete {
		return err
	}
	return l.instanceEvent("start_"+string(t.Action), i, t.By, nil)
}

// rejected ends an operation that the broker did not do. What it may have made
// nevertheless is taken back; with again, an earlier request for the same may have
// made it.
func (l ledger) rejected(t task, err error, again bool) error {
	var be *BrokerError
	known := errors.As(err, &be)
	if known && be.Status == http.StatusGone && t.Action == Delete {
		return l.succeed(t, Progress{State: Succeeded})
	}
	if t.Action == Create && (again || !known || be.Orphan) {
		if err := l.mitigate(t); err != nil {
			return err
		}
	}
	return l.fail(t, shorten(err.Error()))
}

// mitigate begins to take back what a failed create may have left.
func (l ledger) mitigate(t task) error {
	undo := task{
		Operation: Operation{Kind: t.Kind, Binding: t.Binding, Record: t.Record, Action: Delete},
		Orphan:    true, Broker: t.Broker, Until: now().Add(l.polling),
	}
	if t.Kind == OfBinding {
		r := *t.Bind
		r.Action, r.Parameters = Delete, nil
		undo.Bind = &r
	} else {
		r := *t.Instance
		r.Action, r.Parameters = Delete, nil
		undo.Instance = &r
	}
	_, err := l.begin(undo)
	return err
}

// expire ends an operation that takes longer than it may.
func (l ledger) expire(t task) error {
	if t.Action == Create {
		if err := l.mitigate(t); err != nil {
			return err
		}
	}
	return l.fail(t, fmt.Sprintf("Service Broker failed to %s within the required time.", t.verb()))
}

// unreachable ends an operation whose broker is not there any more.
func (l ledger) unreachable(t task, why error) error {
	if t.Orphan {
		return l.close(t, Failed, why.Error())
	}
	return l.fail(t, why.Error())
}

// fail ends an operation, with the record as it was but for its last operation. What
// takes back orphans begins anew instead, as long as it has time.
func (l ledger) fail(t task, why string) error {
	if t.Orphan && time.Now().Before(t.Until) {
		t.Accepted, t.Word, t.Description, t.UpdatedAt = false, "", why, now()
		return put(l.tasks, "operation", t.GUID, t)
	}
	if err := l.close(t, Failed, why); err != nil || t.Orphan {
		return err
	}
	last := LastOperation{Type: t.Action, State: Failed, Description: why, CreatedAt: t.CreatedAt, UpdatedAt: now()}
	if t.Kind == OfBinding {
		bi, err := l.binding(t.Record)
		if err != nil {
			return err
		}
		bi.Last = last
		return put(l.bindings, "binding", bi.GUID, bi)
	}
	i, err := l.instance(t.Record)
	if err != nil {
		return err
	}
	i.Last = last
	return put(l.instances, "service instance", i.GUID, i)
}

// succeed ends an operation, with the record as it was wished.
func (l ledger) succeed(t task, p Progress) error {
	if err := l.close(t, Succeeded, p.Description); err != nil || t.Orphan {
		return err
	}
	last := LastOperation{Type: t.Action, State: Succeeded, Description: p.Description, CreatedAt: t.CreatedAt, UpdatedAt: now()}
	if t.Kind == OfBinding {
		return l.bound(t, p, last)
	}
	i, err := l.instance(t.Record)
	if err != nil {
		return err
	}
	if t.Action == Delete {
		if err := drop(l.instances, "service instance", i.GUID); err != nil {
			return err
		}
		return l.instanceEvent("delete", i, t.By, nil)
	}
	i.Last, i.UpdatedAt = last, now()
	if p.Dashboard != "" {
		i.Dashboard = p.Dashboard
	}
	if t.Wanted != nil {
		if err := l.become(&i, *t.Wanted); err != nil {
			return err
		}
	}
	if err := put(l.instances, "service instance", i.GUID, i); err != nil {
		return err
	}
	return l.instanceEvent(string(t.Action), i, t.By, map[string]any{"name": i.Name, "service_plan_guid": i.Plan})
}

// become makes an instance what its update wished. A name that somebody else took
// meanwhile is left out, and said.
func (l ledger) become(i *Instance, w wantedInstance) error {
	i.Tags, i.Plan, i.Maintenance, i.Metadata = w.Tags, w.Plan, w.Maintenance, w.Metadata
	err := l.nameFree(i.Space, w.Name, i.GUID)
	if isRefusal(err) {
		i.Last.Description = "updated, but not renamed: " + err.Error()
		return nil
	}
	i.Name = w.Name
	return err
}

// bound ends an operation of a binding.
func (l ledger) bound(t task, p Progress, last LastOperation) error {
	bi, err := l.binding(t.Record)
	if err != nil {
		return err
	}
	if t.Action == Delete {
		return l.forgetBinding(bi, t.By)
	}
	bi.Last, bi.UpdatedAt = last, now()
	bi.Credentials, bi.VolumeMounts = p.Bound.Credentials, p.Bound.VolumeMounts
	bi.SyslogDrain, bi.RouteService = p.Bound.SyslogDrain, p.Bound.RouteService
	if bi.SyslogDrain != "" || bi.RouteService != "" {
		sb, err := l.broker(t.Broker)
		if err != nil {
			return err
		}
		bi.SetBy = sb.gives()
	}
	if err := put(l.bindings, "binding", bi.GUID, bi); err != nil {
		return err
	}
	return l.bindingEvent("create", bi, t.By)
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
