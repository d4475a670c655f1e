package services

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// NewInstance is the wish for a service instance.
type NewInstance struct {
	Type       InstanceType
	Name       string
	Space      string // guid
	Plan       string // guid, of a managed one
	Parameters json.RawMessage
	Tags       []string
	// The rest but metadata is for user-provided ones.
	Credentials  json.RawMessage
	SyslogDrain  string
	RouteService string
	SetBy        Origin // who chose the syslog drain and the route service
	Metadata     app.Metadata
	By           app.Actor
}

// InstanceFilter chooses instances. An empty list chooses all.
type InstanceFilter struct {
	GUIDs, Names     []string
	Type             InstanceType // empty: both
	Spaces, Orgs     []string     // guids; also of spaces that it is shared with
	Plans, PlanNames []string
	Labels           app.Selector
}

// Instance returns the service instance with guid.
func (b *Book) Instance(guid string) (Instance, error) { return b.instance(guid) }

// InstanceIn returns the service instance that has the name in a space, its own or
// a shared one.
func (b *Book) InstanceIn(space, name string) (Instance, error) {
	found, err := b.named(space, name)
	if err != nil {
		return Instance{}, err
	}
	if found == nil {
		return Instance{}, fmt.Errorf("service instance %q: %w", name, ErrNotFound)
	}
	return *found, nil
}

// Instances returns the instances that f chooses, by name.
func (b *Book) Instances(f InstanceFilter) ([]Instance, error) {
	if len(f.Orgs) > 0 {
		spaces, err := b.spacesOf(f.Orgs)
		if err != nil {
			return nil, err
		}
		if len(f.Spaces) > 0 {
			spaces = slices.DeleteFunc(spaces, func(s string) bool { return !slices.Contains(f.Spaces, s) })
		}
		if len(spaces) == 0 {
			return nil, nil
		}
		f.Spaces = spaces
	}
	return choose(b.instances, "service instances", func(i Instance) bool {
		return among(f.GUIDs, i.GUID) && among(f.Names, i.Name) && (f.Type == "" || f.Type == i.Type) &&
			(len(f.Spaces) == 0 || slices.ContainsFunc(f.Spaces, i.in)) &&
			among(f.Plans, i.Plan) && b.planNamed(f.PlanNames, i) && f.Labels.Matches(i.Metadata.Labels)
	}, func(a, b Instance) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID)) })
}

func (b *Book) planNamed(names []string, i Instance) bool {
	if len(names) == 0 {
		return true
	}
	p, err := b.plan(i.Plan)
	return err == nil && slices.Contains(names, p.Name)
}

func (b *Book) spacesOf(orgs []string) (spaces []string, err error) {
	for _, org := range orgs {
		in, err := b.registry.SpacesOf(org)
		if err != nil {
			return nil, err
		}
		for _, s := range in {
			spaces = append(spaces, s.GUID)
		}
	}
	return spaces, nil
}

// in tells whether apps of a space may be bound to the instance.
func (i Instance) in(space string) bool {
	return i.Space == space || slices.Contains(i.SharedWith, space)
}

// CreateInstance keeps an instance. A managed one has an operation that makes it;
// for a user-provided one the operation is empty.
func (b *Book) CreateInstance(n NewInstance) (i Instance, o Operation, err error) {
	err = b.update(func(l ledger) error {
		if err := l.checkNew(n); err != nil {
			return err
		}
		if n.Type == UserProvided {
			i, err = l.provide(n)
			return err
		}
		i, o, err = l.provision(n)
		return err
	})
	return i, o, err
}

