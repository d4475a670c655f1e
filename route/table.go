package route

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/app/routeoptions"
	"github.com/dewrun/dew/runtime"
)

// table is an immutable snapshot of the desired routes. Only its pools change.
type table struct {
	hosts       map[string]*paths        // by host in lower case; a wildcard host starts with "*."
	hasWildcard bool                     // there is a wildcard host
	internal    map[string][]destination // by full name: destinations that apps reach without the router
	zones       []string                 // internal domains
	ports       map[int]*entry           // of TCP routes
	replaced    []replaced               // routes with replaced destinations
}

// replaced is a route with a destination that replaced another.
type replaced struct {
	route        string // guid
	destinations []app.Destination
}

// paths are the routes of one host.
type paths struct {
	all     *entry // the route without a path, or nil
	entries map[string]*entry
	longest int // characters of a path
}

// entry is one route.
type entry struct {
	route        string // guid
	host         string
	path         string // without a slash at the end (empty: all paths)
	destinations []destination
	serviced     bool     // bound to a route service
	service      *url.URL // of that service (nil: it cannot be used)
	restricted   bool     // Config.Egress decides whether the service is allowed
	least        bool     // the instance with the fewest requests gets the next one
	hash         hashing
	turn         atomic.Uint32
}

// destination is one process that a route sends requests to.
type destination struct {
	app.Destination
	pool *pool
}

// newTable returns a table of these routes. poolOf returns the pool of a process.
func newTable(routes []app.Route, domains []app.Domain, poolOf func(processKey) *pool) *table {
	names := make(map[string]app.Domain, len(domains))
	for _, d := range domains {
		names[d.GUID] = d
	}
	// One address can be split into host and domain in two ways: the older route has
	// priority.
	routes = slices.Clone(routes)
	slices.SortFunc(routes, func(a, b app.Route) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.GUID, b.GUID))
	})
	t := &table{hosts: map[string]*paths{}, internal: map[string][]destination{}, ports: map[int]*entry{}}
	for _, d := range domains {
		if d.Internal {
			t.zones = append(t.zones, hostKey(d.Name))
		}
	}
	for _, rt := range routes {
		domain, ok := names[rt.Domain]
		if !ok || len(rt.Destinations) == 0 {
			continue // a route without destinations is treated as unknown
		}
		if slices.ContainsFunc(rt.Destinations, func(d app.Destination) bool { return len(d.Former) > 0 }) {
			t.replaced = append(t.replaced, replaced{rt.GUID, rt.Destinations})
		}
		host := hostKey(domain.Name)
		if rt.Host != "" {
			host = hostKey(rt.Host + "." + domain.Name)
		}
		e := newEntry(rt, host, poolOf)
		if rt.TCP() {
			t.ports[rt.Port] = e
			continue
		}
		if domain.Internal {
			t.internal[host] = append(t.internal[host], e.destinations...)
			continue
		}
		t.add(host, e)
	}
	return t
}

func newEntry(rt app.Route, host string, poolOf func(processKey) *pool) *entry {
	e := &entry{
		route: rt.GUID, host: host, path: strings.TrimRight(rt.Path, "/"),
		least: rt.Options[routeoptions.Balancing] == routeoptions.LeastConnection, hash: newHashing(rt.Options),
	}
	for _, d := range rt.Destinations {
		d.ProcessType = cmp.Or(d.ProcessType, app.Web)
		e.destinations = append(e.destinations, destination{d, poolOf(processKey{app: d.App, kind: d.ProcessType})})
	}
	// Do not always start with the first instance after a change of the table.
	e.turn.Store(rand.Uint32())
	return e
}

func (t *table) add(host string, e *entry) {
	ps := t.hosts[host]
	if ps == nil {
		ps = &paths{entries: map[string]*entry{}}
		t.hosts[host] = ps
		t.hasWildcard = t.hasWildcard || strings.HasPrefix(host, anyPrefix)
	}
	if _, taken := ps.entries[e.path]; taken {
		return
	}
	ps.entries[e.path], ps.longest = e, max(ps.longest, len(e.path))
	if e.path == "" {
		ps.all = e
	}
}

// anyPrefix is the start of a wildcard host.
const anyPrefix = app.AnyHost + "."

// match returns the route of a request: by host without its port and ignoring case,
// then by longest path. A host without a route uses the wildcard route of the nearest
// domain.
func (t *table) match(host, path string) *entry {
	host = hostKey(host)
	if e := t.hosts[host].match(path); e != nil || !t.hasWildcard {
		return e
	}
	for rest := host; ; {
		_, below, ok := strings.Cut(rest, ".")
		if !ok {
			return nil
		}
		if e := t.hosts[anyPrefix+below].match(path); e != nil {
			return e
		}
		rest = below
	}
}

