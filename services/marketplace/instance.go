package marketplace

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
	"github.com/dewrun/dew/services"
)

// Instance returns the service instance with guid.
func (m *instances) Instance(guid string) (services.Instance, error) { return m.instance(guid) }

// InstanceIn returns the service instance with this name in a space. The instance
// belongs to the space or is shared with it.
func (m *instances) InstanceIn(space, name string) (services.Instance, error) {
	found, err := m.instanceNamed(space, name)
	if err != nil {
		return services.Instance{}, err
	}
	if found == nil {
		return services.Instance{}, fmt.Errorf("service instance %q: %w", name, services.ErrNotFound)
	}
	return *found, nil
}

// Instances returns the instances that match f, sorted by name.
func (m *instances) Instances(f services.InstanceFilter) ([]services.Instance, error) {
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
	return selectSorted(m.instances, "service instances", func(i services.Instance) bool {
		return matches(f.GUIDs, i.GUID) && matches(f.Names, i.Name) && (f.Type == "" || f.Type == i.Type) &&
			(len(f.Spaces) == 0 || slices.ContainsFunc(f.Spaces, i.AvailableIn)) &&
			matches(f.Plans, i.Plan) && m.planNamed(f.PlanNames, i) && f.Labels.Matches(i.Metadata.Labels)
	}, func(a, b services.Instance) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID))
	})
}

