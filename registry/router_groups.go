package registry

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
)

// RouterGroups returns all router groups by name.
func (r *RouteStore) RouterGroups() ([]app.RouterGroup, error) {
	return sorted(r.routerGroups, "router groups", func(a, b app.RouterGroup) int { return cmp.Compare(a.Name, b.Name) })
}

// RouterGroup returns the router group with guid.
func (r *RouteStore) RouterGroup(guid string) (app.RouterGroup, error) {
	return get(r.routerGroups, "router group", guid)
}

// EnsureRouterGroup sets the ports of the router group, and creates it when there are
// ports for the first time. Routes whose port is no longer among them stay.
func (r *RouteStore) EnsureRouterGroup(ports app.PortRange) error {
	return r.update(func(r *Registry) error {
		g, err := oneBy(r.routerGroups, "name", app.TCPGroup, "router group")
		switch {
		case errors.Is(err, app.ErrNotFound) && ports == app.PortRange{}:
			return nil
		case errors.Is(err, app.ErrNotFound):
			g = app.RouterGroup{GUID: uuid.NewString(), Name: app.TCPGroup, CreatedAt: app.Now()}
		case err != nil:
			return err
		case g.Ports == ports:
			return nil
		}
		g.Ports, g.UpdatedAt = ports, app.Now()
		if err := r.routerGroups.Put(g.GUID, g); err != nil {
			return fmt.Errorf("cannot store router group %s: %w", g.Name, err)
		}
		return nil
	})
}

// freePort returns a port of the group that no route has.
func (r *RouteStore) freePort(g app.RouterGroup) (int, error) {
	routes, err := r.Routes()
	if err != nil {
		return 0, err
	}
	taken := map[int]bool{}
	for _, rt := range routes {
		taken[rt.Port] = true
	}
	n := g.Ports.Last - g.Ports.First + 1
	if g.Ports == (app.PortRange{}) {
		n = 0
	}
	for i, begin := 0, rand.IntN(max(n, 1)); i < n; i++ {
		if port := g.Ports.First + (begin+i)%n; !taken[port] {
			return port, nil
		}
	}
	return 0, &app.Invalid{Key: "port", Message: fmt.Sprintf("all ports of router group %s are in use (%s): start dewd with a larger range in --tcp-ports, or delete a TCP route", g.Name, cmp.Or(g.Ports.String(), "none"))}
}

// portFor returns the port of a new route in a domain: the requested one, or a free one.
// It is 0 for routes that have no port.
func (r *RouteStore) portFor(rt app.Route, d app.Domain) (int, error) {
	if !d.TCP() {
		return rt.Port, nil
	}
	g, err := r.RouterGroup(d.RouterGroup)
	if err != nil {
		return 0, err
	}
	if rt.Port == 0 {
		return r.freePort(g)
	}
	if !g.Ports.Has(rt.Port) {
		return 0, &app.Invalid{Key: "port", Message: fmt.Sprintf("%d is not available: router group %s has the ports %s", rt.Port, g.Name, cmp.Or(g.Ports.String(), "none"))}
	}
	return rt.Port, nil
}

// newPort returns the port of a route that is new or whose port changed.
func (r *RouteStore) newPort(rt app.Route) (int, error) {
	d, err := r.registry().Domain(rt.Domain)
	if err != nil {
		return 0, err
	}
	return r.portFor(rt, d)
}
