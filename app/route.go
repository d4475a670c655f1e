package app

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AnyHost is the host of a route for all names below its domain that have no
// route of their own.
const AnyHost = "*"

// Limits of names and paths.
const (
	maxPath = 128
)

var HostLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// Route is the wish that requests for a name, and a path under it, reach the
// instances of its destinations. There is one route for a domain, host and path. In
// a domain of TCP routes it is the wish that connections to a port reach them, and
// there is one route for a port.
type Route struct {
	GUID         string        `json:"guid"`
	Space        string        `json:"space"`                 // guid
	SharedWith   []string      `json:"shared_with,omitempty"` // guids of further spaces
	Domain       string        `json:"domain"`                // guid
	Host         string        `json:"host,omitempty"`        // in small letters; empty: the domain itself
	Path         string        `json:"path,omitempty"`        // with its slash, such as /shop
	Port         int           `json:"port,omitempty"`        // 0: the route is one of HTTP
	Destinations []Destination `json:"destinations,omitempty"`
	// Options are how requests are spread, by name.
	Options   map[string]string `json:"options,omitempty"`
	Metadata  Metadata          `json:"metadata,omitzero"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// TCP tells whether the route has a port of its own instead of a name.
func (rt Route) TCP() bool { return rt.Port != 0 }

// URL is the route as users write it, without a scheme: host.domain/path, or
// domain:port.
func (rt Route) URL(domainName string) string {
	if rt.TCP() {
		return domainName + ":" + strconv.Itoa(rt.Port)
	}
	if rt.Host == "" {
		return domainName + rt.Path
	}
	return rt.Host + "." + domainName + rt.Path
}

func (rt Route) Clone() Route {
	rt.Destinations = slices.Clone(rt.Destinations)
	for i, d := range rt.Destinations {
		rt.Destinations[i] = d.clone()
	}
	rt.SharedWith = slices.Clone(rt.SharedWith)
	rt.Options = maps.Clone(rt.Options)
	rt.Metadata = rt.Metadata.Clone()
	return rt
}

// HasApp tells whether a destination of the route is the app.
func (rt Route) HasApp(app string) bool {
	return slices.ContainsFunc(rt.Destinations, func(d Destination) bool { return d.App == app })
}

// UniqueKey is what there is one route for.
func (rt Route) UniqueKey() string {
	if rt.TCP() {
		return "\x00port\x00" + strconv.Itoa(rt.Port) // whatever the domain
	}
	return rt.Domain + "\x00" + strings.ToLower(rt.Host) + "\x00" + rt.Path
}

// The options of a route.
const (
	OptionBalancing = "loadbalancing"
	RoundRobin      = "round-robin"      // instances get requests in turn
	LeastConnection = "least-connection" // who has the fewest gets the next one
)

// CheckRouteOptions refuses what would have no effect.
func CheckRouteOptions(ps *Violations, key string, options map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(options)) {
		switch {
		case k != OptionBalancing:
			ps.Add(key+"."+k, "is not known: there is %s", OptionBalancing)
		case options[k] != RoundRobin && options[k] != LeastConnection:
			ps.Add(key+"."+k, "must be %s or %s, not %q", RoundRobin, LeastConnection, options[k])
		}
	}
}

func CheckPath(ps *Violations, key, path string) {
	switch {
	case path == "":
	case !strings.HasPrefix(path, "/") || path == "/" || strings.ContainsAny(path, "?#") || strings.ContainsFunc(path, notInPath):
		ps.Add(key, "must be a path such as /shop, without ? and spaces, not %q", path)
	case len(path) > maxPath:
		ps.Add(key, "must have at most %d characters, not %d", maxPath, len(path))
	}
}
