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

// NewBinding is the wish for a binding.
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
func (b *Book) Binding(guid string) (Binding, error) { return b.binding(guid) }

func (l ledger) binding(guid string) (Binding, error) { return get(l.bindings, "binding", guid) }

// Bindings returns the bindings that f chooses, the oldest first. Route bindings
// are among them unless Types says otherwise.
func (b *Book) Bindings(f BindingFilter) ([]Binding, error) {
	return choose(b.bindings, "bindings", func(bi Binding) bool {
		return among(f.GUIDs, bi.GUID) && among(f.Names, bi.Name) && among(f.Apps, bi.App) &&
			(len(f.Types) == 0 || slices.Contains(f.Types, bi.Type)) &&
			among(f.Instances, bi.Instance) && among(f.Routes, bi.Route) &&
			f.Labels.Matches(bi.Metadata.Labels) && b.boundTo(f, bi)
	}, oldestFirst)
}

func oldestFirst(a, b Binding) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.GUID, b.GUID))
}

// boundTo tells whether a filter chooses what a binding joins.
func (b *Book) boundTo(f BindingFilter, bi Binding) bool {
	if len(f.AppNames) > 0 {
		if a, err := b.registry.App(bi.App); err != nil || !slices.Contains(f.AppNames, a.Name) {
			return false
		}
	}
	if len(f.InstanceNames)+len(f.Plans)+len(f.PlanNames)+len(f.Offerings)+len(f.OfferingNames) == 0 {
		return true
	}
	i, err := b.instance(bi.Instance)
	if err != nil || !among(f.InstanceNames, i.Name) || !among(f.Plans, i.Plan) || !b.planNamed(f.PlanNames, i) {
		return false
	}
	if len(f.Offerings)+len(f.OfferingNames) == 0 {
		return true
	}
	p, err := b.plan(i.Plan)
	if err != nil {
		return false
	}
	of, err := b.offering(p.Offering)
	return err == nil && among(f.Offerings, of.GUID) && among(f.OfferingNames, of.Name)
}

// CreateBinding keeps a binding. One to a managed instance has an operation that
// makes it; else the operation is empty.
func (b *Book) CreateBinding(n NewBinding) (bi Binding, o Operation, err error) {
	err = b.update(func(l ledger) error {
		bi, o, err = l.bind(n)
		return err
	})
	return bi, o, err
}

func (l ledger) bind(n NewBinding) (bi Binding, o Operation, err error) {
	i, err := l.checkBinding(n)
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
		bi.give(i)
		bi.Last.State = Succeeded
		if err := put(l.bindings, "binding", bi.GUID, bi); err != nil {
			return bi, o, err
		}
		return bi, o, l.bindingEvent("create", bi, n.By)
	}
	t, err := l.bindingTask(bi, Create, n.By)
	if err != nil {
		return bi, o, err
	}
	p, err := l.plan(i.Plan)
	if err != nil {
		return bi, o, err
	}
	if err := checkParameters(p.Schemas.BindingCreate, parameters); err != nil {
		return bi, o, err
	}
	t.Bind.Parameters = parameters
	if o, err = l.begin(t); err != nil {
		return bi, o, err
	}
	return bi, o, put(l.bindings, "binding", bi.GUID, bi)
}

// give copies into a binding what a user-provided instance has.
func (b *Binding) give(i Instance) {
	switch b.Type {
	case RouteBinding:
		b.RouteService, b.SetBy = i.RouteService, i.RouteSetBy
	case AppBinding:
		b.Credentials, b.SyslogDrain, b.SetBy = i.Credentials, i.SyslogDrain, i.DrainSetBy
	case KeyBinding:
	}
}

// bindingTask is a task about a binding, with its request.
func (l ledger) bindingTask(bi Binding, a Action, by app.Actor) (task, error) {
	i, err := l.instance(bi.Instance)
	if err != nil {
		return task{}, err
	}
	p, err := l.plan(i.Plan)
	if err != nil {
		return task{}, err
	}
	of, err := l.offering(p.Offering)
	if err != nil {
		return task{}, err
	}
	t := task{
		Operation: Operation{Kind: OfBinding, Binding: bi.Type, Record: bi.GUID, Action: a, By: by},
		Broker:    p.Broker,
		Bind: &BindingRequest{
			Action: a, Binding: bi.GUID, Instance: i.GUID, Offering: of.ID, Plan: p.ID,
			App: bi.App, Route: l.routeURL(bi.Route), Name: bi.Name, Context: l.context(i), By: by,
		},
		Fetched:  of.BindingsRetrievable,
		Requires: of.Requires,
		Until:    l.deadline(p),
	}
	return t, nil
}

// routeURL is a route as users write it; empty when there is none.
func (l ledger) routeURL(guid string) string {
	if guid == "" {
		return ""
	}
	rt, err := l.registry.Route(guid)
	if err != nil {
		return ""
	}
	d, err := l.registry.Domain(rt.Domain)
	if err != nil {
		return ""
	}
	return rt.URL(d.Name)
}

