package marketplace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// Binding returns the binding with guid.
func (m *bindings) Binding(guid string) (services.Binding, error) { return m.binding(guid) }

func (tx *tables) binding(guid string) (services.Binding, error) {
	return get(tx.bindings, "binding", guid)
}

// Bindings returns the bindings that match f, oldest first. They include route bindings
// unless Types excludes them.
func (m *bindings) Bindings(f services.BindingFilter) ([]services.Binding, error) {
	return selectSorted(m.bindings, "bindings", func(bi services.Binding) bool {
		return matches(f.GUIDs, bi.GUID) && matches(f.Names, bi.Name) && matches(f.Apps, bi.App) &&
			(len(f.Types) == 0 || slices.Contains(f.Types, bi.Type)) &&
			matches(f.Instances, bi.Instance) && matches(f.Routes, bi.Route) &&
			f.Labels.Matches(bi.Metadata.Labels) && m.matchesBinding(f, bi)
	}, oldestFirst)
}

// matchesBinding reports whether a binding's app name, instance, plan and offering
// match a filter.
func (m *bindings) matchesBinding(f services.BindingFilter, bi services.Binding) bool {
	if len(f.AppNames) > 0 {
		if a, err := m.registry.App(bi.App); err != nil || !slices.Contains(f.AppNames, a.Name) {
			return false
		}
	}
	if len(f.InstanceNames)+len(f.Plans)+len(f.PlanNames)+len(f.Offerings)+len(f.OfferingNames) == 0 {
		return true
	}
	i, err := m.instance(bi.Instance)
	if err != nil || !matches(f.InstanceNames, i.Name) || !matches(f.Plans, i.Plan) || !m.planNamed(f.PlanNames, i) {
		return false
	}
	if len(f.Offerings)+len(f.OfferingNames) == 0 {
		return true
	}
	p, err := m.plan(i.Plan)
	if err != nil {
		return false
	}
	of, err := m.offering(p.Offering)
	return err == nil && matches(f.Offerings, of.GUID) && matches(f.OfferingNames, of.Name)
}

// CreateBinding stores a binding. For a managed instance it returns the operation that
// creates the binding at the broker; otherwise the operation is empty.
func (m *bindings) CreateBinding(n services.NewBinding) (bi services.Binding, o services.Operation, err error) {
	err = m.update(func(tx records) error {
		bi, o, err = tx.createBinding(n)
		return err
	})
	return bi, o, err
}

func (tx bindingRecords) createBinding(n services.NewBinding) (bi services.Binding, o services.Operation, err error) {
	i, err := tx.checkBinding(n)
	if err != nil {
		return bi, o, err
	}
	parameters, err := services.CheckObject("parameters", n.Parameters)
	if err != nil {
		return bi, o, err
	}
	bi = services.Binding{
		GUID: uuid.NewString(), Type: n.Type, Name: n.Name, Instance: n.Instance, App: n.App, Route: n.Route,
		Metadata: n.Metadata, CreatedAt: now(),
	}
	bi.UpdatedAt = bi.CreatedAt
	bi.Last = services.LastOperation{Type: services.Create, State: services.InProgress, CreatedAt: bi.CreatedAt, UpdatedAt: bi.CreatedAt}
	if i.Type == services.UserProvided {
		if parameters != nil {
			return bi, o, services.NewInvalid("parameters", "Binding parameters are not supported for user-provided service instances")
		}
		copyFrom(&bi, i)
		bi.Last.State = services.Succeeded
		if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
			return bi, o, err
		}
		return bi, o, tx.bindingEvent("create", bi, n.By)
	}
	op, err := tx.bindingOperation(bi, services.Create, n.By)
	if err != nil {
		return bi, o, err
	}
	p, err := tx.plan(i.Plan)
	if err != nil {
		return bi, o, err
	}
	if err := services.CheckParameters(p.Schemas.BindingCreate, parameters); err != nil {
		return bi, o, err
	}
	op.Bind.Parameters = parameters
	if o, err = tx.beginOperation(op); err != nil {
		return bi, o, err
	}
	return bi, o, put(tx.bindings, "binding", bi.GUID, bi)
}

// bindingOperation returns an operation on a binding, with its broker request.
func (tx operationRecords) bindingOperation(bi services.Binding, a services.Action, by app.Actor) (operation, error) {
	i, err := tx.instance(bi.Instance)
	if err != nil {
		return operation{}, err
	}
	p, err := tx.plan(i.Plan)
	if err != nil {
		return operation{}, err
	}
	of, err := tx.offering(p.Offering)
	if err != nil {
		return operation{}, err
	}
	op := operation{
		Operation: services.Operation{Kind: services.OfBinding, Binding: bi.Type, Record: bi.GUID, Action: a, By: by},
		Broker:    p.Broker,
		Bind: &services.BindingRequest{
			Action: a, Binding: bi.GUID, Instance: i.GUID, Offering: of.ID, Plan: p.ID,
			App: bi.App, Route: tx.routeURL(bi.Route), Name: bi.Name, Context: tx.brokerContext(i), By: by,
		},
		Fetched:  of.BindingsRetrievable,
		Requires: of.Requires,
		Until:    tx.deadline(p),
	}
	return op, nil
}

