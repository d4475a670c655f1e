package services

import (
	"fmt"

	"github.com/dewrun/dew/app"
)

// cancelled is why an operation ended when a delete took its place.
const cancelled = "delete in progress"

// DeleteInstance removes an instance after all that is bound to it. The operation
// is empty when that is done already.
func (b *Book) DeleteInstance(guid string, by app.Actor) (o Operation, err error) {
	err = b.update(func(l ledger) error {
		i, err := l.instance(guid)
		if err != nil {
			return err
		}
		o, err = l.deleteInstance(i, by)
		return err
	})
	return o, err
}

func (l ledger) deleteInstance(i Instance, by app.Actor) (o Operation, err error) {
	if i.Type == UserProvided {
		return o, l.forgetInstance(i, by, "delete")
	}
	waiting, err := l.unheard(i.GUID)
	if err != nil {
		return o, err
	}
	// A create that the broker has taken may be broken off by a delete; anything else
	// has to end first.
	if i.Last.Busy() && (i.Last.Type != Create || waiting) {
		return o, errBusy(i.Name)
	}
	if err := l.cancel(i.GUID, cancelled); err != nil {
		return o, err
	}
	t, err := l.instanceTask(i, Delete, by)
	if err != nil {
		return o, err
	}
	if o, err = l.begin(t); err != nil {
		return o, err
	}
	i.Last = LastOperation{Type: Delete, State: InProgress, CreatedAt: now(), UpdatedAt: now()}
	if err := put(l.instances, "service instance", i.GUID, i); err != nil {
		return o, err
	}
	if err := l.unbindFrom(i.GUID, by); err != nil {
		return o, err
	}
	return o, l.instanceEvent("start_delete", i, by, nil)
}

// unbindFrom begins to delete what is bound to an instance, as far as nothing is in
// the way.
func (l ledger) unbindFrom(instance string, by app.Actor) error {
	bs, err := l.bindings.By("instance", instance)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		if _, err := l.deleteBinding(bi, by); err != nil && !isRefusal(err) {
			return err
		}
	}
	return nil
}

// unheard tells whether a record has an operation that its broker has not taken.
func (l ledger) unheard(record string) (bool, error) {
	ts, err := l.tasks.By("record", record)
	if err != nil {
		return false, fmt.Errorf("cannot list operations: %w", err)
	}
	for _, t := range ts {
		if t.Open && !t.Orphan && !t.Accepted {
			return true, nil
		}
	}
	return false, nil
}

// forgetInstance drops an instance with all that is bound to it, without a broker.
func (l ledger) forgetInstance(i Instance, by app.Actor, what string) error {
	bs, err := l.bindings.By("instance", i.GUID)
	if err != nil {
		return fmt.Errorf("cannot list bindings: %w", err)
	}
	for _, bi := range bs {
		if err := l.forgetBinding(bi, by); err != nil {
			return err
		}
	}
	if err := l.cancel(i.GUID, "the service instance is gone"); err != nil {
		return err
	}
	if err := drop(l.instances, "service instance", i.GUID); err != nil {
		return err
	}
	return l.instanceEvent(what, i, by, nil)
}

// purge forgets an instance without a word to its broker. The built-in one is told,
// though: nobody else could end what it keeps.
func (l ledger) purge(i Instance, by app.Actor) error {
	var own *task
	if i.Type == Managed {
		t, err := l.instanceTask(i, Delete, by)
		if err != nil {
			return err
		}
		if t.Orphan = true; t.Broker == BuiltinBroker {
			own = &t
		}
	}
	if err := l.forgetInstance(i, by, "purge"); err != nil || own == nil {
		return err
	}
	_, err := l.begin(*own)
	return err
}

// PurgeInstance forgets an instance and what is bound to it without a word to its
// broker.
func (b *Book) PurgeInstance(guid string, by app.Actor) error {
	return b.update(func(l ledger) error {
		i, err := l.instance(guid)
		if err != nil {
			return err
		}
		return l.purge(i, by)
	})
}

// DeleteIn begins to delete all instances of a space, and takes back what is shared
// with it. The operations are what to wait for; after them it has to be called
// again, until there are none.
func (b *Book) DeleteIn(space string, by app.Actor) (os []Operation, err error) {
	err = b.update(func(l ledger) error {
		all, err := l.instances.All()
		if err != nil {
			return fmt.Errorf("cannot list service instances: %w", err)
		}
		for _, i := range all {
			if !i.in(space) {
				continue
			}
			some, err := l.clear(i, space, by)
			if err != nil {
				return err
			}
			os = append(os, some...)
		}
		return nil
	})
	return os, err
}

// clear takes an instance out of a space.
func (l ledger) clear(i Instance, space string, by app.Actor) ([]Operation, error) {
	if i.Space != space {
		return l.orWait(Operation{}, l.unshare(i, space, by), i.GUID)
	}
	o, err := l.deleteInstance(i, by)
	return l.orWait(o, err, i.GUID)
}

func (l ledger) openOperations(record string) (os []Operation, err error) {
	ts, err := l.tasks.By("record", record)
	if err != nil {
		return nil, fmt.Errorf("cannot list operations: %w", err)
	}
	for _, t := range ts {
		if t.Open && !t.Orphan {
			os = append(os, t.Operation)
		}
	}
	return os, nil
}
