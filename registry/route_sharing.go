package registry

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dewrun/dew/app"
)

// ShareRoute shares a route with spaces, whose apps can then be destinations.
func (r *RouteStore) ShareRoute(guid string, spaces []string) (app.Route, error) {
	return r.giveRoute(guid, func(r *Registry, rt *app.Route) error {
		for _, space := range spaces {
			if err := r.reachable(*rt, space); err != nil {
				return err
			}
			if !slices.Contains(rt.SharedWith, space) {
				rt.SharedWith = append(rt.SharedWith, space)
			}
		}
		return nil
	})
}

// reachable refuses a space that cannot use the route's domain or owns the route.
func (r *RouteStore) reachable(rt app.Route, space string) error {
	sp, err := r.registry().Space(space)
	if err != nil {
		return err
	}
	d, err := r.registry().Domain(rt.Domain)
	switch {
	case err != nil:
		return err
	case rt.Space == space:
		return &app.Invalid{Key: "space", Message: fmt.Sprintf("space %s already owns the route", sp.Name)}
	case !d.UsableIn(sp.Org):
		return &app.Invalid{Key: "space", Message: fmt.Sprintf("the domain %s is not available in the organization of space %s", d.Name, sp.Name)}
	}
	return nil
}

// UnshareRoute stops sharing a route with a space, and removes the apps of that space
// from its destinations.
func (r *RouteStore) UnshareRoute(guid, space string) (app.Route, error) {
	return r.giveRoute(guid, func(r *Registry, rt *app.Route) error { return r.unshare(rt, space) })
}

func (r *RouteStore) unshare(rt *app.Route, space string) error {
	i := slices.Index(rt.SharedWith, space)
	if i < 0 {
		return fmt.Errorf("route %s is not shared with space %s: %w", rt.GUID, space, app.ErrNotFound)
	}
	rt.SharedWith = slices.Delete(rt.SharedWith, i, i+1)
	var kept []app.Destination
	for _, d := range rt.Destinations {
		a, err := r.registry().App(d.App)
		if err != nil {
			return err
		}
		if a.Space != space {
			kept = append(kept, d)
		}
	}
	rt.Destinations = kept
	return nil
}

// MoveRoute moves a route to another space. It stays shared with the former owner, so
// that the apps there stay reachable.
func (r *RouteStore) MoveRoute(guid, space string) (app.Route, error) {
	return r.giveRoute(guid, func(r *Registry, rt *app.Route) error {
		if rt.Space == space {
			return nil
		}
		if err := r.reachable(*rt, space); err != nil {
			return err
		}
		rt.SharedWith = slices.DeleteFunc(rt.SharedWith, func(s string) bool { return s == space })
		rt.SharedWith = append(rt.SharedWith, rt.Space)
		rt.Space = space
		return nil
	})
}

// giveRoute changes the owner or the sharing of a route in one transaction.
func (r *RouteStore) giveRoute(guid string, fn func(r *Registry, rt *app.Route) error) (rt app.Route, err error) {
	err = r.update(func(r *Registry) error {
		if rt, err = r.Route(guid); err != nil {
			return err
		}
		rt = rt.Clone()
		if err := fn(r, &rt); err != nil {
			return err
		}
		rt, err = r.putRoute(rt)
		return err
	})
	return rt, err
}

// leaveRoutes stops sharing routes with a space that is being deleted. Its apps are
// deleted before.
func (r *RouteStore) leaveRoutes(space string) error {
	all, err := r.Routes()
	if err != nil {
		return err
	}
	for _, rt := range all {
		if !slices.Contains(rt.SharedWith, space) {
			continue
		}
		if _, err := r.UnshareRoute(rt.GUID, space); err != nil && !errors.Is(err, app.ErrNotFound) {
			return err
		}
	}
	return nil
}