// routeURL returns a route as users write it, or "" if it does not exist.
func (tx operationRecords) routeURL(guid string) string {
	if guid == "" {
		return ""
	}
	rt, err := tx.registry.Route(guid)
	if err != nil {
		return ""
	}
	d, err := tx.registry.Domain(rt.Domain)
	if err != nil {
		return ""
	}
	return rt.URL(d.Name)
}

// UpdateBindingMetadata changes the metadata of a binding.
func (m *bindings) UpdateBindingMetadata(guid string, c app.MetadataChange) (bi services.Binding, err error) {
	err = m.update(func(tx records) error {
		if bi, err = tx.binding(guid); err != nil {
			return err
		}
		if bi.Last.Is(services.Delete, services.InProgress) {
			return services.NewInvalid("metadata", "The service binding is being deleted")
		}
		bi.Metadata = bi.Metadata.Merge(c)
		if err := bi.Metadata.Validate(); err != nil {
			return err
		}
		bi.UpdatedAt = now()
		return put(tx.bindings, "binding", guid, bi)
	})
	return bi, err
}

// DeleteBinding deletes a binding. The operation is empty if the deletion is already
// complete.
func (m *bindings) DeleteBinding(guid string, by app.Actor) (o services.Operation, err error) {
	err = m.update(func(tx records) error {
		bi, err := tx.binding(guid)
		if err != nil {
			return err
		}
		o, err = tx.deleteBinding(bi, by)
		return err
	})
	return o, err
}

func (tx bindingRecords) deleteBinding(bi services.Binding, by app.Actor) (o services.Operation, err error) {
	i, err := tx.instance(bi.Instance)
	if err != nil {
		return o, err
	}
	if i.Type == services.UserProvided {
		return o, tx.deleteBindingRecord(bi, by)
	}
	waiting, err := tx.waitsForBroker(bi.GUID)
	if err != nil {
		return o, err
	}
	if bi.Last.Busy() && (bi.Last.Type != services.Create || waiting) {
		return o, services.NewInvalid("last_operation", "The delete request was rejected due to an operation being in progress for the service binding.")
	}
	if i.Last.Busy() && i.Last.Type != services.Delete {
		return o, services.ErrBusy(i.Name)
	}
	if err := tx.cancelOperations(bi.GUID, cancelled); err != nil {
		return o, err
	}
	op, err := tx.bindingOperation(bi, services.Delete, by)
	if err != nil {
		return o, err
	}
	if o, err = tx.beginOperation(op); err != nil {
		return o, err
	}
	bi.Last = services.LastOperation{Type: services.Delete, State: services.InProgress, CreatedAt: now(), UpdatedAt: now()}
	if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
		return o, err
	}
	return o, tx.bindingEvent("start_delete", bi, by)
}

// deleteBindingRecord deletes the record of a binding without a request to the broker.
func (tx bindingRecords) deleteBindingRecord(bi services.Binding, by app.Actor) error {
	if err := tx.cancelOperations(bi.GUID, "the binding was deleted"); err != nil {
		return err
	}
	if err := drop(tx.bindings, "binding", bi.GUID); err != nil {
		return err
	}
	return tx.bindingEvent("delete", bi, by)
}

// UnbindApp starts to delete all bindings of an app. The caller must wait for the
// returned operations and call it again until it returns none.
func (m *bindings) UnbindApp(guid string, by app.Actor) (os []services.Operation, err error) {
	err = m.update(func(tx records) error {
		bs, err := tx.bindings.By("app", guid)
		if err != nil {
			return fmt.Errorf("cannot list bindings: %w", err)
		}
		for _, bi := range bs {
			o, err := tx.deleteBinding(bi, by)
			ops, err := tx.operationsToWaitFor(o, err, bi.GUID, bi.Instance)
			if err != nil {
				return err
			}
			os = append(os, ops...)
		}
		return nil
	})
	return os, err
}

// operationsToWaitFor returns the new operation o, or the open operations that block
// it.
func (tx operationRecords) operationsToWaitFor(o services.Operation, err error, records ...string) (os []services.Operation, _ error) {
	if err == nil && o.GUID != "" {
		return []services.Operation{o}, nil
	}
	if err == nil || !services.IsRefusal(err) {
		return nil, err
	}
	for _, record := range records {
		ops, err := tx.openOperations(record)
		if err != nil {
			return nil, err
		}
		os = append(os, ops...)
	}
	return os, nil
}

