package services

import (
	"fmt"
	"net/http"

	"github.com/dewrun/dew/app"
)

// checkQuota refuses an instance of a plan in a space whose quota, or whose org's,
// does not allow it.
func (l ledger) checkQuota(space string, p Plan) error {
	limits, err := l.registry.ServiceLimits(space)
	if err != nil {
		return err
	}
	for _, limit := range limits {
		if limit.NoPaid && !p.Free {
			return refused(60007, "ServiceInstanceServicePlanNotAllowed", "The service instance cannot be created because paid service plans are not allowed%s.",
				map[bool]string{true: " for your space", false: ""}[limit.Space])
		}
		if limit.Most == nil {
			continue
		}
		n, err := l.managedIn(limit)
		if err != nil {
			return err
		}
		switch {
		case n < *limit.Most:
		case limit.Space:
			return refused(60012, "ServiceInstanceSpaceQuotaExceeded", "You have exceeded your space's services limit.")
		default:
			return refused(60005, "ServiceInstanceQuotaExceeded", "You have exceeded your organization's services limit.")
		}
	}
	return nil
}

func refused(code int, title, format string, args ...any) error {
	return &Refused{Status: http.StatusBadRequest, Code: code, Title: "CF-" + title, Detail: fmt.Sprintf(format, args...)}
}

// managedIn counts the managed instances where a limit is for.
func (l ledger) managedIn(limit app.ServiceLimit) (n int, err error) {
	inside := map[string]bool{limit.GUID: true}
	if !limit.Space {
		spaces, err := l.registry.SpacesOf(limit.GUID)
		if err != nil {
			return 0, err
		}
		for _, s := range spaces {
			inside[s.GUID] = true
		}
	}
	all, err := l.instances.All()
	for _, i := range all {
		if i.Type == Managed && inside[i.Space] {
			n++
		}
	}
	return n, err
}

// usageStates are the usage events that things done to an instance make.
var usageStates = map[string]string{
	string(Create): app.UsageCreated, string(Update): app.UsageUpdated, string(Delete): app.UsageDeleted, "purge": app.UsageDeleted,
}

// recordUsage keeps what was done to an instance for those who count it.
func (l ledger) recordUsage(what string, i Instance) error {
	state := usageStates[what]
	if state == "" {
		return nil
	}
	return l.registry.RecordUsage(l.usage(state, i), i.Space)
}

// usage is an event about an instance. A plan that is gone has no name.
func (l ledger) usage(state string, i Instance) app.Usage {
	u := &app.ServiceUsage{Instance: app.Named{GUID: i.GUID, Name: i.Name}, Type: "user_provided_service_instance"}
	if i.Type == Managed {
		u.Type, u.Plan = "managed_service_instance", app.Named{GUID: i.Plan}
		if p, err := l.plan(i.Plan); err == nil {
			u.Plan.Name, u.Offering.GUID, u.Broker.GUID = p.Name, p.Offering, p.Broker
		}
		if o, err := l.offering(u.Offering.GUID); err == nil {
			u.Offering.Name = o.Name
		}
		if b, err := l.brokers.Get(u.Broker.GUID); err == nil {
			u.Broker.Name = b.Name
		}
	}
	return app.Usage{State: state, Service: u, Space: app.Named{GUID: i.Space}}
}

// ReseedUsage forgets the usage events of services, and begins anew with one for
// each instance that there is.
func (b *Book) ReseedUsage() error {
	return b.update(func(l ledger) error {
		all, err := l.instances.All()
		if err != nil {
			return fmt.Errorf("cannot list service instances: %w", err)
		}
		var anew []app.Usage
		for _, i := range all {
			anew = append(anew, l.usage(app.UsageCreated, i))
		}
		return l.registry.PurgeServicesUsage(anew)
	})
}
