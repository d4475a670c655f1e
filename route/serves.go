package route

import (
	"fmt"
	"strconv"
)

// Serves tells whether the router answers HTTP requests for a host by a route.
func (r *Router) Serves(host string) bool { return r.table.Load().serves(host) }

// ServesPort tells whether a TCP route has the domain and the port, and the port is
// open and the router's: another program may have it.
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

// Hosts tells which hosts a router over the registry serves, as the routes are now.
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
