package services

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
)

// NewBinding describes a binding to create.
type NewBinding struct {
	Type       BindingType
	Name       string // of a key; may be empty for an app binding
	Instance   string // guid
	App        string // guid, of an app binding
	Route      string // guid, of a route binding
	Parameters json.RawMessage
	Multiple   bool // the app may have further bindings to the same instance
	Metadata   app.Metadata
	By         app.Actor
}

// BindingFilter chooses bindings. An empty list chooses all.
type BindingFilter struct {
	GUIDs, Names             []string
	Types                    []BindingType
	Apps, AppNames           []string // guids, names
	Instances, InstanceNames []string
	Routes                   []string // guids
	Plans, PlanNames         []string
	Offerings, OfferingNames []string
	Labels                   app.Selector
}

// Drain is where the lines of an app are to be sent as well.
type Drain struct {
	App  string // guid
	URL  string // may have secrets in it
	Name string // of the service instance
	// Restricted says that the URL is not an administrator's; see egress.Policy.
	Restricted bool
}

// RouteService is what the requests of a route go through.
type RouteService struct {
	URL string
	// Restricted says that the URL is not an administrator's; see egress.Policy.
	Restricted bool
}

// Binding returns the binding with guid.
func (m *bindings) Binding(guid string) (Binding, error) { return m.binding(guid) }

func (tx *tables) binding(guid string) (Binding, error) { return get(tx.bindings, "binding", guid) }

// Bindings returns the bindings that f chooses, the oldest first. Route bindings
// are among them unless Types says otherwise.
func (m *bindings) Bindings(f BindingFilter) ([]Binding, error) {
	return selectSorted(m.bindings, "bindings", func(bi Binding) bool {
		return matches(f.GUIDs, bi.GUID) && matches(f.Names, bi.Name) && matches(f.Apps, bi.App) &&
			(len(f.Types) == 0 || slices.Contains(f.Types, bi.Type)) &&
			matches(f.Instances, bi.Instance) && matches(f.Routes, bi.Route) &&
			f.Labels.Matches(bi.Metadata.Labels) && m.matchesBinding(f, bi)
	}, oldestFirst)
}

func oldestFirst(a, b Binding) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.GUID, b.GUID))
}

// matchesBinding tells whether a filter chooses what a binding joins.
func (m *bindings) matchesBinding(f BindingFilter, bi Binding) bool {
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

// CreateBinding keeps a binding. One to a managed instance has an operation that
// makes it; else the operation is empty.
func (m *bindings) CreateBinding(n NewBinding) (bi Binding, o Operation, err error) {
	err = m.update(func(tx records) error {
		bi, o, err = tx.createBinding(n)
		return err
	})
	return bi, o, err
}

func (tx bindingRecords) createBinding(n NewBinding) (bi Binding, o Operation, err error) {
	i, err := tx.checkBinding(n)
	if err != nil {
		return bi, o, err
	}
	parameters, err := object("parameters", n.Parameters)
	if err != nil {
		return bi, o, err
	}
	bi = Binding{
		GUID: uuid.NewString(), Type: n.Type, Name: n.Name, Instance: n.Instance, App: n.App, Route: n.Route,
		Metadata: n.Metadata, CreatedAt: now(),
	}
	bi.UpdatedAt = bi.CreatedAt
	bi.Last = LastOperation{Type: Create, State: InProgress, CreatedAt: bi.CreatedAt, UpdatedAt: bi.CreatedAt}
	if i.Type == UserProvided {
		if parameters != nil {
			return bi, o, invalid("parameters", "Binding parameters are not supported for user-provided service instances")
		}
		bi.copyFrom(i)
		bi.Last.State = Succeeded
		if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
			return bi, o, err
		}
		return bi, o, tx.bindingEvent("create", bi, n.By)
	}
	op, err := tx.bindingOperation(bi, Create, n.By)
	if err != nil {
		return bi, o, err
	}
	p, err := tx.plan(i.Plan)
	if err != nil {
		return bi, o, err
	}
	if err := checkParameters(p.Schemas.BindingCreate, parameters); err != nil {
		return bi, o, err
	}
	op.Bind.Parameters = parameters
	if o, err = tx.beginOperation(op); err != nil {
		return bi, o, err
	}
	return bi, o, put(tx.bindings, "binding", bi.GUID, bi)
}

