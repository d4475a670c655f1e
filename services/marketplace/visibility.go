package marketplace

import (
	"errors"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// SetVisibility sets which users can use a plan.
func (m *catalog) SetVisibility(plan string, v services.Visibility, by app.Actor) (services.Plan, error) {
	return m.changeVisibility(plan, by, func(tx records, p *services.Plan) error {
		if err := tx.checkVisibility(v); err != nil {
			return err
		}
		p.Visibility = services.Visibility{Type: v.Type}
		if v.Type == services.Organization {
			p.Visibility.Orgs = slices.Compact(slices.Sorted(slices.Values(v.Orgs)))
		}
		return nil
	})
}

// AddVisibility adds orgs to those that can use a plan. With another type it is the
// same as SetVisibility.
func (m *catalog) AddVisibility(plan string, v services.Visibility, by app.Actor) (services.Plan, error) {
	if v.Type != services.Organization {
		return m.SetVisibility(plan, v, by)
	}
	return m.changeVisibility(plan, by, func(tx records, p *services.Plan) error {
		if err := tx.checkVisibility(v); err != nil {
			return err
		}
		var orgs []string
		if p.Visibility.Type == services.Organization {
			orgs = p.Visibility.Orgs
		}
		orgs = slices.Concat(orgs, v.Orgs)
		p.Visibility = services.Visibility{Type: services.Organization, Orgs: slices.Compact(slices.Sorted(slices.Values(orgs)))}
		return nil
	})
}

// RemoveVisibility removes an org from those that can use a plan.
func (m *catalog) RemoveVisibility(plan, org string, by app.Actor) error {
	_, err := m.changePlan(plan, func(tx records, p *services.Plan) error {
		if p.Visibility.Type != services.Organization {
			return services.NewInvalid("type", "Cannot delete organization level access for plan with visibility type '%s'", p.Visibility.Type)
		}
		left := slices.DeleteFunc(slices.Clone(p.Visibility.Orgs), func(o string) bool { return o == org })
		if len(left) == len(p.Visibility.Orgs) {
			return services.ErrNotFound
		}
		p.Visibility.Orgs = left
		if len(left) == 0 {
			p.Visibility = services.Visibility{Type: services.Admin}
		}
		return tx.visibilityEvent("delete", by, *p, event{org: org, data: map[string]any{"request": map[string]any{}}})
	})
	return err
}

// changeVisibility changes the visibility of a plan and records an audit event.
func (m *catalog) changeVisibility(plan string, by app.Actor, fn func(tx records, p *services.Plan) error) (services.Plan, error) {
	return m.changePlan(plan, func(tx records, p *services.Plan) error {
		if err := fn(tx, p); err != nil {
			return err
		}
		return tx.visibilityEvent("update", by, *p,
			event{data: map[string]any{"request": map[string]any{"type": string(p.Visibility.Type), "organizations": p.Visibility.Orgs}}})
	})
}

func (m *catalog) changePlan(plan string, fn func(tx records, p *services.Plan) error) (p services.Plan, err error) {
	err = m.update(func(tx records) error {
		if p, err = tx.plan(plan); err != nil {
			return err
		}
		if p.Visibility.Type == services.SpaceOnly {
			return services.NewInvalid("type", "cannot update plans with visibility type 'space'")
		}
		if err := fn(tx, &p); err != nil {
			return err
		}
		p.UpdatedAt = now()
		return put(tx.plans, "service plan", p.GUID, p)
	})
	return p, err
}

func (tx catalogRecords) visibilityEvent(what string, by app.Actor, p services.Plan, e event) error {
	return tx.event("service_plan_visibility."+what, by, app.Target{GUID: p.GUID, Type: "service_plan_visibility"}, e)
}

func (tx catalogRecords) checkVisibility(v services.Visibility) error {
	switch v.Type {
	case services.Public, services.Admin:
		return nil
	case services.Organization:
	case services.SpaceOnly:
		fallthrough
	default:
		return services.NewInvalid("type", "Type must be one of 'public', 'admin', 'organization'")
	}
	if len(v.Orgs) == 0 {
		return services.NewInvalid("organizations", "Organizations must be a list of at least one organization")
	}
	for _, o := range v.Orgs {
		if _, err := tx.registry.Org(o); errors.Is(err, app.ErrNotFound) {
			return services.NewInvalid("organizations", "Could not find Organization with guid: %s", o)
		} else if err != nil {
			return err
		}
	}
	return nil
}
