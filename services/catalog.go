package services

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// Limits of a catalog.
const (
	maxOfferings   = 1000
	maxPlans       = 5000
	maxDescription = 10_000
)

// checkCatalog tells all that is wrong with a catalog, one sentence a line.
func checkCatalog(os []CatalogOffering) error {
	c := catalogCheck{plans: map[string]string{}}
	if len(os) == 0 {
		c.addf("Service broker must provide at least one service")
	}
	if len(os) > maxOfferings {
		c.addf("Service broker must provide at most %d services", maxOfferings)
		os = nil
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for _, o := range os {
		if ids[o.ID] && o.ID != "" {
			c.addf("Service ids must be unique: %s", o.ID)
		}
		if names[o.Name] && o.Name != "" {
			c.addf("Service names must be unique within a broker: %s", o.Name)
		}
		ids[o.ID], names[o.Name] = true, true
		c.offering(o)
	}
	if len(c.wrong) == 0 {
		return nil
	}
	slices.Sort(c.wrong) // maps have no order
	return catalogInvalid(c.wrong...)
}

func catalogInvalid(wrong ...string) error {
	return &Refused{
		Status: http.StatusBadGateway, Code: 270012, Title: "CF-ServiceBrokerCatalogInvalid",
		Detail: shorten("Service broker catalog is invalid: \n" + strings.Join(wrong, "\n")),
	}
}

// catalogCheck collects what is wrong with a catalog.
type catalogCheck struct {
	wrong []string
	plans map[string]string // names by id, of all offerings
}

func (c *catalogCheck) addf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *catalogCheck) offering(o CatalogOffering) {
	at := "Service " + o.Name + ": "
	for what, s := range map[string]string{"Service id": o.ID, "Service name": o.Name, "Service description": o.Description} {
		c.text(at+what, s)
	}
	if len(strings.Join(o.Tags, "")) > maxTags {
		c.addf("%sTags for the service must be %d characters or less.", at, maxTags)
	}
	for _, r := range o.Requires {
		if !slices.Contains([]string{requiresSyslog, requiresRoute, requiresVolume}, r) {
			c.addf("%sService \"requires\" field contains unsupported value %q", at, r)
		}
	}
	if len(o.Plans) == 0 {
		c.addf("%sAt least one plan is required", at)
	}
	if len(o.Plans) > maxPlans {
		c.addf("%sAt most %d plans are allowed", at, maxPlans)
		return
	}
	names := map[string]bool{}
	for _, p := range o.Plans {
		if names[p.Name] && p.Name != "" {
			c.addf("%sPlan names must be unique within a service. Service %s already has a plan named %s", at, o.Name, p.Name)
		}
		names[p.Name] = true
		c.plan(at+"Plan "+p.Name+": ", p)
	}
}

func (c *catalogCheck) plan(at string, p CatalogPlan) {
	if other, taken := c.plans[p.ID]; taken && p.ID != "" {
		c.addf("%sPlan ids must be unique. Unable to register plan with id '%s' because plan '%s' has it", at, p.ID, other)
	}
	c.plans[p.ID] = p.Name
	for what, s := range map[string]string{"Plan id": p.ID, "Plan name": p.Name, "Plan description": p.Description} {
		c.text(at+what, s)
	}
	if v := p.Maintenance.Version; v != "" && !semver.MatchString(v) {
		c.addf("%sMaintenance info version must be a Semantic Version, but has value %q", at, v)
	}
	for path, schema := range map[string]json.RawMessage{
		"service_instance.create.parameters": p.Schemas.InstanceCreate,
		"service_instance.update.parameters": p.Schemas.InstanceUpdate,
		"service_binding.create.parameters":  p.Schemas.BindingCreate,
	} {
		if err := checkSchema(schema); err != nil {
			c.addf("%sSchema %s is not valid. %v", at, path, err)
		}
	}
}

func (c *catalogCheck) text(what, s string) {
	switch {
	case strings.TrimSpace(s) == "":
		c.addf("%s is required", what)
	case len(s) > maxDescription:
		c.addf("%s may not have more than %d characters", what, maxDescription)
	}
}

