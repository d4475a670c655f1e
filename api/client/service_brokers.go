package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// ServiceBrokers lists the brokers by name.
func (c *Client) ServiceBrokers(ctx context.Context) ([]v3.ServiceBroker, error) {
	return list[v3.ServiceBroker](ctx, c, "/v3/service_brokers", url.Values{"order_by": {"name"}})
}

// ServiceBrokerByName finds a broker, or fails with *Missing.
func (c *Client) ServiceBrokerByName(ctx context.Context, name string) (v3.ServiceBroker, error) {
	all, err := list[v3.ServiceBroker](ctx, c, "/v3/service_brokers", url.Values{"names": {filter(name)}})
	return first(all, err, &Missing{Kind: "service broker", Name: name})
}

// CreateServiceBroker makes a broker known, and waits until its catalog is.
func (c *Client) CreateServiceBroker(ctx context.Context, n v3.CreateServiceBroker) error {
	h, err := c.call(ctx, http.MethodPost, "/v3/service_brokers", n, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// UpdateServiceBroker changes a broker, and waits until its catalog is read again.
func (c *Client) UpdateServiceBroker(ctx context.Context, guid string, u v3.UpdateServiceBroker) error {
	h, err := c.call(ctx, http.MethodPatch, "/v3/service_brokers/"+escape(guid), u, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// DeleteServiceBroker forgets a broker, and waits until it is gone.
func (c *Client) DeleteServiceBroker(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/service_brokers/"+escape(guid))
}

// ServicePlans lists the plans of an offering, or of all when it is empty.
func (c *Client) ServicePlans(ctx context.Context, offering string) ([]v3.ServicePlan, error) {
	q := url.Values{"order_by": {"name"}}
	if offering != "" {
		q.Set("service_offering_guids", filter(offering))
	}
	return list[v3.ServicePlan](ctx, c, "/v3/service_plans", q)
}

// ServiceOfferings lists the offerings by name, of all brokers when broker is empty.
func (c *Client) ServiceOfferings(ctx context.Context, name, broker string) ([]v3.ServiceOffering, error) {
	q := url.Values{"order_by": {"name"}}
	if name != "" {
		q.Set("names", filter(name))
	}
	if broker != "" {
		q.Set("service_broker_names", filter(broker))
	}
	return list[v3.ServiceOffering](ctx, c, "/v3/service_offerings", q)
}

// PlanVisibility reads who may have a plan.
func (c *Client) PlanVisibility(ctx context.Context, plan string) (v3.PlanVisibility, error) {
	var v v3.PlanVisibility
	_, err := c.call(ctx, http.MethodGet, "/v3/service_plans/"+escape(plan)+"/visibility", nil, &v)
	return v, err
}

// ShowPlan lets further people have a plan.
func (c *Client) ShowPlan(ctx context.Context, plan string, v v3.PlanVisibility) error {
	_, err := c.call(ctx, http.MethodPost, "/v3/service_plans/"+escape(plan)+"/visibility", v, nil)
	return err
}

// SetPlanVisibility says anew who may have a plan.
func (c *Client) SetPlanVisibility(ctx context.Context, plan string, v v3.PlanVisibility) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/service_plans/"+escape(plan)+"/visibility", v, nil)
	return err
}

// HidePlan takes a plan away from an organization.
func (c *Client) HidePlan(ctx context.Context, plan, org string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/service_plans/"+escape(plan)+"/visibility/"+escape(org), nil, nil)
	return err
}

// PurgeServiceOffering forgets an offering and all that anybody has of it, without
// a word to its broker.
func (c *Client) PurgeServiceOffering(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/service_offerings/"+escape(guid)+"?purge=true", nil, nil)
	return err
}

// ShareService lets apps of another space be bound to a service instance.
func (c *Client) ShareService(ctx context.Context, guid, space string) error {
	body := v3.ShareServiceInstance{Data: []v3.GUID{{GUID: space}}}
	_, err := c.call(ctx, http.MethodPost, "/v3/service_instances/"+escape(guid)+"/relationships/shared_spaces", body, nil)
	return err
}

// UnshareService takes that back.
func (c *Client) UnshareService(ctx context.Context, guid, space string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/service_instances/"+escape(guid)+"/relationships/shared_spaces/"+escape(space), nil, nil)
	return err
}

// SharedWith lists the names of the spaces that a service instance is shared with.
func (c *Client) SharedWith(ctx context.Context, guid string) ([]string, error) {
	var shared struct {
		Included struct {
			Spaces []v3.NamedGUID `json:"spaces"`
		} `json:"included"`
	}
	_, err := c.call(ctx, http.MethodGet, "/v3/service_instances/"+escape(guid)+"/relationships/shared_spaces?fields%5Bspace%5D=guid,name", nil, &shared)
	var names []string
	for _, s := range shared.Included.Spaces {
		names = append(names, s.Name)
	}
	return names, err
}

// RouteBindings lists the services that routes go through.
func (c *Client) RouteBindings(ctx context.Context, routes ...string) ([]v3.ServiceRouteBinding, error) {
	q := url.Values{}
	if len(routes) > 0 {
		q.Set("route_guids", filter(routes...))
	}
	return list[v3.ServiceRouteBinding](ctx, c, "/v3/service_route_bindings", q)
}

// BindRoute puts a service before a route.
func (c *Client) BindRoute(ctx context.Context, n v3.CreateServiceRouteBinding) (Job, error) {
	return c.begin(ctx, http.MethodPost, "/v3/service_route_bindings", n)
}

// UnbindRoute takes it away.
func (c *Client) UnbindRoute(ctx context.Context, guid string) (Job, error) {
	return c.begin(ctx, http.MethodDelete, "/v3/service_route_bindings/"+escape(guid), nil)
}
