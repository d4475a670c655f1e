package services

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/app"
)

// InstanceChange describes an update of an instance. Nil fields stay as they are.
type InstanceChange struct {
	Name        *string
	Tags        *[]string
	Plan        *string // guid
	Parameters  json.RawMessage
	Maintenance *string // the version to upgrade to
	// For user-provided ones.
	Credentials  json.RawMessage
	SyslogDrain  *string
	RouteService *string
	SetBy        Origin // who chose them
	Metadata     app.MetadataChange
	By           app.Actor
}

// onlyMetadata tells whether nothing but metadata changes.
func (c InstanceChange) onlyMetadata() bool {
	return c.Name == nil && c.Tags == nil && c.Plan == nil && c.Parameters == nil && c.Maintenance == nil &&
		c.Credentials == nil && c.SyslogDrain == nil && c.RouteService == nil
}

// UpdateInstance changes an instance. The operation is empty when its broker need
// not be asked: then it is done.
func (m *instances) UpdateInstance(guid string, c InstanceChange) (i Instance, o Operation, err error) {
	err = m.update(func(tx records) error {
		if i, err = tx.instance(guid); err != nil {
			return err
		}
		if err := tx.checkUpdate(i, c); err != nil {
			return err
		}
		if i.Type == UserProvided {
			i, err = tx.updateUserProvided(i, c)
			return err
		}
		i, o, err = tx.updateManaged(i, c)
		return err
	})
	return i, o, err
}

// checkUpdate checks what both types have in common.
func (tx instanceRecords) checkUpdate(i Instance, c InstanceChange) error {
	if i.Last.Is(Create, Failed) {
		return &Refused{
			Status: http.StatusNotFound, Code: 60004, Title: "CF-ServiceInstanceNotFound",
			Detail: "The service instance could not be found: " + i.Name,
		}
	}
	if i.Last.Busy() && (!c.onlyMetadata() || i.Last.Type == Delete) {
		return errBusy(i.Name)
	}
	problems := []error{i.Metadata.Merge(c.Metadata).Validate()}
	if c.Tags != nil {
		problems = append(problems, checkTags(i.Name, *c.Tags))
	}
	if c.Name == nil || *c.Name == i.Name {
		return errors.Join(problems...)
	}
	problems = append(problems, checkName(*c.Name), tx.checkNameFree(i.Space, *c.Name, i.GUID))
	if len(i.SharedWith) > 0 {
		problems = append(problems, &Refused{
			Status: http.StatusUnprocessableEntity, Code: 390003, Title: "CF-SharedServiceInstanceCannotBeRenamed",
			Detail: "Service instances that have been shared cannot be renamed",
		})
	}
	return errors.Join(problems...)
}

// updateUserProvided changes a user-provided instance, and what its bindings give.
func (tx instanceRecords) updateUserProvided(i Instance, c InstanceChange) (Instance, error) {
	if c.Plan != nil || c.Parameters != nil || c.Maintenance != nil {
		return i, invalid("service_plan", "A user-provided service instance has no plan, parameters or maintenance version")
	}
	if c.Credentials != nil {
		credentials, err := object("credentials", c.Credentials)
		if err != nil {
			return i, err
		}
		i.Credentials = credentials
	}
	setURL(&i.SyslogDrain, &i.DrainSetBy, c.SyslogDrain, c.SetBy)
	setURL(&i.RouteService, &i.RouteSetBy, c.RouteService, c.SetBy)
	if err := errors.Join(checkDrain(i.SyslogDrain), checkRouteService(i.RouteService)); err != nil {
		return i, err
	}
	bs, err := tx.bindings.By("instance", i.GUID)
	if err != nil {
		return i, fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		bi.copyFrom(i)
		bi.UpdatedAt = now()
		if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
			return i, err
		}
	}
	return tx.updateRecord(i, c)
}

// updateRecord is an instance whose change needs no broker.
func (tx instanceRecords) updateRecord(i Instance, c InstanceChange) (Instance, error) {
	setIfGiven(&i.Name, c.Name)
	if c.Tags != nil {
		i.Tags = slices.Clone(*c.Tags)
	}
	i.Metadata = i.Metadata.Merge(c.Metadata)
	i.UpdatedAt = now()
	if !c.onlyMetadata() {
		i.Last = LastOperation{Type: Update, State: Succeeded, CreatedAt: i.UpdatedAt, UpdatedAt: i.UpdatedAt}
		if i.Type == UserProvided {
			i.Last.Description = "Operation succeeded"
		}
	}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return i, err
	}
	return i, tx.instanceEvent("update", i, c.By, map[string]any{"name": i.Name})
}

// updateManaged changes a managed instance, by its broker if it must know.
func (tx instanceRecords) updateManaged(i Instance, c InstanceChange) (Instance, Operation, error) {
	if c.Credentials != nil || c.SyslogDrain != nil || c.RouteService != nil {
		return i, Operation{}, invalid("credentials", "A managed service instance has its credentials, syslog drain and route service from its broker")
	}
	old, err := tx.plan(i.Plan)
	if err != nil {
		return i, Operation{}, err
	}
	of, err := tx.offering(old.Offering)
	if err != nil {
		return i, Operation{}, err
	}
	p, err := tx.newPlan(i, old, c)
	if err != nil {
		return i, Operation{}, err
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
		return i, Operation{}, err
	}
	return tx.beginUpdate(i, w, c)
}

// beginUpdate stores the operation that has a broker update an instance.
func (tx instanceRecords) beginUpdate(i Instance, w wantedInstance, c InstanceChange) (Instance, Operation, error) {
	p, err := tx.plan(w.Plan)
	if err != nil {
		return i, Operation{}, err
	}
	parameters, err := object("parameters", c.Parameters)
	if err != nil {
		return i, Operation{}, err
	}
	if err := checkParameters(p.Schemas.InstanceUpdate, parameters); err != nil {
		return i, Operation{}, err
	}
	op, err := tx.instanceOperation(i, Update, c.By)
	if err != nil {
		return i, Operation{}, err
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
	i.Last = LastOperation{Type: Update, State: InProgress, CreatedAt: now(), UpdatedAt: now()}
	return i, o, put(tx.instances, "service instance", i.GUID, i)
}

// newPlan is the plan that an instance is to have, if it may.
func (tx instanceRecords) newPlan(i Instance, old Plan, c InstanceChange) (Plan, error) {
	if c.Plan == nil || *c.Plan == old.GUID {
		return old, tx.checkSamePlan(i, old, c)
	}
	p, err := tx.planFor(*c.Plan, i.Space)
	if err != nil {
		return p, err
	}
	bad := func(code int, title, detail string) (Plan, error) {
		return p, &Refused{Status: http.StatusUnprocessableEntity, Code: code, Title: title, Detail: detail}
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

// checkSamePlan checks a change that keeps the plan.
func (tx instanceRecords) checkSamePlan(i Instance, p Plan, c InstanceChange) error {
	bad := func(status, code int, title, detail string) error {
		return &Refused{Status: status, Code: code, Title: title, Detail: detail}
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

// setIfGiven changes a text that somebody wants to be different.
func setIfGiven(s *string, to *string) {
	if to != nil {
		*s = *to
	}
}
