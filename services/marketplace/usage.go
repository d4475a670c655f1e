package marketplace

import (
	"fmt"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/services"
)

// usageStates maps the actions on an instance to the states of usage events.
var usageStates = map[string]string{
	string(services.Create): app.UsageCreated, string(services.Update): app.UsageUpdated, string(services.Delete): app.UsageDeleted, "purge": app.UsageDeleted,
}

// recordUsage stores a usage event for an action on an instance.
func (tx instanceRecords) recordUsage(what string, i services.Instance) error {
	state := usageStates[what]
	if state == "" {
		return nil
	}
	return tx.registry.RecordUsage(tx.usage(state, i), i.Space)
}

// usage returns a usage event of an instance. The name of a deleted plan is empty.
func (tx instanceRecords) usage(state string, i services.Instance) app.Usage {
	u := &app.ServiceUsage{Instance: app.Named{GUID: i.GUID, Name: i.Name}, Type: "user_provided_service_instance"}
	if i.Type == services.Managed {
		u.Type, u.Plan = "managed_service_instance", app.Named{GUID: i.Plan}
		if p, err := tx.plan(i.Plan); err == nil {
			u.Plan.Name, u.Offering.GUID, u.Broker.GUID = p.Name, p.Offering, p.Broker
		}
		if o, err := tx.offering(u.Offering.GUID); err == nil {
			u.Offering.Name = o.Name
		}
		if b, err := tx.brokers.Get(u.Broker.GUID); err == nil {
			u.Broker.Name = b.Name
		}
	}
	return app.Usage{State: state, Service: u, Space: app.Named{GUID: i.Space}}
}

// ReseedUsage deletes the usage events of services and adds a new one for each existing
// instance.
func (m *instances) ReseedUsage() error {
	return m.update(func(tx records) error {
		all, err := tx.instances.All()
		if err != nil {
			return fmt.Errorf("cannot list service instances: %w", err)
		}
		var anew []app.Usage
		for _, i := range all {
			anew = append(anew, tx.usage(app.UsageCreated, i))
		}
		return tx.registry.PurgeServicesUsage(anew)
	})
}
