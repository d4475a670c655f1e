package app

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/yamlfile"
)

// SecurityGroup is a set of rules for the traffic that leaves containers. It is
// only remembered: nothing here filters by it.
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
	Type        *int   `json:"type,omitempty"`  // of ICMP
	Code        *int   `json:"code,omitempty"`
	Description string `json:"description,omitempty"`
	Log         bool   `json:"log,omitempty"`
}

func (g SecurityGroup) Validate() error {
	var ps Violations
	ps.Name("name", g.Name)
	for i, rule := range g.Rules {
		rule.check(&ps, fmt.Sprintf("rules[%d]", i))
	}
	return ps.Err()
}

// ruleProtocols are what a rule can allow, and whether it has ports.
var ruleProtocols = map[string]bool{"tcp": true, "udp": true, "icmp": false, "icmpv6": false, "all": false}

func (s SecurityRule) check(ps *Violations, at string) {
	ported, known := ruleProtocols[s.Protocol]
	switch {
	case !known:
		ps.Add(at+".protocol", "must be 'tcp', 'udp', 'icmp', 'icmpv6' or 'all', not %q", yamlfile.Shorten(s.Protocol))
	case ported && !portList(s.Ports):
		ps.Add(at+".ports", "must be a port, ports with commas between them, or a range such as 8080-8090, not %q", yamlfile.Shorten(s.Ports))
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
			ps.Add(at+".destination", "must be an address, a network such as 10.0.0.0/8, or a range such as 10.0.0.1-10.0.0.9, not %q", yamlfile.Shorten(one))
		}
	}
}

// portList tells whether s is a list of ports or ranges of them.
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
