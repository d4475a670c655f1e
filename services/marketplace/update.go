package marketplace

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/services"
)

// UpdateInstance changes an instance. The operation is empty if no broker request is
// needed: then the update is complete.
func (m *instances) UpdateInstance(guid string, c services.InstanceChange) (i services.Instance, o services.Operation, err error) {
	err = m.update(func(tx records) error {
		if i, err = tx.instance(guid); err != nil {
			return err
		}
		if err := tx.checkUpdate(i, c); err != nil {
			return err
		}
		if i.Type == services.UserProvided {
			i, err = tx.updateUserProvided(i, c)
			return err
		}
		i, o, err = tx.updateManaged(i, c)
		return err
	})
	return i, o, err
}

// checkUpdate checks the fields that both types of instances have.
func (tx instanceRecords) checkUpdate(i services.Instance, c services.InstanceChange) error {
	if i.Last.Is(services.Create, services.Failed) {
		return &services.Refused{
			Status: http.StatusNotFound, Code: 60004, Title: "CF-ServiceInstanceNotFound",
			Detail: "The service instance could not be found: " + i.Name,
		}
	}
	if i.Last.Busy() && (!c.OnlyMetadata() || i.Last.Type == services.Delete) {
		return services.ErrBusy(i.Name)
	}
	problems := []error{i.Metadata.Merge(c.Metadata).Validate()}
	if c.Tags != nil {
		problems = append(problems, services.CheckTags(i.Name, *c.Tags))
	}
	if c.Name == nil || *c.Name == i.Name {
		return errors.Join(problems...)
	}
	problems = append(problems, services.CheckName(*c.Name), tx.checkNameFree(i.Space, *c.Name, i.GUID))
	if len(i.SharedWith) > 0 {
		problems = append(problems, &services.Refused{
			Status: http.StatusUnprocessableEntity, Code: 390003, Title: "CF-SharedServiceInstanceCannotBeRenamed",
			Detail: "Service instances that have been shared cannot be renamed",
		})
	}
	return errors.Join(problems...)
}

// updateUserProvided changes a user-provided instance and the data of its bindings.
func (tx instanceRecords) updateUserProvided(i services.Instance, c services.InstanceChange) (services.Instance, error) {
	if c.Plan != nil || c.Parameters != nil || c.Maintenance != nil {
		return i, services.NewInvalid("service_plan", "A user-provided service instance has no plan, parameters or maintenance version")
	}
	if c.Credentials != nil {
		credentials, err := services.CheckObject("credentials", c.Credentials)
		if err != nil {
			return i, err
		}
		i.Credentials = credentials
	}
	setURL(&i.SyslogDrain, &i.DrainSetBy, c.SyslogDrain, c.SetBy)
	setURL(&i.RouteService, &i.RouteSetBy, c.RouteService, c.SetBy)
	if err := errors.Join(services.CheckDrain(i.SyslogDrain), services.CheckRouteService(i.RouteService)); err != nil {
		return i, err
	}
	bs, err := tx.bindings.By("instance", i.GUID)
	if err != nil {
		return i, fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		copyFrom(&bi, i)
		bi.UpdatedAt = now()
		if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
			return i, err
		}
	}
	return tx.updateRecord(i, c)
}

// updateRecord changes an instance without a broker request.
func (tx instanceRecords) updateRecord(i services.Instance, c services.InstanceChange) (services.Instance, error) {
	setIfGiven(&i.Name, c.Name)
	if c.Tags != nil {
		i.Tags = slices.Clone(*c.Tags)
	}
	i.Metadata = i.Metadata.Merge(c.Metadata)
	i.UpdatedAt = now()
	if !c.OnlyMetadata() {
		i.Last = services.LastOperation{Type: services.Update, State: services.Succeeded, CreatedAt: i.UpdatedAt, UpdatedAt: i.UpdatedAt}
		if i.Type == services.UserProvided {
			i.Last.Description = "Operation succeeded"
		}
	}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return i, err
	}
	return i, tx.instanceEvent("update", i, c.By, map[string]any{"name": i.Name})
}

// updateManaged changes a managed instance, with a broker request if needed.
func (tx instanceRecords) updateManaged(i services.Instance, c services.InstanceChange) (services.Instance, services.Operation, error) {
	if c.Credentials != nil || c.SyslogDrain != nil || c.RouteService != nil {
		return i, services.Operation{}, services.NewInvalid("credentials", "A managed service instance gets its credentials, syslog drain and route service from its broker")
	}
	old, err := tx.plan(i.Plan)
	if err != nil {
		return i, services.Operation{}, err
	}
	of, err := tx.offering(old.Offering)
	if err != nil {
		return i, services.Operation{}, err
	}
	p, err := tx.newPlan(i, old, c)
	if err != nil {
		return i, services.Operation{}, err
	}
	w := wantedInstance{Name: i.Name, Tags: i.Tags, Plan: p.GUID, Maintenance: i.Maintenance, Metadata: i.Metadata.Merge(c.Metadata)}
	setIfGiven(&w.Name, c.Name)
	setIfGiven(&w.Maintenance, c.Maintenance)
	if c.Tags != nil {
		w.Tags = slices.Clone(*c.Tags)
	}
	if p.GUID != old.GUID {
		w.Maintenance = p.Maintenance.Version
	}
	renamed := w.Name != i.Name && of.AllowContextUpdates
	if !renamed && c.Parameters == nil && p.GUID == old.GUID && w.Maintenance == i.Maintenance {
		i, err = tx.updateRecord(i, c)
		return i, services.Operation{}, err
	}
	return tx.beginUpdate(i, w, c)
}

