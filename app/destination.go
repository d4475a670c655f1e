package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The protocols that destinations speak.
const (
	ProtocolHTTP1 = "http1"
	ProtocolHTTP2 = "http2" // without TLS and without asking first
	ProtocolTCP   = "tcp"   // of TCP routes, and of no others
)

// maxDestinations is how many a route may have.
const maxDestinations = 100

// maxFormer bounds what is kept of a destination that is changed again and again
// while nothing is restarted.
const maxFormer = 16

// Destination is a process type that a route leads to.
type Destination struct {
	GUID        string `json:"guid"`
	App         string `json:"app"` // guid
	ProcessType string `json:"process_type"`
	Port        int    `json:"port,omitempty"` // 0: the process's default port
	Protocol    string `json:"protocol"`
	// Former is what this destination replaced, the newest first. Instances that were
	// started without its port are reached there until they are no more.
	Former []Former `json:"former,omitempty"`
}

// Former is a port of the same process that a destination had.
type Former struct {
	Port     int    `json:"port,omitempty"`
	Protocol string `json:"protocol"`
}

// At is where an instance that has the ports is reached: at the destination's own
// port, else at the newest one before it that the instance has. It returns false
// when there is none.
func (d Destination) At(has []int) (Former, bool) {
	if own := (Former{Port: d.Port, Protocol: d.Protocol}); own.in(has) {
		return own, true
	}
	for _, f := range d.Former {
		if f.in(has) {
			return f, true
		}
	}
	return Former{}, false
}

// Lacks tells whether an instance that has the ports is not reached at the
// destination's own: the destination is pending there.
func (d Destination) Lacks(has []int) bool { return !Former{Port: d.Port}.in(has) }

// in tells whether the port is among those of an instance. The default is always.
func (f Former) in(has []int) bool { return f.Port == 0 || slices.Contains(has, f.Port) }

// processName names the process of an app that a destination means.
type processName struct{ app, kind string }

func (d Destination) process() processName { return processName{d.App, d.ProcessType} }

// same tells whether two destinations lead to the same place.
func (d Destination) same(e Destination) bool { return d.process() == e.process() && d.Port == e.Port }

// equal tells whether nothing differs.
func (d Destination) equal(e Destination) bool {
	return d.same(e) && d.GUID == e.GUID && d.Protocol == e.Protocol && slices.Equal(d.Former, e.Former)
}

func (d Destination) clone() Destination {
	d.Former = slices.Clone(d.Former)
	return d
}

func (d Destination) withDefaults(rt Route) Destination {
	d.ProcessType = cmp.Or(d.ProcessType, Web)
	d.Protocol = cmp.Or(d.Protocol, rt.protocols()[0])
	return d
}

// protocols are those that destinations of the route may speak, the default first.
func (rt Route) protocols() []string {
	if rt.TCP() {
		return []string{ProtocolTCP}
	}
	return []string{ProtocolHTTP1, ProtocolHTTP2}
}

// protocolTo is the protocol of the route's first destination that is the app.
func (rt Route) protocolTo(app string) string {
	for _, d := range rt.Destinations {
		if d.App == app {
			return d.Protocol
		}
	}
	return rt.protocols()[0]
}

// speaks tells whether all destinations that are the app have the protocol; an
// empty one is any.
func (rt Route) speaks(app, protocol string) bool {
	return protocol == "" || !slices.ContainsFunc(rt.Destinations, func(d Destination) bool { return d.App == app && d.Protocol != protocol })
}

// AddDestinations makes a route lead to ds too. What it leads to already stays,
// with the protocol that ds name.
func (r *Registry) AddDestinations(route string, ds []Destination) (Route, error) {
	return r.changeRoute(route, func(rt *Route) error {
		ds, err := rt.asked(ds)
		if err != nil {
			return err
		}
		for _, d := range ds {
			if i := slices.IndexFunc(rt.Destinations, d.same); i >= 0 {
				rt.Destinations[i].Protocol = d.Protocol
				continue
			}
			rt.Destinations = append(rt.Destinations, d)
		}
		return nil
	})
}

// SetDestinations makes a route lead to ds and nothing else. A destination that
// was there keeps its guid; one that takes the place of another of its process
// remembers it.
func (r *Registry) SetDestinations(route string, ds []Destination) (Route, error) {
	return r.changeRoute(route, func(rt *Route) error {
		ds, err := rt.asked(ds)
		if err != nil {
			return err
		}
		rt.Destinations = replaced(rt.Destinations, ds)
		return nil
	})
}

// asked are the destinations that a request names, with defaults. None may be
// there twice: that one of them would be dropped without a word.
func (rt Route) asked(ds []Destination) ([]Destination, error) {
	var ps problems
	if len(ds) > maxDestinations {
		ps.add("destinations", "must be at most %d, not %d", maxDestinations, len(ds))
		return nil, ps.err()
	}
	out := make([]Destination, 0, len(ds))
	for i, d := range ds {
		d = d.withDefaults(rt)
		d.GUID, d.Former = "", nil
		if slices.ContainsFunc(out, d.same) {
			ps.add(destinationKey(i, "app"), twice)
		}
		out = append(out, d)
	}
	return out, ps.err()
}

const twice = "is with its process type and port a destination already"

