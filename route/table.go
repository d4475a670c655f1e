package route

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime"
)

// table is what the wished routes say, as a snapshot that never changes. Only the
// pools that it points to do.
type table struct {
	hosts map[string][]*entry // by host in lower case; the longest path first
}

// entry is one route.
type entry struct {
	path         string // without a slash at the end; empty: all paths
	destinations []destination
	turn         atomic.Uint32
}

// destination is one process that a route leads to.
type destination struct {
	app  string
	port int // 0: the instance's first
	pool *pool
}

// newTable sorts the routes of this moment. poolOf finds the pool of a process.
func newTable(routes []app.Route, domains []app.Domain, poolOf func(processKey) *pool) *table {
	names := make(map[string]string, len(domains))
	for _, d := range domains {
		if !d.Internal { // what is only for other apps has no door here
			names[d.GUID] = d.Name
		}
	}
	// One address can be written as host and domain in two ways: the older route has
	// it.
	routes = slices.Clone(routes)
	slices.SortFunc(routes, func(a, b app.Route) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.GUID, b.GUID))
	})
	t := &table{hosts: map[string][]*entry{}}
	for _, rt := range routes {
		domain, ok := names[rt.Domain]
		if !ok || len(rt.Destinations) == 0 {
			continue // a route that leads nowhere is as good as unknown
		}
		host := hostKey(domain)
		if rt.Host != "" {
			host = hostKey(rt.Host + "." + domain)
		}
		t.add(host, newEntry(rt, poolOf))
	}
	return t
}

func newEntry(rt app.Route, poolOf func(processKey) *pool) *entry {
	e := &entry{path: strings.TrimRight(rt.Path, "/")}
	for _, d := range rt.Destinations {
		k := processKey{app: d.App, kind: cmp.Or(d.ProcessType, app.Web)}
		e.destinations = append(e.destinations, destination{app: d.App, port: d.Port, pool: poolOf(k)})
	}
	// Not always the first instance after a change of the table.
	e.turn.Store(rand.Uint32())
	return e
}

func (t *table) add(host string, e *entry) {
	es := t.hosts[host]
	i, taken := slices.BinarySearchFunc(es, e.path, func(x *entry, path string) int {
		return cmp.Or(cmp.Compare(len(path), len(x.path)), strings.Compare(x.path, path))
	})
	if !taken {
		t.hosts[host] = slices.Insert(es, i, e)
	}
}

// match finds the route of a request: the host without its port and without
// regard to case, then the longest path.
func (t *table) match(host, path string) *entry {
	for _, e := range t.hosts[hostKey(host)] {
		if underPath(path, e.path) {
			return e
		}
	}
	return nil
}

// underPath tells whether path is prefix, or lies below it.
func underPath(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (prefix == "" || rest == "" || rest[0] == '/')
}

// hostKey is a Host header as the table has it: without port, brackets and the
// dot of a full name, in lower case.
func hostKey(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host, _, _ = strings.Cut(inner, "]")
	} else if name, port, ok := strings.Cut(host, ":"); ok && !strings.Contains(port, ":") {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// target is one instance and the port on which a route reaches it.
type target struct {
	endpoint *endpoint
	port     int
}

// address is the literal one, so that no name is ever looked up for a request.
func (t target) address() string {
	return netip.AddrPortFrom(t.endpoint.address, uint16(t.port)).String()
}

// pick takes the next instance in turn that is not among tried. It returns false
// when there is none.
func (e *entry) pick(tried []*endpoint) (target, bool) {
	var room [8]target
	all := room[:0]
	for _, d := range e.destinations {
		for _, ep := range d.pool.endpoints() {
			if port, ok := ep.port(d.port); ok {
				all = append(all, target{endpoint: ep, port: port})
			}
		}
	}
	if len(all) == 0 {
		return target{}, false
	}
	first := int(e.turn.Add(1) % uint32(len(all)))
	for i := range all {
		t := all[(first+i)%len(all)]
		if !slices.Contains(tried, t.endpoint) {
			return t, true
		}
	}
	return target{}, false
}

// processKey names the process of an app that a destination means.
type processKey struct {
	app, kind string
}

// pool are the ready instances of a process.
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
