package command

import (
	"net/url"
	"strings"
)

// RouteURL is the URL of a route for a browser: the route with the port of the router.
func RouteURL(route, router string) string {
	r, err := url.Parse(router)
	if err != nil || r.Host == "" {
		return route
	}
	host, path, slash := strings.Cut(route, "/")
	if strings.Contains(host, ":") {
		return "tcp://" + route // a TCP route has its own port
	}
	if r.Port() != "" {
		host += ":" + r.Port()
	}
	if slash {
		path = "/" + path
	}
	return r.Scheme + "://" + host + path
}
