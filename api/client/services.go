package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Job is an operation that a broker works on. The zero value is one that has ended.
type Job struct{ location string }

// Ended tells whether there is nothing to wait for.
func (j Job) Ended() bool { return j.location == "" }

// Wait waits until the operation has ended, and fails if it failed.
func (c *Client) Wait(ctx context.Context, j Job) error {
	return c.follow(ctx, http.Header{"Location": {j.location}})
}

// Taken waits until a broker has taken the operation on, or it has ended: what it
// refuses at once is an error. What is left of it is for Wait.
func (c *Client) Taken(ctx context.Context, j Job) (Job, error) {
	if j.Ended() {
		return j, nil
	}
	err := Poll(ctx, func() (bool, error) {
		var now v3.Job
		if _, err := c.call(ctx, http.MethodGet, local(j.location), nil, &now); err != nil {
			return false, err
		}
		switch now.State {
		case v3.JobComplete:
			j = Job{}
			return true, nil
		case v3.JobFailed:
			return false, jobError(now)
		}
		return now.State == v3.JobPolling, nil
	})
	return j, err
}

func (c *Client) begin(ctx context.Context, method, path string, body any) (Job, error) {
	h, err := c.call(ctx, method, path, body, nil)
	return Job{location: h.Get("Location")}, err
}

// Marketplace are plans with the offerings that they belong to.
type Marketplace struct {
	Plans     []v3.ServicePlan
	Offerings map[string]v3.ServiceOffering // by guid
	Brokers   map[string]string             // names by guid
}

// MarketplaceQuery narrows the marketplace; what is empty does not.
type MarketplaceQuery struct {
	Offering, Plan, Broker string // names
	All                    bool   // also what cannot be had, and elsewhere
}

