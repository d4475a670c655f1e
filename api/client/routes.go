package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// List lists the routes of the client's space.
func (c Routes) List(ctx context.Context) ([]v3.Route, error) {
	q, err := c.spaceQuery(ctx)
	if err != nil {
		return nil, err
	}
	return list[v3.Route](ctx, c.transport, "/v3/routes", q)
}

// OfApp lists the routes that have an app as a destination.
func (c Routes) OfApp(ctx context.Context, app string) ([]v3.Route, error) {
	return list[v3.Route](ctx, c.transport, "/v3/apps/"+escape(app)+"/routes", nil)
}

// Delete deletes a route and waits until it is gone.
func (c Routes) Delete(ctx context.Context, guid string) error {
	h, err := c.call(ctx, http.MethodDelete, "/v3/routes/"+escape(guid), nil, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// AtPort finds the TCP route of a domain that has the port, or fails with *Missing.
func (c Routes) AtPort(ctx context.Context, d v3.Domain, port int) (v3.Route, error) {
	number := strconv.Itoa(port)
	q := url.Values{"domain_guids": {filter(d.GUID)}, "ports": {filter(number)}}
	all, err := list[v3.Route](ctx, c.transport, "/v3/routes", q)
	return first(all, err, &Missing{Kind: "route", Name: d.Name + ":" + number})
}

// CreateTCP creates a TCP route without destinations in the client's space. Port 0
// means any free port.
func (c Routes) CreateTCP(ctx context.Context, domain string, port int) (v3.Route, error) {
	var wished *v3.Int
	if port != 0 {
		n := v3.Int(port)
		wished = &n
	}
	return c.Create(ctx, domain, v3.CreateRoute{Port: wished})
}

// RouterGroups lists the router groups, which have the ports of TCP routes.
func (c Routes) RouterGroups(ctx context.Context) ([]v3.RouterGroup, error) {
	var out []v3.RouterGroup
	_, err := c.call(ctx, http.MethodGet, "/routing/v1/router_groups", nil, &out)
	return out, err
}

// policiesPath is the path of network policies, as Cloud Foundry's clients use it.
const policiesPath = "/networking/v1/external/policies"

// Policies lists the network policies between apps that the user develops.
func (c Routes) Policies(ctx context.Context) ([]v3.NetworkPolicy, error) {
	var out v3.NetworkPolicies
	_, err := c.call(ctx, http.MethodGet, policiesPath, nil, &out)
	return out.Policies, err
}

// AddPolicy creates a network policy. It is not an error if it exists.
func (c Routes) AddPolicy(ctx context.Context, p v3.NetworkPolicy) error {
	_, err := c.call(ctx, http.MethodPost, policiesPath, v3.NetworkPolicies{Policies: []v3.NetworkPolicy{p}}, nil)
	return err
}

// RemovePolicy deletes a network policy.
func (c Routes) RemovePolicy(ctx context.Context, p v3.NetworkPolicy) error {
	_, err := c.call(ctx, http.MethodPost, policiesPath+"/delete", v3.NetworkPolicies{Policies: []v3.NetworkPolicy{p}}, nil)
	return err
}

// At finds the route for a domain's guid, host and path, or fails with *Missing.
func (c Routes) At(ctx context.Context, d v3.Domain, host, path string) (v3.Route, error) {
	q := url.Values{"domain_guids": {filter(d.GUID)}, "hosts": {filter(host)}, "paths": {filter(path)}}
	all, err := list[v3.Route](ctx, c.transport, "/v3/routes", q)
	name := d.Name + path
	if host != "" {
		name = host + "." + name
	}
	return first(all, err, &Missing{Kind: "route", Name: name})
}

// Create creates a route without destinations in the client's space.
func (c Routes) Create(ctx context.Context, domain string, body v3.CreateRoute) (v3.Route, error) {
	space, err := c.spaceGUID(ctx)
	if err != nil {
		return v3.Route{}, err
	}
	body.Relationships = v3.RouteRelationships{Space: v3.To(space), Domain: v3.To(domain)}
	var rt v3.Route
	_, err = c.call(ctx, http.MethodPost, "/v3/routes", body, &rt)
	return rt, err
}

// AddDestination adds a destination to a route.
func (c Routes) AddDestination(ctx context.Context, route string, d v3.NewDestination) (v3.Destinations, error) {
	var out v3.Destinations
	_, err := c.call(ctx, http.MethodPost, "/v3/routes/"+escape(route)+"/destinations", v3.ChangeDestinations{Destinations: []v3.NewDestination{d}}, &out)
	return out, err
}

// RemoveDestination removes a destination from a route.
func (c Routes) RemoveDestination(ctx context.Context, route, destination string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/routes/"+escape(route)+"/destinations/"+escape(destination), nil, nil)
	return err
}

// DeleteUnmapped deletes the routes of the client's space that have no destination, and
// waits until they are gone.
func (c Routes) DeleteUnmapped(ctx context.Context) error {
	space, err := c.spaceGUID(ctx)
	if err != nil {
		return err
	}
	return c.remove(ctx, "/v3/spaces/"+escape(space)+"/routes?unmapped=true")
}

// RouteName identifies a route within its domain.
type RouteName struct {
	Host, Path string
	Port       int // 0 for none
}

// Taken reports whether the route exists, even in spaces that the caller cannot see.
func (c Routes) Taken(ctx context.Context, domain string, n RouteName) (bool, error) {
	q := url.Values{}
	if n.Port != 0 {
		q.Set("port", strconv.Itoa(n.Port))
	} else {
		q.Set("host", n.Host)
		q.Set("path", n.Path)
	}
	var out v3.Reservation
	_, err := c.call(ctx, http.MethodGet, "/v3/domains/"+escape(domain)+"/route_reservations?"+q.Encode(), nil, &out)
	return out.Matching, err
}

// InOrg lists the routes of all spaces of an organization.
func (c Routes) InOrg(ctx context.Context, org string) ([]v3.Route, error) {
	return list[v3.Route](ctx, c.transport, "/v3/routes", url.Values{"organization_guids": {filter(org)}})
}

// Update changes the options of a route.
func (c Routes) Update(ctx context.Context, guid string, body v3.UpdateRoute) (v3.Route, error) {
	var out v3.Route
	_, err := c.call(ctx, http.MethodPatch, "/v3/routes/"+escape(guid), body, &out)
	return out, err
}

// UpdateDestination changes the protocol of a route destination.
func (c Routes) UpdateDestination(ctx context.Context, route, destination, protocol string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/routes/"+escape(route)+"/destinations/"+escape(destination), v3.UpdateDestination{Protocol: &protocol}, nil)
	return err
}

// Move moves a route to another space.
func (c Routes) Move(ctx context.Context, guid, space string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/routes/"+escape(guid)+"/relationships/space", v3.To(space), nil)
	return err
}

// Shares returns the guids of the spaces that a route is shared with.
func (c Routes) Shares(ctx context.Context, guid string) ([]string, error) {
	var out v3.SharedSpaces
	_, err := c.call(ctx, http.MethodGet, "/v3/routes/"+escape(guid)+"/relationships/shared_spaces", nil, &out)
	spaces := make([]string, len(out.Data))
	for i, d := range out.Data {
		spaces[i] = d.GUID
	}
	return spaces, err
}

// Share shares a route with another space, whose apps can then be destinations.
func (c Routes) Share(ctx context.Context, guid, space string) error {
	return c.relate(ctx, "/v3/routes/"+escape(guid), Relation{"shared_spaces", []string{space}})
}

// Unshare stops sharing a route with a space.
func (c Routes) Unshare(ctx context.Context, guid, space string) error {
	return c.unrelate(ctx, "/v3/routes/"+escape(guid), Relation{"shared_spaces", []string{space}})
}
