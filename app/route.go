package app

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// AnyHost is the host of a route for all names below its domain that have no
// route of their own.
const AnyHost = "*"

// Limits of names and paths.
const (
	maxHostName = 253
	maxPath     = 128
)

var hostLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// Route is the wish that requests for a name, and a path under it, reach the
// instances of its destinations. There is one route for a domain, host and path. In
// a domain of TCP routes it is the wish that connections to a port reach them, and
// there is one route for a port.
type Route struct {
	GUID         string        `json:"guid"`
	Space        string        `json:"space"`                 // guid
	SharedWith   []string      `json:"shared_with,omitempty"` // guids of further spaces
	Domain       string        `json:"domain"`                // guid
	Host         string        `json:"host,omitempty"`        // in small letters; empty: the domain itself
	Path         string        `json:"path,omitempty"`        // with its slash, such as /shop
	Port         int           `json:"port,omitempty"`        // 0: the route is one of HTTP
	Destinations []Destination `json:"destinations,omitempty"`
	// Options are how requests are spread, by name.
	Options   map[string]string `json:"options,omitempty"`
	Metadata  Metadata          `json:"metadata,omitzero"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// TCP tells whether the route has a port of its own instead of a name.
func (rt Route) TCP() bool { return rt.Port != 0 }

// URL is the route as users write it, without a scheme: host.domain/path, or
// domain:port.
func (rt Route) URL(domainName string) string {
	if rt.TCP() {
		return domainName + ":" + strconv.Itoa(rt.Port)
	}
	if rt.Host == "" {
		return domainName + rt.Path
	}
	return rt.Host + "." + domainName + rt.Path
}

func (rt Route) clone() Route {
	rt.Destinations = slices.Clone(rt.Destinations)
	for i, d := range rt.Destinations {
		rt.Destinations[i] = d.clone()
	}
	rt.SharedWith = slices.Clone(rt.SharedWith)
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
	if rt.TCP() {
		return "\x00port\x00" + strconv.Itoa(rt.Port) // whatever the domain
	}
	return rt.Domain + "\x00" + strings.ToLower(rt.Host) + "\x00" + rt.Path
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

// RouteAtPort returns the TCP route that has the port.
func (r *Registry) RouteAtPort(port int) (Route, error) {
	found, err := r.routes.By("place", Route{Port: port}.place())
	if err != nil {
		return Route{}, fmt.Errorf("cannot look for the route of port %d: %w", port, err)
	}
	if len(found) == 0 {
		return Route{}, fmt.Errorf("route of port %d: %w", port, ErrNotFound)
	}
	return found[0], nil
}

// Routes returns all routes by host, path and port.
func (r *Registry) Routes() ([]Route, error) {
	return sorted(r.routes, "routes", func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Domain, b.Domain))
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
		rt.SharedWith = old.SharedWith
		rt.GUID, rt.Space, rt.Domain, rt.Host, rt.Path, rt.Port = old.GUID, old.Space, old.Domain, old.Host, old.Path, old.Port
		rt, err = r.putRoute(rt)
		return err
	})
	return rt, err
}

func (r *Registry) changeRoute(guid string, fn func(rt *Route) error) (rt Route, err error) {
	err = r.update(func(r *Registry) error {
		if rt, err = r.Route(guid); err != nil {
			return err
		}
		old := rt.clone()
		if err := fn(&rt); err != nil {
			return err
		}
		if slices.EqualFunc(old.Destinations, rt.Destinations, Destination.equal) && maps.Equal(old.Options, rt.Options) {
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
	if old.GUID == "" || old.Port != rt.Port {
		if rt.Port, err = r.newPort(rt); err != nil {
			return rt, err
		}
	}
	for i, d := range rt.Destinations {
		d = d.withDefaults(rt)
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
	if errors.Is(err, store.ErrTaken) && rt.TCP() {
		return rt, &Invalid{Key: "port", Message: fmt.Sprintf("there is a route for port %d already: use that one or choose another port", rt.Port)}
	}
	if errors.Is(err, store.ErrTaken) {
		return rt, &Invalid{Key: "host", Message: "there is a route for this domain, host and path already: use that one or choose another host or path"}
	}
	if err != nil {
		return rt, fmt.Errorf("cannot keep route %s: %w", rt.GUID, err)
	}
	return rt, r.portsChanged(old, rt)
}

// newPort is the port of a route that is new, or has another one than before.
func (r *Registry) newPort(rt Route) (int, error) {
	d, err := r.Domain(rt.Domain)
	if err != nil {
		return 0, err
	}
	return r.portFor(rt, d)
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
	checkPlace(&ps, d, rt)
	if d.Internal {
		checkInternal(&ps, d, rt)
	}
	checkOptions(&ps, "options", rt.Options)
	if err := rt.Metadata.Validate(); err != nil {
		ps = append(ps, err)
	}
	if n := len(rt.Host) + 1 + len(d.Name); n > maxHostName {
		ps.add("host", "must have with its domain at most %d characters, not %d", maxHostName, n)
	}
	if err := r.checkDestinations(&ps, rt); err != nil {
		return err
	}
	return ps.err()
}

// The options of a route.
const (
	OptionBalancing = "loadbalancing"
	RoundRobin      = "round-robin"      // instances get requests in turn
	LeastConnection = "least-connection" // who has the fewest gets the next one
)

// checkOptions refuses what would have no effect.
func checkOptions(ps *problems, key string, options map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(options)) {
		switch {
		case k != OptionBalancing:
			ps.add(key+"."+k, "is not known: there is %s", OptionBalancing)
		case options[k] != RoundRobin && options[k] != LeastConnection:
			ps.add(key+"."+k, "must be %s or %s, not %q", RoundRobin, LeastConnection, options[k])
		}
	}
}

func checkHost(ps *problems, key, host string) {
	if host != "" && host != AnyHost && !hostLabel.MatchString(host) {
		ps.add(key, "must be one name of letters, digits, - and _, at most 63 characters, or %s, not %q", AnyHost, host)
	}
}

// checkPlace wants a port where there is nothing else to tell routes apart by, and
// none elsewhere.
func checkPlace(ps *problems, d Domain, rt Route) {
	if !d.TCP() {
		if rt.Port != 0 {
			ps.add("port", "must be left out in the domain %s, whose routes are told apart by name", d.Name)
		}
		return
	}
	if rt.Host != "" {
		ps.add("host", "must be empty in the domain %s of TCP routes: a connection tells no name", d.Name)
	}
	if rt.Path != "" {
		ps.add("path", "must be empty in the domain %s of TCP routes: a connection tells no path", d.Name)
	}
}

// checkInternal refuses what a name server cannot tell apart.
func checkInternal(ps *problems, d Domain, rt Route) {
	if rt.Host == AnyHost || rt.Host == "" {
		ps.add("host", "must be one name in the internal domain %s", d.Name)
	}
	if rt.Path != "" {
		ps.add("path", "must be empty in the internal domain %s: apps are reached there without the router", d.Name)
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
		_, err := r.changeRoute(rt.GUID, func(rt *Route) error {
			rt.Destinations = slices.DeleteFunc(rt.Destinations, func(d Destination) bool { return d.App == app })
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