// match returns the route with the longest path that is a prefix of path.
func (ps *paths) match(path string) *entry {
	switch {
	case ps == nil:
		return nil
	case len(ps.entries) == 1 && ps.all != nil:
		return ps.all
	}
	end := len(path)
	if end > ps.longest { // longer paths cannot match, and must not cost time
		end = strings.LastIndexByte(path[:ps.longest+1], '/')
	}
	for ; end > 0; end = strings.LastIndexByte(path[:end], '/') {
		if e := ps.entries[path[:end]]; e != nil {
			return e
		}
	}
	return ps.all
}

// serves reports whether a route has the host.
func (t *table) serves(host string) bool {
	host = hostKey(host)
	return t.hosts[host] != nil || t.match(host, "/") != nil
}

// hostKey returns a Host header as the key of the table: without port, brackets and
// trailing dot, in lower case.
func hostKey(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host, _, _ = strings.Cut(inner, "]")
	} else if name, port, ok := strings.Cut(host, ":"); ok && !strings.Contains(port, ":") {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// target is one instance with the port and protocol that a route uses.
type target struct {
	endpoint *endpoint
	port     int
	protocol string
}

// address returns the literal address, so that no request needs a DNS lookup.
func (t target) address() string {
	return netip.AddrPortFrom(t.endpoint.address, uint16(t.port)).String()
}

// reach returns how to reach the destination at an instance. An instance that was
// started without the new port uses the replaced destination. It returns false if there
// is none.
func (d *destination) reach(ep *endpoint) (target, bool) {
	at, ok := d.At(ep.ports)
	if at.Port == 0 {
		at.Port = ep.ports[0]
	}
	return target{endpoint: ep, port: at.Port, protocol: at.Protocol}, ok
}

// pick returns the next instance that is not in tried: in round-robin order, or the one
// with the fewest requests. It returns false if there is none.
func (e *entry) pick(tried []*endpoint) (picked target, ok bool) {
	var room [8]target
	all := e.targets(room[:0])
	if len(all) == 0 {
		return target{}, false
	}
	first := int(e.turn.Add(1) % uint32(len(all)))
	for i := range all {
		t := all[(first+i)%len(all)]
		if slices.Contains(tried, t.endpoint) {
			continue
		}
		if !e.least {
			return t, true
		}
		if !ok || t.endpoint.exchanges.Load() < picked.endpoint.exchanges.Load() {
			picked, ok = t, true
		}
	}
	return picked, ok
}

// pickAmong returns the next of the instances that a client selected, or false if all of
// them were tried.
func (e *entry) pickAmong(tried []*endpoint, wanted func(ep *endpoint) bool) (target, bool) {
	all := slices.DeleteFunc(e.targets(nil), func(t target) bool { return slices.Contains(tried, t.endpoint) || !wanted(t.endpoint) })
	if len(all) == 0 {
		return target{}, false
	}
	return all[int(e.turn.Add(1)%uint32(len(all)))], true
}

// generations returns the newest generation of a process among the instances of the
// route, and whether there are several.
func (e *entry) generations(process string) (newest int, several bool) {
	newest = -1
	for _, t := range e.targets(nil) {
		if g := t.endpoint.slot.Generation; t.endpoint.slot.Process == process && g != newest {
			several = several || newest >= 0
			newest = max(newest, g)
		}
	}
	return newest, several
}

// find returns an instance that a client selected. It returns false if it is currently
// not a destination of the route.
func (e *entry) find(wanted func(ep *endpoint) bool) (target, bool) {
	for i := range e.destinations {
		d := &e.destinations[i]
		for _, ep := range d.pool.endpoints() {
			if t, ok := d.reach(ep); ok && wanted(ep) {
				return t, true
			}
		}
	}
	return target{}, false
}

// targets appends the current targets of the route to all.
func (e *entry) targets(all []target) []target {
	for i := range e.destinations {
		d := &e.destinations[i]
		for _, ep := range d.pool.endpoints() {
			if t, ok := d.reach(ep); ok {
				all = append(all, t)
			}
		}
	}
	return all
}

// processKey identifies the process of a destination.
type processKey struct {
	app, kind string
}

// pool has the ready instances of a process.
type pool struct {
	list atomic.Pointer[[]*endpoint] // a snapshot, by slot; replaced under Router.mu
}

func (p *pool) endpoints() []*endpoint {
	if l := p.list.Load(); l != nil {
		return *l
	}
	return nil
}

func (p *pool) add(e *endpoint) {
	l := append(slices.Clone(p.endpoints()), e)
	slices.SortFunc(l, func(a, b *endpoint) int { return compareSlots(a.slot, b.slot) })
	p.list.Store(&l)
}

func (p *pool) remove(e *endpoint) {
	l := slices.DeleteFunc(slices.Clone(p.endpoints()), func(x *endpoint) bool { return x == e })
	p.list.Store(&l)
}

func compareSlots(a, b runtime.SlotID) int {
	return cmp.Or(strings.Compare(a.Process, b.Process), cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Index, b.Index))
}
