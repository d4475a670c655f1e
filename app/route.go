package app

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// ProtocolHTTP1 is the protocol that destinations speak.
const ProtocolHTTP1 = "http1"

// Limits of names and paths.
const (
	maxHostName = 253
	maxPath     = 128
)

var hostLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// Route is the wish that requests for a name, and a path under it, reach the
// instances of its destinations. There is one route for a domain, host and path.
type Route struct {
	GUID         string        `json:"guid"`
	Space        string        `json:"space"`          // guid
	Domain       string        `json:"domain"`         // guid
	Host         string        `json:"host,omitempty"` // in small letters; empty: the domain itself
	Path         string        `json:"path,omitempty"` // with its slash, such as /shop
	Destinations []Destination `json:"destinations,omitempty"`
	// Options are how requests are spread, by name.
	Options   map[string]string `json:"options,omitempty"`
	Metadata  Metadata          `json:"metadata,omitzero"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// Destination is a process type that a route leads to.
type Destination struct {
	GUID        string `json:"guid"`
	App         string `json:"app"` // guid
	ProcessType string `json:"process_type"`
	Port        int    `json:"port,omitempty"` // 0: the process's default port
	Protocol    string `json:"protocol"`
}

// URL is the route as users write it, without a scheme: host.domain/path.
func (rt Route) URL(domainName string) string {
	if rt.Host == "" {
		return domainName + rt.Path
	}
	return rt.Host + "." + domainName + rt.Path
}

func (rt Route) clone() Route {
	rt.Destinations = slices.Clone(rt.Destinations)
	rt.Options = maps.Clone(rt.Options)
	rt.Metadata = rt.Metadata.clone()
	return rt
}

// leadsTo tells whether a destination of the route is the app.
func (rt Route) leadsTo(app string) bool {
	return slices.ContainsFunc(rt.Destinations, func(d Destination) bool { return d.App == app })
}

// place is what there is one route for.
func (rt Route) place() string {
	return rt.Domain + "\x00" + strings.ToLower(rt.Host) + "\x00" + rt.Path
}

// same tells whether two destinations lead to the same place.
func (d Destination) same(e Destination) bool {
	return d.App == e.App && d.ProcessType == e.ProcessType && d.Port == e.Port
}

func (d Destination) withDefaults() Destination {
	d.ProcessType = cmp.Or(d.ProcessType, Web)
	d.Protocol = cmp.Or(d.Protocol, ProtocolHTTP1)
	return d
}

// ListenRoutes calls fn with the guid of every route that changed, after the
// commit, also when it was deleted.
func (r *Registry) ListenRoutes(fn func(route string)) { r.routes.Listen(fn) }

// PutRoute keeps rt in the place of the route with its guid, or as a new one.
func (r *Registry) PutRoute(rt Route) (Route, error) {
	rt = rt.clone()
	err := r.update(func(r *Registry) (err error) {
		rt, err = r.putRoute(rt)
		return err
	})
	return rt, err
}

// Route returns the route with guid.
func (r *Registry) Route(guid string) (Route, error) { return get(r.routes, "route", guid) }

// RouteAt returns the route for a domain's guid, host and path.
func (r *Registry) RouteAt(domain, host, path string) (Route, error) {
	found, err := r.routes.By("place", Route{Domain: domain, Host: host, Path: path}.place())
	if err != nil {
		return Route{}, fmt.Errorf("cannot look for route %s: %w", host+path, err)
	}
	if len(found) == 0 {
		return Route{}, fmt.Errorf("route %s: %w", host+path, ErrNotFound)
	}
	return found[0], nil
}

// Routes returns all routes by host and path.
func (r *Registry) Routes() ([]Route, error) {
	return sorted(r.routes, "routes", func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Domain, b.Domain))
	})
}

// RoutesOf returns the routes that lead to an app, by host and path.
func (r *Registry) RoutesOf(app string) ([]Route, error) {
	all, err := r.Routes()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(rt Route) bool { return !rt.leadsTo(app) }), nil
}

// DeleteRoute removes a route.
func (r *Registry) DeleteRoute(guid string) error {
	return r.update(func(r *Registry) error {
		old, err := r.Route(guid)
		if err != nil {
			return err
		}
		if err := r.routes.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete route %s: %w", guid, err)
		}
		return r.portsChanged(old, Route{})
	})
}

// AddDestinations makes a route lead to ds too. What it leads to already stays as
// it is.
func (r *Registry) AddDestinations(route string, ds []Destination) (Route, error) {
	return r.changeRoute(route, func(rt *Route) {
		for _, d := range ds {
			d = d.withDefaults()
			if !slices.ContainsFunc(rt.Destinations, d.same) {
				rt.Destinations = append(rt.Destinations, d)
			}
		}
	})
}

// SetDestinations makes a route lead to ds and nothing else. A destination that
// was there keeps its guid.
func (r *Registry) SetDestinations(route string, ds []Destination) (Route, error) {
	return r.changeRoute(route, func(rt *Route) {
		old := rt.Destinations
		rt.Destinations = nil
		for _, d := range ds {
			d = d.withDefaults()
			d.GUID = ""
			if i := slices.IndexFunc(old, d.same); i >= 0 {
				d.GUID = old[i].GUID
			}
			rt.Destinations = append(rt.Destinations, d)
		}
	})
}

// RemoveDestination makes a route no longer lead to a destination.
func (r *Registry) RemoveDestination(route, destination string) error {
	found := false
	_, err := r.changeRoute(route, func(rt *Route) {
		is := func(d Destination) bool { return d.GUID == destination }
		found = slices.ContainsFunc(rt.Destinations, is)
		rt.Destinations = slices.DeleteFunc(rt.Destinations, is)
	})
	if err == nil && !found {
		err = fmt.Errorf("destination %s: %w", destination, ErrNotFound)
	}
	return err
}

// UpdateRoute changes a route in one transaction. Its place stays as it is: that
// is what makes it this route.
func (r *Registry) UpdateRoute(guid string, fn func(rt *Route) error) (rt Route, err error) {
	err = r.update(func(r *Registry) error {
		if rt, err = r.Route(guid); err != nil {
			return err
		}
		old := rt
		if err := fn(&rt); err != nil {
			return err
		}
		rt.GUID, rt.Space, rt.Domain, rt.Host, rt.Path = old.GUID, old.Space, old.Domain, old.Host, old.Path
		rt, err = r.putRoute(rt)
		return err
	})
	return rt, err
}

func (r *Registry) changeRoute(guid string, fn func(rt *Route)) (rt Route, err error) {
	err = r.update(func(r *Registry) error {
		if rt, err = r.Route(guid); err != nil {
			return err
		}
		old := rt.clone()
		fn(&rt)
		if slices.Equal(old.Destinations, rt.Destinations) && maps.Equal(old.Options, rt.Options) {
			return nil
		}
		rt, err = r.putRoute(rt)
		return err
	})
	return rt, err
}

func (r *Registry) putRoute(rt Route) (Route, error) {
	old, err := find(r.routes, rt.GUID)
	if err != nil {
		return rt, err
	}
	if rt.GUID == "" {
		rt.GUID = uuid.NewString()
	}
	rt.Host = strings.ToLower(rt.Host)
	for i, d := range rt.Destinations {
		d = d.withDefaults()
		d.GUID = cmp.Or(d.GUID, uuid.NewString())
		rt.Destinations[i] = d
	}
	rt.UpdatedAt = now()
	rt.CreatedAt = rt.UpdatedAt
	if old.GUID != "" {
		rt.CreatedAt = old.CreatedAt
	}
	if err := r.checkRoute(rt); err != nil {
		return rt, err
	}
	err = r.routes.Put(rt.GUID, rt)
	if errors.Is(err, store.ErrTaken) {
		return rt, &Invalid{Key: "host", Message: "there is a route for this domain, host and path already: use that one or choose another host or path"}
	}
	if err != nil {
		return rt, fmt.Errorf("cannot keep route %s: %w", rt.GUID, err)
	}
	return rt, r.portsChanged(old, rt)
}

func (r *Registry) checkRoute(rt Route) error {
	s, err := r.Space(rt.Space)
	if err != nil {
		return err
	}
	d, err := r.Domain(rt.Domain)
	if err != nil {
		return err
	}
	var ps problems
	if !d.UsableIn(s.Org) {
		ps.add("domain", "%s is not available in the organization of the space", d.Name)
	}
	checkHost(&ps, "host", rt.Host)
	checkPath(&ps, "path", rt.Path)
	checkOptions(&ps, "options", rt.Options)
	if err := rt.Metadata.Validate(); err != nil {
		ps = append(ps, err)
	}
	if n := len(rt.Host) + 1 + len(d.Name); n > maxHostName {
		ps.add("host", "must have with its domain at most %d characters, not %d", maxHostName, n)
	}
	for i, d := range rt.Destinations {
		if err := r.checkDestination(&ps, rt, i); err != nil {
			return err
		}
		if slices.ContainsFunc(rt.Destinations[:i], d.same) {
			ps.add(destinationKey(i, "app"), "is with its process type and port a destination already")
		}
	}
	return ps.err()
}

func (r *Registry) checkDestination(ps *problems, rt Route, i int) error {
	d := rt.Destinations[i]
	a, err := r.App(d.App)
	if err != nil {
		return err
	}
	if a.Space != rt.Space {
		ps.add(destinationKey(i, "app"), "must be an app of the route's space")
	}
	checkType(ps, destinationKey(i, "process.type"), d.ProcessType)
	if d.Port != 0 {
		ps.port(destinationKey(i, "port"), d.Port)
	}
	if d.Protocol != ProtocolHTTP1 {
		ps.add(destinationKey(i, "protocol"), "must be %s, not %q", ProtocolHTTP1, d.Protocol)
	}
	return nil
}

// The options of a route.
const (
	OptionBalancing = "loadbalancing"
	RoundRobin      = "round-robin"
)

// checkOptions refuses what would have no effect: instances get requests in turn.
func checkOptions(ps *problems, key string, options map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(options)) {
		switch {
		case k != OptionBalancing:
			ps.add(key+"."+k, "is not known: there is %s", OptionBalancing)
		case options[k] != RoundRobin:
			ps.add(key+"."+k, "must be %s, not %q: instances get requests in turn", RoundRobin, options[k])
		}
	}
}

func destinationKey(i int, field string) string { return fmt.Sprintf("destinations[%d].%s", i, field) }

func checkHost(ps *problems, key, host string) {
	if host != "" && !hostLabel.MatchString(host) {
		ps.add(key, "must be one name of letters, digits, - and _, at most 63 characters, not %q", host)
	}
}

func checkPath(ps *problems, key, path string) {
	switch {
	case path == "":
	case !strings.HasPrefix(path, "/") || path == "/" || strings.ContainsAny(path, "?#") || strings.ContainsFunc(path, notInPath):
		ps.add(key, "must be a path such as /shop, without ? and spaces, not %q", path)
	case len(path) > maxPath:
		ps.add(key, "must have at most %d characters, not %d", maxPath, len(path))
	}
}

// portsChanged gives a new version to the processes whose containers would be
// started with other ports: those that destinations name are part of them.
func (r *Registry) portsChanged(old, rt Route) error {
	var seen []Destination
	for _, d := range slices.Concat(old.Destinations, rt.Destinations) {
		d = Destination{App: d.App, ProcessType: d.ProcessType}
		if slices.Contains(seen, d) {
			continue
		}
		seen = append(seen, d)
		if slices.Equal(old.portsOf(d), rt.portsOf(d)) {
			continue
		}
		if err := r.processChanged(d.App, d.ProcessType); err != nil {
			return err
		}
	}
	return nil
}

// portsOf are the ports of its own that the route gives to a process type.
func (rt Route) portsOf(of Destination) []int {
	var ports []int
	for _, d := range rt.Destinations {
		if d.App == of.App && d.ProcessType == of.ProcessType && d.Port != 0 {
			ports = append(ports, d.Port)
		}
	}
	slices.Sort(ports)
	return ports
}

// processChanged gives a new version to a process, if there is one of the type.
func (r *Registry) processChanged(app, processType string) error {
	found, err := r.processes.By("app and type", app+"\x00"+processType)
	if err != nil {
		return fmt.Errorf("cannot look for process %s of app %s: %w", processType, app, err)
	}
	for _, p := range found {
		if err := r.processes.Put(p.GUID, p.changed(uuid.NewString())); err != nil {
			return fmt.Errorf("cannot keep process %s: %w", p.GUID, err)
		}
	}
	return nil
}

// unmap takes an app out of all routes.
func (r *Registry) unmap(app string) error {
	routes, err := r.RoutesOf(app)
	if err != nil {
		return err
	}
	for _, rt := range routes {
		_, err := r.changeRoute(rt.GUID, func(rt *Route) {
			rt.Destinations = slices.DeleteFunc(rt.Destinations, func(d Destination) bool { return d.App == app })
		})
		if err != nil {
			return err
		}
	}
	return nil
}
