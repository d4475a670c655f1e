package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/yamlfile"
)

// missingRoute is a route that the manifest asks for and that does not lead to
// the app.
type missingRoute struct {
	route app.Route
	path  string // of the key that asks for it, in the app's entry
	value any    // of that key
	// options are nil when the route's own stay, and so is an empty protocol.
	options  map[string]string
	protocol string
}

// missingRoutes returns the routes that are to be made or to lead to the app. A
// default or random route is for an app that has none, and is asked for none.
func (r *Registry) missingRoutes(a app.App, m *app.ManifestApp) ([]missingRoute, error) {
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
	if !app.HostLabel.MatchString(host) {
		return nil, &app.ManifestError{App: m.Name, Key: key, Line: m.Line(key), Message: fmt.Sprintf(
			"%q cannot be a host name, which has letters, digits, - and _ and at most 63 characters: give routes, or no-route: true", host)}
	}
	rt, err := r.routeFor(a, app.Route{Space: a.Space, Domain: domain.GUID, Host: host})
	if err != nil {
		return nil, m.Explain(withKey(err, key))
	}
	if len(rt.Destinations) > 0 {
		return nil, &app.ManifestError{App: m.Name, Key: key, Line: m.Line(key), Message: fmt.Sprintf(
			"%s leads to another app already: give routes, or no-route: true", rt.URL(domain.Name))}
	}
	return []missingRoute{{route: rt, path: key, value: true}}, nil
}

func (r *Registry) missingNamed(a app.App, m *app.ManifestApp) ([]missingRoute, error) {
	domains, err := r.Domains()
	if err != nil {
		return nil, err
	}
	var out []missingRoute
	var wrong []error
	for i, mr := range m.Routes {
		key := app.RouteKey(i)
		rt, err := parseRoute(mr.Route, domains)
		if err == nil {
			rt.Space = a.Space
			rt, err = r.routeFor(a, rt)
		}
		if len(app.Problems(err)) > 0 {
			wrong = append(wrong, m.Explain(withKey(err, key)))
			continue
		}
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, m.CheckProtocol(i, rt))
		twice := slices.ContainsFunc(out, func(o missingRoute) bool { return o.route.UniqueKey() == rt.UniqueKey() })
		there := a.GUID != "" && rt.HasApp(a.GUID) && rt.UsesProtocol(a.GUID, mr.Protocol) && (mr.Options == nil || maps.Equal(mr.Options, rt.Options))
		if there || twice {
			continue
		}
		out = append(out, missingRoute{
			route: rt, path: fmt.Sprintf("routes/%d", i), value: plainMap(mr.Rendered()), options: mr.Options, protocol: mr.Protocol,
		})
	}
	return out, errors.Join(wrong...)
}

// routeFor returns the route that is there for the place of rt, or else rt.
func (r *Registry) routeFor(a app.App, rt app.Route) (app.Route, error) {
	found, err := r.there(rt)
	if errors.Is(err, app.ErrNotFound) {
		_, err = r.newPort(rt)
		return rt, err
	}
	if err != nil {
		return rt, err
	}
	if !found.UsableIn(a.Space) {
		return rt, &app.Invalid{Key: "host", Message: "another space has this route: choose another host, path or port"}
	}
	return found, nil
}

// there is the route that has the place of rt.
func (r *Registry) there(rt app.Route) (app.Route, error) {
	if !rt.TCP() {
		return r.RouteAt(rt.Domain, rt.Host, rt.Path)
	}
	found, err := r.RouteAtPort(rt.Port)
	if err == nil && found.Domain != rt.Domain {
		err = &app.Invalid{Key: "port", Message: fmt.Sprintf("a route of another domain has port %d: choose another", rt.Port)}
	}
	return found, err
}

// mapRoute makes a route lead to an app's web process, unless it leads to the app
// already.
func (r *Registry) mapRoute(w missingRoute, appGUID string) error {
	rt := w.route.Clone()
	if !rt.HasApp(appGUID) {
		rt.Destinations = append(rt.Destinations, app.Destination{App: appGUID, ProcessType: app.Web})
	}
	if w.protocol != "" {
		for i, d := range rt.Destinations {
			if d.App == appGUID {
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

// withKey says that the problems are about one key.
func withKey(err error, key string) error {
	var errs []error
	for _, inv := range app.Problems(err) {
		errs = append(errs, &app.Invalid{Key: key, Message: inv.Message})
	}
	if len(errs) == 0 {
		return err
	}
	return errors.Join(errs...)
}

// parseRoute finds the domain of a route: the longest one that its name ends with.
func parseRoute(s string, domains []app.Domain) (rt app.Route, err error) {
	name, path, port, err := app.SplitRoute(s)
	if err != nil {
		return rt, &app.Invalid{Key: "route", Message: err.Error()}
	}
	var domain app.Domain
	for _, d := range domains {
		host, ok := strings.CutSuffix("."+name, "."+d.Name)
		if !ok || len(d.Name) <= len(domain.Name) {
			continue
		}
		domain = d
		rt = app.Route{Domain: d.GUID, Host: strings.TrimPrefix(host, "."), Path: path, Port: port}
	}
	if domain.Name == "" {
		var names []string
		for _, d := range domains {
			names = append(names, d.Name)
		}
		return rt, &app.Invalid{Key: "route", Message: fmt.Sprintf("%q ends with no domain that there is: %s", yamlfile.Shorten(s), strings.Join(names, ", "))}
	}
	var ps app.Violations
	checkHost(&ps, "route", rt.Host)
	app.CheckPath(&ps, "route", rt.Path)
	checkPlace(&ps, domain, rt)
	if domain.TCP() && rt.Port == 0 {
		ps.Add("port", "is missing: a route in the domain %s of TCP routes is written %[1]s:PORT", domain.Name)
	}
	return rt, ps.Err()
}
