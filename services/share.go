package services

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
)

// Usage is how many apps of a space that an instance is shared with are bound to it.
type Usage struct {
	Space string // guid
	Apps  int
}

// Share lets apps of further spaces be bound to an instance.
func (m *instances) Share(guid string, spaces []string, by app.Actor) (i Instance, err error) {
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
		i.SharedWith = slices.Compact(i.SharedWith) // somebody may name a space twice
		i.UpdatedAt = now()
		if err := put(tx.instances, "service instance", i.GUID, i); err != nil {
			return err
		}
		return tx.instanceEvent("share", i, by, map[string]any{"target_space_guids": spaces})
	})
	return i, err
}

// checkShareable tells whether an instance may be shared at all.
func (tx instanceRecords) checkShareable(i Instance) error {
	if i.Type != Managed {
		return invalid("data", "User-provided services cannot be shared.")
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
	case slices.Contains(of.Requires, requiresRoute):
		return invalid("data", "Route services cannot be shared.")
	case !of.Shareable:
		return invalid("data", "The %s service does not support service instance sharing.", of.Name)
	case !p.Active:
		return invalid("data", "The service instance could not be shared as the %s plan is inactive.", p.Name)
	case i.Last.Is(Create, Failed):
		return fmt.Errorf("service instance %s: %w", i.GUID, ErrNotFound)
	case i.Last.Is(Create, InProgress):
		return invalid("data", "Service instance is currently being created. It can be shared after its creation succeeded.")
	case i.Last.Is(Delete, InProgress):
		return invalid("data", "The service instance is getting deleted.")
	}
	return nil
}

// checkShareWith tells whether an instance may be shared with a space.
func (tx instanceRecords) checkShareWith(i Instance, space string) error {
	s, err := tx.registry.Space(space)
	if errors.Is(err, app.ErrNotFound) {
		return invalid("data", "Unable to share service instance %s with spaces ['%s']. Ensure the spaces exist and that you have access to them.", i.Name, space)
	}
	if err != nil {
		return err
	}
	if space == i.Space {
		return invalid("data", "Unable to share service instance '%s' with space '%s'. Service instances cannot be shared into the space where they were created.", i.Name, space)
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
		return invalid("data", "A service instance called %s already exists in %s.", i.Name, s.Name)
	}
	return invalid("data", "A service instance called %s has already been shared with %s.", i.Name, s.Name)
}

func (tx instanceRecords) planNotEnabled(p Plan, s app.Space) error {
	of, err := tx.offering(p.Offering)
	if err != nil {
		return err
	}
	o, err := tx.registry.Org(s.Org)
	if err != nil {
		return err
	}
	return invalid("data", "Access to service %s and plan %s is not enabled in %s/%s.", of.Name, p.Name, o.Name, s.Name)
}

// Unshare takes that back, with the bindings of that space's apps.
func (m *instances) Unshare(guid, space string, by app.Actor) error {
	return m.update(func(tx records) error {
		i, err := tx.instance(guid)
		if err != nil {
			return err
		}
		if !slices.Contains(i.SharedWith, space) {
			return invalid("data", "Unable to unshare service instance from space %s. Ensure the space exists and the service instance has been shared to this space.", space)
		}
		return tx.unshare(i, space, by)
	})
}

// unshare drops the share at once; bindings go as fast as their broker lets them.
func (tx instanceRecords) unshare(i Instance, space string, by app.Actor) error {
	bs, err := tx.bindingsInSpace(i, space)
	if err != nil {
		return err
	}
	for _, bi := range bs {
		if bi.Last.Is(Delete, InProgress) {
			continue // it goes by itself
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
func (tx bindingRecords) bindingsInSpace(i Instance, space string) ([]Binding, error) {
	bs, err := tx.bindings.By("instance", i.GUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list bindings: %w", err)
	}
	return slices.DeleteFunc(bs, func(bi Binding) bool {
		a, err := tx.registry.App(bi.App)
		return bi.Type != AppBinding || err != nil || a.Space != space
	}), nil
}

// SharedUsage tells for every space that an instance is shared with how many of its
// apps are bound to it.
func (m *instances) SharedUsage(guid string) ([]Usage, error) {
	i, err := m.instance(guid)
	if err != nil {
		return nil, err
	}
	us := make([]Usage, 0, len(i.SharedWith))
	for _, s := range i.SharedWith {
		bs, err := m.bindingsInSpace(i, s)
		if err != nil {
			return nil, err
		}
		us = append(us, Usage{Space: s, Apps: len(bs)})
	}
	return us, nil
}
