package services

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/app"
)

// Viewer is who looks at the marketplace: plans that are none of theirs are not
// there for them.
type Viewer struct {
	Orgs, Spaces []string // guids of where they are
}

// sees tells whether a plan is there for the viewer.
func (v *Viewer) sees(p Plan) bool {
	if v == nil || p.Visibility.Type == Public {
		return true
	}
	return slices.ContainsFunc(v.Orgs, func(o string) bool { return p.Visibility.In(o, "") }) ||
		slices.ContainsFunc(v.Spaces, func(s string) bool { return p.Visibility.In("", s) })
}

// In tells whether a plan can be had in a space of an org.
func (v Visibility) In(org, space string) bool {
	switch v.Type {
	case Public:
		return true
	case Organization:
		return org != "" && slices.Contains(v.Orgs, org)
	case SpaceOnly:
		return space != "" && v.Space == space
	case Admin:
	}
	return false
}

// OfferingFilter chooses offerings. An empty list chooses all.
type OfferingFilter struct {
	GUIDs, Names, IDs    []string
	Brokers, BrokerNames []string
	Orgs, Spaces         []string // guids of where it can be had
	Available            *bool
	Viewer               *Viewer // nil: sees all
	Labels               app.Selector
}

// PlanFilter chooses plans. An empty list chooses all.
type PlanFilter struct {
	GUIDs, Names, IDs        []string
	Offerings, OfferingNames []string // guids, names
	Brokers, BrokerNames     []string
	Instances                []string // guids of instances that have the plan
	Orgs, Spaces             []string // guids of where the plan can be had
	Available                *bool
	Viewer                   *Viewer // nil: sees all
	Labels                   app.Selector
}

// Offering returns the offering with guid.
func (b *Book) Offering(guid string) (Offering, error) { return b.offering(guid) }

// Plan returns the plan with guid.
func (b *Book) Plan(guid string) (Plan, error) { return b.plan(guid) }

func (l ledger) offering(guid string) (Offering, error) {
	return get(l.offerings, "service offering", guid)
}

func (l ledger) plan(guid string) (Plan, error) { return get(l.plans, "service plan", guid) }

// Offerings returns the offerings that f chooses, by name.
func (b *Book) Offerings(f OfferingFilter) ([]Offering, error) {
	visible := map[string]bool{} // offerings with a plan for the viewer
	ps, err := b.Plans(PlanFilter{Viewer: f.Viewer, Orgs: f.Orgs, Spaces: f.Spaces})
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		visible[p.Offering] = true
	}
	everywhere := f.Viewer == nil && len(f.Orgs)+len(f.Spaces) == 0
	names, err := b.brokerNames()
	if err != nil {
		return nil, err
	}
	return choose(b.offerings, "service offerings", func(o Offering) bool {
		return among(f.GUIDs, o.GUID) && among(f.Names, o.Name) && among(f.IDs, o.ID) && among(f.Brokers, o.Broker) &&
			among(f.BrokerNames, names[o.Broker]) && (f.Available == nil || *f.Available == o.Active) &&
			(everywhere || visible[o.GUID]) && f.Labels.Matches(o.Metadata.Labels)
	}, func(a, b Offering) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID)) })
}

// Plans returns the plans that f chooses, by name.
func (b *Book) Plans(f PlanFilter) ([]Plan, error) {
	names, err := b.brokerNames()
	if err != nil {
		return nil, err
	}
	places, err := b.placesOf(f)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{} // of offerings
	os, err := b.offerings.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list service offerings: %w", err)
	}
	for _, o := range os {
		labels[o.GUID] = o.Name
	}
	had, err := b.plansOf(f.Instances)
	if err != nil {
		return nil, err
	}
	return choose(b.plans, "service plans", func(p Plan) bool {
		return among(f.GUIDs, p.GUID) && among(f.Names, p.Name) && among(f.IDs, p.ID) &&
			among(f.Offerings, p.Offering) && among(f.OfferingNames, labels[p.Offering]) &&
			among(f.Brokers, p.Broker) && among(f.BrokerNames, names[p.Broker]) &&
			(len(f.Instances) == 0 || slices.Contains(had, p.GUID)) && p.hadIn(f, places) &&
			(f.Available == nil || *f.Available == p.Active) && f.Viewer.sees(p) && f.Labels.Matches(p.Metadata.Labels)
	}, func(a, b Plan) int {
		return cmp.Or(cmp.Compare(labels[a.Offering], labels[b.Offering]), cmp.Compare(a.Name, b.Name), cmp.Compare(a.GUID, b.GUID))
	})
}

// places are the spaces that a filter names, and those of the orgs that it names.
type places struct{ spaces, inOrgs []app.Space }

// hadIn tells whether a plan can be had in one of the places that a filter names.
// What everybody can have is had anywhere.
func (p Plan) hadIn(f PlanFilter, at places) bool {
	if p.Visibility.Type == Public {
		return true
	}
	in := func(s app.Space) bool { return p.Visibility.In(s.Org, s.GUID) }
	inOrg := func(org string) bool { return p.Visibility.In(org, "") }
	return (len(f.Orgs) == 0 || slices.ContainsFunc(f.Orgs, inOrg) || slices.ContainsFunc(at.inOrgs, in)) &&
		(len(f.Spaces) == 0 || slices.ContainsFunc(at.spaces, in))
}

