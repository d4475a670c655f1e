package platform

import (
	"slices"
	"strings"

	"github.com/dewrun/dew/app"
)

// apiLabels are the hosts in the default domain that the router leads to the API:
// clients of Cloud Foundry expect the API, its logins and its logs there.
var apiLabels = []string{"api", "login", "uaa", "log-cache", "log-stream"}

// APIHosts returns the names in a domain that the router leads to the API.
func APIHosts(domain string) (out []string) {
	for _, label := range apiLabels {
		out = append(out, label+"."+domain)
	}
	return out
}

// IsAPIRoute reports whether a route has one of the APIHosts of the default domain.
// domain is the name of the route's own domain.
func IsAPIRoute(rt app.Route, domain, defaultDomain string) bool {
	if rt.TCP() || defaultDomain == "" {
		return false
	}
	host, _, _ := strings.Cut(rt.URL(domain), "/")
	return slices.Contains(APIHosts(defaultDomain), strings.ToLower(host))
}

// refuseAPIRoute refuses a new route that would hide the API.
func refuseAPIRoute(rt app.Route, d app.Domain, apiDomain string) error {
	if !IsAPIRoute(rt, d.Name, apiDomain) {
		return nil
	}
	host, _, _ := strings.Cut(rt.URL(d.Name), "/")
	label, _, _ := strings.Cut(host, ".")
	return Refuse("The host %s is reserved for the API. Use another host, for example %s-app.%s.", host, label, apiDomain)
}
