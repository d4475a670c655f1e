package marketplace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// Share makes an instance available to the apps of other spaces.
func (m *instances) Share(guid string, spaces []string, by app.Actor) (i services.Instance, err error) {
	err = m.update(func(tx records) error {
		if i, err = tx.instance(guid); err != nil {
			return err
		}
		if err := tx.checkShareable(i); err != nil {
			return err
		}
		for _, s := range spaces {
			if err := tx.checkShareWith(i, s); err != nil {
				return err
			}
			i.SharedWith = append(i.SharedWith, s)
		}
		slices.Sort(i.SharedWith)
		i.SharedWith = slices.Compact(i.SharedWith) // the caller can name a space twice
		i.UpdatedAt = now()
		if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
			return err
		}
		return tx.instanceEvent("share", i, by, map[string]any{"target_space_guids": spaces})
	})
	return i, err
}

// checkShareable checks whether an instance can be shared at all.
func (tx instanceRecords) checkShareable(i services.Instance) error {
	if i.Type != services.Managed {
		return services.NewInvalid("data", "User-provided services cannot be shared.")
	}
	p, err := tx.plan(i.Plan)
	if err != nil {
		return err
	}
	of, err := tx.offering(p.Offering)
	if err != nil {
		return err
	}
	switch {
	case slices.Contains(of.Requires, services.RequiresRoute):
		return services.NewInvalid("data", "Route services cannot be shared.")
	case !of.Shareable:
		return services.NewInvalid("data", "The %s service does not support service instance sharing.", of.Name)
	case !p.Active:
		return services.NewInvalid("data", "The service instance could not be shared as the %s plan is inactive.", p.Name)
	case i.Last.Is(services.Create, services.Failed):
		return fmt.Errorf("service instance %s: %w", i.GUID, services.ErrNotFound)
	case i.Last.Is(services.Create, services.InProgress):
		return services.NewInvalid("data", "Service instance is currently being created. It can be shared after its creation succeeded.")
	case i.Last.Is(services.Delete, services.InProgress):
		return services.NewInvalid("data", "The service instance is getting deleted.")
	}
	return nil
}

// checkShareWith checks whether an instance can be shared with a space.
func (tx instanceRecords) checkShareWith(i services.Instance, space string) error {
	s, err := tx.registry.Space(space)
	if errors.Is(err, app.ErrNotFound) {
		return services.NewInvalid("data", "Unable to share service instance %s with spaces ['%s']. Ensure the spaces exist and that you have access to them.", i.Name, space)
	}
	if err != nil {
		return err
	}
	if space == i.Space {
		return services.NewInvalid("data", "Unable to share service instance '%s' with space '%s'. Service instances cannot be shared into the space where they were created.", i.Name, space)
	}
	p, err := tx.plan(i.Plan)
	if err != nil {
		return err
	}
	if !p.Visibility.In(s.Org, s.GUID) {
		return tx.planNotEnabled(p, s)
	}
	taken, err := tx.instanceNamed(space, i.Name)
	switch {
	case err != nil:
		return err
	case taken == nil:
		return nil
	case taken.Space == space:
		return services.NewInvalid("data", "A service instance called %s already exists in %s.", i.Name, s.Name)
	}
	return services.NewInvalid("data", "A service instance called %s has already been shared with %s.", i.Name, s.Name)
}

func (tx instanceRecords) planNotEnabled(p services.Plan, s app.Space) error {
	of, err := tx.offering(p.Offering)
	if err != nil {
		return err
	}
	o, err := tx.registry.Org(s.Org)
	if err != nil {
		return err
	}
	return services.NewInvalid("data", "Access to service %s and plan %s is not enabled in %s/%s.", of.Name, p.Name, o.Name, s.Name)
}

// Unshare stops sharing an instance with a space, and deletes the bindings of the
// space's apps.
func (m *instances) Unshare(guid, space string, by app.Actor) error {
	return m.update(func(tx records) error {
		i, err := tx.instance(guid)
		if err != nil {
			return err
		}
		if !slices.Contains(i.SharedWith, space) {
			return services.NewInvalid("data", "Unable to unshare service instance from space %s. Ensure the space exists and the service instance has been shared to this space.", space)
		}
		return tx.unshare(i, space, by)
	})
}

// unshare stops sharing at once; the broker deletes the bindings later.
func (tx instanceRecords) unshare(i services.Instance, space string, by app.Actor) error {
	bs, err := tx.bindingsInSpace(i, space)
	if err != nil {
		return err
	}
	for _, bi := range bs {
		if bi.Last.Is(services.Delete, services.InProgress) {
			continue // it is already being deleted
		}
		if _, err := tx.deleteBinding(bi, by); err != nil {
			return err
		}
	}
	i.SharedWith = slices.DeleteFunc(i.SharedWith, func(s string) bool { return s == space })
	i.UpdatedAt = now()
	if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
		return err
	}
	return tx.instanceEvent("unshare", i, by, map[string]any{"target_space_guid": space})
}

// bindingsInSpace returns the bindings of an instance to apps of a space.
func (tx bindingRecords) bindingsInSpace(i services.Instance, space string) ([]services.Binding, error) {
	bs, err := tx.bindings.By("instance", i.GUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list bindings: %w", err)
	}
	return slices.DeleteFunc(bs, func(bi services.Binding) bool {
		a, err := tx.registry.App(bi.App)
		return bi.Type != services.AppBinding || err != nil || a.Space != space
	}), nil
}

// SharedUsage returns, for every space that an instance is shared with, the number of
// bound apps.
func (m *instances) SharedUsage(guid string) ([]services.Usage, error) {
	i, err := m.instance(guid)
	if err != nil {
		return nil, err
	}
	us := make([]services.Usage, 0, len(i.SharedWith))
	for _, s := range i.SharedWith {
		bs, err := m.bindingsInSpace(i, s)
		if err != nil {
			return nil, err
		}
		us = append(us, services.Usage{Space: s, Apps: len(bs)})
	}
	return us, nil
}
