package route

import (
	"fmt"
	"strconv"
)

// Serves reports whether the router has an HTTP route for a host.
func (r *Router) Serves(host string) bool { return r.table.Load().serves(host) }

// ServesPort reports whether a TCP route has the domain and the port, and the router
// has opened the port: another program may use it.
func (r *Router) ServesPort(host, port string) bool {
	n, err := strconv.Atoi(port)
	if err != nil {
		return false
	}
	e := r.table.Load().ports[n]
	r.mu.Lock()
	defer r.mu.Unlock()
	return e != nil && e.host == hostKey(host) && r.openPorts[n]
}

// Hosts returns a function that reports which hosts a router with this registry would
// serve with its current routes.
func Hosts(reg Registry) (serves func(host string) bool, err error) {
	routes, err := reg.Routes()
	if err != nil {
		return nil, fmt.Errorf("cannot read the routes: %w", err)
	}
	domains, err := reg.Domains()
	if err != nil {
		return nil, fmt.Errorf("cannot read the domains: %w", err)
	}
	return newTable(routes, domains, func(processKey) *pool { return &pool{} }).serves, nil
}
