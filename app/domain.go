package app

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/yamlfile"
)

// Domain is the suffix of the host names of routes.
type Domain struct {
	GUID       string   `json:"guid"`
	Name       string   `json:"name"` // in lower case
	Internal   bool     `json:"internal,omitempty"`
	Default    bool     `json:"default,omitempty"`     // routes without a domain get this one
	Org        string   `json:"org,omitempty"`         // guid of the org that owns it (empty: all orgs share it)
	SharedWith []string `json:"shared_with,omitempty"` // guids of further orgs that can use it
	// RouterGroup is the guid of the router group that has the ports of its TCP routes.
	// If it is empty, the domain has HTTP routes.
	RouterGroup string    `json:"router_group,omitempty"`
	Metadata    Metadata  `json:"metadata,omitzero"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// UsableIn reports whether spaces of the org can have routes in the domain.
func (d Domain) UsableIn(org string) bool {
	return d.Org == "" || d.Org == org || slices.Contains(d.SharedWith, org)
}

// TCP reports whether the routes of the domain have ports instead of names.
func (d Domain) TCP() bool { return d.RouterGroup != "" }

// Clone returns a copy that shares nothing with d.
func (d Domain) Clone() Domain {
	d.SharedWith, d.Metadata = slices.Clone(d.SharedWith), d.Metadata.Clone()
	return d
}

// InternalDomain is the domain of routes that only other apps reach.
const InternalDomain = "apps.internal"

// TCPGroup is the name of the router group that a daemon has.
const TCPGroup = "default-tcp"

// RouterGroup has the ports of TCP routes. All its domains share them, because a
// connection has a port but no host name.
type RouterGroup struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"`
	Ports     PortRange `json:"ports"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// PortRange is a range of ports, both ends included; the zero value has none. Its text
// form is first-last, or empty.
type PortRange struct{ First, Last int }

// lowestPort is the first unprivileged port. Those below belong to services of the
// machine.
const lowestPort = 1024

// UnmarshalText reads 20000-20099, one port, or nothing.
func (p *PortRange) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	if text == "" {
		*p = PortRange{}
		return nil
	}
	from, to, ok := strings.Cut(text, "-")
	if !ok {
		to = from
	}
	first, ferr := strconv.ParseUint(from, 10, 16)
	last, lerr := strconv.ParseUint(to, 10, 16)
	if ferr != nil || lerr != nil || first < lowestPort || first > last {
		return fmt.Errorf("must be a range of ports from %d to 65535, such as 20000-20099, not %q", lowestPort, yamlfile.Shorten(text))
	}
	*p = PortRange{First: int(first), Last: int(last)}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (p PortRange) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p PortRange) String() string {
	if p == (PortRange{}) {
		return ""
	}
	return strconv.Itoa(p.First) + "-" + strconv.Itoa(p.Last)
}

// Has reports whether the port is in the range.
func (p PortRange) Has(port int) bool { return port != 0 && p.First <= port && port <= p.Last }