// BindingParameters requests the parameters of a binding from the broker.
func (m *bindings) BindingParameters(ctx context.Context, guid string) (json.RawMessage, error) {
	bi, err := m.binding(guid)
	if err != nil {
		return nil, err
	}
	i, err := m.instance(bi.Instance)
	if err != nil {
		return nil, err
	}
	unsupported := &services.Refused{
		Status: http.StatusBadRequest, Code: 90007, Title: "CF-ServiceFetchBindingParametersNotSupported",
		Detail: "This service does not support fetching service binding parameters.",
	}
	if i.Type != services.Managed {
		return nil, unsupported
	}
	if !bi.Usable() {
		return nil, fmt.Errorf("binding %s: %w", guid, services.ErrNotFound)
	}
	op, err := m.bindingOperation(bi, services.Create, app.Actor{})
	if err != nil {
		return nil, err
	}
	if !op.Fetched {
		return nil, unsupported
	}
	broker, err := m.client(op.Broker)
	if err != nil {
		return nil, err
	}
	bound, err := broker.FetchBinding(ctx, *op.Bind)
	if err != nil {
		return nil, brokerRefusal(err)
	}
	if len(bound.Parameters) == 0 {
		return json.RawMessage("{}"), nil
	}
	return bound.Parameters, nil
}

// Drains returns the log drains of apps, sorted by app and URL.
func (m *bindings) Drains() (ds []services.Drain, err error) {
	bs, err := m.Bindings(services.BindingFilter{Types: []services.BindingType{services.AppBinding}})
	if err != nil {
		return nil, err
	}
	for _, bi := range bs {
		if bi.SyslogDrain == "" || !bi.Usable() {
			continue
		}
		i, err := m.instance(bi.Instance)
		if errors.Is(err, services.ErrNotFound) {
			continue // both were just deleted
		}
		if err != nil {
			return nil, err
		}
		ds = append(ds, services.Drain{App: bi.App, URL: bi.SyslogDrain, Name: i.Name, Restricted: bi.SetBy.Restricted(), TLS: services.DrainTLS(bi.Credentials)})
	}
	slices.SortFunc(ds, func(a, b services.Drain) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.URL, b.URL), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(ds), nil
}

// RouteServices returns the route services by route guid.
func (m *bindings) RouteServices() (map[string]services.RouteService, error) {
	bs, err := m.Bindings(services.BindingFilter{Types: []services.BindingType{services.RouteBinding}})
	if err != nil {
		return nil, err
	}
	urls := map[string]services.RouteService{}
	for _, bi := range bs {
		if bi.Usable() && bi.RouteService != "" {
			urls[bi.Route] = services.RouteService{URL: bi.RouteService, Restricted: bi.SetBy.Restricted()}
		}
	}
	return urls, nil
}

// bindingEvent records an audit event for a binding and for its app.
func (tx bindingRecords) bindingEvent(what string, bi services.Binding, by app.Actor) error {
	kind := map[services.BindingType]string{services.AppBinding: "service_binding", services.KeyBinding: "service_key", services.RouteBinding: "service_route_binding"}[bi.Type]
	e := event{data: map[string]any{"request": map[string]any{
		"type": string(bi.Type), "relationships": map[string]any{
			"service_instance": map[string]any{"data": map[string]any{"guid": bi.Instance}},
		},
	}}}
	if i, err := tx.instance(bi.Instance); err == nil {
		e.space = i.Space
	}
	if err := tx.event(kind+"."+what, by, app.Target{GUID: bi.GUID, Type: kind, Name: bi.Name}, e); err != nil {
		return err
	}
	a, err := tx.registry.App(bi.App)
	if err != nil || what != "create" && what != "delete" {
		return nil // no app, or it was deleted
	}
	return tx.event("app.update", by, app.Target{GUID: a.GUID, Type: "app", Name: a.Name}, event{space: a.Space})
}

func oldestFirst(a, b services.Binding) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.GUID, b.GUID))
}

// copyFrom copies the credentials and URLs of a user-provided instance into a binding.
func copyFrom(b *services.Binding, i services.Instance) {
	switch b.Type {
	case services.RouteBinding:
		b.RouteService, b.SetBy = i.RouteService, i.RouteSetBy
	case services.AppBinding:
		b.Credentials, b.SyslogDrain, b.SetBy = i.Credentials, i.SyslogDrain, i.DrainSetBy
	case services.KeyBinding:
	}
}
