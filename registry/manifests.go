package registry

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/app/routeoptions"
	"github.com/dewrun/dew/yamlfile"
)

// Manifests applies manifests to the apps of a space, and describes apps as manifests.
type Manifests struct{ *tables }

// ApplyManifest applies m to the apps of a space in one transaction, and returns them.
// It adds and changes, and removes nothing that m does not mention. It creates missing
// apps in state Stopped. If anything is wrong it applies nothing, and the error is
// one or more ManifestErrors.
func (r *Manifests) ApplyManifest(space string, m app.Manifest) (apps []app.App, err error) {
	err = r.update(func(r *Registry) error {
		var wrong []error
		for i := range m.Applications {
			a, err := r.applyApp(space, &m.Applications[i])
			if len(app.ManifestProblems(err)) > 0 {
				wrong = append(wrong, err)
				continue
			}
			if err != nil {
				return err
			}
			apps = append(apps, a)
		}
		return errors.Join(wrong...)
	})
	if err != nil {
		return nil, err
	}
	return apps, nil
}

func (r *Manifests) applyApp(space string, m *app.ManifestApp) (app.App, error) {
	old, err := r.desiredOf(space, m.Name)
	if err != nil {
		return app.App{}, err
	}
	next, err := app.PlanManifest(old, m)
	if err != nil {
		return app.App{}, err
	}
	a, err := r.applyDesired(old, next)
	if err != nil {
		return a, m.Explain(err)
	}
	if m.NoRoute {
		return a, r.registry().unmap(a.GUID)
	}
	routes, err := r.missingRoutes(a, m)
	if err != nil {
		return a, err
	}
	for _, w := range routes {
		if err := r.mapRoute(w, a.GUID); err != nil {
			return a, m.Explain(err)
		}
	}
	return a, nil
}

// desiredOf returns the desired state of an app in a space, or for a missing app the
// state in which it would be created.
func (r *Manifests) desiredOf(space, name string) (d app.Desired, err error) {
	all := r.registry()
	if _, err := all.Space(space); err != nil {
		return d, err
	}
	d.App, err = all.AppIn(space, name)
	if errors.Is(err, app.ErrNotFound) {
		d.App = app.App{Name: name, Space: space, State: app.Stopped}
		d.Processes = []app.Process{app.Process{Type: app.Web, Instances: 1}.WithDefaults()}
		return d, nil
	}
	if err != nil {
		return d, err
	}
	if d.Processes, err = all.Processes(d.App.GUID); err != nil {
		return d, err
	}
	d.Sidecars, err = all.Sidecars(d.App.GUID)
	return d, err
}

// applyDesired writes only values that differ, so that listeners are called only for
// changes.
func (r *Manifests) applyDesired(old, next app.Desired) (a app.App, err error) {
	all := r.registry()
	a = next.App
	if old.IsNew() || !app.SameByManifest(old.App, next.App) {
		if a, err = all.putApp(next.App); err != nil {
			return a, err
		}
	}
	for _, p := range next.Processes {
		same := func(o app.Process) bool { return reflect.DeepEqual(o, p) }
		if slices.ContainsFunc(old.Processes, same) && !old.IsNew() {
			continue
		}
		p.App = a.GUID
		if p.Type == app.Web {
			p.GUID = a.GUID
		}
		if _, err := all.keepProcess(p); err != nil {
			return a, err
		}
	}
	for _, s := range next.Sidecars {
		same := func(o app.Sidecar) bool { return reflect.DeepEqual(o, s) }
		if slices.ContainsFunc(old.Sidecars, same) {
			continue
		}
		s.App = a.GUID
		if _, err := all.keepSidecar(s); err != nil {
			return a, err
		}
	}
	return a, nil
}

// ManifestOf returns the manifest that describes the desired state of an app. Applying
// it changes nothing.
func (r *Manifests) ManifestOf(guid string) (m app.Manifest, err error) {
	err = r.view(func(r *Registry) error {
		a, err := r.App(guid)
		if err != nil {
			return err
		}
		desired, err := r.desiredOf(a.Space, a.Name)
		if err != nil {
			return err
		}
		described := desired.Described()
		if described.Routes, err = r.describedRoutes(guid); err != nil {
			return err
		}
		described.NoRoute = len(described.Routes) == 0
		m.Applications = []app.ManifestApp{described}
		return nil
	})
	return m, err
}

func (r *Manifests) describedRoutes(appGUID string) (out []app.ManifestRoute, err error) {
	routes, err := r.registry().RoutesOf(appGUID)
	if err != nil {
		return nil, err
	}
	for _, rt := range routes {
		d, err := r.registry().Domain(rt.Domain)
		if err != nil {
			return nil, err
		}
		out = append(out, app.ManifestRoute{Route: rt.URL(d.Name), Protocol: rt.ProtocolTo(appGUID), Options: rt.Options})
	}
	return out, nil
}

