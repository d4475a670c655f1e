package services

import (
	"fmt"

	"github.com/dewrun/dew/app"
)

// cancelled is why an operation ended when a delete took its place.
const cancelled = "delete in progress"

// DeleteInstance removes an instance after all that is bound to it. The operation
// is empty when that is done already.
func (m *instances) DeleteInstance(guid string, by app.Actor) (o Operation, err error) {
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

func (tx instanceRecords) deleteInstance(i Instance, by app.Actor) (o Operation, err error) {
	if i.Type == UserProvided {
		return o, tx.forgetInstance(i, by, "delete")
	}
	waiting, err := tx.waitsForBroker(i.GUID)
	if err != nil {
		return o, err
	}
	// A create that the broker has taken may be broken off by a delete; anything else
	// has to end first.
	if i.Last.Busy() && (i.Last.Type != Create || waiting) {
		return o, errBusy(i.Name)
	}
	if err := tx.cancelOperations(i.GUID, cancelled); err != nil {
		return o, err
	}
	op, err := tx.instanceOperation(i, Delete, by)
	if err != nil {
		return o, err
	}
	if o, err = tx.beginOperation(op); err != nil {
		return o, err
	}
	i.Last = LastOperation{Type: Delete, State: InProgress, CreatedAt: now(), UpdatedAt: now()}
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return o, err
	}
	if err := tx.deleteBindingsOf(i.GUID, by); err != nil {
		return o, err
	}
	return o, tx.instanceEvent("start_delete", i, by, nil)
}

// deleteBindingsOf begins to delete what is bound to an instance, as far as nothing is in
// the way.
func (tx bindingRecords) deleteBindingsOf(instance string, by app.Actor) error {
	bs, err := tx.bindings.By("instance", instance)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		if _, err := tx.deleteBinding(bi, by); err != nil && !isRefusal(err) {
			return err
		}
	}
	return nil
}

// waitsForBroker tells whether a record has an operation that its broker has not taken.
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

// forgetInstance drops an instance with all that is bound to it, without a broker.
func (tx instanceRecords) forgetInstance(i Instance, by app.Actor, what string) error {
	bs, err := tx.bindings.By("instance", i.GUID)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		if err := tx.forgetBinding(bi, by); err != nil {
			return err
		}
	}
	if err := tx.cancelOperations(i.GUID, "the service instance is gone"); err != nil {
		return err
	}
	if err := drop(tx.instances, "service instance", i.GUID); err != nil {
		return err
	}
	return tx.instanceEvent(what, i, by, nil)
}

// purge forgets an instance without a word to its broker. The built-in one is told,
// though: nobody else could end what it keeps.
func (tx instanceRecords) purge(i Instance, by app.Actor) error {
	var own *operation
	if i.Type == Managed {
		op, err := tx.instanceOperation(i, Delete, by)
		if err != nil {
			return err
		}
		if op.Orphan = true; op.Broker == BuiltinBroker {
			own = &op
		}
	}
	if err := tx.forgetInstance(i, by, "purge"); err != nil || own == nil {
		return err
	}
	_, err := tx.beginOperation(*own)
	return err
}

// PurgeInstance forgets an instance and what is bound to it without a word to its
// broker.
func (m *instances) PurgeInstance(guid string, by app.Actor) error {
	return m.update(func(tx records) error {
		i, err := tx.instance(guid)
		if err != nil {
			return err
		}
		return tx.purge(i, by)
	})
}

// DeleteIn begins to delete all instances of a space, and takes back what is shared
// with it. The operations are what to wait for; after them it has to be called
// again, until there are none.
func (m *instances) DeleteIn(space string, by app.Actor) (os []Operation, err error) {
	err = m.update(func(tx records) error {
		all, err := tx.instances.All()
		if err != nil {
			return fmt.Errorf("cannot list service instances: %w", err)
		}
		for _, i := range all {
			if !i.availableIn(space) {
				continue
			}
			some, err := tx.removeFromSpace(i, space, by)
			if err != nil {
				return err
			}
			os = append(os, some...)
		}
		return nil
	})
	return os, err
}

// removeFromSpace takes an instance out of a space.
func (tx instanceRecords) removeFromSpace(i Instance, space string, by app.Actor) ([]Operation, error) {
	if i.Space != space {
		return tx.operationsToWaitFor(Operation{}, tx.unshare(i, space, by), i.GUID)
	}
	o, err := tx.deleteInstance(i, by)
	return tx.operationsToWaitFor(o, err, i.GUID)
}

func (tx operationRecords) openOperations(record string) (os []Operation, err error) {
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
