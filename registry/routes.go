package registry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/app/routeoptions"
	"github.com/dewrun/dew/store"
)

// RouteStore stores routes with their destinations, and router groups.
type RouteStore struct{ *tables }

const maxHostName = 253

// ListenRoutes calls fn with the guid of every route that changed or was deleted, after
// the commit.
func (r *RouteStore) ListenRoutes(fn func(route string)) { r.routes.Listen(fn) }

// PutRoute stores rt: it replaces the route with the same guid, or creates one.
func (r *RouteStore) PutRoute(rt app.Route) (app.Route, error) {
	rt = rt.Clone()
	err := r.update(func(r *Registry) (err error) {
		rt, err = r.putRoute(rt)
		return err
	})
	return rt, err
}

// Route returns the route with guid.
func (r *RouteStore) Route(guid string) (app.Route, error) { return get(r.routes, "route", guid) }

// RouteAt returns the route for a domain's guid, host and path.
func (r *RouteStore) RouteAt(domain, host, path string) (app.Route, error) {
	found, err := r.routes.By("place", app.Route{Domain: domain, Host: host, Path: path}.UniqueKey())
	if err != nil {
		return app.Route{}, fmt.Errorf("cannot look up route %s: %w", host+path, err)
	}
	if len(found) == 0 {
		return app.Route{}, fmt.Errorf("route %s: %w", host+path, app.ErrNotFound)
	}
	return found[0], nil
}

// RouteAtPort returns the TCP route that has the port.
func (r *RouteStore) RouteAtPort(port int) (app.Route, error) {
	found, err := r.routes.By("place", app.Route{Port: port}.UniqueKey())
	if err != nil {
		return app.Route{}, fmt.Errorf("cannot look up the route with port %d: %w", port, err)
	}
	if len(found) == 0 {
		return app.Route{}, fmt.Errorf("route with port %d: %w", port, app.ErrNotFound)
	}
	return found[0], nil
}

// Routes returns all routes by host, path and port.
func (r *RouteStore) Routes() ([]app.Route, error) { return sorted(r.routes, "routes", compareRoutes) }

func compareRoutes(a, b app.Route) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Domain, b.Domain))
}

// RoutesOf returns the routes that have an app as destination, by host and path.
func (r *RouteStore) RoutesOf(appGUID string) ([]app.Route, error) {
	return sortedWhere(r.routes, "routes", compareRoutes, func(rt app.Route) bool { return rt.HasApp(appGUID) })
}

// DeleteRoute removes a route.
func (r *RouteStore) DeleteRoute(guid string) error {
	return r.update(func(r *Registry) error {
		old, err := r.Route(guid)
		if err != nil {
			return err
		}
		if err := r.routes.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete route %s: %w", guid, err)
		}
		return r.portsChanged(old, app.Route{})
	})
}

// UpdateRoute changes a route in one transaction. Its address does not change, because
// it identifies the route.
func (r *RouteStore) UpdateRoute(guid string, fn func(rt *app.Route) error) (rt app.Route, err error) {
	err = r.update(func(r *Registry) error {
		if rt, err = r.Route(guid); err != nil {
			return err
		}
		old := rt
		if err := fn(&rt); err != nil {
			return err
		}
		rt.SharedWith = old.SharedWith
		rt.GUID, rt.Space, rt.Domain, rt.Host, rt.Path, rt.Port = old.GUID, old.Space, old.Domain, old.Host, old.Path, old.Port
		rt, err = r.putRoute(rt)
		return err
	})
	return rt, err
}

func (r *RouteStore) changeRoute(guid string, fn func(rt *app.Route) error) (rt app.Route, err error) {
	err = r.update(func(r *Registry) error {
		if rt, err = r.Route(guid); err != nil {
			return err
		}
		old := rt.Clone()
		if err := fn(&rt); err != nil {
			return err
		}
		if slices.EqualFunc(old.Destinations, rt.Destinations, app.Destination.Equal) && maps.Equal(old.Options, rt.Options) {
			return nil
		}
		rt, err = r.putRoute(rt)
		return err
	})
	return rt, err
}