// NoteBinding changes the metadata of a binding.
func (b *Book) NoteBinding(guid string, c app.MetadataChange) (bi Binding, err error) {
	err = b.update(func(l ledger) error {
		if bi, err = l.binding(guid); err != nil {
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
		return put(l.bindings, "binding", guid, bi)
	})
	return bi, err
}

// DeleteBinding removes a binding. The operation is empty when that is done already.
func (b *Book) DeleteBinding(guid string, by app.Actor) (o Operation, err error) {
	err = b.update(func(l ledger) error {
		bi, err := l.binding(guid)
		if err != nil {
			return err
		}
		o, err = l.deleteBinding(bi, by)
		return err
	})
	return o, err
}

func (l ledger) deleteBinding(bi Binding, by app.Actor) (o Operation, err error) {
	i, err := l.instance(bi.Instance)
	if err != nil {
		return o, err
	}
	if i.Type == UserProvided {
		return o, l.forgetBinding(bi, by)
	}
	waiting, err := l.unheard(bi.GUID)
	if err != nil {
		return o, err
	}
	if bi.Last.Busy() && (bi.Last.Type != Create || waiting) {
		return o, invalid("last_operation", "The delete request was rejected due to an operation being in progress for the service binding.")
	}
	if i.Last.Busy() && i.Last.Type != Delete {
		return o, errBusy(i.Name)
	}
	if err := l.cancel(bi.GUID, cancelled); err != nil {
		return o, err
	}
	t, err := l.bindingTask(bi, Delete, by)
	if err != nil {
		return o, err
	}
	if o, err = l.begin(t); err != nil {
		return o, err
	}
	bi.Last = LastOperation{Type: Delete, State: InProgress, CreatedAt: now(), UpdatedAt: now()}
	if err := put(l.bindings, "binding", bi.GUID, bi); err != nil {
		return o, err
	}
	return o, l.bindingEvent("start_delete", bi, by)
}

// forgetBinding drops a binding without a broker.
func (l ledger) forgetBinding(bi Binding, by app.Actor) error {
	if err := l.cancel(bi.GUID, "the binding is gone"); err != nil {
		return err
	}
	if err := drop(l.bindings, "binding", bi.GUID); err != nil {
		return err
	}
	return l.bindingEvent("delete", bi, by)
}

// UnbindApp begins to delete all bindings of an app. The operations are what to wait
// for; after some of them it has to be called again, until there are none.
func (b *Book) UnbindApp(guid string, by app.Actor) (os []Operation, err error) {
	err = b.update(func(l ledger) error {
		bs, err := l.bindings.By("app", guid)
		if err != nil {
			return fmt.Errorf("cannot list bindings: %w", err)
		}
		for _, bi := range bs {
			o, err := l.deleteBinding(bi, by)
			some, err := l.orWait(o, err, bi.GUID, bi.Instance)
			if err != nil {
				return err
			}
			os = append(os, some...)
		}
		return nil
	})
	return os, err
}

// orWait is what there is to wait for: a new operation, or those that are in its way.
func (l ledger) orWait(o Operation, err error, records ...string) (os []Operation, _ error) {
	if err == nil && o.GUID != "" {
		return []Operation{o}, nil
	}
	if err == nil || !isRefusal(err) {
		return nil, err
	}
	for _, record := range records {
		some, err := l.openOperations(record)
		if err != nil {
			return nil, err
		}
		os = append(os, some...)
	}
	return os, nil
}

// BindingParameters asks the broker for the parameters of a binding.
func (b *Book) BindingParameters(ctx context.Context, guid string) (json.RawMessage, error) {
	bi, err := b.binding(guid)
	if err != nil {
		return nil, err
	}
	i, err := b.instance(bi.Instance)
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
	t, err := b.bindingTask(bi, Create, app.Actor{})
	if err != nil {
		return nil, err
	}
	if !t.Fetched {
		return nil, unsupported
	}
	broker, err := b.client(t.Broker)
	if err != nil {
		return nil, err
	}
	bound, err := broker.Fetch(ctx, *t.Bind)
	if err != nil {
		return nil, brokerRefusal(err)
	}
	if len(bound.Parameters) == 0 {
		return json.RawMessage("{}"), nil
	}
	return bound.Parameters, nil
}

// Drains returns where the lines of apps are to be sent, by app and URL.
func (b *Book) Drains() (ds []Drain, err error) {
	bs, err := b.Bindings(BindingFilter{Types: []BindingType{AppBinding}})
	if err != nil {
		return nil, err
	}
	for _, bi := range bs {
		if bi.SyslogDrain == "" || !bi.Usable() {
			continue
		}
		i, err := b.instance(bi.Instance)
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
func (b *Book) RouteServices() (map[string]RouteService, error) {
	bs, err := b.Bindings(BindingFilter{Types: []BindingType{RouteBinding}})
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
func (l ledger) bindingEvent(what string, bi Binding, by app.Actor) error {
	kind := map[BindingType]string{AppBinding: "service_binding", KeyBinding: "service_key", RouteBinding: "service_route_binding"}[bi.Type]
	e := event{data: map[string]any{"request": map[string]any{
		"type": string(bi.Type), "relationships": map[string]any{
			"service_instance": map[string]any{"data": map[string]any{"guid": bi.Instance}},
		},
	}}}
	if i, err := l.instance(bi.Instance); err == nil {
		e.space = i.Space
	}
	if err := l.event(kind+"."+what, by, app.Target{GUID: bi.GUID, Type: kind, Name: bi.Name}, e); err != nil {
		return err
	}
	a, err := l.registry.App(bi.App)
	if err != nil || what != "create" && what != "delete" {
		return nil // no app, or it is gone
	}
	return l.event("app.update", by, app.Target{GUID: a.GUID, Type: "app", Name: a.Name}, event{space: a.Space})
}
