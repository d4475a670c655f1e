package services

import "github.com/dewrun/dew/app"

// Viewer is who looks at the marketplace: plans that are none of theirs are not
// there for them.
type Viewer struct {
	Orgs, Spaces []string // guids of where they are
}

// OfferingFilter chooses offerings. An empty list chooses all.
type OfferingFilter struct {
	GUIDs, Names         []string
	Brokers, BrokerNames []string
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
func (b *Book) Offering(guid string) (o Offering, err error) { return o, err }

// Offerings returns the offerings that f chooses, by name.
func (b *Book) Offerings(f OfferingFilter) (os []Offering, err error) { return os, err }

// NoteOffering changes the metadata of an offering.
func (b *Book) NoteOffering(guid string, c app.MetadataChange) (o Offering, err error) { return o, err }

// DeleteOffering removes an offering that has no instances.
func (b *Book) DeleteOffering(guid string) error { return nil }

// PurgeOffering removes an offering with its plans, instances and bindings without
// a word to its broker.
func (b *Book) PurgeOffering(guid string, by app.Actor) error { return nil }

// Plan returns the plan with guid.
func (b *Book) Plan(guid string) (p Plan, err error) { return p, err }

// Plans returns the plans that f chooses, by name.
func (b *Book) Plans(f PlanFilter) (ps []Plan, err error) { return ps, err }

// NotePlan changes the metadata of a plan.
func (b *Book) NotePlan(guid string, c app.MetadataChange) (p Plan, err error) { return p, err }

// DeletePlan removes a plan that has no instances.
func (b *Book) DeletePlan(guid string) error { return nil }

// SetVisibility says anew who may have a plan.
func (b *Book) SetVisibility(plan string, v Visibility, by app.Actor) (p Plan, err error) {
	return p, err
}

// AddVisibility adds orgs to those who may have a plan; with another type it is
// SetVisibility.
func (b *Book) AddVisibility(plan string, v Visibility, by app.Actor) (p Plan, err error) {
	return p, err
}

// RemoveVisibility takes an org from those who may have a plan.
func (b *Book) RemoveVisibility(plan, org string, by app.Actor) error { return nil }