// replaced makes now what a route leads to. What goes and what comes of one process
// are paired in their order: the second takes the place of the first, and as long
// as an instance lacks its port, the first is used there. What goes without anything
// in its place was unmapped, and is so at once.
func replaced(old, now []Destination) []Destination {
	gone := map[processName][]Destination{}
	for _, d := range old {
		if !slices.ContainsFunc(now, d.same) {
			gone[d.process()] = append(gone[d.process()], d)
		}
	}
	out := make([]Destination, 0, len(now))
	for _, d := range now {
		if i := slices.IndexFunc(old, d.same); i >= 0 {
			d.GUID, d.Former = old[i].GUID, slices.Clone(old[i].Former)
			out = append(out, d)
			continue
		}
		if before := gone[d.process()]; len(before) > 0 {
			d.Former = d.after(before[0])
			gone[d.process()] = before[1:]
		}
		out = append(out, d)
	}
	return out
}

// after is what d has to remember when it takes the place of before. Behind the
// default port nothing is needed: every instance has that.
func (d Destination) after(before Destination) []Former {
	if d.Port == 0 {
		return nil
	}
	var out []Former
	for _, f := range append([]Former{{Port: before.Port, Protocol: before.Protocol}}, before.Former...) {
		if f.Port == d.Port {
			continue
		}
		out = append(out, f)
		if f.Port == 0 || len(out) == maxFormer {
			break
		}
	}
	return out
}

// UpdateDestination gives a destination another protocol; an empty one is the
// default of its route.
func (r *Registry) UpdateDestination(route, destination, protocol string) (Route, error) {
	return r.changeRoute(route, func(rt *Route) error {
		i := slices.IndexFunc(rt.Destinations, func(d Destination) bool { return d.GUID == destination })
		if i < 0 {
			return fmt.Errorf("destination %s: %w", destination, ErrNotFound)
		}
		protocol = cmp.Or(protocol, rt.protocols()[0])
		var ps problems
		checkProtocol(&ps, "protocol", protocol, rt.protocols()...)
		rt.Destinations[i].Protocol = protocol
		return ps.err()
	})
}

// RemoveDestination makes a route no longer lead to a destination.
func (r *Registry) RemoveDestination(route, destination string) error {
	_, err := r.changeRoute(route, func(rt *Route) error {
		is := func(d Destination) bool { return d.GUID == destination }
		if !slices.ContainsFunc(rt.Destinations, is) {
			return fmt.Errorf("destination %s: %w", destination, ErrNotFound)
		}
		rt.Destinations = slices.DeleteFunc(rt.Destinations, is)
		return nil
	})
	return err
}

// ForgetFormer lets go of what destinations of a route replaced, where needed says
// that no instance needs it. A route that is gone needs nothing.
func (r *Registry) ForgetFormer(route string, needed func(d Destination) bool) error {
	return r.update(func(r *Registry) error {
		rt, err := find(r.routes, route)
		if err != nil || rt.GUID == "" {
			return err
		}
		rt, changed := rt.clone(), false
		for i, d := range rt.Destinations {
			if len(d.Former) > 0 && !needed(d) {
				rt.Destinations[i].Former, changed = nil, true
			}
		}
		if !changed {
			return nil
		}
		if err := r.routes.Put(rt.GUID, rt); err != nil {
			return fmt.Errorf("cannot keep route %s: %w", rt.GUID, err)
		}
		return nil
	})
}

func (r *Registry) checkDestinations(ps *problems, rt Route) error {
	if len(rt.Destinations) > maxDestinations {
		ps.add("destinations", "must be at most %d, not %d", maxDestinations, len(rt.Destinations))
		return nil
	}
	for i, d := range rt.Destinations {
		if err := r.checkDestination(ps, rt, i); err != nil {
			return err
		}
		if slices.ContainsFunc(rt.Destinations[:i], d.same) {
			ps.add(destinationKey(i, "app"), twice)
		}
	}
	return nil
}

func (r *Registry) checkDestination(ps *problems, rt Route, i int) error {
	d := rt.Destinations[i]
	a, err := r.App(d.App)
	if err != nil {
		return err
	}
	if !rt.UsableIn(a.Space) {
		ps.add(destinationKey(i, "app"), "must be an app of the route's space, or of one that the route is shared with")
	}
	checkType(ps, destinationKey(i, "process.type"), d.ProcessType)
	if d.Port != 0 {
		ps.port(destinationKey(i, "port"), d.Port)
	}
	checkProtocol(ps, destinationKey(i, "protocol"), d.Protocol, rt.protocols()...)
	return nil
}

func checkProtocol(ps *problems, key, protocol string, allowed ...string) {
	if !slices.Contains(allowed, protocol) {
		ps.add(key, "must be %s, not %q", strings.Join(allowed, " or "), protocol)
	}
}

func destinationKey(i int, field string) string { return fmt.Sprintf("destinations[%d].%s", i, field) }

// portsChanged gives a new version to the processes whose containers would be
// started with other ports: those that destinations name are part of them.
func (r *Registry) portsChanged(old, rt Route) error {
	var seen []processName
	for _, d := range slices.Concat(old.Destinations, rt.Destinations) {
		p := d.process()
		if slices.Contains(seen, p) {
			continue
		}
		seen = append(seen, p)
		if slices.Equal(old.portsOf(p), rt.portsOf(p)) {
			continue
		}
		if err := r.processChanged(d.App, d.ProcessType); err != nil {
			return err
		}
	}
	return nil
}

// portsOf are the ports of its own that the route gives to a process type.
func (rt Route) portsOf(p processName) []int {
	var ports []int
	for _, d := range rt.Destinations {
		if d.process() == p && d.Port != 0 {
			ports = append(ports, d.Port)
		}
	}
	slices.Sort(ports)
	return ports
}