func (b *base) planNamed(names []string, i services.Instance) bool {
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

// CreateInstance stores an instance. For a managed instance it returns the operation
// that creates it at the broker; for a user-provided one the operation is empty.
func (m *instances) CreateInstance(n services.NewInstance) (i services.Instance, o services.Operation, err error) {
	err = m.update(func(tx records) error {
		if err := tx.checkNewInstance(n); err != nil {
			return err
		}
		if n.Type == services.UserProvided {
			i, err = tx.createUserProvided(n)
			return err
		}
		i, o, err = tx.createManaged(n)
		return err
	})
	return i, o, err
}

// checkNewInstance checks the fields that both types of instances have.
func (tx instanceRecords) checkNewInstance(n services.NewInstance) error {
	problems := []error{services.CheckName(n.Name), services.CheckTags(n.Name, n.Tags), n.Metadata.Validate()}
	if n.Type != services.Managed && n.Type != services.UserProvided {
		problems = append(problems, services.NewInvalid("type", "Type must be one of 'managed', 'user-provided'"))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	_, err := tx.registry.Space(n.Space)
	if errors.Is(err, app.ErrNotFound) {
		return services.NewInvalid("relationships.space", "Invalid space. Ensure that the space exists and you have access to it.")
	}
	return err
}

// createUserProvided stores a user-provided instance.
func (tx instanceRecords) createUserProvided(n services.NewInstance) (services.Instance, error) {
	credentials, err := services.CheckObject("credentials", n.Credentials)
	if err != nil {
		return services.Instance{}, err
	}
	if err := errors.Join(services.CheckDrain(n.SyslogDrain), services.CheckRouteService(n.RouteService)); err != nil {
		return services.Instance{}, err
	}
	if err := tx.checkNameFree(n.Space, n.Name, ""); err != nil {
		return services.Instance{}, err
	}
	i := services.Instance{
		GUID: uuid.NewString(), Type: services.UserProvided, Name: n.Name, Space: n.Space, Tags: slices.Clone(n.Tags),
		Credentials: credentials, SyslogDrain: n.SyslogDrain, RouteService: n.RouteService, Metadata: n.Metadata,
		DrainSetBy: n.SetBy, RouteSetBy: n.SetBy, CreatedAt: now(),
	}
	i.UpdatedAt = i.CreatedAt
	i.Last = services.LastOperation{Type: services.Create, State: services.Succeeded, Description: "Operation succeeded", CreatedAt: i.CreatedAt, UpdatedAt: i.CreatedAt}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return i, err
	}
	return i, tx.instanceEvent("create", i, n.By, map[string]any{"name": n.Name})
}

// createManaged stores a managed instance with the operation that creates it.
func (tx instanceRecords) createManaged(n services.NewInstance) (i services.Instance, o services.Operation, err error) {
	p, err := tx.planFor(n.Plan, n.Space)
	if err != nil {
		return i, o, err
	}
	parameters, err := services.CheckObject("parameters", n.Parameters)
	if err != nil {
		return i, o, err
	}
	if err := services.CheckParameters(p.Schemas.InstanceCreate, parameters); err != nil {
		return i, o, err
	}
	if err := tx.replaceFailedInstance(n.Space, n.Name); err != nil {
		return i, o, err
	}
	if err := tx.checkNameFree(n.Space, n.Name, ""); err != nil {
		return i, o, err
	}
	i = services.Instance{
		GUID: uuid.NewString(), Type: services.Managed, Name: n.Name, Space: n.Space, Plan: p.GUID, Tags: slices.Clone(n.Tags),
		Maintenance: p.Maintenance.Version, Metadata: n.Metadata, CreatedAt: now(),
	}
	i.UpdatedAt = i.CreatedAt
	i.Last = services.LastOperation{Type: services.Create, State: services.InProgress, CreatedAt: i.CreatedAt, UpdatedAt: i.CreatedAt}
	op, err := tx.instanceOperation(i, services.Create, n.By)
	if err != nil {
		return i, o, err
	}
	op.Instance.Parameters, op.Instance.MaintenanceVersion = parameters, p.Maintenance.Version
	if o, err = tx.beginOperation(op); err != nil {
		return i, o, err
	}
	return i, o, put(tx.instances, "service instance", i.GUID, i)
}

// instanceOperation returns an operation on an instance, with its broker request.
func (tx operationRecords) instanceOperation(i services.Instance, a services.Action, by app.Actor) (operation, error) {
	p, err := tx.plan(i.Plan)
	if err != nil {
		return operation{}, err
	}
	of, err := tx.offering(p.Offering)
	if err != nil {
		return operation{}, err
	}
	op := operation{
		Operation: services.Operation{Kind: services.OfInstance, Record: i.GUID, Action: a, By: by},
		Broker:    p.Broker,
		Instance: &services.InstanceRequest{
			Action: a, Instance: i.GUID, Offering: of.ID, Plan: p.ID, Context: tx.brokerContext(i), By: by,
		},
		Fetched: of.InstancesRetrievable,
		Until:   tx.deadline(p),
	}
	return op, nil
}

// deadline returns the time by which an operation of a plan must finish.
func (tx operationRecords) deadline(p services.Plan) time.Time {
	if p.MaxPolling > 0 && p.MaxPolling < tx.polling {
		return now().Add(p.MaxPolling)
	}
	return now().Add(tx.polling)
}

// brokerContext returns the org and space of an instance. The names are empty if the
// space is already deleted.
func (tx operationRecords) brokerContext(i services.Instance) services.Context {
	c := services.Context{Space: i.Space, InstanceName: i.Name}
	if s, err := tx.registry.Space(i.Space); err == nil {
		c.SpaceName, c.Org = s.Name, s.Org
	}
	if o, err := tx.registry.Org(c.Org); err == nil {
		c.OrgName = o.Name
	}
	return c
}

// replaceFailedInstance drops the record of an earlier failed attempt, so that a new
// instance can have its name. It starts the deletion of anything the failed attempt
// left at the broker.
func (tx instanceRecords) replaceFailedInstance(space, name string) error {
	old, err := tx.instanceNamed(space, name)
	if err != nil || old == nil || old.Space != space || old.Type != services.Managed || !old.Last.Is(services.Create, services.Failed) {
		return err
	}
	if err := tx.cancelOperations(old.GUID, "the service instance was created again"); err != nil {
		return err
	}
	op, err := tx.instanceOperation(*old, services.Delete, app.Actor{})
	if err != nil {
		return err
	}
	op.Orphan = true
	if _, err := tx.beginOperation(op); err != nil {
		return err
	}
	return drop(tx.instances, "service instance", old.GUID)
}

// checkNameFree checks whether an instance can have a name in a space.
func (tx instanceRecords) checkNameFree(space, name, guid string) error {
	taken, err := tx.instanceNamed(space, name)
	if err != nil {
		return err
	}
	if taken != nil && taken.GUID != guid {
		return services.NewInvalid("name", "The service instance name is taken: %s.", name)
	}
	return nil
}

// instanceNamed returns the instance with a name in a space, even if it is only shared
// with the space.
func (tx instanceRecords) instanceNamed(space, name string) (*services.Instance, error) {
	own, err := tx.instances.By("space and name", space+"\x00"+name)
	if err != nil {
		return nil, fmt.Errorf("cannot look up service instance %q: %w", name, err)
	}
	if len(own) > 0 {
		return &own[0], nil
	}
	shared, err := selectSorted(tx.instances, "service instances",
		func(i services.Instance) bool { return i.Name == name && i.AvailableIn(space) },
		func(a, b services.Instance) int { return cmp.Compare(a.GUID, b.GUID) })
	if err != nil || len(shared) == 0 {
		return nil, err
	}
	return &shared[0], nil
}

func (tx *tables) instance(guid string) (services.Instance, error) {
	return get(tx.instances, "service instance", guid)
}

// Parameters requests the parameters of an instance from the broker.
func (m *instances) Parameters(ctx context.Context, guid string) (json.RawMessage, error) {
	i, err := m.instance(guid)
	if err != nil {
		return nil, err
	}
	unsupported := &services.Refused{
		Status: http.StatusBadRequest, Code: 120004, Title: "CF-ServiceFetchInstanceParametersNotSupported",
		Detail: "This service does not support fetching service instance parameters.",
	}
	if i.Type != services.Managed {
		return nil, unsupported
	}
	if i.Last.Is(services.Create, services.Failed) {
		return nil, fmt.Errorf("service instance %s: %w", guid, services.ErrNotFound)
	}
	if i.Last.Busy() {
		return nil, services.ErrBusy(i.Name)
	}
	op, err := m.instanceOperation(i, services.Create, app.Actor{})
	if err != nil {
		return nil, err
	}
	broker, err := m.client(op.Broker)
	if err != nil {
		return nil, err
	}
	fetcher, can := broker.(services.InstanceFetcher)
	if !can || !op.Fetched {
		return nil, unsupported
	}
	fetched, err := fetcher.FetchInstance(ctx, *op.Instance)
	if err != nil {
		return nil, brokerRefusal(err)
	}
	if len(fetched.Parameters) == 0 {
		return json.RawMessage("{}"), nil
	}
	return fetched.Parameters, nil
}

// Upgradable reports whether the plan of an instance has a different maintenance
// version.
func (m *instances) Upgradable(i services.Instance) bool {
	p, err := m.plan(i.Plan)
	return err == nil && i.Type == services.Managed && p.Maintenance.Version != "" && p.Maintenance.Version != i.Maintenance
}

// instanceEvent records an audit event and a usage event for an instance.
func (tx instanceRecords) instanceEvent(what string, i services.Instance, by app.Actor, request map[string]any) error {
	kind := "service_instance"
	if i.Type == services.UserProvided {
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