// sync makes the offerings and plans of a broker those of its catalog. What left the
// catalog stays as long as there are instances of it. The texts are warnings.
func (tx catalogRecords) sync(sb ServiceBroker, catalog []CatalogOffering) (warnings []string, err error) {
	seen := map[string]bool{}
	for _, in := range catalog {
		o, err := tx.syncOffering(sb, in)
		if err != nil {
			return nil, err
		}
		seen[o.GUID] = true
		for _, plan := range in.Plans {
			p, err := tx.syncPlan(sb, o, plan)
			if err != nil {
				return nil, err
			}
			seen[p.GUID] = true
		}
	}
	gone, err := tx.removeMissingPlans(sb, seen)
	if err != nil || len(gone) == 0 {
		return nil, err
	}
	w := "Warning: Service plans are missing from the broker's catalog (" + sb.URL + "/v2/catalog) but can not be removed from " +
		"Cloud Foundry while instances exist. The plans have been deactivated to prevent users from attempting to provision new " +
		"instances of these plans. The broker should continue to support bind, unbind, and delete for existing instances; if " +
		"these operations fail contact your broker provider.\n"
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		w += "\nService Offering: " + name + "\nPlans deactivated: " + strings.Join(gone[name], ", ") + "\n"
	}
	return []string{w}, nil
}

func (tx catalogRecords) syncOffering(sb ServiceBroker, in CatalogOffering) (Offering, error) {
	found, err := tx.offerings.By("broker and id", sb.GUID+"\x00"+in.ID)
	if err != nil {
		return Offering{}, fmt.Errorf("cannot look for service offering %q: %w", in.Name, err)
	}
	o := Offering{GUID: uuid.NewString(), Broker: sb.GUID, ID: in.ID, CreatedAt: now()}
	if len(found) > 0 {
		o = found[0]
	}
	var known struct {
		Shareable        bool   `json:"shareable"`
		DocumentationURL string `json:"documentationUrl"`
	}
	_ = json.Unmarshal(in.Metadata, &known) // it is the broker's own; what is not there stays empty
	o.Name, o.Description, o.Tags, o.Requires = in.Name, in.Description, in.Tags, in.Requires
	o.Bindable, o.PlanUpdateable, o.AllowContextUpdates = in.Bindable, in.PlanUpdateable, in.AllowContextUpdates
	o.InstancesRetrievable, o.BindingsRetrievable = in.InstancesRetrievable, in.BindingsRetrievable
	o.Shareable, o.DocumentationURL, o.Catalog = known.Shareable, known.DocumentationURL, in.Metadata
	o.Active = true
	o.UpdatedAt, err = tx.recordSync(sb, o.target(), changed(found, o, o.UpdatedAt))
	return o, errors.Join(err, put(tx.offerings, "service offering", o.GUID, o))
}

// change is what a new catalog makes of something: it is new, the same, or another.
type change struct {
	found, same bool
	at          time.Time // of the last one
}

// changed compares what there is with what there was, as the store keeps it.
func changed[T any](found []T, is T, at time.Time) change {
	c := change{found: len(found) > 0, at: at}
	if c.found {
		before, err1 := json.Marshal(found[0])
		after, err2 := json.Marshal(is)
		c.same = errors.Join(err1, err2) == nil && bytes.Equal(before, after)
	}
	return c
}

// recordSync records what a broker's catalog made or changed, and returns when. The
// broker is the actor: no user asked for the change.
func (tx catalogRecords) recordSync(sb ServiceBroker, target app.Target, c change) (time.Time, error) {
	if c.same {
		return c.at, nil
	}
	what := "create"
	if c.found {
		what = "update"
	}
	return now(), tx.catalogEvent(what, sb, target)
}

// catalogEvent records what a broker's catalog did. What is built in came with the
// daemon, which is nobody's deed.
func (tx catalogRecords) catalogEvent(what string, sb ServiceBroker, target app.Target) error {
	if sb.Builtin() {
		return nil
	}
	by := app.Actor{GUID: sb.GUID, Type: "service_broker", Name: sb.Name}
	return tx.event(target.Type+"."+what, by, target, event{data: map[string]any{"service_broker_guid": sb.GUID}})
}

func (o Offering) target() app.Target { return app.Target{GUID: o.GUID, Type: "service", Name: o.Name} }

func (p Plan) target() app.Target {
	return app.Target{GUID: p.GUID, Type: "service_plan", Name: p.Name}
}