// copyFrom copies into a binding what a user-provided instance has.
func (b *Binding) copyFrom(i Instance) {
	switch b.Type {
	case RouteBinding:
		b.RouteService, b.SetBy = i.RouteService, i.RouteSetBy
	case AppBinding:
		b.Credentials, b.SyslogDrain, b.SetBy = i.Credentials, i.SyslogDrain, i.DrainSetBy
	case KeyBinding:
	}
}

// bindingOperation is an operation on a binding, with its request.
func (tx operationRecords) bindingOperation(bi Binding, a Action, by app.Actor) (operation, error) {
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
		Operation: Operation{Kind: OfBinding, Binding: bi.Type, Record: bi.GUID, Action: a, By: by},
		Broker:    p.Broker,
		Bind: &BindingRequest{
			Action: a, Binding: bi.GUID, Instance: i.GUID, Offering: of.ID, Plan: p.ID,
			App: bi.App, Route: tx.routeURL(bi.Route), Name: bi.Name, Context: tx.brokerContext(i), By: by,
		},
		Fetched:  of.BindingsRetrievable,
		Requires: of.Requires,
		Until:    tx.deadline(p),
	}
	return op, nil
}

// routeURL is a route as users write it; empty when there is none.
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

// NoteBinding changes the metadata of a binding.
func (m *bindings) NoteBinding(guid string, c app.MetadataChange) (bi Binding, err error) {
	err = m.update(func(tx records) error {
		if bi, err = tx.binding(guid); err != nil {
			return err
		}
		if bi.Last.Is(Delete, InProgress) {
			return invalid("metadata", "The service binding is being deleted")
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

// DeleteBinding removes a binding. The operation is empty when that is done already.
func (m *bindings) DeleteBinding(guid string, by app.Actor) (o Operation, err error) {
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

func (tx bindingRecords) deleteBinding(bi Binding, by app.Actor) (o Operation, err error) {
	i, err := tx.instance(bi.Instance)
	if err != nil {
		return o, err
	}
	if i.Type == UserProvided {
		return o, tx.forgetBinding(bi, by)
	}
	waiting, err := tx.waitsForBroker(bi.GUID)
	if err != nil {
		return o, err
	}
	if bi.Last.Busy() && (bi.Last.Type != Create || waiting) {
		return o, invalid("last_operation", "The delete request was rejected due to an operation being in progress for the service binding.")
	}
	if i.Last.Busy() && i.Last.Type != Delete {
		return o, errBusy(i.Name)
	}
	if err := tx.cancelOperations(bi.GUID, cancelled); err != nil {
		return o, err
	}
	op, err := tx.bindingOperation(bi, Delete, by)
	if err != nil {
		return o, err
	}
	if o, err = tx.beginOperation(op); err != nil {
		return o, err
	}
	bi.Last = LastOperation{Type: Delete, State: InProgress, CreatedAt: now(), UpdatedAt: now()}
	if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
		return o, err
	}
	return o, tx.bindingEvent("start_delete", bi, by)
}

// forgetBinding drops a binding without a broker.
func (tx bindingRecords) forgetBinding(bi Binding, by app.Actor) error {
	if err := tx.cancelOperations(bi.GUID, "the binding is gone"); err != nil {
		return err
	}
	if err := drop(tx.bindings, "binding", bi.GUID); err != nil {
		return err
	}
	return tx.bindingEvent("delete", bi, by)
}

// UnbindApp begins to delete all bindings of an app. The operations are what to wait
// for; after some of them it has to be called again, until there are none.
func (m *bindings) UnbindApp(guid string, by app.Actor) (os []Operation, err error) {
	err = m.update(func(tx records) error {
		bs, err := tx.bindings.By("app", guid)
		if err != nil {
			return fmt.Errorf("cannot list bindings: %w", err)
		}
		for _, bi := range bs {
			o, err := tx.deleteBinding(bi, by)
			some, err := tx.operationsToWaitFor(o, err, bi.GUID, bi.Instance)
			if err != nil {
				return err
			}
			os = append(os, some...)
		}
		return nil
	})
	return os, err
}

// operationsToWaitFor is what there is to wait for: a new operation, or those that are in its way.
func (tx operationRecords) operationsToWaitFor(o Operation, err error, records ...string) (os []Operation, _ error) {
	if err == nil && o.GUID != "" {
		return []Operation{o}, nil
	}
	if err == nil || !isRefusal(err) {
		return nil, err
	}
	for _, record := range records {
		some, err := tx.openOperations(record)
		if err != nil {
			return nil, err
		}
		os = append(os, some...)
	}
	return os, nil
}

// BindingParameters asks the broker for the parameters of a binding.
func (m *bindings) BindingParameters(ctx context.Context, guid string) (json.RawMessage, error) {
	bi, err := m.binding(guid)
	if err != nil {
		return nil, err
	}
	i, err := m.instance(bi.Instance)
	if err != nil {
		return nil, err
	}
	unsupported := &Refused{
		Status: http.StatusBadRequest, Code: 90007, Title: "CF-ServiceFetchBindingParametersNotSupported",
		Detail: "This service does not support fetching service binding parameters.",
	}
	if i.Type != Managed {
		return nil, unsupported
	}
	if !bi.Usable() {
		return nil, fmt.Errorf("binding %s: %w", guid, ErrNotFound)
	}
	op, err := m.bindingOperation(bi, Create, app.Actor{})
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

// Drains returns where the lines of apps are to be sent, by app and URL.
func (m *bindings) Drains() (ds []Drain, err error) {
	bs, err := m.Bindings(BindingFilter{Types: []BindingType{AppBinding}})
	if err != nil {
		return nil, err
	}
	for _, bi := range bs {
		if bi.SyslogDrain == "" || !bi.Usable() {
			continue
		}
		i, err := m.instance(bi.Instance)
		if errors.Is(err, ErrNotFound) {
			continue // both went just now
		}
		if err != nil {
			return nil, err
		}
		ds = append(ds, Drain{App: bi.App, URL: bi.SyslogDrain, Name: i.Name, Restricted: bi.SetBy.Restricted()})
	}
	slices.SortFunc(ds, func(a, b Drain) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.URL, b.URL), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(ds), nil
}

// RouteServices returns the service that the requests of a route go through, by the
// guid of the route.
func (m *bindings) RouteServices() (map[string]RouteService, error) {
	bs, err := m.Bindings(BindingFilter{Types: []BindingType{RouteBinding}})
	if err != nil {
		return nil, err
	}
	urls := map[string]RouteService{}
	for _, bi := range bs {
		if bi.Usable() && bi.RouteService != "" {
			urls[bi.Route] = RouteService{URL: bi.RouteService, Restricted: bi.SetBy.Restricted()}
		}
	}
	return urls, nil
}

// bindingEvent records what was done to a binding, and to its app.
func (tx bindingRecords) bindingEvent(what string, bi Binding, by app.Actor) error {
	kind := map[BindingType]string{AppBinding: "service_binding", KeyBinding: "service_key", RouteBinding: "service_route_binding"}[bi.Type]
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
		return nil // no app, or it is gone
	}
	return tx.event("app.update", by, app.Target{GUID: a.GUID, Type: "app", Name: a.Name}, event{space: a.Space})
}
