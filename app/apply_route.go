package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// missingRoute is a route that the manifest asks for and that does not lead to
// the app.
type missingRoute struct {
	route Route
	path  string // of the key that asks for it, in the app's entry
	value any    // of that key
	// options are nil when the route's own stay, and so is an empty protocol.
	options  map[string]string
	protocol string
}

// missingRoutes returns the routes that are to be made or to lead to the app. A
// default or random route is for an app that has none, and is asked for none.
func (r *Registry) missingRoutes(a App, m *ManifestApp) ([]missingRoute, error) {
	if len(m.Routes) > 0 {
		return r.missingNamed(a, m)
	}
	if !m.RandomRoute && !m.DefaultRoute {
		return nil, nil
	}
	present, err := r.RoutesOf(a.GUID)
	if err != nil || len(present) > 0 {
		return nil, err
	}
	domain, err := r.DefaultDomain()
	if err != nil {
		return nil, err
	}
	key, host := "default-route", strings.ToLower(a.Name)
	if m.RandomRoute {
		key, host = "random-route", host+"-"+uuid.NewString()[:8]
	}
	if !hostLabel.MatchString(host) {
		return nil, &ManifestError{App: m.Name, Key: key, Line: m.line(key), Message: fmt.Sprintf(
			"%q cannot be a host name, which has letters, digits, - and _ and at most 63 characters: give routes, or no-route: true", host)}
	}
	rt, err := r.routeFor(a, Route{Space: a.Space, Domain: domain.GUID, Host: host})
	if err != nil {
		return nil, m.explain(withKey(err, key))
	}
	if len(rt.Destinations) > 0 {
		return nil, &ManifestError{App: m.Name, Key: key, Line: m.line(key), Message: fmt.Sprintf(
			"%s leads to another app already: give routes, or no-route: true", rt.URL(domain.Name))}
	}
	return []missingRoute{{route: rt, path: key, value: true}}, nil
}

func (r *Registry) missingNamed(a App, m *ManifestApp) ([]missingRoute, error) {
	domains, err := r.Domains()
	if err != nil {
		return nil, err
	}
	var out []missingRoute
	var wrong []error
	for i, mr := range m.Routes {
		key := routeKey(i)
		rt, err := parseRoute(mr.Route, domains)
		if err == nil {
			rt.Space = a.Space
			rt, err = r.routeFor(a, rt)
		}
		if len(Problems(err)) > 0 {
			wrong = append(wrong, m.explain(withKey(err, key)))
			continue
		}
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, m.checkSpeech(i, rt))
		twice := slices.ContainsFunc(out, func(o missingRoute) bool { return o.route.place() == rt.place() })
		there := a.GUID != "" && rt.leadsTo(a.GUID) && rt.speaks(a.GUID, mr.Protocol) && (mr.Options == nil || maps.Equal(mr.Options, rt.Options))
		if there || twice {
			continue
		}
		out = append(out, missingRoute{
			route: rt, path: fmt.Sprintf("routes/%d", i), value: plainMap(mr.rendered()), options: mr.Options, protocol: mr.Protocol,
		})
	}
	return out, errors.Join(wrong...)
}

// routeFor returns the route that is there for the place of rt, or else rt.
func (r *Registry) routeFor(a App, rt Route) (Route, error) {
	found, err := r.there(rt)
	if errors.Is(err, ErrNotFound) {
		_, err = r.newPort(rt)
		return rt, err
	}
	if err != nil {
		return rt, err
	}
	if !found.UsableIn(a.Space) {
		return rt, &Invalid{Key: "host", Message: "another space has this route: choose another host, path or port"}
	}
	return found, nil
}

// there is the route that has the place of rt.
func (r *Registry) there(rt Route) (Route, error) {
	if !rt.TCP() {
		return r.RouteAt(rt.Domain, rt.Host, rt.Path)
	}
	found, err := r.RouteAtPort(rt.Port)
	if err == nil && found.Domain != rt.Domain {
		err = &Invalid{Key: "port", Message: fmt.Sprintf("a route of another domain has port %d: choose another", rt.Port)}
	}
	return found, err
}

