package route

import (
	"net/http"
	"strings"
)

// Named reports whether there is a route for a host, with any path.
func (r *Router) Named(host string) bool { return r.table.Load().named(host) }

func (t *table) named(host string) bool {
	host = hostKey(host)
	if t.hosts[host] != nil {
		return true
	}
	for rest := host; t.hasWildcard; {
		_, below, ok := strings.Cut(rest, ".")
		if !ok {
			return false
		}
		if t.hosts[anyPrefix+below] != nil {
			return true
		}
		rest = below
	}
	return false
}

// isAPI reports whether a host is a name of the API.
func (r *Router) isAPI(host string) bool { return r.apiHosts[hostKey(host)] }

// serveAPI passes a request for a name of the API to the API, and reports whether it
// did. A route with exactly that host was created before the names were reserved, and
// has priority. A wildcard route has not.
func (r *Router) serveAPI(t *table, w http.ResponseWriter, req *http.Request) bool {
	host := hostKey(req.Host)
	if !r.apiHosts[host] || t.hosts[host].match(req.URL.Path) != nil {
		return false
	}
	setTLS(req)
	r.c.API.ServeHTTP(w, req)
	return true
}
