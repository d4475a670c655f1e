package registry

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
)

// AddDestinations adds ds to the destinations of a route. A destination that exists
// stays, with the protocol that ds name.
func (r *RouteStore) AddDestinations(route string, ds []app.Destination) (app.Route, error) {
	return r.changeRoute(route, func(rt *app.Route) error {
		ds, err := rt.CheckDestinations(ds)
		if err != nil {
			return err
		}
		for _, d := range ds {
			if i := slices.IndexFunc(rt.Destinations, d.Same); i >= 0 {
				rt.Destinations[i].Protocol = d.Protocol
				continue
			}
			rt.Destinations = append(rt.Destinations, d)
		}
		return nil
	})
}

// SetDestinations replaces the destinations of a route by ds. A destination that exists
// keeps its guid. One that replaces another of the same process keeps it as Former.
func (r *RouteStore) SetDestinations(route string, ds []app.Destination) (app.Route, error) {
	return r.changeRoute(route, func(rt *app.Route) error {
		ds, err := rt.CheckDestinations(ds)
		if err != nil {
			return err
		}
		rt.Destinations = replaced(rt.Destinations, ds)
		return nil
	})
}

// replaced returns now with the destinations that they replace. Removed and added
// destinations of one process are paired in order. As long as an instance lacks the
// port of the added one, the removed one is used there. A removed destination
// without a pair is unmapped at once.
func replaced(old, now []app.Destination) []app.Destination {
	gone := map[app.ProcessName][]app.Destination{}
	for _, d := range old {
		if !slices.ContainsFunc(now, d.Same) {
			gone[d.ProcessName()] = append(gone[d.ProcessName()], d)
		}
	}
	out := make([]app.Destination, 0, len(now))
	for _, d := range now {
		if i := slices.IndexFunc(old, d.Same); i >= 0 {
			d.GUID, d.Former = old[i].GUID, slices.Clone(old[i].Former)
			out = append(out, d)
			continue
		}
		if before := gone[d.ProcessName()]; len(before) > 0 {
			d.Former = d.FormerAfter(before[0])
			gone[d.ProcessName()] = before[1:]
		}
		out = append(out, d)
	}
	return out
}

// UpdateDestination sets the protocol of a destination. An empty protocol means the
// default of the route.
func (r *RouteStore) UpdateDestination(route, destination, protocol string) (app.Route, error) {
	return r.changeRoute(route, func(rt *app.Route) error {
		i := slices.IndexFunc(rt.Destinations, func(d app.Destination) bool { return d.GUID == destination })
		if i < 0 {
			return fmt.Errorf("destination %s: %w", destination, app.ErrNotFound)
		}
		protocol = cmp.Or(protocol, rt.Protocols()[0])
		var ps app.Violations
		app.CheckProtocol(&ps, "protocol", protocol, rt.Protocols()...)
		rt.Destinations[i].Protocol = protocol
		return ps.Err()
	})
}

// RemoveDestination removes a destination from a route.
func (r *RouteStore) RemoveDestination(route, destination string) error {
	_, err := r.changeRoute(route, func(rt *app.Route) error {
		is := func(d app.Destination) bool { return d.GUID == destination }
		if !slices.ContainsFunc(rt.Destinations, is) {
			return fmt.Errorf("destination %s: %w", destination, app.ErrNotFound)
		}
		rt.Destinations = slices.DeleteFunc(rt.Destinations, is)
		return nil
	})
	return err
}

// ForgetFormer clears Former of the destinations of a route that no instance needs any
// more, according to needed. It does nothing if the route does not exist.
func (r *RouteStore) ForgetFormer(route string, needed func(d app.Destination) bool) error {
	return r.update(func(r *Registry) error {
		rt, err := find(r.routes, route)
		if err != nil || rt.GUID == "" {
			return err
		}
		rt, changed := rt.Clone(), false
		for i, d := range rt.Destinations {
			if len(d.Former) > 0 && !needed(d) {
				rt.Destinations[i].Former, changed = nil, true
			}
		}
		if !changed {
			return nil
		}
		if err := r.routes.Put(rt.GUID, rt); err != nil {
			return fmt.Errorf("cannot store route %s: %w", rt.GUID, err)
		}
		return nil
	})
}

func (r *RouteStore) checkDestinations(ps *app.Violations, rt app.Route) error {
	if len(rt.Destinations) > app.MaxDestinations {
		ps.Add("destinations", "must have at most %d entries, not %d", app.MaxDestinations, len(rt.Destinations))
		return nil
	}
	for i, d := range rt.Destinations {
		if err := r.checkDestination(ps, rt, i); err != nil {
			return err
		}
		if slices.ContainsFunc(rt.Destinations[:i], d.Same) {
			ps.Add(app.DestinationKey(i, "app"), app.DestinationTwice)
		}
	}
	return nil
}

func (r *RouteStore) checkDestination(ps *app.Violations, rt app.Route, i int) error {
	d := rt.Destinations[i]
	a, err := r.registry().App(d.App)
	if err != nil {
		return err
	}
	if !rt.UsableIn(a.Space) {
		ps.Add(app.DestinationKey(i, "app"), "must be an app in the route's space, or in a space that the route is shared with")
	}
	app.ValidateProcessType(ps, app.DestinationKey(i, "process.type"), d.ProcessType)
	if d.Port != 0 {
		ps.Port(app.DestinationKey(i, "port"), d.Port)
	}
	app.CheckProtocol(ps, app.DestinationKey(i, "protocol"), d.Protocol, rt.Protocols()...)
	return nil
}

// portsChanged gives a new version to the processes whose containers would start with
// other ports. The ports of destinations are among them.
func (r *RouteStore) portsChanged(old, rt app.Route) error {
	var seen []app.ProcessName
	for _, d := range slices.Concat(old.Destinations, rt.Destinations) {
		p := d.ProcessName()
		if slices.Contains(seen, p) {
			continue
		}
		seen = append(seen, p)
		if slices.Equal(old.PortsOf(p), rt.PortsOf(p)) {
			continue
		}
		if err := r.registry().processChanged(d.App, d.ProcessType); err != nil {
			return err
		}
	}
	return nil
}
