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

// NewInstance describes a service instance to create.
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
func (m *instances) Instance(guid string) (Instance, error) { return m.instance(guid) }

// InstanceIn returns the service instance that has the name in a space, its own or
// a shared one.
func (m *instances) InstanceIn(space, name string) (Instance, error) {
	found, err := m.instanceNamed(space, name)
	if err != nil {
		return Instance{}, err
	}
	if found == nil {
		return Instance{}, fmt.Errorf("service instance %q: %w", name, ErrNotFound)
	}
	return *found, nil
}

// Instances returns the instances that f chooses, by name.
func (m *instances) Instances(f InstanceFilter) ([]Instance, error) {
	if len(f.Orgs) > 0 {
		spaces, err := m.spacesOf(f.Orgs)
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
	return selectSorted(m.instances, "service instances", func(i Instance) bool {
		return matches(f.GUIDs, i.GUID) && matches(f.Names, i.Name) && (f.Type == "" || f.Type == i.Type) &&
			(len(f.Spaces) == 0 || slices.ContainsFunc(f.Spaces, i.availableIn)) &&
			matches(f.Plans, i.Plan) && m.planNamed(f.PlanNames, i) && f.Labels.Matches(i.Metadata.Labels)
	}, func(a, b Instance) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID)) })
}

func (b *base) planNamed(names []string, i Instance) bool {
	if len(names) == 0 {
		return true
	}
	p, err := b.plan(i.Plan)
	return err == nil && slices.Contains(names, p.Name)
}

func (m *instances) spacesOf(orgs []string) (spaces []string, err error) {
	for _, org := range orgs {
		in, err := m.registry.SpacesOf(org)
		if err != nil {
			return nil, err
		}
		for _, s := range in {
			spaces = append(spaces, s.GUID)
		}
	}
	return spaces, nil
}

// availableIn tells whether apps of a space may be bound to the instance.
func (i Instance) availableIn(space string) bool {
	return i.Space == space || slices.Contains(i.SharedWith, space)
}

// CreateInstance keeps an instance. A managed one has an operation that makes it;
// for a user-provided one the operation is empty.
func (m *instances) CreateInstance(n NewInstance) (i Instance, o Operation, err error) {
	err = m.update(func(tx records) error {
		if err := tx.checkNewInstance(n); err != nil {
			return err
		}
		if n.Type == UserProvided {
			i, err = tx.createUserProvided(n)
			return err
		}
		i, o, err = tx.createManaged(n)
		return err
	})
	return i, o, err
}

// checkNewInstance checks what both types have in common.
func (tx instanceRecords) checkNewInstance(n NewInstance) error {
	problems := []error{checkName(n.Name), checkTags(n.Name, n.Tags), n.Metadata.Validate()}
	if n.Type != Managed && n.Type != UserProvided {
		problems = append(problems, invalid("type", "Type must be one of 'managed', 'user-provided'"))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	_, err := tx.registry.Space(n.Space)
	if errors.Is(err, app.ErrNotFound) {
		return invalid("relationships.space", "Invalid space. Ensure that the space exists and you have access to it.")
	}
	return err
}

// createUserProvided keeps a user-provided instance.
func (tx instanceRecords) createUserProvided(n NewInstance) (Instance, error) {
	credentials, err := object("credentials", n.Credentials)
	if err != nil {
		return Instance{}, err
	}
	if err := errors.Join(checkDrain(n.SyslogDrain), checkRouteService(n.RouteService)); err != nil {
		return Instance{}, err
	}
	if err := tx.checkNameFree(n.Space, n.Name, ""); err != nil {
		return Instance{}, err
	}
	i := Instance{
		GUID: uuid.NewString(), Type: UserProvided, Name: n.Name, Space: n.Space, Tags: slices.Clone(n.Tags),
		Credentials: credentials, SyslogDrain: n.SyslogDrain, RouteService: n.RouteService, Metadata: n.Metadata,
		DrainSetBy: n.SetBy, RouteSetBy: n.SetBy, CreatedAt: now(),
	}
	i.UpdatedAt = i.CreatedAt
	i.Last = LastOperation{Type: Create, State: Succeeded, Description: "Operation succeeded", CreatedAt: i.CreatedAt, UpdatedAt: i.CreatedAt}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return i, err
	}
	return i, tx.instanceEvent("create", i, n.By, map[string]any{"name": n.Name})
}

// createManaged stores a managed instance with the operation that creates it.
func (tx instanceRecords) createManaged(n NewInstance) (i Instance, o Operation, err error) {
	p, err := tx.planFor(n.Plan, n.Space)
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
	if err := tx.replaceFailedInstance(n.Space, n.Name); err != nil {
		return i, o, err
	}
	if err := tx.checkNameFree(n.Space, n.Name, ""); err != nil {
		return i, o, err
	}
	i = Instance{
		GUID: uuid.NewString(), Type: Managed, Name: n.Name, Space: n.Space, Plan: p.GUID, Tags: slices.Clone(n.Tags),
		Maintenance: p.Maintenance.Version, Metadata: n.Metadata, CreatedAt: now(),
	}
	i.UpdatedAt = i.CreatedAt
	i.Last = LastOperation{Type: Create, State: InProgress, CreatedAt: i.CreatedAt, UpdatedAt: i.CreatedAt}
	op, err := tx.instanceOperation(i, Create, n.By)
	if err != nil {
		return i, o, err
	}
	op.Instance.Parameters, op.Instance.MaintenanceVersion = parameters, p.Maintenance.Version
	if o, err = tx.beginOperation(op); err != nil {
		return i, o, err
	}
	return i, o, put(tx.instances, "service instance", i.GUID, i)
}

