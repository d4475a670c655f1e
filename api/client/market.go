package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Marketplace holds plans and the offerings that they belong to.
type Marketplace struct {
	Plans     []v3.ServicePlan
	Offerings map[string]v3.ServiceOffering // by guid
	Brokers   map[string]string             // broker names by guid
}

// MarketplaceQuery selects plans. Empty fields do not restrict the selection.
type MarketplaceQuery struct {
	Offering, Plan, Broker string // names
	All                    bool   // include plans that are not available in the client's space
}

// Search reads the plans that are available in the client's space.
func (c Market) Search(ctx context.Context, m MarketplaceQuery) (Marketplace, error) {
	out := Marketplace{Offerings: map[string]v3.ServiceOffering{}, Brokers: map[string]string{}}
	q := url.Values{"include": {"service_offering"}, "fields[service_offering.service_broker]": {"name,guid"}, "order_by": {"name"}, "per_page": {allPages}}
	if !m.All {
		q.Set("available", "true")
		space, err := c.spaceGUID(ctx)
		if err != nil {
			return out, err
		}
		if space != "" {
			q.Set("space_guids", filter(space))
		}
	}
	for name, value := range map[string]string{
		"service_offering_names": m.Offering, "names": m.Plan, "service_broker_names": m.Broker,
	} {
		if value != "" {
			q.Set(name, filter(value))
		}
	}
	for next := "/v3/service_plans?" + q.Encode(); next != ""; {
		var page struct {
			v3.List[v3.ServicePlan]
			Included struct {
				Offerings []v3.ServiceOffering `json:"service_offerings"`
				Brokers   []v3.NamedGUID       `json:"service_brokers"`
			} `json:"included"`
		}
		if _, err := c.call(ctx, http.MethodGet, next, nil, &page); err != nil {
			return out, err
		}
		out.Plans = append(out.Plans, page.Resources...)
		for _, o := range page.Included.Offerings {
			out.Offerings[o.GUID] = o
		}
		for _, b := range page.Included.Brokers {
			out.Brokers[b.GUID] = b.Name
		}
		next = ""
		if page.Pagination.Next != nil {
			next = local(page.Pagination.Next.Href)
		}
	}
	return out, nil
}

// Plan reads a plan.
func (c Market) Plan(ctx context.Context, guid string) (v3.ServicePlan, error) {
	var p v3.ServicePlan
	_, err := c.call(ctx, http.MethodGet, "/v3/service_plans/"+escape(guid), nil, &p)
	return p, err
}

// Offering reads an offering.
func (c Market) Offering(ctx context.Context, guid string) (v3.ServiceOffering, error) {
	var o v3.ServiceOffering
	_, err := c.call(ctx, http.MethodGet, "/v3/service_offerings/"+escape(guid), nil, &o)
	return o, err
}

// Brokers lists the brokers by name.
func (c Market) Brokers(ctx context.Context) ([]v3.ServiceBroker, error) {
	return list[v3.ServiceBroker](ctx, c.transport, "/v3/service_brokers", url.Values{"order_by": {"name"}})
}

// BrokerByName finds a broker, or fails with *Missing.
func (c Market) BrokerByName(ctx context.Context, name string) (v3.ServiceBroker, error) {
	all, err := list[v3.ServiceBroker](ctx, c.transport, "/v3/service_brokers", url.Values{"names": {filter(name)}})
	return first(all, err, &Missing{Kind: "service broker", Name: name})
}

// CreateBroker registers a broker, and waits until its catalog is read.
func (c Market) CreateBroker(ctx context.Context, n v3.CreateServiceBroker) error {
	h, err := c.call(ctx, http.MethodPost, "/v3/service_brokers", n, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// UpdateBroker changes a broker, and waits until its catalog is read again.
func (c Market) UpdateBroker(ctx context.Context, guid string, u v3.UpdateServiceBroker) error {
	h, err := c.call(ctx, http.MethodPatch, "/v3/service_brokers/"+escape(guid), u, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// DeleteBroker deletes a broker, and waits until it is gone.
func (c Market) DeleteBroker(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/service_brokers/"+escape(guid))
}

// Plans lists the plans of an offering, or of all offerings if it is empty.
func (c Market) Plans(ctx context.Context, offering string) ([]v3.ServicePlan, error) {
	q := url.Values{"order_by": {"name"}}
	if offering != "" {
		q.Set("service_offering_guids", filter(offering))
	}
	return list[v3.ServicePlan](ctx, c.transport, "/v3/service_plans", q)
}

// Offerings lists the offerings by name, of all brokers if broker is empty.
func (c Market) Offerings(ctx context.Context, name, broker string) ([]v3.ServiceOffering, error) {
	q := url.Values{"order_by": {"name"}}
	if name != "" {
		q.Set("names", filter(name))
	}
	if broker != "" {
		q.Set("service_broker_names", filter(broker))
	}
	return list[v3.ServiceOffering](ctx, c.transport, "/v3/service_offerings", q)
}

// PlanVisibility reads which orgs can use a plan.
func (c Market) PlanVisibility(ctx context.Context, plan string) (v3.PlanVisibility, error) {
	var v v3.PlanVisibility
	_, err := c.call(ctx, http.MethodGet, "/v3/service_plans/"+escape(plan)+"/visibility", nil, &v)
	return v, err
}

// ShowPlan makes a plan visible to more orgs.
func (c Market) ShowPlan(ctx context.Context, plan string, v v3.PlanVisibility) error {
	_, err := c.call(ctx, http.MethodPost, "/v3/service_plans/"+escape(plan)+"/visibility", v, nil)
	return err
}

// SetPlanVisibility replaces the visibility of a plan.
func (c Market) SetPlanVisibility(ctx context.Context, plan string, v v3.PlanVisibility) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/service_plans/"+escape(plan)+"/visibility", v, nil)
	return err
}

// HidePlan removes an organization from the visibility of a plan.
func (c Market) HidePlan(ctx context.Context, plan, org string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/service_plans/"+escape(plan)+"/visibility/"+escape(org), nil, nil)
	return err
}

// PurgeOffering deletes an offering with all its service instances and bindings,
// without a request to its broker.
func (c Market) PurgeOffering(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/service_offerings/"+escape(guid)+"?purge=true", nil, nil)
	return err
}
