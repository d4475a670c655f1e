package daemon

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// usageEventHandlers answers requests about usage events.
type usageEventHandlers struct{ *Handlers }

func (h usageEventHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{
			Pattern: "GET /v3/app_usage_events", Needs: access.Authenticated, // empty for users who are not global readers
			Handler: h.listAppUsage, Shape: rest.PageOf[v3.AppUsageEvent]("after_guid", "guids").OrderedBy(rest.ByTime...),
		},
		{Pattern: "GET /v3/app_usage_events/{guid}", Needs: access.Authenticated, Handler: h.getAppUsage, Shape: rest.Returns[v3.AppUsageEvent](200)},
		{
			Pattern: "GET /v3/service_usage_events", Needs: access.Authenticated,
			Handler: h.listServiceUsage, Shape: rest.PageOf[v3.ServiceUsageEvent]("after_guid", "guids", "service_instance_types", "service_offering_guids").OrderedBy(rest.ByTime...),
		},
		{Pattern: "GET /v3/service_usage_events/{guid}", Needs: access.Authenticated, Handler: h.getServiceUsage, Shape: rest.Returns[v3.ServiceUsageEvent](200)},
		{
			Pattern: "POST /v3/app_usage_events/actions/destructively_purge_all_and_reseed", Needs: access.Administer,
			Handler: h.purgeAppUsage, Shape: rest.Returns[struct{}](200),
		},
		{
			Pattern: "POST /v3/service_usage_events/actions/destructively_purge_all_and_reseed", Needs: access.Administer,
			Handler: h.purgeServiceUsage, Shape: rest.Returns[struct{}](200),
		},
	}
}

func (h usageEventHandlers) listAppUsage(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	all, err := h.usageFor(r, h.Platform.Registry.AppUsage)
	if err != nil {
		return nil, err
	}
	return listUsage(h.Links, r, q, all, h.presentAppUsage)
}

func (h usageEventHandlers) listServiceUsage(r *http.Request) (any, error) {
	q, err := rest.ReadQuery(r)
	if err != nil {
		return nil, err
	}
	all, err := h.usageFor(r, h.Platform.Registry.ServicesUsage)
	if err != nil {
		return nil, err
	}
	// after_guid must be found before the filters remove events.
	if all, err = q.After(all); err != nil {
		return nil, err
	}
	delete(q.Filters, "after_guid")
	all = slices.DeleteFunc(all, func(u app.Usage) bool {
		return !q.Matches("service_instance_types", u.Service.Type) || !q.Matches("service_offering_guids", u.Service.Offering.GUID)
	})
	return listUsage(h.Links, r, q, all, h.presentServiceUsage)
}

// usageFor reads events for global readers and administrators; other users see none.
func (h usageEventHandlers) usageFor(r *http.Request, read func() ([]app.Usage, error)) ([]app.Usage, error) {
	perms, err := h.Access.Permissions(r.Context())
	if err != nil || !perms.All && !perms.Admin {
		return nil, err
	}
	return read()
}

func listUsage[V any](l rest.Links, r *http.Request, q rest.Query, all []app.Usage, present func(u app.Usage) V) (any, error) {
	all, err := q.After(all)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(u app.Usage) bool { return !q.Matches("guids", u.GUID) })
	return rest.List(l, r, q, all, rest.View[app.Usage, V]{
		// Events can have the same time: their number gives the order.
		Key: func(u app.Usage) rest.Key {
			return rest.Key{Name: u.State, Created: u.CreatedAt, Updated: u.CreatedAt, GUID: fmt.Sprintf("%020d", u.Number)}
		},
		Present: present,
	}), nil
}

func (h usageEventHandlers) getAppUsage(r *http.Request) (any, error) {
	u, err := h.usageNamed(r, h.Platform.Registry.AppUsage, "App usage event")
	if err != nil {
		return nil, err
	}
	return h.presentAppUsage(u), nil
}

func (h usageEventHandlers) getServiceUsage(r *http.Request) (any, error) {
	u, err := h.usageNamed(r, h.Platform.Registry.ServicesUsage, "Service usage event")
	if err != nil {
		return nil, err
	}
	return h.presentServiceUsage(u), nil
}

func (h usageEventHandlers) usageNamed(r *http.Request, read func() ([]app.Usage, error), noun string) (app.Usage, error) {
	all, err := h.usageFor(r, read)
	if err != nil {
		return app.Usage{}, err
	}
	i := slices.IndexFunc(all, func(u app.Usage) bool { return u.GUID == r.PathValue("guid") })
	if i < 0 {
		return app.Usage{}, rest.NotFound(noun)
	}
	return all[i], nil
}

func (h usageEventHandlers) purgeAppUsage(*http.Request) (any, error) {
	return struct{}{}, h.Platform.Registry.PurgeAppUsage()
}

func (h usageEventHandlers) purgeServiceUsage(*http.Request) (any, error) {
	return struct{}{}, h.Platform.Services.ReseedUsage()
}

func (h usageEventHandlers) presentAppUsage(u app.Usage) v3.AppUsageEvent {
	return v3.AppUsageEvent{
		GUID: u.GUID, CreatedAt: v3.At(u.CreatedAt), UpdatedAt: v3.At(u.CreatedAt),
		State: v3.StateChange{Current: u.State, Previous: optional(u.Previous)},
		App:   optionalName(u.App), Process: v3.ProcessName{GUID: optional(u.Process), Type: optional(u.Type)},
		Space: optionalName(u.Space), Organization: v3.GUID{GUID: u.Org}, Task: optionalName(u.Task),
		Buildpack: v3.OptionalName{GUID: optional(u.BuildpackGUID), Name: optional(u.Buildpack)},
		Memory:    v3.NumberChange{Current: u.Memory.Now, Previous: u.Memory.Before},
		Instances: v3.NumberChange{Current: u.Instances.Now, Previous: u.Instances.Before},
		Links:     v3.Links{"self": {Href: h.Links.Href("v3", "app_usage_events", u.GUID)}},
	}
}

func (h usageEventHandlers) presentServiceUsage(u app.Usage) v3.ServiceUsageEvent {
	return v3.ServiceUsageEvent{
		GUID: u.GUID, CreatedAt: v3.At(u.CreatedAt), UpdatedAt: v3.At(u.CreatedAt), State: u.State,
		Space: optionalName(u.Space), Organization: v3.GUID{GUID: u.Org},
		ServiceInstance: v3.ServiceInstanceName{GUID: u.Service.Instance.GUID, Name: u.Service.Instance.Name, Type: u.Service.Type},
		ServicePlan:     optionalName(u.Service.Plan), ServiceOffering: optionalName(u.Service.Offering), ServiceBroker: optionalName(u.Service.Broker),
		Links: v3.Links{"self": {Href: h.Links.Href("v3", "service_usage_events", u.GUID)}},
	}
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func optionalName(n app.Named) v3.OptionalName {
	return v3.OptionalName{GUID: optional(n.GUID), Name: optional(n.Name)}
}
