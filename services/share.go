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
func (b *Book) Share(guid string, spaces []string, by app.Actor) (i Instance, err error) {
	err = b.update(func(l ledger) error {
		if i, err = l.instance(guid); err != nil {
			return err
		}
		if err := l.shareable(i); err != nil {
			return err
		}
		for _, s := range spaces {
			if err := l.sharedWith(i, s); err != nil {
				return err
			}
			i.SharedWith = append(i.SharedWith, s)
		}
		slices.Sort(i.SharedWith)
		i.SharedWith = slices.Compact(i.SharedWith) // somebody may name a space twice
		i.UpdatedAt = now()
		if err := put(l.instances, "service instance", i.GUID, i); err != nil {
			return err
		}
		return l.instanceEvent("share", i, by, map[string]any{"target_space_guids": spaces})
	})
	return i, err
}

// shareable tells whether an instance may be shared at all.
func (l ledger) shareable(i Instance) error {
	if i.Type != Managed {
		return invalid("data", "User-provided services cannot be shared.")
	}
	p, err := l.plan(i.Plan)
	if err != nil {
		return err
	}
	of, err := l.offering(p.Offering)
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

// sharedWith tells whether an instance may be shared with a space.
func (l ledger) sharedWith(i Instance, space string) error {
	s, err := l.registry.Space(space)
	if errors.Is(err, app.ErrNotFound) {
		return invalid("data", "Unable to share service instance %s with spaces ['%s']. Ensure the spaces exist and that you have access to them.", i.Name, space)
	}
	if err != nil {
		return err
	}
	if space == i.Space {
		return invalid("data", "Unable to share service instance '%s' with space '%s'. Service instances cannot be shared into the space where they were created.", i.Name, space)
	}
	p, err := l.plan(i.Plan)
	if err != nil {
		return err
	}
	if !p.Visibility.In(s.Org, s.GUID) {
		return l.notEnabled(p, s)
	}
	taken, err := l.named(space, i.Name)
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

func (l ledger) notEnabled(p Plan, s app.Space) error {
	of, err := l.offering(p.Offering)
	if err != nil {
		return err
	}
	o, err := l.registry.Org(s.Org)
	if err != nil {
		return err
	}
	return invalid("data", "Access to service %s and plan %s is not enabled in %s/%s.", of.Name, p.Name, o.Name, s.Name)
}

// Unshare takes that back, with the bindings of that space's apps.
func (b *Book) Unshare(guid, space string, by app.Actor) error {
	return b.update(func(l ledger) error {
		i, err := l.instance(guid)
		if err != nil {
			return err
		}
		if !slices.Contains(i.SharedWith, space) {
			return invalid("data", "Unable to unshare service instance from space %s. Ensure the space exists and the service instance has been shared to this space.", space)
		}
		return l.unshare(i, space, by)
	})
}

// unshare drops the share at once; bindings go as fast as their broker lets them.
func (l ledger) unshare(i Instance, space string, by app.Actor) error {
	bs, err := l.boundIn(i, space)
	if err != nil {
		return err
	}
	for _, bi := range bs {
		if bi.Last.Is(Delete, InProgress) {
			continue // it goes by itself
		}
		if _, err := l.deleteBinding(bi, by); err != nil {
			return err
		}
	}
	i.SharedWith = slices.DeleteFunc(i.SharedWith, func(s string) bool { return s == space })
	i.UpdatedAt = now()
	if err := put(l.instances, "service instance", i.GUID, i); err != nil {
		return err
	}
	return l.instanceEvent("unshare", i, by, map[string]any{"target_space_guid": space})
}

// boundIn returns the bindings of an instance to apps of a space.
func (l ledger) boundIn(i Instance, space string) ([]Binding, error) {
	bs, err := l.bindings.By("instance", i.GUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list bindings: %w", err)
	}
	return slices.DeleteFunc(bs, func(bi Binding) bool {
		a, err := l.registry.App(bi.App)
		return bi.Type != AppBinding || err != nil || a.Space != space
	}), nil
}

// SharedUsage tells for every space that an instance is shared with how many of its
// apps are bound to it.
func (b *Book) SharedUsage(guid string) ([]Usage, error) {
	i, err := b.instance(guid)
	if err != nil {
		return nil, err
	}
	us := make([]Usage, 0, len(i.SharedWith))
	for _, s := range i.SharedWith {
		bs, err := b.boundIn(i, s)
		if err != nil {
			return nil, err
		}
		us = append(us, Usage{Space: s, Apps: len(bs)})
	}
	return us, nil
}
