package marketplace

import (
	"fmt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// cancelled is the description of an operation that a delete replaced.
const cancelled = "delete in progress"

// DeleteInstance deletes an instance after its bindings. The operation is empty if the
// deletion is already complete.
func (m *instances) DeleteInstance(guid string, by app.Actor) (o services.Operation, err error) {
	err = m.update(func(tx records) error {
		i, err := tx.instance(guid)
		if err != nil {
			return err
		}
		o, err = tx.deleteInstance(i, by)
		return err
	})
	return o, err
}

func (tx instanceRecords) deleteInstance(i services.Instance, by app.Actor) (o services.Operation, err error) {
	if i.Type == services.UserProvided {
		return o, tx.deleteInstanceRecords(i, by, "delete")
	}
	waiting, err := tx.waitsForBroker(i.GUID)
	if err != nil {
		return o, err
	}
	// A delete can cancel a create that the broker has accepted. Any other operation
	// must finish first.
	if i.Last.Busy() && (i.Last.Type != services.Create || waiting) {
		return o, services.ErrBusy(i.Name)
	}
	if err := tx.cancelOperations(i.GUID, cancelled); err != nil {
		return o, err
	}
	op, err := tx.instanceOperation(i, services.Delete, by)
	if err != nil {
		return o, err
	}
	if o, err = tx.beginOperation(op); err != nil {
		return o, err
	}
	i.Last = services.LastOperation{Type: services.Delete, State: services.InProgress, CreatedAt: now(), UpdatedAt: now()}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return o, err
	}
	if err := tx.deleteBindingsOf(i.GUID, by); err != nil {
		return o, err
	}
	return o, tx.instanceEvent("start_delete", i, by, nil)
}

// deleteBindingsOf starts to delete the bindings of an instance. It skips bindings with
// another operation in progress.
func (tx bindingRecords) deleteBindingsOf(instance string, by app.Actor) error {
	bs, err := tx.bindings.By("instance", instance)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		if _, err := tx.deleteBinding(bi, by); err != nil && !services.IsRefusal(err) {
			return err
		}
	}
	return nil
}

// waitsForBroker reports whether a record has an operation that its broker has not
// accepted yet.
func (tx operationRecords) waitsForBroker(record string) (bool, error) {
	ops, err := tx.operations.By("record", record)
	if err != nil {
		return false, fmt.Errorf("cannot list operations: %w", err)
	}
	for _, op := range ops {
		if op.Open && !op.Orphan && !op.Accepted {
			return true, nil
		}
	}
	return false, nil
}

// deleteInstanceRecords deletes the records of an instance and its bindings without a
// request to the broker.
func (tx instanceRecords) deleteInstanceRecords(i services.Instance, by app.Actor, what string) error {
	bs, err := tx.bindings.By("instance", i.GUID)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		if err := tx.deleteBindingRecord(bi, by); err != nil {
			return err
		}
	}
	if err := tx.cancelOperations(i.GUID, "the service instance was deleted"); err != nil {
		return err
	}
	if err := drop(tx.instances, "service instance", i.GUID); err != nil {
		return err
	}
	return tx.instanceEvent(what, i, by, nil)
}

// purge deletes the records of an instance without a request to its broker. An instance
// of the built-in broker is also deleted at the broker, because nothing else could
// remove it.
func (tx instanceRecords) purge(i services.Instance, by app.Actor) error {
	var own *operation
	if i.Type == services.Managed {
		op, err := tx.instanceOperation(i, services.Delete, by)
		if err != nil {
			return err
		}
		if op.Orphan = true; op.Broker == services.BuiltinBroker {
			own = &op
		}
	}
	if err := tx.deleteInstanceRecords(i, by, "purge"); err != nil || own == nil {
		return err
	}
	_, err := tx.beginOperation(*own)
	return err
}

// PurgeInstance deletes the records of an instance and its bindings without a request
// to its broker.
func (m *instances) PurgeInstance(guid string, by app.Actor) error {
	return m.update(func(tx records) error {
		i, err := tx.instance(guid)
		if err != nil {
			return err
		}
		return tx.purge(i, by)
	})
}

// DeleteIn starts to delete all instances of a space, and stops sharing instances of
// other spaces with it. The caller must wait for the returned operations and call it
// again until it returns none.
func (m *instances) DeleteIn(space string, by app.Actor) (os []services.Operation, err error) {
	err = m.update(func(tx records) error {
		all, err := tx.instances.All()
		if err != nil {
			return fmt.Errorf("cannot list service instances: %w", err)
		}
		for _, i := range all {
			if !i.AvailableIn(space) {
				continue
			}
			ops, err := tx.removeFromSpace(i, space, by)
			if err != nil {
				return err
			}
			os = append(os, ops...)
		}
		return nil
	})
	return os, err
}

// removeFromSpace deletes an instance of the space, or stops sharing it with the space.
func (tx instanceRecords) removeFromSpace(i services.Instance, space string, by app.Actor) ([]services.Operation, error) {
	if i.Space != space {
		return tx.operationsToWaitFor(services.Operation{}, tx.unshare(i, space, by), i.GUID)
	}
	o, err := tx.deleteInstance(i, by)
	return tx.operationsToWaitFor(o, err, i.GUID)
}

func (tx operationRecords) openOperations(record string) (os []services.Operation, err error) {
	ops, err := tx.operations.By("record", record)
	if err != nil {
		return nil, fmt.Errorf("cannot list operations: %w", err)
	}
	for _, op := range ops {
		if op.Open && !op.Orphan {
			os = append(os, op.Operation)
		}
	}
	return os, nil
}