// placesOf are the places that a filter names, as far as they are there.
func (b *Book) placesOf(f PlanFilter) (at places, err error) {
	if len(f.Orgs)+len(f.Spaces) == 0 {
		return at, nil
	}
	all, err := b.registry.Spaces()
	for _, s := range all {
		if slices.Contains(f.Spaces, s.GUID) {
			at.spaces = append(at.spaces, s)
		}
		if slices.Contains(f.Orgs, s.Org) {
			at.inOrgs = append(at.inOrgs, s)
		}
	}
	return at, err
}

func (b *Book) plansOf(instances []string) (plans []string, err error) {
	for _, guid := range instances {
		i, err := b.instance(guid)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		plans = append(plans, i.Plan)
	}
	return plans, nil
}

func (b *Book) brokerNames() (map[string]string, error) {
	all, err := b.brokers.All()
	if err != nil {
		return nil, fmt.Errorf("cannot list service brokers: %w", err)
	}
	names := map[string]string{}
	for _, sb := range all {
		names[sb.GUID] = sb.Name
	}
	return names, nil
}

// NoteOffering changes the metadata of an offering.
func (b *Book) NoteOffering(guid string, c app.MetadataChange) (o Offering, err error) {
	err = b.update(func(l ledger) error {
		if o, err = l.offering(guid); err != nil {
			return err
		}
		o.Metadata, o.UpdatedAt = o.Metadata.Merge(c), now()
		if err := o.Metadata.Validate(); err != nil {
			return err
		}
		return put(l.offerings, "service offering", guid, o)
	})
	return o, err
}

// NotePlan changes the metadata of a plan.
func (b *Book) NotePlan(guid string, c app.MetadataChange) (p Plan, err error) {
	err = b.update(func(l ledger) error {
		if p, err = l.plan(guid); err != nil {
			return err
		}
		p.Metadata, p.UpdatedAt = p.Metadata.Merge(c), now()
		if err := p.Metadata.Validate(); err != nil {
			return err
		}
		return put(l.plans, "service plan", guid, p)
	})
	return p, err
}

// DeleteOffering removes an offering that has no instances.
func (b *Book) DeleteOffering(guid string) error {
	return b.update(func(l ledger) error {
		o, err := l.offering(guid)
		if err != nil {
			return err
		}
		return l.dropOffering(o)
	})
}

// dropOffering removes an offering with its plans, none of which has an instance.
func (l ledger) dropOffering(o Offering) error {
	ps, err := l.plans.By("offering", o.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service plans: %w", err)
	}
	for _, p := range ps {
		if err := l.dropPlan(p); err != nil {
			return err
		}
	}
	return drop(l.offerings, "service offering", o.GUID)
}

func (l ledger) dropPlan(p Plan) error {
	is, err := l.instances.By("plan", p.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service instances: %w", err)
	}
	if len(is) > 0 {
		return &Refused{
			Status: http.StatusUnprocessableEntity, Code: 10006, Title: "CF-AssociationNotEmpty",
			Detail: "Please delete the service_instances associations for your service_plans.",
		}
	}
	return drop(l.plans, "service plan", p.GUID)
}

// PurgeOffering removes an offering with its plans, instances and bindings without
// a word to its broker.
func (b *Book) PurgeOffering(guid string, by app.Actor) error {
	return b.update(func(l ledger) error {
		o, err := l.offering(guid)
		if err != nil {
			return err
		}
		ps, err := l.plans.By("offering", guid)
		if err != nil {
			return fmt.Errorf("cannot list service plans: %w", err)
		}
		for _, p := range ps {
			if err := l.purgePlan(p, by); err != nil {
				return err
			}
		}
		if err := l.dropOffering(o); err != nil {
			return err
		}
		return l.event("service.delete", by, app.Target{GUID: o.GUID, Type: "service", Name: o.Name}, event{})
	})
}

func (l ledger) purgePlan(p Plan, by app.Actor) error {
	is, err := l.instances.By("plan", p.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service instances: %w", err)
	}
	for _, i := range is {
		if err := l.purge(i, by); err != nil {
			return err
		}
	}
	return nil
}

// DeletePlan removes a plan that has no instances.
func (b *Book) DeletePlan(guid string) error {
	return b.update(func(l ledger) error {
		p, err := l.plan(guid)
		if err != nil {
			return err
		}
		return l.dropPlan(p)
	})
}

// planFor returns the plan with guid, if new instances of a space may have it.
func (l ledger) planFor(guid, space string) (Plan, error) {
	p, err := l.plan(guid)
	if errors.Is(err, ErrNotFound) {
		return p, invalid("relationships.service_plan", "Invalid service plan. Ensure that the service plan exists, is available, and you have access to it.")
	}
	if err != nil {
		return p, err
	}
	s, err := l.registry.Space(space)
	if err != nil {
		return p, err
	}
	sb, err := get(l.brokers, "service broker", p.Broker)
	switch {
	case err != nil:
		return p, err
	case !p.Active:
		return p, invalid("relationships.service_plan", "Invalid service plan. The service plan '%s' with guid '%s' has been removed from the service broker's catalog. It is not possible to create new service instances using this plan.", p.Name, p.GUID)
	case !p.Visibility.In(s.Org, s.GUID):
		return p, invalid("relationships.service_plan", "Invalid service plan. This could be due to a space-scoped broker which is offering the service plan '%s' with guid '%s' in another space or that the plan is not enabled in this organization. Ensure that the service plan is visible in your current space '%s' with guid '%s'.", p.Name, p.GUID, s.Name, s.GUID)
	case sb.State == Synchronizing || sb.State == Deleting:
		return p, invalid("relationships.service_plan", "The service instance cannot be created because there is an operation in progress for the service broker.")
	}
	return p, nil
}
