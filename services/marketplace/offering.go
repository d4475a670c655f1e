package marketplace

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// Offering returns the offering with guid.
func (m *catalog) Offering(guid string) (services.Offering, error) { return m.offering(guid) }

// Plan returns the plan with guid.
func (m *catalog) Plan(guid string) (services.Plan, error) { return m.plan(guid) }

func (tx *tables) offering(guid string) (services.Offering, error) {
	return get(tx.offerings, "service offering", guid)
}

func (tx *tables) plan(guid string) (services.Plan, error) {
	return get(tx.plans, "service plan", guid)
}

// Offerings returns the offerings that match f, sorted by name.
func (m *catalog) Offerings(f services.OfferingFilter) ([]services.Offering, error) {
	visible := map[string]bool{} // offerings with a plan that the viewer can see
	ps, err := m.Plans(services.PlanFilter{Viewer: f.Viewer, Orgs: f.Orgs, Spaces: f.Spaces})
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		visible[p.Offering] = true
	}
	everywhere := f.Viewer == nil && len(f.Orgs)+len(f.Spaces) == 0
	names, err := m.brokerNames()
	if err != nil {
		return nil, err
	}
	return selectSorted(m.offerings, "service offerings", func(o services.Offering) bool {
		return matches(f.GUIDs, o.GUID) && matches(f.Names, o.Name) && matches(f.IDs, o.ID) && matches(f.Brokers, o.Broker) &&
			matches(f.BrokerNames, names[o.Broker]) && (f.Available == nil || *f.Available == o.Active) &&
			(everywhere || visible[o.GUID]) && f.Labels.Matches(o.Metadata.Labels)
	}, func(a, b services.Offering) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID))
	})
}

// Plans returns the plans that match f, sorted by name.
func (m *catalog) Plans(f services.PlanFilter) ([]services.Plan, error) {
	names, err := m.brokerNames()
	if err != nil {
		return nil, err
	}
	places, err := m.spacesOfFilter(f)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{} // of offerings
	os, err := m.offerings.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list service offerings: %w", err)
	}
	for _, o := range os {
		labels[o.GUID] = o.Name
	}
	had, err := m.plansOf(f.Instances)
	if err != nil {
		return nil, err
	}
	return selectSorted(m.plans, "service plans", func(p services.Plan) bool {
		return matches(f.GUIDs, p.GUID) && matches(f.Names, p.Name) && matches(f.IDs, p.ID) &&
			matches(f.Offerings, p.Offering) && matches(f.OfferingNames, labels[p.Offering]) &&
			matches(f.Brokers, p.Broker) && matches(f.BrokerNames, names[p.Broker]) &&
			(len(f.Instances) == 0 || slices.Contains(had, p.GUID)) && p.AvailableIn(f, places) &&
			(f.Available == nil || *f.Available == p.Active) && f.Viewer.Sees(p) && f.Labels.Matches(p.Metadata.Labels)
	}, func(a, b services.Plan) int {
		return cmp.Or(cmp.Compare(labels[a.Offering], labels[b.Offering]), cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID))
	})
}

// spacesOfFilter returns the existing spaces that a filter names directly or by org.
func (m *catalog) spacesOfFilter(f services.PlanFilter) (at services.FilterSpaces, err error) {
	if len(f.Orgs)+len(f.Spaces) == 0 {
		return at, nil
	}
	all, err := m.registry.Spaces()
	for _, s := range all {
		if slices.Contains(f.Spaces, s.GUID) {
			at.Spaces = append(at.Spaces, s)
		}
		if slices.Contains(f.Orgs, s.Org) {
			at.InOrgs = append(at.InOrgs, s)
		}
	}
	return at, err
}

func (m *catalog) plansOf(instances []string) (plans []string, err error) {
	for _, guid := range instances {
		i, err := m.instance(guid)
		if errors.Is(err, services.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		plans = append(plans, i.Plan)
	}
	return plans, nil
}

func (m *catalog) brokerNames() (map[string]string, error) {
	all, err := m.brokers.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list service brokers: %w", err)
	}
	names := map[string]string{}
	for _, sb := range all {
		names[sb.GUID] = sb.Name
	}
	return names, nil
}

// UpdateOfferingMetadata changes the metadata of an offering.
func (m *catalog) UpdateOfferingMetadata(guid string, c app.MetadataChange) (o services.Offering, err error) {
	err = m.update(func(tx records) error {
		if o, err = tx.offering(guid); err != nil {
			return err
		}
		o.Metadata, o.UpdatedAt = o.Metadata.Merge(c), now()
		if err := o.Metadata.Validate(); err != nil {
			return err
		}
		return put(tx.offerings, "service offering", guid, o)
	})
	return o, err
}