func (tx catalogRecords) syncPlan(sb ServiceBroker, o Offering, in CatalogPlan) (Plan, error) {
	found, err := tx.plans.By("offering and id", o.GUID+"\x00"+in.ID)
	if err != nil {
		return Plan{}, fmt.Errorf("cannot look for service plan %q: %w", in.Name, err)
	}
	p := Plan{GUID: uuid.NewString(), Broker: sb.GUID, Offering: o.GUID, ID: in.ID, CreatedAt: now(), Visibility: Visibility{Type: Admin}}
	switch {
	case len(found) > 0:
		p = found[0]
	case sb.Builtin():
		p.Visibility.Type = Public
	case sb.Space != "":
		p.Visibility = Visibility{Type: SpaceOnly, Space: sb.Space}
	}
	p.Name, p.Description, p.Free = in.Name, in.Description, !in.Paid
	p.Bindable, p.PlanUpdateable = o.Bindable, o.PlanUpdateable
	if in.Bindable != nil {
		p.Bindable = *in.Bindable
	}
	if in.PlanUpdateable != nil {
		p.PlanUpdateable = *in.PlanUpdateable
	}
	p.Costs, p.Catalog, p.Maintenance, p.Schemas = costs(in.Metadata), in.Metadata, in.Maintenance, in.Schemas
	p.MaxPolling, p.Active = in.MaxPolling, true
	p.UpdatedAt, err = tx.recordSync(sb, p.target(), changed(found, p, p.UpdatedAt))
	return p, errors.Join(err, put(tx.plans, "service plan", p.GUID, p))
}

// costs reads the prices in a plan's metadata, as brokers write them.
func costs(metadata json.RawMessage) (cs []Cost) {
	var known struct {
		Costs []struct {
			Amount map[string]float64 `json:"amount"`
			Unit   string             `json:"unit"`
		} `json:"costs"`
	}
	if json.Unmarshal(metadata, &known) != nil {
		return nil // no prices, or none that anybody can read
	}
	for _, c := range known.Costs {
		for _, currency := range slices.Sorted(maps.Keys(c.Amount)) {
			cs = append(cs, Cost{Amount: c.Amount[currency], Currency: strings.ToUpper(currency), Unit: c.Unit})
		}
	}
	return cs
}

// removeMissingPlans takes out what a broker has no more. It returns the names of plans that
// have to stay, by their offering's.
func (tx catalogRecords) removeMissingPlans(sb ServiceBroker, seen map[string]bool) (map[string][]string, error) {
	ps, err := tx.plans.By("broker", sb.GUID)
	if err != nil {
		return nil, fmt.Errorf("cannot list service plans: %w", err)
	}
	stay := map[string][]string{}
	kept := map[string]bool{} // offerings
	for _, p := range ps {
		if seen[p.GUID] {
			continue
		}
		is, err := tx.instances.By("plan", p.GUID)
		if err != nil {
			return nil, fmt.Errorf("cannot list service instances: %w", err)
		}
		if len(is) == 0 {
			if err := errors.Join(tx.dropPlan(p), tx.catalogEvent("delete", sb, p.target())); err != nil {
				return nil, err
			}
			continue
		}
		o, err := tx.offering(p.Offering)
		if err != nil {
			return nil, err
		}
		p.Active, p.UpdatedAt = false, now()
		stay[o.Name], kept[o.GUID] = append(stay[o.Name], p.Name), true
		if err := put(tx.plans, "service plan", p.GUID, p); err != nil {
			return nil, err
		}
	}
	return stay, tx.removeMissingOfferings(sb, seen, kept)
}

func (tx catalogRecords) removeMissingOfferings(sb ServiceBroker, seen, kept map[string]bool) error {
	os, err := tx.offerings.By("broker", sb.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service offerings: %w", err)
	}
	for _, o := range os {
		switch {
		case seen[o.GUID]:
		case kept[o.GUID]:
			o.Active, o.UpdatedAt = false, now()
			if err := put(tx.offerings, "service offering", o.GUID, o); err != nil {
				return err
			}
		default:
			if err := errors.Join(drop(tx.offerings, "service offering", o.GUID), tx.catalogEvent("delete", sb, o.target())); err != nil {
				return err
			}
		}
	}
	return nil
}
