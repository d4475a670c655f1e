package app

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AnyHost is the host of a wildcard route: for all names below its domain that do not
// have their own route.
const AnyHost = "*"

// Limits of names and paths.
const (
	maxPath = 128
)

// HostLabel matches one label of a host name.
var HostLabel = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// Route sends requests for a host name, and a path under it, to the instances of its
// destinations. There is one route for a domain, host and path. In a domain of TCP
// routes it sends connections to a port, and there is one route for a port.
type Route struct {
	GUID         string        `json:"guid"`
	Space        string        `json:"space"`                 // guid
	SharedWith   []string      `json:"shared_with,omitempty"` // guids of further spaces
	Domain       string        `json:"domain"`                // guid
	Host         string        `json:"host,omitempty"`        // in lower case; empty: the domain itself
	Path         string        `json:"path,omitempty"`        // with its slash, such as /shop
	Port         int           `json:"port,omitempty"`        // 0: an HTTP route
	Destinations []Destination `json:"destinations,omitempty"`
	// Options are the load balancing options, by name.
	Options   map[string]string `json:"options,omitempty"`
	Metadata  Metadata          `json:"metadata,omitzero"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// TCP reports whether the route has its own port instead of a name.
func (rt Route) TCP() bool { return rt.Port != 0 }

// URL returns the route as users write it, without a scheme: host.domain/path, or
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

// Clone returns a copy that shares nothing with rt.
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

// HasApp reports whether a destination of the route is the app.
func (rt Route) HasApp(app string) bool {
	return slices.ContainsFunc(rt.Destinations, func(d Destination) bool { return d.App == app })
}

// UniqueKey returns the address of the route, which is unique.
func (rt Route) UniqueKey() string {
	if rt.TCP() {
		return "\x00port\x00" + strconv.Itoa(rt.Port) // regardless of the domain
	}
	return rt.Domain + "\x00" + strings.ToLower(rt.Host) + "\x00" + rt.Path
}

// CheckPath checks the path of a route.
func CheckPath(ps *Violations, key, path string) {
	switch {
	case path == "":
	case !strings.HasPrefix(path, "/") || path == "/" || strings.ContainsAny(path, "?#") || strings.ContainsFunc(path, notInPath):
		ps.Add(key, "must be a path such as /shop, without ? and spaces, not %q", path)
	case len(path) > maxPath:
		ps.Add(key, "must have at most %d characters, not %d", maxPath, len(path))
	}
}

// UsableIn reports whether apps of the space can be destinations of the route.
func (rt Route) UsableIn(space string) bool {
	return rt.Space == space || slices.Contains(rt.SharedWith, space)
}

// The protocols of destinations.
const (
	ProtocolHTTP1 = "http1"
	ProtocolHTTP2 = "http2" // without TLS and without an upgrade request
	ProtocolTCP   = "tcp"   // only for TCP routes
)

// MaxDestinations is the maximal number of destinations of a route.
const MaxDestinations = 100

// MaxFormer bounds Destination.Former, if a destination changes often without a restart
// of the app.
const MaxFormer = 16

// Destination is a process type of an app that gets requests of a route.
type Destination struct {
	GUID        string `json:"guid"`
	App         string `json:"app"` // guid
	ProcessType string `json:"process_type"`
	Port        int    `json:"port,omitempty"` // 0: the process's default port
	Protocol    string `json:"protocol"`
	// Former are the ports that this destination replaced, the newest first. Instances
	// that were started without its port get requests there until they stop.
	Former []Former `json:"former,omitempty"`
}

// Former is a port of the same process that a destination had.
type Former struct {
	Port     int    `json:"port,omitempty"`
	Protocol string `json:"protocol"`
}

// At returns the port at which an instance with these ports gets requests: the
// destination's own, otherwise the newest former one that the instance has. It returns
// false if there is none.
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

// Lacks reports whether an instance with these ports lacks the destination's own
// port. The destination is pending there.
func (d Destination) Lacks(has []int) bool { return !Former{Port: d.Port}.in(has) }

// in reports whether the port is one of an instance. Every instance has the default port.
func (f Former) in(has []int) bool { return f.Port == 0 || slices.Contains(has, f.Port) }

// ProcessName identifies the process of a destination by app and type.
type ProcessName struct{ app, kind string }

// ProcessName returns the process of the destination.
func (d Destination) ProcessName() ProcessName { return ProcessName{d.App, d.ProcessType} }

// Same reports whether two destinations have the same process and port.
func (d Destination) Same(e Destination) bool {
	return d.ProcessName() == e.ProcessName() && d.Port == e.Port
}

// Equal reports whether two destinations are equal in all fields.
func (d Destination) Equal(e Destination) bool {
	return d.Same(e) && d.GUID == e.GUID && d.Protocol == e.Protocol && slices.Equal(d.Former, e.Former)
}

func (d Destination) clone() Destination {
	d.Former = slices.Clone(d.Former)
	return d
}

// WithDefaults returns d with defaults for missing values.
func (d Destination) WithDefaults(rt Route) Destination {
	d.ProcessType = cmp.Or(d.ProcessType, Web)
	d.Protocol = cmp.Or(d.Protocol, rt.Protocols()[0])
	return d
}

// Protocols returns the protocols that the route allows, the default first.
func (rt Route) Protocols() []string {
	if rt.TCP() {
		return []string{ProtocolTCP}
	}
	return []string{ProtocolHTTP1, ProtocolHTTP2}
}

// ProtocolTo returns the protocol of the route's first destination in the app.
func (rt Route) ProtocolTo(app string) string {
	for _, d := range rt.Destinations {
		if d.App == app {
			return d.Protocol
		}
	}
	return rt.Protocols()[0]
}

// UsesProtocol reports whether all destinations in the app have the protocol. An empty
// protocol stands for any.
func (rt Route) UsesProtocol(app, protocol string) bool {
	return protocol == "" || !slices.ContainsFunc(rt.Destinations, func(d Destination) bool { return d.App == app && d.Protocol != protocol })
}

// CheckDestinations returns the destinations of a request with defaults. It refuses
// duplicates, because one of them would be lost without an error.
func (rt Route) CheckDestinations(ds []Destination) ([]Destination, error) {
	var ps Violations
	if len(ds) > MaxDestinations {
		ps.Add("destinations", "must have at most %d entries, not %d", MaxDestinations, len(ds))
		return nil, ps.Err()
	}
	out := make([]Destination, 0, len(ds))
	for i, d := range ds {
		d = d.WithDefaults(rt)
		d.GUID, d.Former = "", nil
		if slices.ContainsFunc(out, d.Same) {
			ps.Add(DestinationKey(i, "app"), DestinationTwice)
		}
		out = append(out, d)
	}
	return out, ps.Err()
}

// DestinationTwice is the message about a destination that is given twice.
const DestinationTwice = "is already a destination with this process type and port"

// FormerAfter returns Former of d after it replaces before. Nothing older than the
// default port is needed, because every instance has that.
func (d Destination) FormerAfter(before Destination) []Former {
	if d.Port == 0 {
		return nil
	}
	var out []Former
	for _, f := range append([]Former{{Port: before.Port, Protocol: before.Protocol}}, before.Former...) {
		if f.Port == d.Port {
			continue
		}
		out = append(out, f)
		if f.Port == 0 || len(out) == MaxFormer {
			break
		}
	}
	return out
}

// CheckProtocol checks that a protocol is one of the allowed ones.
func CheckProtocol(ps *Violations, key, protocol string, allowed ...string) {
	if !slices.Contains(allowed, protocol) {
		ps.Add(key, "must be %s, not %q", strings.Join(allowed, " or "), protocol)
	}
}

// DestinationKey returns the key of a field of the destination with index i in messages.
func DestinationKey(i int, field string) string { return fmt.Sprintf("destinations[%d].%s", i, field) }

// PortsOf returns the ports, except the default one, that the route needs of a process.
func (rt Route) PortsOf(p ProcessName) []int {
	var ports []int
	for _, d := range rt.Destinations {
		if d.ProcessName() == p && d.Port != 0 {
			ports = append(ports, d.Port)
		}
	}
	slices.Sort(ports)
	return ports
}