// checkNew checks what both types have in common.
func (l ledger) checkNew(n NewInstance) error {
	problems := []error{checkName(n.Name), checkTags(n.Name, n.Tags), n.Metadata.Validate()}
	if n.Type != Managed && n.Type != UserProvided {
		problems = append(problems, invalid("type", "Type must be one of 'managed', 'user-provided'"))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	_, err := l.registry.Space(n.Space)
	if errors.Is(err, app.ErrNotFound) {
		return invalid("relationships.space", "Invalid space. Ensure that the space exists and you have access to it.")
	}
	return err
}

// provide keeps a user-provided instance.
func (l ledger) provide(n NewInstance) (Instance, error) {
	credentials, err := object("credentials", n.Credentials)
	if err != nil {
		return Instance{}, err
	}
	if err := errors.Join(checkDrain(n.SyslogDrain), checkRouteService(n.RouteService)); err != nil {
		return Instance{}, err
	}
	if err := l.nameFree(n.Space, n.Name, ""); err != nil {
		return Instance{}, err
	}
	i := Instance{
		GUID: uuid.NewString(), Type: UserProvided, Name: n.Name, Space: n.Space, Tags: slices.Clone(n.Tags),
		Credentials: credentials, SyslogDrain: n.SyslogDrain, RouteService: n.RouteService, Metadata: n.Metadata,
		DrainSetBy: n.SetBy, RouteSetBy: n.SetBy, CreatedAt: now(),
	}
	i.UpdatedAt = i.CreatedAt
	i.Last = LastOperation{Type: Create, State: Succeeded, Description: "Operation succeeded", CreatedAt: i.CreatedAt, UpdatedAt: i.CreatedAt}
	if err := put(l.instances, "service instance", i.GUID, i); err != nil {
		return i, err
	}
	return i, l.instanceEvent("create", i, n.By, map[string]any{"name": n.Name})
}

// provision keeps a managed instance with the task that makes it.
func (l ledger) provision(n NewInstance) (i Instance, o Operation, err error) {
	p, err := l.planFor(n.Plan, n.Space)
	if err != nil {
		return i, o, err
	}
	parameters, err := object("parameters", n.Parameters)
	if err != nil {
		return i, o, err
	}
	if err := checkParameters(p.Schemas.InstanceCreate, parameters); err != nil {
		return i, o, err
	}
	if err := l.replaceFailed(n.Space, n.Name); err != nil {
		return i, o, err
	}
	if err := l.nameFree(n.Space, n.Name, ""); err != nil {
		return i, o, err
	}
	i = Instance{
		GUID: uuid.NewString(), Type: Managed, Name: n.Name, Space: n.Space, Plan: p.GUID, Tags: slices.Clone(n.Tags),
		Maintenance: p.Maintenance.Version, Metadata: n.Metadata, CreatedAt: now(),
	}
	i.UpdatedAt = i.CreatedAt
	i.Last = LastOperation{Type: Create, State: InProgress, CreatedAt: i.CreatedAt, UpdatedAt: i.CreatedAt}
	t, err := l.instanceTask(i, Create, n.By)
	if err != nil {
		return i, o, err
	}
	t.Instance.Parameters, t.Instance.MaintenanceVersion = parameters, p.Maintenance.Version
	if o, err = l.begin(t); err != nil {
		return i, o, err
	}
	return i, o, put(l.instances, "service instance", i.GUID, i)
}

// instanceTask is a task about an instance, with its request.
func (l ledger) instanceTask(i Instance, a Action, by app.Actor) (task, error) {
	p, err := l.plan(i.Plan)
	if err != nil {
		return task{}, err
	}
	of, err := l.offering(p.Offering)
	if err != nil {
		return task{}, err
	}
	t := task{
		Operation: Operation{Kind: OfInstance, Record: i.GUID, Action: a, By: by},
		Broker:    p.Broker,
		Instance: &InstanceRequest{
			Action: a, Instance: i.GUID, Offering: of.ID, Plan: p.ID, Context: l.context(i), By: by,
		},
		Fetched: of.InstancesRetrievable,
		Until:   l.deadline(p),
	}
	return t, nil
}

// deadline is when an operation about a plan must have ended.
func (l ledger) deadline(p Plan) time.Time {
	if p.MaxPolling > 0 && p.MaxPolling < l.polling {
		return now().Add(p.MaxPolling)
	}
	return now().Add(l.polling)
}

// context is where an instance is. A space that is being deleted has no names any
// more.
func (l ledger) context(i Instance) Context {
	c := Context{Space: i.Space, InstanceName: i.Name}
	if s, err := l.registry.Space(i.Space); err == nil {
		c.SpaceName, c.Org = s.Name, s.Org
	}
	if o, err := l.registry.Org(c.Org); err == nil {
		c.OrgName = o.Name
	}
	return c
}

// replaceFailed makes room for an instance where an earlier attempt failed, and has
// taken back what that may have left.
func (l ledger) replaceFailed(space, name string) error {
	old, err := l.named(space, name)
	if err != nil || old == nil || old.Space != space || old.Type != Managed || !old.Last.Is(Create, Failed) {
		return err
	}
	if err := l.cancel(old.GUID, "the service instance was created anew"); err != nil {
		return err
	}
	t, err := l.instanceTask(*old, Delete, app.Actor{})
	if err != nil {
		return err
	}
	t.Orphan = true
	if _, err := l.begin(t); err != nil {
		return err
	}
	return drop(l.instances, "service instance", old.GUID)
}

// nameFree tells whether an instance may have a name in a space.
func (l ledger) nameFree(space, name, guid string) error {
	taken, err := l.named(space, name)
	if err != nil {
		return err
	}
	if taken != nil && taken.GUID != guid {
		return invalid("name", "The service instance name is taken: %s.", name)
	}
	return nil
}

// named finds the instance with a name in a space, also if it is shared with it.
func (l ledger) named(space, name string) (*Instance, error) {
	own, err := l.instances.By("space and name", space+"\x00"+name)
	if err != nil {
		return nil, fmt.Errorf("cannot look for service instance %q: %w", name, err)
	}
	if len(own) > 0 {
		return &own[0], nil
	}
	shared, err := choose(l.instances, "service instances",
		func(i Instance) bool { return i.Name == name && i.in(space) },
		func(a, b Instance) int { return cmp.Compare(a.GUID, b.GUID) })
	if err != nil || len(shared) == 0 {
		return nil, err
	}
	return &shared[0], nil
}

func (l ledger) instance(guid string) (Instance, error) {
	return get(l.instances, "service instance", guid)
}

// Parameters asks the broker for the parameters of an instance.
func (b *Book) Parameters(ctx context.Context, guid string) (json.RawMessage, error) {
	i, err := b.instance(guid)
	if err != nil {
		return nil, err
	}
	unsupported := &Refused{
		Status: http.StatusBadRequest, Code: 120004, Title: "CF-ServiceFetchInstanceParametersNotSupported",
		Detail: "This service does not support fetching service instance parameters.",
	}
	if i.Type != Managed {
		return nil, unsupported
	}
	if i.Last.Is(Create, Failed) {
		return nil, fmt.Errorf("service instance %s: %w", guid, ErrNotFound)
	}
	if i.Last.Busy() {
		return nil, errBusy(i.Name)
	}
	t, err := b.instanceTask(i, Create, app.Actor{})
	if err != nil {
		return nil, err
	}
	broker, err := b.client(t.Broker)
	if err != nil {
		return nil, err
	}
	teller, can := broker.(Teller)
	if !can || !t.Fetched {
		return nil, unsupported
	}
	told, err := teller.Tell(ctx, *t.Instance)
	if err != nil {
		return nil, brokerRefusal(err)
	}
	if len(told.Parameters) == 0 {
		return json.RawMessage("{}"), nil
	}
	return told.Parameters, nil
}

// Upgradable tells whether the plan of an instance has another maintenance version.
func (b *Book) Upgradable(i Instance) bool {
	p, err := b.plan(i.Plan)
	return err == nil && i.Type == Managed && p.Maintenance.Version != "" && p.Maintenance.Version != i.Maintenance
}

// instanceEvent records what was done to an instance, and what it now takes.
func (l ledger) instanceEvent(what string, i Instance, by app.Actor, request map[string]any) error {
	kind := "service_instance"
	if i.Type == UserProvided {
		kind = "user_provided_service_instance"
	}
	if err := l.recordUsage(what, i); err != nil {
		return err
	}
	e := event{space: i.Space}
	if request != nil {
		e.data = map[string]any{"request": request}
	}
	return l.event(kind+"."+what, by, app.Target{GUID: i.GUID, Type: kind, Name: i.Name}, e)
}
