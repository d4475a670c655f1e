package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// Routes lists the routes of the client's space.
func (c *Client) Routes(ctx context.Context) ([]v3.Route, error) {
	q, err := c.here(ctx)
	if err != nil {
		return nil, err
	}
	return list[v3.Route](ctx, c, "/v3/routes", q)
}

// RoutesOf lists the routes that lead to an app.
func (c *Client) RoutesOf(ctx context.Context, app string) ([]v3.Route, error) {
	return list[v3.Route](ctx, c, "/v3/apps/"+escape(app)+"/routes", nil)
}

// DeleteRoute deletes a route and waits until it is gone.
func (c *Client) DeleteRoute(ctx context.Context, guid string) error {
	h, err := c.call(ctx, http.MethodDelete, "/v3/routes/"+escape(guid), nil, nil)
	if err != nil {
		return err
	}
	return c.follow(ctx, h)
}

// RouteAtPort finds the TCP route of a domain that has the port, or fails with
// *Missing.
func (c *Client) RouteAtPort(ctx context.Context, d v3.Domain, port int) (v3.Route, error) {
	number := strconv.Itoa(port)
	q := url.Values{"domain_guids": {filter(d.GUID)}, "ports": {filter(number)}}
	all, err := list[v3.Route](ctx, c, "/v3/routes", q)
	return first(all, err, &Missing{Kind: "route", Name: d.Name + ":" + number})
}

// CreateTCPRoute makes a TCP route in the client's space that leads nowhere yet. Port
// 0 is any that is free.
func (c *Client) CreateTCPRoute(ctx context.Context, domain string, port int) (v3.Route, error) {
	var wished *v3.Int
	if port != 0 {
		n := v3.Int(port)
		wished = &n
	}
	return c.CreateRoute(ctx, domain, v3.CreateRoute{Port: wished})
}

// RouterGroups lists what gives TCP routes their ports.
func (c *Client) RouterGroups(ctx context.Context) ([]v3.RouterGroup, error) {
	var out []v3.RouterGroup
	_, err := c.call(ctx, http.MethodGet, "/routing/v1/router_groups", nil, &out)
	return out, err
}

// RouteAt finds the route for a domain's guid, host and path, or fails with
// *Missing.
func (c *Client) RouteAt(ctx context.Context, d v3.Domain, host, path string) (v3.Route, error) {
	q := url.Values{"domain_guids": {filter(d.GUID)}, "hosts": {filter(host)}, "paths": {filter(path)}}
	all, err := list[v3.Route](ctx, c, "/v3/routes", q)
	name := d.Name + path
	if host != "" {
		name = host + "." + name
	}
	return first(all, err, &Missing{Kind: "route", Name: name})
}

// CreateRoute makes a route in the client's space that leads nowhere yet.
func (c *Client) CreateRoute(ctx context.Context, domain string, body v3.CreateRoute) (v3.Route, error) {
	space, err := c.Here(ctx)
	if err != nil {
		return v3.Route{}, err
	}
	body.Relationships = v3.RouteRelationships{Space: v3.To(space), Domain: v3.To(domain)}
	var rt v3.Route
	_, err = c.call(ctx, http.MethodPost, "/v3/routes", body, &rt)
	return rt, err
}

// AddDestination makes a route lead to one more place.
func (c *Client) AddDestination(ctx context.Context, route string, d v3.NewDestination) (v3.Destinations, error) {
	var out v3.Destinations
	_, err := c.call(ctx, http.MethodPost, "/v3/routes/"+escape(route)+"/destinations", v3.ChangeDestinations{Destinations: []v3.NewDestination{d}}, &out)
	return out, err
}

// RemoveDestination makes a route no longer lead to a place.
func (c *Client) RemoveDestination(ctx context.Context, route, destination string) error {
	_, err := c.call(ctx, http.MethodDelete, "/v3/routes/"+escape(route)+"/destinations/"+escape(destination), nil, nil)
	return err
}

// DeleteUnmapped deletes the routes of the client's space that lead nowhere, and
// waits until they are gone.
func (c *Client) DeleteUnmapped(ctx context.Context) error {
	space, err := c.Here(ctx)
	if err != nil {
		return err
	}
	return c.remove(ctx, "/v3/spaces/"+escape(space)+"/routes?unmapped=true")
}

// DomainByName finds a domain, or fails with *Missing.
func (c *Client) DomainByName(ctx context.Context, name string) (v3.Domain, error) {
	all, err := list[v3.Domain](ctx, c, "/v3/domains", url.Values{"names": {filter(name)}})
	return first(all, err, &Missing{Kind: "domain", Name: name})
}

// CreateDomain makes a domain that all organizations share.
func (c *Client) CreateDomain(ctx context.Context, d v3.CreateDomain) (v3.Domain, error) {
	var out v3.Domain
	_, err := c.call(ctx, http.MethodPost, "/v3/domains", d, &out)
	return out, err
}

// DeleteDomain deletes a domain with its routes, and waits until it is gone.
func (c *Client) DeleteDomain(ctx context.Context, guid string) error {
	return c.remove(ctx, "/v3/domains/"+escape(guid))
}
