package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/dewrun/dew/api/v3"
)

// Wait waits until the operation has finished. It returns an error if the operation
// failed.
func (c Services) Wait(ctx context.Context, j Job) error {
	return c.follow(ctx, http.Header{"Location": {j.location}})
}

// Accepted waits until a broker has accepted the operation or the operation has
// finished. A refusal is an error. If the returned Job is not finished, pass it to
// Wait.
func (c Services) Accepted(ctx context.Context, j Job) (Job, error) {
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

// List lists the service instances of the client's space by name.
func (c Services) List(ctx context.Context) ([]v3.ServiceInstance, error) {
	q, err := c.spaceQuery(ctx)
	if err != nil {
		return nil, err
	}
	q.Set("order_by", "name")
	return list[v3.ServiceInstance](ctx, c.transport, "/v3/service_instances", q)
}

// ByName finds a service instance of the client's space, or fails with *Missing.
func (c Services) ByName(ctx context.Context, name string) (v3.ServiceInstance, error) {
	q, err := c.spaceQuery(ctx)
	if err != nil {
		return v3.ServiceInstance{}, err
	}
	q.Set("names", filter(name))
	all, err := list[v3.ServiceInstance](ctx, c.transport, "/v3/service_instances", q)
	return first(all, err, &Missing{Kind: "service instance", Name: name})
}

// Create creates a service instance in the client's space.
func (c Services) Create(ctx context.Context, n v3.CreateServiceInstance) (Job, error) {
	space, err := c.spaceGUID(ctx)
	if err != nil {
		return Job{}, err
	}
	n.Relationships.Space = v3.To(space)
	return c.begin(ctx, http.MethodPost, "/v3/service_instances", n)
}

// Update changes a service instance.
func (c Services) Update(ctx context.Context, guid string, u v3.UpdateServiceInstance) (Job, error) {
	return c.begin(ctx, http.MethodPatch, "/v3/service_instances/"+escape(guid), u)
}

// Delete deletes a service instance with all its bindings.
func (c Services) Delete(ctx context.Context, guid string) (Job, error) {
	return c.begin(ctx, http.MethodDelete, "/v3/service_instances/"+escape(guid), nil)
}

// Purge deletes a service instance without a request to its broker.
func (c Services) Purge(ctx context.Context, guid string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/service_instances/"+escape(guid)+"?purge=true", nil, nil)
	return err
}

// Parameters reads the parameters of a service instance from its broker.
func (c Services) Parameters(ctx context.Context, guid string) (json.RawMessage, error) {
	var p json.RawMessage
	_, err := c.call(ctx, http.MethodGet, "/v3/service_instances/"+escape(guid)+"/parameters", nil, &p)
	return p, err
}

// BindingQuery selects bindings. Empty fields do not restrict the selection.
type BindingQuery struct {
	Type, Name    string // v3.BindingApp or v3.BindingKey
	App, Instance string // guids
}

// Bindings lists credential bindings, the oldest first.
func (c Services) Bindings(ctx context.Context, b BindingQuery) ([]v3.ServiceCredentialBinding, error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"type": b.Type, "names": b.Name, "app_guids": b.App, "service_instance_guids": b.Instance,
	} {
		if value != "" {
			q.Set(name, filter(value))
		}
	}
	return list[v3.ServiceCredentialBinding](ctx, c.transport, "/v3/service_credential_bindings", q)
}

// Bind creates a credential binding.
func (c Services) Bind(ctx context.Context, n v3.CreateCredentialBinding) (Job, error) {
	return c.begin(ctx, http.MethodPost, "/v3/service_credential_bindings", n)
}

// Unbind deletes a credential binding.
func (c Services) Unbind(ctx context.Context, guid string) (Job, error) {
	return c.begin(ctx, http.MethodDelete, "/v3/service_credential_bindings/"+escape(guid), nil)
}

// BindingDetails reads the credentials of a binding.
func (c Services) BindingDetails(ctx context.Context, guid string) (v3.BindingDetails, error) {
	var d v3.BindingDetails
	_, err := c.call(ctx, http.MethodGet, "/v3/service_credential_bindings/"+escape(guid)+"/details", nil, &d)
	return d, err
}

// AppBindings returns the services that an app is bound to, and whether each binding is
// newer than the app's droplet.
func (c Services) AppBindings(ctx context.Context, app string) ([]v3.AppBinding, error) {
	var b v3.AppBindings
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/apps/"+escape(app)+"/bindings", nil, &b)
	return b.Bindings, err
}

// Snapshots lists the snapshots of a service instance, newest first.
func (c Services) Snapshots(ctx context.Context, service string) ([]v3.ServiceSnapshot, error) {
	var all v3.ServiceSnapshots
	_, err := c.call(ctx, http.MethodGet, "/dew/v1/service_instances/"+escape(service)+"/snapshots", nil, &all)
	return all.Snapshots, err
}

// TakeSnapshot creates a snapshot of a service instance's data, and waits until it is
// done.
func (c Services) TakeSnapshot(ctx context.Context, service string) error {
	j, err := c.begin(ctx, http.MethodPost, "/dew/v1/service_instances/"+escape(service)+"/snapshots", nil)
	if err != nil {
		return err
	}
	return c.Wait(ctx, j)
}

// Restore replaces the data of a service instance by a snapshot, and waits until it is
// done.
func (c Services) Restore(ctx context.Context, service, snapshot string) error {
	j, err := c.begin(ctx, http.MethodPost, "/dew/v1/service_instances/"+escape(service)+"/snapshots/"+escape(snapshot)+"/restore", nil)
	if err != nil {
		return err
	}
	return c.Wait(ctx, j)
}

// DeleteSnapshot deletes a snapshot.
func (c Services) DeleteSnapshot(ctx context.Context, service, snapshot string) error {
	_, err := c.call(ctx, http.MethodDelete, "/dew/v1/service_instances/"+escape(service)+"/snapshots/"+escape(snapshot), nil, nil)
	return err
}

// Share allows apps of another space to be bound to a service instance.
func (c Services) Share(ctx context.Context, guid, space string) error {
	body := v3.ShareServiceInstance{Data: []v3.GUID{{GUID: space}}}
	_, err := c.call(ctx, http.MethodPost, "/v3/service_instances/"+escape(guid)+"/relationships/shared_spaces", body, nil)
	return err
}

// Unshare stops sharing a service instance with a space.
func (c Services) Unshare(ctx context.Context, guid, space string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/service_instances/"+escape(guid)+"/relationships/shared_spaces/"+escape(space), nil, nil)
	return err
}

// SharedWith lists the names of the spaces that a service instance is shared with.
func (c Services) SharedWith(ctx context.Context, guid string) ([]string, error) {
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

// RouteBindings lists the route service bindings of routes.
func (c Services) RouteBindings(ctx context.Context, routes ...string) ([]v3.ServiceRouteBinding, error) {
	q := url.Values{}
	if len(routes) > 0 {
		q.Set("route_guids", filter(routes...))
	}
	return list[v3.ServiceRouteBinding](ctx, c.transport, "/v3/service_route_bindings", q)
}

// BindRoute sends the requests of a route through a service first.
func (c Services) BindRoute(ctx context.Context, n v3.CreateServiceRouteBinding) (Job, error) {
	return c.begin(ctx, http.MethodPost, "/v3/service_route_bindings", n)
}

// UnbindRoute stops sending the requests of a route through a service.
func (c Services) UnbindRoute(ctx context.Context, guid string) (Job, error) {
	return c.begin(ctx, http.MethodDelete, "/v3/service_route_bindings/"+escape(guid), nil)
}