// UpdatePlanMetadata changes the metadata of a plan.
func (m *catalog) UpdatePlanMetadata(guid string, c app.MetadataChange) (p services.Plan, err error) {
	err = m.update(func(tx records) error {
		if p, err = tx.plan(guid); err != nil {
			return err
		}
		p.Metadata, p.UpdatedAt = p.Metadata.Merge(c), now()
		if err := p.Metadata.Validate(); err != nil {
			return err
		}
		return put(tx.plans, "service plan", guid, p)
	})
	return p, err
}

// DeleteOffering removes an offering that has no instances.
func (m *catalog) DeleteOffering(guid string) error {
	return m.update(func(tx records) error {
		o, err := tx.offering(guid)
		if err != nil {
			return err
		}
		return tx.dropOffering(o)
	})
}

// dropOffering deletes an offering with its plans, which must have no instances.
func (tx catalogRecords) dropOffering(o services.Offering) error {
	ps, err := tx.plans.By("offering", o.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service plans: %w", err)
	}
	for _, p := range ps {
		if err := tx.dropPlan(p); err != nil {
			return err
		}
	}
	return drop(tx.offerings, "service offering", o.GUID)
}

func (tx catalogRecords) dropPlan(p services.Plan) error {
	is, err := tx.instances.By("plan", p.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service instances: %w", err)
	}
	if len(is) > 0 {
		return &services.Refused{
			Status: http.StatusUnprocessableEntity, Code: 10006, Title: "CF-AssociationNotEmpty",
			Detail: "Please delete the service_instances associations for your service_plans.",
		}
	}
	return drop(tx.plans, "service plan", p.GUID)
}

// PurgeOffering deletes the records of an offering, its plans, instances and bindings
// without a request to its broker.
func (m *catalog) PurgeOffering(guid string, by app.Actor) error {
	return m.update(func(tx records) error {
		o, err := tx.offering(guid)
		if err != nil {
			return err
		}
		ps, err := tx.plans.By("offering", guid)
		if err != nil {
			return fmt.Errorf("cannot list service plans: %w", err)
		}
		for _, p := range ps {
			if err := tx.purgePlan(p, by); err != nil {
				return err
			}
		}
		if err := tx.dropOffering(o); err != nil {
			return err
		}
		return tx.event("service.delete", by, app.Target{GUID: o.GUID, Type: "service", Name: o.Name}, event{})
	})
}

func (tx records) purgePlan(p services.Plan, by app.Actor) error {
	is, err := tx.instances.By("plan", p.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service instances: %w", err)
	}
	for _, i := range is {
		if err := tx.purge(i, by); err != nil {
			return err
		}
	}
	return nil
}

// DeletePlan removes a plan that has no instances.
func (m *catalog) DeletePlan(guid string) error {
	return m.update(func(tx records) error {
		p, err := tx.plan(guid)
		if err != nil {
			return err
		}
		return tx.dropPlan(p)
	})
}

// planFor returns the plan with guid if new instances in a space can use it.
func (tx instanceRecords) planFor(guid, space string) (services.Plan, error) {
	p, err := tx.plan(guid)
	if errors.Is(err, services.ErrNotFound) {
		return p, services.NewInvalid("relationships.service_plan", "Invalid service plan. Ensure that the service plan exists, is available, and you have access to it.")
	}
	if err != nil {
		return p, err
	}
	s, err := tx.registry.Space(space)
	if err != nil {
		return p, err
	}
	sb, err := get(tx.brokers, "service broker", p.Broker)
	switch {
	case err != nil:
		return p, err
	case !p.Active:
		return p, services.NewInvalid("relationships.service_plan", "Invalid service plan. The service plan '%s' with guid '%s' has been removed from the service broker's catalog. It is not possible to create new service instances using this plan.", p.Name, p.GUID)
	case !p.Visibility.In(s.Org, s.GUID):
		return p, services.NewInvalid("relationships.service_plan", "Invalid service plan. This could be due to a space-scoped broker which is offering the service plan '%s' with guid '%s' in another space or that the plan is not enabled in this organization. Ensure that the service plan is visible in your current space '%s' with guid '%s'.", p.Name, p.GUID, s.Name, s.GUID)
	case sb.State == services.Synchronizing || sb.State == services.Deleting:
		return p, services.NewInvalid("relationships.service_plan", "The service instance cannot be created because there is an operation in progress for the service broker.")
	}
	return p, nil
}
