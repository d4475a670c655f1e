package services

import (
	"errors"
	"slices"

	"github.com/dewrun/dew/app"
)

// SetVisibility says anew who may have a plan.
func (m *catalog) SetVisibility(plan string, v Visibility, by app.Actor) (Plan, error) {
	return m.changeVisibility(plan, by, func(tx records, p *Plan) error {
		if err := tx.checkVisibility(v); err != nil {
			return err
		}
		p.Visibility = Visibility{Type: v.Type}
		if v.Type == Organization {
			p.Visibility.Orgs = slices.Compact(slices.Sorted(slices.Values(v.Orgs)))
		}
		return nil
	})
}

// AddVisibility adds orgs to those who may have a plan; with another type it is
// SetVisibility.
func (m *catalog) AddVisibility(plan string, v Visibility, by app.Actor) (Plan, error) {
	if v.Type != Organization {
		return m.SetVisibility(plan, v, by)
	}
	return m.changeVisibility(plan, by, func(tx records, p *Plan) error {
		if err := tx.checkVisibility(v); err != nil {
			return err
		}
		var orgs []string
		if p.Visibility.Type == Organization {
			orgs = p.Visibility.Orgs
		}
		orgs = slices.Concat(orgs, v.Orgs)
		p.Visibility = Visibility{Type: Organization, Orgs: slices.Compact(slices.Sorted(slices.Values(orgs)))}
		return nil
	})
}

// RemoveVisibility takes an org from those who may have a plan.
func (m *catalog) RemoveVisibility(plan, org string, by app.Actor) error {
	_, err := m.changePlan(plan, func(tx records, p *Plan) error {
		if p.Visibility.Type != Organization {
			return invalid("type", "Cannot delete organization level access for plan with visibility type '%s'", p.Visibility.Type)
		}
		left := slices.DeleteFunc(slices.Clone(p.Visibility.Orgs), func(o string) bool { return o == org })
		if len(left) == len(p.Visibility.Orgs) {
			return ErrNotFound
		}
		p.Visibility.Orgs = left
		if len(left) == 0 {
			p.Visibility = Visibility{Type: Admin}
		}
		return tx.visibilityEvent("delete", by, *p, event{org: org, data: map[string]any{"request": map[string]any{}}})
	})
	return err
}

// changeVisibility changes who may have a plan, and records it.
func (m *catalog) changeVisibility(plan string, by app.Actor, fn func(tx records, p *Plan) error) (Plan, error) {
	return m.changePlan(plan, func(tx records, p *Plan) error {
		if err := fn(tx, p); err != nil {
			return err
		}
		return tx.visibilityEvent("update", by, *p,
			event{data: map[string]any{"request": map[string]any{"type": string(p.Visibility.Type), "organizations": p.Visibility.Orgs}}})
	})
}

func (m *catalog) changePlan(plan string, fn func(tx records, p *Plan) error) (p Plan, err error) {
	err = m.update(func(tx records) error {
		if p, err = tx.plan(plan); err != nil {
			return err
		}
		if p.Visibility.Type == SpaceOnly {
			return invalid("type", "cannot update plans with visibility type 'space'")
		}
		if err := fn(tx, &p); err != nil {
			return err
		}
		p.UpdatedAt = now()
		return put(tx.plans, "service plan", p.GUID, p)
	})
	return p, err
}

func (tx catalogRecords) visibilityEvent(what string, by app.Actor, p Plan, e event) error {
	return tx.event("service_plan_visibility."+what, by, app.Target{GUID: p.GUID, Type: "service_plan_visibility"}, e)
}

func (tx catalogRecords) checkVisibility(v Visibility) error {
	switch v.Type {
	case Public, Admin:
		return nil
	case Organization:
	case SpaceOnly:
		fallthrough
	default:
		return invalid("type", "Type must be one of 'public', 'admin', 'organization'")
	}
	if len(v.Orgs) == 0 {
		return invalid("organizations", "Organizations must be a list of at least one organization")
	}
	for _, o := range v.Orgs {
		if _, err := tx.registry.Org(o); errors.Is(err, app.ErrNotFound) {
			return invalid("organizations", "Could not find Organization with guid: %s", o)
		} else if err != nil {
			return err
		}
	}
	return nil
}
