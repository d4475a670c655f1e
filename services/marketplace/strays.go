package marketplace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// strays are records whose app, route, space or org was deleted.
type strays struct {
	bindings  []services.Binding
	instances []services.Instance
	brokers   []services.ServiceBroker
	shared    []services.Instance // with deleted spaces
	plans     []services.Plan     // for deleted orgs
}

// sweepStrays starts to delete the records that belong to deleted apps, routes, spaces
// and orgs. Those were deleted without waiting for brokers.
func (w *worker) sweepStrays() error {
	found, err := w.strays()
	if err != nil || found.none() {
		return err
	}
	return w.update(func(tx records) error {
		found, err := tx.strays()
		if err != nil {
			return err
		}
		return tx.sweep(found, app.Actor{GUID: "system", Type: "system", Name: "system"})
	})
}

func (s strays) none() bool {
	return len(s.bindings)+len(s.instances)+len(s.brokers)+len(s.shared)+len(s.plans) == 0
}

// sweep starts to delete strays. It skips records with an operation in progress; a
// later sweep deletes them.
func (tx records) sweep(s strays, by app.Actor) error {
	var errs []error
	for _, bi := range s.bindings {
		_, err := tx.deleteBinding(bi, by)
		errs = append(errs, err)
	}
	for _, i := range s.instances {
		_, err := tx.deleteInstance(i, by)
		errs = append(errs, err)
	}
	for _, sb := range s.brokers {
		_, err := tx.deleteBroker(sb, by)
		errs = append(errs, err)
	}
	for _, i := range s.shared {
		i.SharedWith = slices.DeleteFunc(i.SharedWith, tx.spaceGone)
		errs = append(errs, put(tx.instances, "service instance", i.GUID, i))
	}
	for _, p := range s.plans {
		p.Visibility.Orgs = slices.DeleteFunc(p.Visibility.Orgs, tx.orgGone)
		if len(p.Visibility.Orgs) == 0 {
			p.Visibility = services.Visibility{Type: services.Admin}
		}
		errs = append(errs, put(tx.plans, "service plan", p.GUID, p))
	}
	return errors.Join(slices.DeleteFunc(errs, services.IsRefusal)...)
}

func (tx records) strays() (s strays, err error) {
	if s.bindings, err = tx.bindings.All(); err != nil {
		return s, fmt.Errorf("cannot list bindings: %w", err)
	}
	s.bindings = slices.DeleteFunc(s.bindings, func(bi services.Binding) bool {
		return !tx.isStray(bi) || bi.Last.Is(services.Delete, services.InProgress)
	})
	if s.instances, err = tx.instances.All(); err != nil {
		return s, fmt.Errorf("cannot list service instances: %w", err)
	}
	for _, i := range s.instances {
		if !tx.spaceGone(i.Space) && slices.ContainsFunc(i.SharedWith, tx.spaceGone) {
			s.shared = append(s.shared, i)
		}
	}
	s.instances = slices.DeleteFunc(s.instances, func(i services.Instance) bool {
		return !tx.spaceGone(i.Space) || i.Last.Is(services.Delete, services.InProgress)
	})
	if s.brokers, err = tx.brokers.All(); err != nil {
		return s, fmt.Errorf("cannot list service brokers: %w", err)
	}
	s.brokers = slices.DeleteFunc(s.brokers, func(sb services.ServiceBroker) bool { return sb.Space == "" || !tx.spaceGone(sb.Space) })
	if s.plans, err = tx.plans.All(); err != nil {
		return s, fmt.Errorf("cannot list service plans: %w", err)
	}
	s.plans = slices.DeleteFunc(s.plans, func(p services.Plan) bool { return !slices.ContainsFunc(p.Visibility.Orgs, tx.orgGone) })
	return s, nil
}

func (tx records) spaceGone(guid string) bool {
	_, err := tx.registry.Space(guid)
	return errors.Is(err, app.ErrNotFound)
}

func (tx records) orgGone(guid string) bool {
	_, err := tx.registry.Org(guid)
	return errors.Is(err, app.ErrNotFound)
}

// isStray reports whether the app or route of a binding was deleted.
func (tx records) isStray(bi services.Binding) bool {
	var err error
	switch bi.Type {
	case services.AppBinding:
		_, err = tx.registry.App(bi.App)
	case services.RouteBinding:
		_, err = tx.registry.Route(bi.Route)
	case services.KeyBinding:
	}
	return errors.Is(err, app.ErrNotFound)
}
