package services

import (
	"fmt"

	"github.com/dewrun/dew/app"
)

// usageStates are the usage events that things done to an instance make.
var usageStates = map[string]string{
	string(Create): app.UsageCreated, string(Update): app.UsageUpdated, string(Delete): app.UsageDeleted, "purge": app.UsageDeleted,
}

// recordUsage keeps what was done to an instance for those who count it.
func (tx instanceRecords) recordUsage(what string, i Instance) error {
	state := usageStates[what]
	if state == "" {
		return nil
	}
	return tx.registry.RecordUsage(tx.usage(state, i), i.Space)
}

// usage is an event about an instance. A plan that is gone has no name.
func (tx instanceRecords) usage(state string, i Instance) app.Usage {
	u := &app.ServiceUsage{Instance: app.Named{GUID: i.GUID, Name: i.Name}, Type: "user_provided_service_instance"}
	if i.Type == Managed {
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

// ReseedUsage forgets the usage events of services, and begins anew with one for
// each instance that there is.
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