// beginUpdate stores the operation that updates an instance at its broker.
func (tx instanceRecords) beginUpdate(i services.Instance, w wantedInstance, c services.InstanceChange) (services.Instance, services.Operation, error) {
	p, err := tx.plan(w.Plan)
	if err != nil {
		return i, services.Operation{}, err
	}
	parameters, err := services.CheckObject("parameters", c.Parameters)
	if err != nil {
		return i, services.Operation{}, err
	}
	if err := services.CheckParameters(p.Schemas.InstanceUpdate, parameters); err != nil {
		return i, services.Operation{}, err
	}
	op, err := tx.instanceOperation(i, services.Update, c.By)
	if err != nil {
		return i, services.Operation{}, err
	}
	op.Wanted = &w
	op.Until = tx.deadline(p)
	r := op.Instance
	r.PreviousPlan, r.Plan, r.PreviousMaintenance = r.Plan, p.ID, i.Maintenance
	r.Parameters, r.Context.InstanceName = parameters, w.Name
	if w.Maintenance != i.Maintenance {
		r.MaintenanceVersion = w.Maintenance
	}
	o, err := tx.beginOperation(op)
	if err != nil {
		return i, o, err
	}
	i.Last = services.LastOperation{Type: services.Update, State: services.InProgress, CreatedAt: now(), UpdatedAt: now()}
	return i, o, put(tx.instances, "service instance", i.GUID, i)
}

// newPlan returns the plan of an instance after the change, or an error.
func (tx instanceRecords) newPlan(i services.Instance, old services.Plan, c services.InstanceChange) (services.Plan, error) {
	if c.Plan == nil || *c.Plan == old.GUID {
		return old, tx.checkSamePlan(i, old, c)
	}
	p, err := tx.planFor(*c.Plan, i.Space)
	if err != nil {
		return p, err
	}
	bad := func(code int, title, detail string) (services.Plan, error) {
		return p, &services.Refused{Status: http.StatusUnprocessableEntity, Code: code, Title: title, Detail: detail}
	}
	switch {
	case p.Offering != old.Offering:
		return bad(1002, "CF-InvalidRelation", "service plan relates to a different service offering")
	case !old.PlanUpdateable:
		return bad(110004, "CF-ServicePlanNotUpdateable", "The service does not support changing plans.")
	case c.Maintenance != nil:
		return bad(390008, "CF-MaintenanceInfoNotUpdatableWhenChangingPlan", "maintenance_info should not be changed when switching to different plan.")
	}
	bs, err := tx.bindings.By("instance", i.GUID)
	if err != nil {
		return p, fmt.Errorf("cannot list bindings: %w", err)
	}
	if len(bs) > 0 && !p.Bindable {
		return bad(110001, "CF-ServicePlanInvalid", "The service plan is invalid: cannot switch to non-bindable plan when service bindings exist")
	}
	return p, nil
}

// checkSamePlan checks a change that does not change the plan.
func (tx instanceRecords) checkSamePlan(i services.Instance, p services.Plan, c services.InstanceChange) error {
	bad := func(status, code int, title, detail string) error {
		return &services.Refused{Status: status, Code: code, Title: title, Detail: detail}
	}
	if !p.Active && (c.Parameters != nil || c.Maintenance != nil) {
		return bad(http.StatusForbidden, 60029, "CF-ServiceInstanceWithInaccessiblePlanNotUpdateable",
			"Cannot update parameters of a service instance that belongs to inaccessible plan")
	}
	if c.Maintenance == nil {
		return nil
	}
	if p.Maintenance.Version == "" {
		return bad(http.StatusUnprocessableEntity, 390006, "CF-MaintenanceInfoNotSupported",
			"The service broker does not support upgrades for service instances created from this plan.")
	}
	if *c.Maintenance != p.Maintenance.Version && *c.Maintenance != i.Maintenance {
		return bad(http.StatusUnprocessableEntity, 390009, "CF-MaintenanceInfoConflict",
			"maintenance_info.version requested is invalid. Please ensure the catalog is up to date and you are providing a version supported by this service plan.")
	}
	return nil
}
