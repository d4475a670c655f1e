package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/dewrun/dew/api/v3"
)

// RouteName is a route as one names it beside its domain.
type RouteName struct {
	Host, Path string
	Port       int // 0: none
}

// RouteTaken tells whether somebody has the route, also where one does not see it.
func (c *Client) RouteTaken(ctx context.Context, domain string, n RouteName) (bool, error) {
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

// RoutesIn lists the routes of all spaces of an organization.
func (c *Client) RoutesIn(ctx context.Context, org string) ([]v3.Route, error) {
	return list[v3.Route](ctx, c, "/v3/routes", url.Values{"organization_guids": {filter(org)}})
}

// UpdateRoute changes the options of a route.
func (c *Client) UpdateRoute(ctx context.Context, guid string, body v3.UpdateRoute) (v3.Route, error) {
	var out v3.Route
	_, err := c.call(ctx, http.MethodPatch, "/v3/routes/"+escape(guid), body, &out)
	return out, err
}

// UpdateDestination changes what is spoken with a destination of a route.
func (c *Client) UpdateDestination(ctx context.Context, route, destination, protocol string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/routes/"+escape(route)+"/destinations/"+escape(destination), v3.UpdateDestination{Protocol: &protocol}, nil)
	return err
}

// MoveRoute makes a route another space's.
func (c *Client) MoveRoute(ctx context.Context, guid, space string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/routes/"+escape(guid)+"/relationships/space", v3.To(space), nil)
	return err
}

// RouteShares are the guids of the spaces that a route is shared with.
func (c *Client) RouteShares(ctx context.Context, guid string) ([]string, error) {
	var out v3.SharedSpaces
	_, err := c.call(ctx, http.MethodGet, "/v3/routes/"+escape(guid)+"/relationships/shared_spaces", nil, &out)
	spaces := make([]string, len(out.Data))
	for i, d := range out.Data {
		spaces[i] = d.GUID
	}
	return spaces, err
}

// ShareRoute lets apps of another space have a route.
func (c *Client) ShareRoute(ctx context.Context, guid, space string) error {
	return c.relate(ctx, "/v3/routes/"+escape(guid), Relation{"shared_spaces", []string{space}})
}

// UnshareRoute takes that back.
func (c *Client) UnshareRoute(ctx context.Context, guid, space string) error {
	return c.unrelate(ctx, "/v3/routes/"+escape(guid), Relation{"shared_spaces", []string{space}})
}

// ShareDomain lets another organization have routes in a private domain.
func (c *Client) ShareDomain(ctx context.Context, guid, org string) error {
	return c.relate(ctx, "/v3/domains/"+escape(guid), Relation{"shared_organizations", []string{org}})
}

// UnshareDomain takes that back.
func (c *Client) UnshareDomain(ctx context.Context, guid, org string) error {
	return c.unrelate(ctx, "/v3/domains/"+escape(guid), Relation{"shared_organizations", []string{org}})
}