// missingRoute is a route of the manifest that is not yet mapped to the app.
type missingRoute struct {
	route app.Route
	path  string // path of the key that requests it, in the app's entry
	value any    // value of that key
	// options are nil, and protocol is empty, if those of the route stay.
	options  map[string]string
	protocol string
}

// missingRoutes returns the routes to create or to map to the app. A default or random
// route is only for an app without routes, in the manifest and in the registry.
func (r *Manifests) missingRoutes(a app.App, m *app.ManifestApp) ([]missingRoute, error) {
	if len(m.Routes) > 0 {
		return r.missingNamed(a, m)
	}
	if !m.RandomRoute && !m.DefaultRoute {
		return nil, nil
	}
	present, err := r.registry().RoutesOf(a.GUID)
	if err != nil || len(present) > 0 {
		return nil, err
	}
	domain, err := r.registry().DefaultDomain()
	if err != nil {
		return nil, err
	}
	key, host := "default-route", strings.ToLower(a.Name)
	if m.RandomRoute {
		key, host = "random-route", host+"-"+uuid.NewString()[:8]
	}
	if !app.HostLabel.MatchString(host) {
		return nil, &app.ManifestError{App: m.Name, Key: key, Line: m.Line(key), Message: fmt.Sprintf(
			"%q is not a valid host name, which has at most 63 letters, digits, - and _: set routes, or no-route: true", host)}
	}
	rt, err := r.routeFor(a, app.Route{Space: a.Space, Domain: domain.GUID, Host: host})
	if err != nil {
		return nil, m.Explain(withKey(err, key))
	}
	if len(rt.Destinations) > 0 {
		return nil, &app.ManifestError{App: m.Name, Key: key, Line: m.Line(key), Message: fmt.Sprintf(
			"%s is already routed to another app: set routes, or no-route: true", rt.URL(domain.Name))}
	}
	return []missingRoute{{route: rt, path: key, value: true}}, nil
}

func (r *Manifests) missingNamed(a app.App, m *app.ManifestApp) ([]missingRoute, error) {
	domains, err := r.registry().Domains()
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
		there := a.GUID != "" && rt.HasApp(a.GUID) && rt.UsesProtocol(a.GUID, mr.Protocol) && (mr.Options == nil || maps.Equal(routeoptions.Normal(mr.Options), rt.Options))
		if there || twice {
			continue
		}
		out = append(out, missingRoute{
			route: rt, path: fmt.Sprintf("routes/%d", i), value: plainMap(mr.Rendered()), options: mr.Options, protocol: mr.Protocol,
		})
	}
	return out, errors.Join(wrong...)
}

// routeFor returns the existing route with the address of rt, otherwise rt.
func (r *Manifests) routeFor(a app.App, rt app.Route) (app.Route, error) {
	found, err := r.existing(rt)
	if errors.Is(err, app.ErrNotFound) {
		_, err = r.registry().newPort(rt)
		return rt, err
	}
	if err != nil {
		return rt, err
	}
	if !found.UsableIn(a.Space) {
		return rt, &app.Invalid{Key: "host", Message: "the route belongs to another space: choose another host, path or port"}
	}
	return found, nil
}

// existing returns the route that has the address of rt.
func (r *Manifests) existing(rt app.Route) (app.Route, error) {
	if !rt.TCP() {
		return r.registry().RouteAt(rt.Domain, rt.Host, rt.Path)
	}
	found, err := r.registry().RouteAtPort(rt.Port)
	if err == nil && found.Domain != rt.Domain {
		err = &app.Invalid{Key: "port", Message: fmt.Sprintf("a route of another domain has port %d: choose another port", rt.Port)}
	}
	return found, err
}

// mapRoute maps a route to an app's web process, unless it is mapped to the app
// already.
func (r *Manifests) mapRoute(w missingRoute, appGUID string) error {
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
	_, err := r.registry().putRoute(rt)
	return err
}

// withKey returns err with all its problems attributed to one key.
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

// parseRoute reads a route. Its domain is the longest one that the name ends with.
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
		return rt, &app.Invalid{Key: "route", Message: fmt.Sprintf("%q does not end with an existing domain; the domains are %s", yamlfile.Shorten(s), strings.Join(names, ", "))}
	}
	var ps app.Violations
	checkHost(&ps, "route", rt.Host)
	app.CheckPath(&ps, "route", rt.Path)
	checkPlace(&ps, domain, rt)
	if domain.TCP() && rt.Port == 0 {
		ps.Add("port", "is missing: write a TCP route in domain %s as %[1]s:PORT", domain.Name)
	}
	return rt, ps.Err()
}
