package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/services"
)

// Binding creates the database user of a binding, or drops it with its connections. It
// is synchronous.
func (b *Broker) Binding(ctx context.Context, r services.BindingRequest) (services.Progress, error) {
	unlock, err := b.lock(ctx, r.Instance)
	if err != nil {
		return services.Progress{}, err
	}
	defer unlock()
	rec, err := b.get(r.Instance)
	switch {
	case errors.Is(err, services.ErrNotFound) && r.Action == services.Delete:
		return services.Progress{State: services.Succeeded, Gone: true}, nil
	case errors.Is(err, services.ErrNotFound):
		return services.Progress{}, refusal(http.StatusNotFound, "service instance with guid %s does not exist", r.Instance)
	case err != nil:
		return services.Progress{}, err
	}
	switch r.Action {
	case services.Create:
		return b.bind(ctx, rec, r)
	case services.Delete:
		return b.unbind(ctx, rec, r)
	}
	return services.Progress{}, refusal(http.StatusBadRequest, "'%s' is not a valid action of a binding", r.Action)
}

func (b *Broker) bind(ctx context.Context, rec record, r services.BindingRequest) (services.Progress, error) {
	if r.Binding == "" {
		return services.Progress{}, refusal(http.StatusBadRequest, "the binding has no guid")
	}
	if r.Route != "" {
		return services.Progress{}, refusal(http.StatusBadRequest, "%s cannot be bound to a route", rec.Engine)
	}
	if _, err := (parameters{}).merge(r.Parameters, nil); err != nil {
		return services.Progress{}, err
	}
	if !rec.usable() {
		return services.Progress{}, refusal(http.StatusUnprocessableEntity, "the service instance is not ready: %s", b.progress(rec).Description)
	}
	e, _ := engineOf(rec.Engine)
	// Record the binding first: a user without a record would never be dropped.
	rec, err := b.change(rec.GUID, func(rec *record) {
		if !rec.hasBinding(r.Binding) {
			rec.Bindings = append(rec.Bindings, r.Binding)
		}
	})
	if err != nil {
		return services.Progress{}, err
	}
	if err := b.runStatements(ctx, rec, e.bindStatements(rec, r.Binding)); err != nil {
		return services.Progress{}, fmt.Errorf("cannot create a user of %s: %w", e.title, err)
	}
	bound, err := bindingData(rec, r.Binding)
	if err != nil {
		return services.Progress{}, err
	}
	return services.Progress{State: services.Succeeded, Binding: &bound}, nil
}

func (b *Broker) unbind(ctx context.Context, rec record, r services.BindingRequest) (services.Progress, error) {
	if !rec.hasBinding(r.Binding) {
		return services.Progress{State: services.Succeeded, Gone: true}, nil
	}
	later, err := b.dropUser(ctx, rec, r.Binding)
	if err != nil {
		return services.Progress{}, err
	}
	_, err = b.change(rec.GUID, func(rec *record) {
		rec.Bindings = without(rec.Bindings, r.Binding)
		if later {
			rec.Stale = append(without(rec.Stale, r.Binding), r.Binding)
		}
	})
	if err != nil {
		return services.Progress{}, err
	}
	return services.Progress{State: services.Succeeded}, nil
}

// dropUser drops the user of a binding. It returns true if that must be done later: a
// stopped server accepts no login, and must not block its own deletion.
func (b *provisioner) dropUser(ctx context.Context, rec record, binding string) (later bool, err error) {
	if !rec.usable() { // there is no server, and the user is deleted with the data
		return false, nil
	}
	if err := b.waitReady(ctx, rec, startTimeout); err != nil {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		b.c.Logger.Warn("cannot delete the user of a binding: the database is not running; dewd tries again later", "service_instance", rec.GUID, "err", err)
		return true, nil
	}
	e, _ := engineOf(rec.Engine)
	if _, err := b.statements(ctx, rec, e.unbind(rec, binding)); err != nil {
		return false, fmt.Errorf("cannot delete a user of %s: %w", e.title, err)
	}
	return false, nil
}

// dropStale drops the users of bindings that were deleted while the server did not run.
func (b *provisioner) dropStale(ctx context.Context, guid string) error {
	unlock, err := b.lock(ctx, guid)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := b.get(guid)
	if err != nil || rec.Doing != "" || rec.Restoring || !rec.usable() || b.waitReady(ctx, rec, maxPoll) != nil {
		return err
	}
	for _, binding := range rec.Stale {
		if later, err := b.dropUser(ctx, rec, binding); later || err != nil {
			return err
		}
	}
	_, err = b.change(guid, func(r *record) { r.Stale = nil })
	return err
}

func without(guids []string, guid string) []string {
	return slices.DeleteFunc(guids, func(g string) bool { return g == guid })
}

// FetchBinding returns the credentials of a binding.
func (b *Broker) FetchBinding(_ context.Context, r services.BindingRequest) (services.BindingData, error) {
	rec, err := b.get(r.Instance)
	if err != nil || !rec.hasBinding(r.Binding) {
		return services.BindingData{}, refusal(http.StatusNotFound, "binding with guid %s does not exist", r.Binding)
	}
	bound, err := bindingData(rec, r.Binding)
	bound.Parameters = json.RawMessage("{}")
	return bound, err
}

// bindingData returns the data of a binding.
func bindingData(rec record, binding string) (services.BindingData, error) {
	e, ok := engineOf(rec.Engine)
	if !ok {
		return services.BindingData{}, fmt.Errorf("cannot create credentials: this dewd does not support the service %s", rec.Engine)
	}
	c, err := json.Marshal(e.credentials(rec, binding))
	if err != nil {
		return services.BindingData{}, fmt.Errorf("cannot encode credentials: %w", err)
	}
	return services.BindingData{Credentials: c}, nil
}