func (r *RouteStore) putRoute(rt app.Route) (app.Route, error) {
	old, err := find(r.routes, rt.GUID)
	if err != nil {
		return rt, err
	}
	if rt.GUID == "" {
		rt.GUID = uuid.NewString()
	}
	rt.Host, rt.Options = strings.ToLower(rt.Host), routeoptions.Normal(rt.Options)
	if old.GUID == "" || old.Port != rt.Port {
		if rt.Port, err = r.newPort(rt); err != nil {
			return rt, err
		}
	}
	for i, d := range rt.Destinations {
		d = d.WithDefaults(rt)
		d.GUID = cmp.Or(d.GUID, uuid.NewString())
		rt.Destinations[i] = d
	}
	rt.UpdatedAt = app.Now()
	rt.CreatedAt = rt.UpdatedAt
	if old.GUID != "" {
		rt.CreatedAt = old.CreatedAt
	}
	if err := r.checkRoute(rt); err != nil {
		return rt, err
	}
	err = r.routes.Put(rt.GUID, rt)
	if errors.Is(err, store.ErrTaken) && rt.TCP() {
		return rt, &app.Invalid{Key: "port", Message: fmt.Sprintf("a route with port %d already exists: use that route or choose another port", rt.Port)}
	}
	if errors.Is(err, store.ErrTaken) {
		return rt, &app.Invalid{Key: "host", Message: "a route with this domain, host and path already exists: use that route or choose another host or path"}
	}
	if err != nil {
		return rt, fmt.Errorf("cannot store route %s: %w", rt.GUID, err)
	}
	return rt, r.portsChanged(old, rt)
}

func (r *RouteStore) checkRoute(rt app.Route) error {
	s, err := r.registry().Space(rt.Space)
	if err != nil {
		return err
	}
	d, err := r.registry().Domain(rt.Domain)
	if err != nil {
		return err
	}
	var ps app.Violations
	if !d.UsableIn(s.Org) {
		ps.Add("domain", "%s is not available in the organization of the space", d.Name)
	}
	checkHost(&ps, "host", rt.Host)
	app.CheckPath(&ps, "path", rt.Path)
	checkPlace(&ps, d, rt)
	if d.Internal {
		checkInternal(&ps, d, rt)
	}
	ps.RouteOptions("options", func(problem routeoptions.Problem) { routeoptions.Check(rt.Options, problem) })
	if err := rt.Metadata.Validate(); err != nil {
		ps = append(ps, err)
	}
	if n := len(rt.Host) + 1 + len(d.Name); n > maxHostName {
		ps.Add("host", "must have at most %d characters together with its domain, not %d", maxHostName, n)
	}
	if err := r.checkDestinations(&ps, rt); err != nil {
		return err
	}
	return ps.Err()
}

func checkHost(ps *app.Violations, key, host string) {
	if host != "" && host != app.AnyHost && !app.HostLabel.MatchString(host) {
		ps.Add(key, "must be one name of at most 63 letters, digits, - and _, or %s, not %q", app.AnyHost, host)
	}
}

// checkPlace checks that TCP routes have no host and no path, and that other routes have
// no port.
func checkPlace(ps *app.Violations, d app.Domain, rt app.Route) {
	if !d.TCP() {
		if rt.Port != 0 {
			ps.Add("port", "must not be set in domain %s: its routes have a host and no port", d.Name)
		}
		return
	}
	if rt.Host != "" {
		ps.Add("host", "must be empty in the TCP domain %s: a TCP route has no host", d.Name)
	}
	if rt.Path != "" {
		ps.Add("path", "must be empty in the TCP domain %s: a TCP route has no path", d.Name)
	}
}

// checkInternal refuses internal routes that DNS names cannot tell apart.
func checkInternal(ps *app.Violations, d app.Domain, rt app.Route) {
	if rt.Host == app.AnyHost || rt.Host == "" {
		ps.Add("host", "must be a single name without wildcard (*) in the internal domain %s", d.Name)
	}
	if rt.Path != "" {
		ps.Add("path", "must be empty in the internal domain %s: apps reach each other there without the router", d.Name)
	}
}

// unmap removes an app from the destinations of all routes.
func (r *RouteStore) unmap(appGUID string) error {
	routes, err := r.RoutesOf(appGUID)
	if err != nil {
		return err
	}
	for _, rt := range routes {
		_, err := r.changeRoute(rt.GUID, func(rt *app.Route) error {
			rt.Destinations = slices.DeleteFunc(rt.Destinations, func(d app.Destination) bool { return d.App == appGUID })
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteRoutes deletes the routes for which chosen returns true.
func (r *RouteStore) deleteRoutes(chosen func(rt app.Route) bool) error {
	routes, err := r.Routes()
	if err != nil {
		return err
	}
	for _, rt := range routes {
		if !chosen(rt) {
			continue
		}
		if err := r.DeleteRoute(rt.GUID); err != nil {
			return err
		}
	}
	return nil
}
