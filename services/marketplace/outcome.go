package marketplace

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dewrun/dew/services"
)

// acceptOperation records that the broker accepted the operation.
func (tx records) acceptOperation(op operation, p services.Progress) error {
	first := !op.Accepted
	op.Accepted, op.State, op.Description, op.UpdatedAt = true, services.InProgress, p.Description, now()
	if first {
		op.BrokerOperationID = p.Operation
	}
	if err := put(tx.operations, "operation", op.GUID, op); err != nil || op.Orphan {
		return err
	}
	if op.Kind == services.OfBinding {
		bi, err := tx.binding(op.Record)
		if err != nil {
			return err
		}
		bi.Last.State, bi.Last.Description, bi.Last.UpdatedAt = services.InProgress, p.Description, now()
		if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil || !first || op.Action == services.Delete {
			return err
		}
		return tx.bindingEvent("start_create", bi, op.By)
	}
	i, err := tx.instance(op.Record)
	if err != nil {
		return err
	}
	i.Last.State, i.Last.Description, i.Last.UpdatedAt = services.InProgress, p.Description, now()
	if p.Dashboard != "" {
		i.Dashboard = p.Dashboard
	}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil || !first || op.Action == services.Delete {
		return err
	}
	return tx.instanceEvent("start_"+string(op.Action), i, op.By, nil)
}

// rejectOperation fails an operation that the broker refused. If the broker may still
// have created something, it starts the deletion of that. With again, an earlier
// request for the same resource may have created it.
func (tx records) rejectOperation(op operation, err error, again bool) error {
	var be *services.BrokerError
	known := errors.As(err, &be)
	if known && be.Status == http.StatusGone && op.Action == services.Delete {
		return tx.finishOperation(op, services.Progress{State: services.Succeeded})
	}
	if op.Action == services.Create && (again || !known || be.Orphan) {
		if err := tx.mitigateOrphan(op); err != nil {
			return err
		}
	}
	return tx.failOperation(op, services.Shorten(err.Error()))
}

// mitigateOrphan starts an operation that deletes anything a failed create may have
// left.
func (tx records) mitigateOrphan(op operation) error {
	undo := operation{
		Operation: services.Operation{Kind: op.Kind, Binding: op.Binding, Record: op.Record, Action: services.Delete},
		Orphan:    true, Broker: op.Broker, Until: now().Add(tx.polling),
	}
	if op.Kind == services.OfBinding {
		r := *op.Bind
		r.Action, r.Parameters = services.Delete, nil
		undo.Bind = &r
	} else {
		r := *op.Instance
		r.Action, r.Parameters = services.Delete, nil
		undo.Instance = &r
	}
	_, err := tx.beginOperation(undo)
	return err
}

// expireOperation fails an operation that exceeded its deadline.
func (tx records) expireOperation(op operation) error {
	if op.Action == services.Create {
		if err := tx.mitigateOrphan(op); err != nil {
			return err
		}
	}
	return tx.failOperation(op, fmt.Sprintf("Service Broker failed to %s within the required time.", op.platformVerb()))
}

// brokerGone fails an operation whose broker was deleted.
func (tx records) brokerGone(op operation, why error) error {
	if op.Orphan {
		return tx.closeOperation(op, services.Failed, why.Error())
	}
	return tx.failOperation(op, why.Error())
}

// failOperation fails an operation. Its record keeps its state except for the last
// operation. An orphan deletion is started again instead, until its deadline.
func (tx records) failOperation(op operation, why string) error {
	if op.Orphan && time.Now().Before(op.Until) {
		op.Accepted, op.BrokerOperationID, op.Description, op.UpdatedAt = false, "", why, now()
		return put(tx.operations, "operation", op.GUID, op)
	}
	if err := tx.closeOperation(op, services.Failed, why); err != nil || op.Orphan {
		return err
	}
	last := services.LastOperation{Type: op.Action, State: services.Failed, Description: why, CreatedAt: op.CreatedAt, UpdatedAt: now()}
	if op.Kind == services.OfBinding {
		bi, err := tx.binding(op.Record)
		if err != nil {
			return err
		}
		bi.Last = last
		return put(tx.bindings, "binding", bi.GUID, bi)
	}
	i, err := tx.instance(op.Record)
	if err != nil {
		return err
	}
	i.Last = last
	return put(tx.instances, "service instance", i.GUID, i)
}

// finishOperation completes an operation and applies the desired state to its record.
func (tx records) finishOperation(op operation, p services.Progress) error {
	if err := tx.closeOperation(op, services.Succeeded, p.Description); err != nil || op.Orphan {
		return err
	}
	last := services.LastOperation{Type: op.Action, State: services.Succeeded, Description: p.Description, CreatedAt: op.CreatedAt, UpdatedAt: now()}
	if op.Kind == services.OfBinding {
		return tx.finishBinding(op, p, last)
	}
	i, err := tx.instance(op.Record)
	if err != nil {
		return err
	}
	if op.Action == services.Delete {
		if err := drop(tx.instances, "service instance", i.GUID); err != nil {
			return err
		}
		return tx.instanceEvent("delete", i, op.By, nil)
	}
	i.Last, i.UpdatedAt = last, now()
	if p.Dashboard != "" {
		i.Dashboard = p.Dashboard
	}
	if op.Wanted != nil {
		if err := tx.applyUpdate(&i, *op.Wanted); err != nil {
			return err
		}
	}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return err
	}
	return tx.instanceEvent(string(op.Action), i, op.By, map[string]any{"name": i.Name, "service_plan_guid": i.Plan})
}

// applyUpdate applies the desired state of an update to an instance. If another
// instance has taken the name since, the instance keeps its old name and its
// description says so.
func (tx instanceRecords) applyUpdate(i *services.Instance, w wantedInstance) error {
	i.Tags, i.Plan, i.Maintenance, i.Metadata = w.Tags, w.Plan, w.Maintenance, w.Metadata
	err := tx.checkNameFree(i.Space, w.Name, i.GUID)
	if services.IsRefusal(err) {
		i.Last.Description = "updated, but not renamed: " + err.Error()
		return nil
	}
	i.Name = w.Name
	return err
}

// finishBinding completes an operation of a binding.
func (tx bindingRecords) finishBinding(op operation, p services.Progress, last services.LastOperation) error {
	bi, err := tx.binding(op.Record)
	if err != nil {
		return err
	}
	if op.Action == services.Delete {
		return tx.deleteBindingRecord(bi, op.By)
	}
	bi.Last, bi.UpdatedAt = last, now()
	bi.Credentials, bi.VolumeMounts = p.Binding.Credentials, p.Binding.VolumeMounts
	bi.SyslogDrain, bi.RouteService = p.Binding.SyslogDrain, p.Binding.RouteService
	if bi.SyslogDrain != "" || bi.RouteService != "" {
		sb, err := tx.broker(op.Broker)
		if err != nil {
			return err
		}
		bi.SetBy = bindingOrigin(sb)
	}
	if err := put(tx.bindings, "binding", bi.GUID, bi); err != nil {
		return err
	}
	return tx.bindingEvent("create", bi, op.By)
}