// checkSpeech wants the protocol that the manifest names to fit the route.
func (m *ManifestApp) checkSpeech(i int, rt Route) error {
	if m.Routes[i].Protocol == "" {
		return nil
	}
	var ps problems
	checkProtocol(&ps, fmt.Sprintf("routes[%d].protocol", i), m.Routes[i].Protocol, rt.protocols()...)
	if err := ps.err(); err != nil {
		return m.explain(err)
	}
	return nil
}

// mapRoute makes a route lead to an app's web process, unless it leads to the app
// already.
func (r *Registry) mapRoute(w missingRoute, app string) error {
	rt := w.route.clone()
	if !rt.leadsTo(app) {
		rt.Destinations = append(rt.Destinations, Destination{App: app, ProcessType: Web})
	}
	if w.protocol != "" {
		for i, d := range rt.Destinations {
			if d.App == app {
				rt.Destinations[i].Protocol = w.protocol
			}
		}
	}
	if w.options != nil {
		rt.Options = maps.Clone(w.options)
	}
	_, err := r.putRoute(rt)
	return err
}

func routeKey(i int) string { return fmt.Sprintf("routes[%d].route", i) }

// withKey says that the problems are about one key.
func withKey(err error, key string) error {
	var errs []error
	for _, inv := range Problems(err) {
		errs = append(errs, &Invalid{Key: key, Message: inv.Message})
	}
	if len(errs) == 0 {
		return err
	}
	return errors.Join(errs...)
}

// checkManifestRoute checks what can be seen without knowing the domains.
func checkManifestRoute(i int, mr ManifestRoute) error {
	var ps problems
	_, path, _, err := cutRoute(mr.Route)
	if err != nil {
		ps.add(routeKey(i), "%v", err)
	}
	checkPath(&ps, routeKey(i), path)
	checkOptions(&ps, fmt.Sprintf("routes[%d].options", i), mr.Options)
	if mr.Protocol != "" {
		checkProtocol(&ps, fmt.Sprintf("routes[%d].protocol", i), mr.Protocol, ProtocolHTTP1, ProtocolHTTP2, ProtocolTCP)
	}
	return ps.err()
}

// cutRoute takes host.domain/path or domain:port apart, the name in small letters.
func cutRoute(s string) (name, path string, port int, err error) {
	name, path, _ = strings.Cut(s, "/")
	name, number, ported := strings.Cut(name, ":")
	for label := range strings.SplitSeq(strings.TrimPrefix(name, AnyHost+"."), ".") {
		if !hostLabel.MatchString(label) {
			return "", "", 0, fmt.Errorf("must be a host and a domain without scheme, such as shop.example.com/cart, or the domain and port of a TCP route, not %q", shorten(s))
		}
	}
	if ported {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || path != "" {
			return "", "", 0, fmt.Errorf("must have a port from 1 to 65535 and no path behind its colon, such as tcp.example.com:20000, not %q", shorten(s))
		}
		port = int(n)
	}
	if path = strings.TrimRight(path, "/"); path != "" {
		path = "/" + path
	}
	return strings.ToLower(name), path, port, nil
}

// parseRoute finds the domain of a route: the longest one that its name ends with.
func parseRoute(s string, domains []Domain) (rt Route, err error) {
	name, path, port, err := cutRoute(s)
	if err != nil {
		return rt, &Invalid{Key: "route", Message: err.Error()}
	}
	var domain Domain
	for _, d := range domains {
		host, ok := strings.CutSuffix("."+name, "."+d.Name)
		if !ok || len(d.Name) <= len(domain.Name) {
			continue
		}
		domain = d
		rt = Route{Domain: d.GUID, Host: strings.TrimPrefix(host, "."), Path: path, Port: port}
	}
	if domain.Name == "" {
		var names []string
		for _, d := range domains {
			names = append(names, d.Name)
		}
		return rt, &Invalid{Key: "route", Message: fmt.Sprintf("%q ends with no domain that there is: %s", shorten(s), strings.Join(names, ", "))}
	}
	var ps problems
	checkHost(&ps, "route", rt.Host)
	checkPath(&ps, "route", rt.Path)
	checkPlace(&ps, domain, rt)
	if domain.TCP() && rt.Port == 0 {
		ps.add("port", "is missing: a route in the domain %s of TCP routes is written %[1]s:PORT", domain.Name)
	}
	return rt, ps.err()
}
