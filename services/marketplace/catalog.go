package marketplace

import (
	"bytes"
	"context"
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
	"github.com/dewrun/dew/services"
)

// sync updates the offerings and plans of a broker from its catalog. Those that are no
// longer in the catalog are stored as long as they have instances. It returns warnings.
func (tx catalogRecords) sync(sb services.ServiceBroker, catalog []services.CatalogOffering) (warnings []string, err error) {
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

func (tx catalogRecords) syncOffering(sb services.ServiceBroker, in services.CatalogOffering) (services.Offering, error) {
	found, err := tx.offerings.By("broker and id", sb.GUID+"\x00"+in.ID)
	if err != nil {
		return services.Offering{}, fmt.Errorf("cannot look up service offering %q: %w", in.Name, err)
	}
	o := services.Offering{GUID: uuid.NewString(), Broker: sb.GUID, ID: in.ID, CreatedAt: now()}
	if len(found) > 0 {
		o = found[0]
	}
	var known struct {
		Shareable        bool   `json:"shareable"`
		DocumentationURL string `json:"documentationUrl"`
	}
	_ = json.Unmarshal(in.Metadata, &known) // metadata is defined by the broker; missing fields stay empty
	o.Name, o.Description, o.Tags, o.Requires = in.Name, in.Description, in.Tags, in.Requires
	o.Bindable, o.PlanUpdateable, o.AllowContextUpdates = in.Bindable, in.PlanUpdateable, in.AllowContextUpdates
	o.InstancesRetrievable, o.BindingsRetrievable = in.InstancesRetrievable, in.BindingsRetrievable
	o.Shareable, o.DocumentationURL, o.Catalog = known.Shareable, known.DocumentationURL, in.Metadata
	o.Active = true
	o.UpdatedAt, err = tx.recordSync(sb, offeringTarget(o), changed(found, o, o.UpdatedAt))
	return o, errors.Join(err, put(tx.offerings, "service offering", o.GUID, o))
}

// change says whether an offering or plan in a new catalog is new, unchanged or
// changed.
type change struct {
	found, same bool
	at          time.Time // of the last change
}

// changed compares a value with the stored one, in the format of the store.
func changed[T any](found []T, is T, at time.Time) change {
	c := change{found: len(found) > 0, at: at}
	if c.found {
		before, err1 := json.Marshal(found[0])
		after, err2 := json.Marshal(is)
		c.same = errors.Join(err1, err2) == nil && bytes.Equal(before, after)
	}
	return c
}

// recordSync records an offering or plan that a broker's catalog added or changed. It
// returns the time of that change. The actor is the broker, because no user requested
// it.
func (tx catalogRecords) recordSync(sb services.ServiceBroker, target app.Target, c change) (time.Time, error) {
	if c.same {
		return c.at, nil
	}
	what := "create"
	if c.found {
		what = "update"
	}
	return now(), tx.catalogEvent(what, sb, target)
}

// catalogEvent records an audit event for a change in a broker's catalog. The built-in
// catalog comes with the daemon, so its changes have no actor and no event.
func (tx catalogRecords) catalogEvent(what string, sb services.ServiceBroker, target app.Target) error {
	if sb.Builtin() {
		return nil
	}
	by := app.Actor{GUID: sb.GUID, Type: "service_broker", Name: sb.Name}
	return tx.event(target.Type+"."+what, by, target, event{data: map[string]any{"service_broker_guid": sb.GUID}})
}

func (tx catalogRecords) syncPlan(sb services.ServiceBroker, o services.Offering, in services.CatalogPlan) (services.Plan, error) {
	found, err := tx.plans.By("offering and id", o.GUID+"\x00"+in.ID)
	if err != nil {
		return services.Plan{}, fmt.Errorf("cannot look up service plan %q: %w", in.Name, err)
	}
	p := services.Plan{GUID: uuid.NewString(), Broker: sb.GUID, Offering: o.GUID, ID: in.ID, CreatedAt: now(), Visibility: services.Visibility{Type: services.Admin}}
	switch {
	case len(found) > 0:
		p = found[0]
	case sb.Builtin():
		p.Visibility.Type = services.Public
	case sb.Space != "":
		p.Visibility = services.Visibility{Type: services.SpaceOnly, Space: sb.Space}
	}
	p.Name, p.Description, p.Free = in.Name, in.Description, !in.Paid
	p.Bindable, p.PlanUpdateable = o.Bindable, o.PlanUpdateable
	if in.Bindable != nil {
		p.Bindable = *in.Bindable
	}
	if in.PlanUpdateable != nil {
		p.PlanUpdateable = *in.PlanUpdateable
	}
	p.Costs, p.Catalog, p.Maintenance, p.Schemas = services.CostsOf(in.Metadata), in.Metadata, in.Maintenance, in.Schemas
	p.MaxPolling, p.Active = in.MaxPolling, true
	p.UpdatedAt, err = tx.recordSync(sb, planTarget(p), changed(found, p, p.UpdatedAt))
	return p, errors.Join(err, put(tx.plans, "service plan", p.GUID, p))
}

// removeMissingPlans removes the plans and offerings that are no longer in a broker's
// catalog. It returns the names of plans that still have instances, by offering name.
func (tx catalogRecords) removeMissingPlans(sb services.ServiceBroker, seen map[string]bool) (map[string][]string, error) {
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
			if err := errors.Join(tx.dropPlan(p), tx.catalogEvent("delete", sb, planTarget(p))); err != nil {
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

func (tx catalogRecords) removeMissingOfferings(sb services.ServiceBroker, seen, kept map[string]bool) error {
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
			if err := errors.Join(drop(tx.offerings, "service offering", o.GUID), tx.catalogEvent("delete", sb, offeringTarget(o))); err != nil {
				return err
			}
		}
	}
	return nil
}

func offeringTarget(o services.Offering) app.Target {
	return app.Target{GUID: o.GUID, Type: "service", Name: o.Name}
}

func planTarget(p services.Plan) app.Target {
	return app.Target{GUID: p.GUID, Type: "service_plan", Name: p.Name}
}

// LoadBuiltinCatalog loads the catalog of the built-in broker into the marketplace.
func (m *catalog) LoadBuiltinCatalog(ctx context.Context) error {
	if m.cfg.Builtin == nil {
		return nil
	}
	catalog, err := m.cfg.Builtin.Catalog(ctx)
	if err == nil {
		err = services.CheckCatalog(catalog)
	}
	if err != nil {
		return fmt.Errorf("cannot read the catalog of the built-in service broker: %w", err)
	}
	return m.update(func(tx records) error {
		sb, err := tx.broker(services.BuiltinBroker)
		if err != nil && !errors.Is(err, services.ErrNotFound) {
			return err
		}
		if err != nil {
			sb = services.ServiceBroker{GUID: services.BuiltinBroker, Name: services.BuiltinBroker, CreatedAt: now()}
		}
		sb.State, sb.UpdatedAt = services.Available, now()
		if err := put(tx.brokers, "service broker", sb.GUID, sb); err != nil {
			return err
		}
		_, err = tx.sync(sb, catalog)
		return err
	})
}

// desiredBroker returns the broker after its operation. While its catalog was read, its
// metadata may have changed, and another broker may have taken the name.
func (tx catalogRecords) desiredBroker(op operation) (services.ServiceBroker, error) {
	sb, err := tx.broker(op.Record)
	if err != nil {
		return sb, err
	}
	if op.BrokerChange != nil {
		sb = withChange(sb, *op.BrokerChange)
	}
	return sb, tx.checkBroker(sb)
}

// syncFailed records that the catalog could not be read. The broker does not change.
func (tx catalogRecords) syncFailed(op operation, failure error) error {
	sb, err := tx.broker(op.Record)
	if err != nil {
		return err
	}
	sb.State, sb.UpdatedAt = services.SynchronizationFailed, now()
	os, err := tx.offerings.By("broker", sb.GUID)
	if err != nil {
		return fmt.Errorf("cannot list service offerings: %w", err)
	}
	if len(os) > 0 {
		sb.State = services.Available // with its previous catalog
	}
	if err := put(tx.brokers, "service broker", sb.GUID, sb); err != nil {
		return err
	}
	var refused *services.Refused
	if errors.As(failure, &refused) {
		op.Failure = refused
	} else {
		op.Failure = &services.Refused{Status: http.StatusBadGateway, Code: 270022, Title: "CF-ServiceBrokerSyncFailed", Detail: failure.Error()}
	}
	return tx.closeOperation(op, services.Failed, op.Failure.Detail)
}