// instanceOperation is an operation on an instance, with its request.
func (tx operationRecords) instanceOperation(i Instance, a Action, by app.Actor) (operation, error) {
	p, err := tx.plan(i.Plan)
	if err != nil {
		return operation{}, err
	}
	of, err := tx.offering(p.Offering)
	if err != nil {
		return operation{}, err
	}
	op := operation{
		Operation: Operation{Kind: OfInstance, Record: i.GUID, Action: a, By: by},
		Broker:    p.Broker,
		Instance: &InstanceRequest{
			Action: a, Instance: i.GUID, Offering: of.ID, Plan: p.ID, Context: tx.brokerContext(i), By: by,
		},
		Fetched: of.InstancesRetrievable,
		Until:   tx.deadline(p),
	}
	return op, nil
}

// deadline is when an operation about a plan must have ended.
func (tx operationRecords) deadline(p Plan) time.Time {
	if p.MaxPolling > 0 && p.MaxPolling < tx.polling {
		return now().Add(p.MaxPolling)
	}
	return now().Add(tx.polling)
}

// brokerContext is where an instance is. A space that is being deleted has no names any
// more.
func (tx operationRecords) brokerContext(i Instance) Context {
	c := Context{Space: i.Space, InstanceName: i.Name}
	if s, err := tx.registry.Space(i.Space); err == nil {
		c.SpaceName, c.Org = s.Name, s.Org
	}
	if o, err := tx.registry.Org(c.Org); err == nil {
		c.OrgName = o.Name
	}
	return c
}

// replaceFailedInstance makes room for an instance where an earlier attempt failed, and has
// taken back what that may have left.
func (tx instanceRecords) replaceFailedInstance(space, name string) error {
	old, err := tx.instanceNamed(space, name)
	if err != nil || old == nil || old.Space != space || old.Type != Managed || !old.Last.Is(Create, Failed) {
		return err
	}
	if err := tx.cancelOperations(old.GUID, "the service instance was created anew"); err != nil {
		return err
	}
	op, err := tx.instanceOperation(*old, Delete, app.Actor{})
	if err != nil {
		return err
	}
	op.Orphan = true
	if _, err := tx.beginOperation(op); err != nil {
		return err
	}
	return drop(tx.instances, "service instance", old.GUID)
}

// checkNameFree tells whether an instance may have a name in a space.
func (tx instanceRecords) checkNameFree(space, name, guid string) error {
	taken, err := tx.instanceNamed(space, name)
	if err != nil {
		return err
	}
	if taken != nil && taken.GUID != guid {
		return invalid("name", "The service instance name is taken: %s.", name)
	}
	return nil
}

// instanceNamed finds the instance with a name in a space, also if it is shared with it.
func (tx instanceRecords) instanceNamed(space, name string) (*Instance, error) {
	own, err := tx.instances.By("space and name", space+"\x00"+name)
	if err != nil {
		return nil, fmt.Errorf("cannot look for service instance %q: %w", name, err)
	}
	if len(own) > 0 {
		return &own[0], nil
	}
	shared, err := selectSorted(tx.instances, "service instances",
		func(i Instance) bool { return i.Name == name && i.availableIn(space) },
		func(a, b Instance) int { return cmp.Compare(a.GUID, b.GUID) })
	if err != nil || len(shared) == 0 {
		return nil, err
	}
	return &shared[0], nil
}

func (tx *tables) instance(guid string) (Instance, error) {
	return get(tx.instances, "service instance", guid)
}

// Parameters asks the broker for the parameters of an instance.
func (m *instances) Parameters(ctx context.Context, guid string) (json.RawMessage, error) {
	i, err := m.instance(guid)
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
	op, err := m.instanceOperation(i, Create, app.Actor{})
	if err != nil {
		return nil, err
	}
	broker, err := m.client(op.Broker)
	if err != nil {
		return nil, err
	}
	teller, can := broker.(InstanceFetcher)
	if !can || !op.Fetched {
		return nil, unsupported
	}
	told, err := teller.FetchInstance(ctx, *op.Instance)
	if err != nil {
		return nil, brokerRefusal(err)
	}
	if len(told.Parameters) == 0 {
		return json.RawMessage("{}"), nil
	}
	return told.Parameters, nil
}

// Upgradable tells whether the plan of an instance has another maintenance version.
func (m *instances) Upgradable(i Instance) bool {
	p, err := m.plan(i.Plan)
	return err == nil && i.Type == Managed && p.Maintenance.Version != "" && p.Maintenance.Version != i.Maintenance
}

// instanceEvent records what was done to an instance, and what it now takes.
func (tx instanceRecords) instanceEvent(what string, i Instance, by app.Actor, request map[string]any) error {
	kind := "service_instance"
	if i.Type == UserProvided {
		kind = "user_provided_service_instance"
	}
	if err := tx.recordUsage(what, i); err != nil {
		return err
	}
	e := event{space: i.Space}
	if request != nil {
		e.data = map[string]any{"request": request}
	}
	return tx.event(kind+"."+what, by, app.Target{GUID: i.GUID, Type: kind, Name: i.Name}, e)
}
