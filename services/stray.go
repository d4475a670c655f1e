package services

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
)

// strays are what nobody can want any more.
type strays struct {
	bindings  []Binding
	instances []Instance
	brokers   []ServiceBroker
	shared    []Instance // with spaces that are gone
	plans     []Plan     // for orgs that are gone
}

// sweepStrays begins to delete what belongs to apps, routes, spaces and orgs that
// are gone. Whoever deleted them could not wait for brokers.
func (b *Book) sweepStrays() error {
	found, err := b.strays()
	if err != nil || found.none() {
		return err
	}
	return b.update(func(l ledger) error {
		found, err := l.strays()
		if err != nil {
			return err
		}
		return l.sweep(found, app.Actor{GUID: "system", Type: "system", Name: "system"})
	})
}

func (s strays) none() bool {
	return len(s.bindings)+len(s.instances)+len(s.brokers)+len(s.shared)+len(s.plans) == 0
}

// sweep begins to delete strays. What is in the way ends one day.
func (l ledger) sweep(s strays, by app.Actor) error {
	var errs []error
	for _, bi := range s.bindings {
		_, err := l.deleteBinding(bi, by)
		errs = append(errs, err)
	}
	for _, i := range s.instances {
		_, err := l.deleteInstance(i, by)
		errs = append(errs, err)
	}
	for _, sb := range s.brokers {
		_, err := l.deleteBroker(sb, by)
		errs = append(errs, err)
	}
	for _, i := range s.shared {
		i.SharedWith = slices.DeleteFunc(i.SharedWith, l.spaceGone)
		errs = append(errs, put(l.instances, "service instance", i.GUID, i))
	}
	for _, p := range s.plans {
		p.Visibility.Orgs = slices.DeleteFunc(p.Visibility.Orgs, l.orgGone)
		if len(p.Visibility.Orgs) == 0 {
			p.Visibility = Visibility{Type: Admin}
		}
		errs = append(errs, put(l.plans, "service plan", p.GUID, p))
	}
	return errors.Join(slices.DeleteFunc(errs, isRefusal)...)
}

func (l ledger) strays() (s strays, err error) {
	if s.bindings, err = l.bindings.All(); err != nil {
		return s, fmt.Errorf("cannot list bindings: %w", err)
	}
	s.bindings = slices.DeleteFunc(s.bindings, func(bi Binding) bool { return !l.stray(bi) || bi.Last.Is(Delete, InProgress) })
	if s.instances, err = l.instances.All(); err != nil {
		return s, fmt.Errorf("cannot list service instances: %w", err)
	}
	for _, i := range s.instances {
		if !l.spaceGone(i.Space) && slices.ContainsFunc(i.SharedWith, l.spaceGone) {
			s.shared = append(s.shared, i)
		}
	}
	s.instances = slices.DeleteFunc(s.instances, func(i Instance) bool { return !l.spaceGone(i.Space) || i.Last.Is(Delete, InProgress) })
	if s.brokers, err = l.brokers.All(); err != nil {
		return s, fmt.Errorf("cannot list service brokers: %w", err)
	}
	s.brokers = slices.DeleteFunc(s.brokers, func(sb ServiceBroker) bool { return sb.Space == "" || !l.spaceGone(sb.Space) })
	if s.plans, err = l.plans.All(); err != nil {
		return s, fmt.Errorf("cannot list service plans: %w", err)
	}
	s.plans = slices.DeleteFunc(s.plans, func(p Plan) bool { return !slices.ContainsFunc(p.Visibility.Orgs, l.orgGone) })
	return s, nil
}

func (l ledger) spaceGone(guid string) bool {
	_, err := l.registry.Space(guid)
	return errors.Is(err, app.ErrNotFound)
}

func (l ledger) orgGone(guid string) bool {
	_, err := l.registry.Org(guid)
	return errors.Is(err, app.ErrNotFound)
}

// stray tells whether what a binding is for is gone.
func (l ledger) stray(bi Binding) bool {
	var err error
	switch bi.Type {
	case AppBinding:
		_, err = l.registry.App(bi.App)
	case RouteBinding:
		_, err = l.registry.Route(bi.Route)
	case KeyBinding:
	}
	return errors.Is(err, app.ErrNotFound)
}
