package app

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/yamlfile"
)

// Quota limits what an org or a space can use. Requests for more are refused. A nil
// limit stands for no limit.
type Quota struct {
	GUID string `json:"guid"`
	Name string `json:"name"`
	Org  string `json:"org,omitempty"` // guid: it is for spaces of that org; empty: it is for orgs
	Limits
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Limits are the limits of a quota.
type Limits struct {
	TotalMemory   *int `json:"total_memory,omitempty"`   // MB of all that is started, tasks included
	ProcessMemory *int `json:"process_memory,omitempty"` // MB of one instance or task
	LogRate       *int `json:"log_rate,omitempty"`       // bytes per second
	Instances     *int `json:"instances,omitempty"`      // started instances
	Tasks         *int `json:"tasks,omitempty"`          // tasks at the same time
	NoPaid        bool `json:"no_paid,omitempty"`        // no service instances of paid plans
	Services      *int `json:"services,omitempty"`       // managed instances
	Keys          *int `json:"keys,omitempty"`           // service keys
	Routes        *int `json:"routes,omitempty"`         //
	Ports         *int `json:"ports,omitempty"`          // ports of TCP routes
	Domains       *int `json:"domains,omitempty"`        // private domains of an org
}

// NoQuota is the name of the quota of orgs without another one. It limits nothing and is
// not stored.
const NoQuota = "unlimited"

// Unlimited returns the quota of orgs without another one.
func Unlimited() Quota { return Quota{GUID: "6b3c4f5e-2a1d-4c0b-9e8f-7d6a5b4c3d2e", Name: NoQuota} }

// ErrBuiltIn says that a resource cannot be changed because it is built in.
var ErrBuiltIn = errors.New("is built in and cannot be changed or deleted")

// Taken returns the error for a name that another quota has.
func (q Quota) Taken() error {
	if q.Org == "" {
		return NewRefusal("Organization Quota '%s' already exists.", q.Name)
	}
	return NewRefusal("Space Quota '%s' already exists.", q.Name)
}

// Validate checks the name and the limits of a quota.
func (q Quota) Validate() error {
	var ps Violations
	ps.Name("name", q.Name)
	if q.Org == "" && q.Name == NoQuota {
		ps.Add("name", "%q is the name of the built-in quota: choose another name", NoQuota)
	}
	for _, l := range []struct {
		key   string
		limit *int
	}{
		{"apps.total_memory_in_mb", q.TotalMemory},
		{"apps.per_process_memory_in_mb", q.ProcessMemory},
		{"apps.log_rate_limit_in_bytes_per_second", q.LogRate},
		{"apps.total_instances", q.Instances},
		{"apps.per_app_tasks", q.Tasks},
		{"services.total_service_instances", q.Services},
		{"services.total_service_keys", q.Keys},
		{"routes.total_routes", q.Routes},
		{"routes.total_reserved_ports", q.Ports},
		{"domains.total_domains", q.Domains},
	} {
		if l.limit != nil && *l.limit < 0 {
			ps.Add(l.key, "must be 0 or more, or null for no limit, not %d", *l.limit)
		}
	}
	if q.Ports != nil && q.Routes != nil && *q.Ports > *q.Routes {
		ps.Add("routes.total_reserved_ports", "must be at most the value of total_routes, %d", *q.Routes)
	}
	return ps.Err()
}

// Used is the resources that the apps and routes of an org or a space use.
type Used struct {
	Memory    int // MB of started instances and tasks
	Instances int // started instances
	Tasks     int // tasks that have not finished
	Routes    int
	Ports     int // ports of TCP routes
	Domains   int // private domains of an org
}

// SecurityGroup is a set of rules for traffic that leaves containers. Package netpolicy
// enforces it.
type SecurityGroup struct {
	GUID      string         `json:"guid"`
	Name      string         `json:"name"`
	Rules     []SecurityRule `json:"rules,omitempty"`
	Running   bool           `json:"running,omitempty"` // for all spaces
	Staging   bool           `json:"staging,omitempty"`
	Runs      []string       `json:"runs,omitempty"`   // guids of spaces whose instances it is for
	Stages    []string       `json:"stages,omitempty"` // guids of spaces whose builds it is for
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
}

// SecurityRule allows some traffic.
type SecurityRule struct {
	Protocol    string `json:"protocol"`
	Destination string `json:"destination"`
	Ports       string `json:"ports,omitempty"` // "443,80,8080-8090"
	Type        *int   `json:"type,omitempty"`  // ICMP type
	Code        *int   `json:"code,omitempty"`
	Description string `json:"description,omitempty"`
	Log         bool   `json:"log,omitempty"`
}

// Validate checks the name and the rules of a security group.
func (g SecurityGroup) Validate() error {
	var ps Violations
	ps.Name("name", g.Name)
	for i, rule := range g.Rules {
		rule.check(&ps, fmt.Sprintf("rules[%d]", i))
	}
	return ps.Err()
}

// ruleProtocols are the protocols that a rule can allow, and whether they have ports.
var ruleProtocols = map[string]bool{"tcp": true, "udp": true, "icmp": false, "icmpv6": false, "all": false}

func (s SecurityRule) check(ps *Violations, at string) {
	ported, known := ruleProtocols[s.Protocol]
	switch {
	case !known:
		ps.Add(at+".protocol", "must be 'tcp', 'udp', 'icmp', 'icmpv6' or 'all', not %q", yamlfile.Shorten(s.Protocol))
	case ported && !portList(s.Ports):
		ps.Add(at+".ports", "must be a port, a comma-separated list of ports, or a range such as 8080-8090, not %q", yamlfile.Shorten(s.Ports))
	case !ported && s.Ports != "":
		ps.Add(at+".ports", "are not allowed for protocol '%s'", s.Protocol)
	}
	icmp := strings.HasPrefix(s.Protocol, "icmp")
	for _, n := range []struct {
		key   string
		value *int
	}{{at + ".type", s.Type}, {at + ".code", s.Code}} {
		switch {
		case icmp && n.value == nil:
			ps.Add(n.key, "is required for protocol '%s'", s.Protocol)
		case n.value != nil && (*n.value < -1 || *n.value > 255):
			ps.Add(n.key, "must be -1 to 255, not %d", *n.value)
		case n.value != nil && known && !icmp:
			ps.Add(n.key, "is not allowed for protocol '%s'", s.Protocol)
		}
	}
	for one := range strings.SplitSeq(s.Destination, ",") {
		if !destinationRange(strings.TrimSpace(one)) {
			ps.Add(at+".destination", "must be an IP address, a network such as 10.0.0.0/8, or a range such as 10.0.0.1-10.0.0.9, not %q", yamlfile.Shorten(one))
		}
	}
}

// portList reports whether s is a list of ports or ranges of them.
func portList(s string) bool {
	for one := range strings.SplitSeq(s, ",") {
		from, to, ranged := strings.Cut(strings.TrimSpace(one), "-")
		a, ok := portNumber(from)
		if !ok {
			return false
		}
		if b, ok := portNumber(to); ranged && (!ok || b < a) {
			return false
		}
	}
	return true
}

func portNumber(s string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	return n, err == nil && n >= 1 && n <= 65535
}

func destinationRange(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	from, to, ranged := strings.Cut(s, "-")
	a, err := netip.ParseAddr(strings.TrimSpace(from))
	if err != nil || !ranged {
		return err == nil
	}
	b, err := netip.ParseAddr(strings.TrimSpace(to))
	return err == nil && a.BitLen() == b.BitLen() && !b.Less(a)
}

// Segment is an isolation segment: a group of machines that orgs can be entitled to and
// spaces assigned to. dew has one machine, so it only stores segments.
type Segment struct {
	GUID      string    `json:"guid"`
	Name      string    `json:"name"`
	Orgs      []string  `json:"orgs,omitempty"` // guids of the orgs that can use it
	Metadata  Metadata  `json:"metadata,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// SharedSegment returns the built-in segment of spaces that are assigned to no other.
func SharedSegment() Segment {
	return Segment{GUID: "933b4c58-120b-499a-b85d-4b6fc9e2903b", Name: "shared"}
}