// Marketplace reads what can be had in the client's space.
func (c *Client) Marketplace(ctx context.Context, m MarketplaceQuery) (Marketplace, error) {
	out := Marketplace{Offerings: map[string]v3.ServiceOffering{}, Brokers: map[string]string{}}
	q := url.Values{"include": {"service_offering"}, "fields[service_offering.service_broker]": {"name,guid"}, "order_by": {"name"}, "per_page": {allPages}}
	if !m.All {
		q.Set("available", "true")
		space, err := c.Here(ctx)
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

// Services lists the service instances of the client's space by name.
func (c *Client) Services(ctx context.Context) ([]v3.ServiceInstance, error) {
	q, err := c.here(ctx)
	if err != nil {
		return nil, err
	}
	q.Set("order_by", "name")
	return list[v3.ServiceInstance](ctx, c, "/v3/service_instances", q)
}

// ServiceByName finds a service instance of the client's space, or fails with
// *Missing.
func (c *Client) ServiceByName(ctx context.Context, name string) (v3.ServiceInstance, error) {
	q, err := c.here(ctx)
	if err != nil {
		return v3.ServiceInstance{}, err
	}
	q.Set("names", filter(name))
	all, err := list[v3.ServiceInstance](ctx, c, "/v3/service_instances", q)
	return first(all, err, &Missing{Kind: "service instance", Name: name})
}

// ServicePlan reads a plan.
func (c *Client) ServicePlan(ctx context.Context, guid string) (v3.ServicePlan, error) {
	var p v3.ServicePlan
	_, err := c.call(ctx, http.MethodGet, "/v3/service_plans/"+escape(guid), nil, &p)
	return p, err
}

// ServiceOffering reads an offering.
func (c *Client) ServiceOffering(ctx context.Context, guid string) (v3.ServiceOffering, error) {
	var o v3.ServiceOffering
	_, err := c.call(ctx, http.MethodGet, "/v3/service_offerings/"+escape(guid), nil, &o)
	return o, err
}

// CreateService makes a service instance in the client's space.
func (c *Client) CreateService(ctx context.Context, n v3.CreateServiceInstance) (Job, error) {
	space, err := c.Here(ctx)
	if err != nil {
		return Job{}, err
	}
	n.Relationships.Space = v3.To(space)
	return c.begin(ctx, http.MethodPost, "/v3/service_instances", n)
}

// UpdateService changes a service instance.
func (c *Client) UpdateService(ctx context.Context, guid string, u v3.UpdateServiceInstance) (Job, error) {
	return c.begin(ctx, http.MethodPatch, "/v3/service_instances/"+escape(guid), u)
}

// DeleteService deletes a service instance with all that is bound to it.
func (c *Client) DeleteService(ctx context.Context, guid string) (Job, error) {
	return c.begin(ctx, http.MethodDelete, "/v3/service_instances/"+escape(guid), nil)
}

// PurgeService forgets a service instance without a word to its broker.
func (c *Client) PurgeService(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/service_instances/"+escape(guid)+"?purge=true", nil, nil)
	return err
}

// ServiceParameters reads the parameters of a service instance from its broker.
func (c *Client) ServiceParameters(ctx context.Context, guid string) (json.RawMessage, error) {
	var p json.RawMessage
	_, err := c.call(ctx, http.MethodGet, "/v3/service_instances/"+escape(guid)+"/parameters", nil, &p)
	return p, err
}

// BindingQuery narrows bindings; what is empty does not.
type BindingQuery struct {
	Type, Name    string // v3.BindingApp or v3.BindingKey
	App, Instance string // guids
}

// Bindings lists credential bindings, the oldest first.
func (c *Client) Bindings(ctx context.Context, b BindingQuery) ([]v3.ServiceCredentialBinding, error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"type": b.Type, "names": b.Name, "app_guids": b.App, "service_instance_guids": b.Instance,
	} {
		if value != "" {
			q.Set(name, filter(value))
		}
	}
	return list[v3.ServiceCredentialBinding](ctx, c, "/v3/service_credential_bindings", q)
}

// Bind makes a credential binding.
func (c *Client) Bind(ctx context.Context, n v3.CreateCredentialBinding) (Job, error) {
	return c.begin(ctx, http.MethodPost, "/v3/service_credential_bindings", n)
}

// Unbind deletes a credential binding.
func (c *Client) Unbind(ctx context.Context, guid string) (Job, error) {
	return c.begin(ctx, http.MethodDelete, "/v3/service_credential_bindings/"+escape(guid), nil)
}

// BindingDetails reads the credentials of a binding.
func (c *Client) BindingDetails(ctx context.Context, guid string) (v3.BindingDetails, error) {
	var d v3.BindingDetails
	_, err := c.call(ctx, http.MethodGet, "/v3/service_credential_bindings/"+escape(guid)+"/details", nil, &d)
	return d, err
}

// AppBindings tells what an app is bound to, and what of it came since it was
// staged.
func (c *Client) AppBindings(ctx context.Context, app string) ([]v3.AppBinding, error) {
	var b v3.AppBindings
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/apps/"+escape(app)+"/bindings", nil, &b)
	return b.Bindings, err
}

// Snapshots lists the copies of the data of a service instance, newest first.
func (c *Client) Snapshots(ctx context.Context, service string) ([]v3.ServiceSnapshot, error) {
	var all v3.ServiceSnapshots
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/service_instances/"+escape(service)+"/snapshots", nil, &all)
	return all.Snapshots, err
}

// Snapshot copies the data of a service instance, and waits until that is done.
func (c *Client) Snapshot(ctx context.Context, service string) error {
	j, err := c.begin(ctx, http.MethodPost, "/dew/v1/service_instances/"+escape(service)+"/snapshots", nil)
	if err != nil {
		return err
	}
	return c.Wait(ctx, j)
}

// Restore puts a copy back in the place of the data, and waits until that is done.
func (c *Client) Restore(ctx context.Context, service, snapshot string) error {
	j, err := c.begin(ctx, http.MethodPost, "/dew/v1/service_instances/"+escape(service)+"/snapshots/"+escape(snapshot)+"/restore", nil)
	if err != nil {
		return err
	}
	return c.Wait(ctx, j)
}

// DeleteSnapshot removes a copy.
func (c *Client) DeleteSnapshot(ctx context.Context, service, snapshot string) error {
	_, err := c.call(ctx, http.MethodDelete, "/dew/v1/service_instances/"+escape(service)+"/snapshots/"+escape(snapshot), nil, nil)
	return err
}
