package app

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
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

// PutSecurityGroup keeps g in the place of the one with its guid, or as a new one.
func (r *Registry) PutSecurityGroup(g SecurityGroup) (SecurityGroup, error) {
	err := r.update(func(r *Registry) error {
		old, err := find(r.records.rules, g.GUID)
		if err != nil {
			return err
		}
		for _, space := range slices.Concat(g.Runs, g.Stages) {
			if _, err := r.Space(space); err != nil {
				return err
			}
		}
		g.GUID = cmp.Or(g.GUID, uuid.NewString())
		g.Runs, g.Stages = distinct(g.Runs), distinct(g.Stages)
		g.CreatedAt, g.UpdatedAt = stamps(old.GUID != "", old.CreatedAt)
		if err := g.check(); err != nil {
			return err
		}
		err = r.records.rules.Put(g.GUID, g)
		if errors.Is(err, store.ErrTaken) {
			return refusal("Security group with name '%s' already exists.", g.Name)
		}
		return err
	})
	if err != nil {
		return g, fmt.Errorf("cannot keep security group %q: %w", g.Name, err)
	}
	return g, nil
}

// UpdateSecurityGroup changes one in one transaction.
func (r *Registry) UpdateSecurityGroup(guid string, fn func(g *SecurityGroup) error) (g SecurityGroup, err error) {
	err = r.update(func(r *Registry) error {
		if g, err = r.SecurityGroup(guid); err != nil {
			return err
		}
		if err := fn(&g); err != nil {
			return err
		}
		g.GUID = guid
		g, err = r.PutSecurityGroup(g)
		return err
	})
	return g, err
}

// SecurityGroup returns the one with guid.
func (r *Registry) SecurityGroup(guid string) (SecurityGroup, error) {
	return get(r.records.rules, "security group", guid)
}

// SecurityGroups returns all by name.
func (r *Registry) SecurityGroups() ([]SecurityGroup, error) {
	return sorted(r.records.rules, "security groups", func(a, b SecurityGroup) int { return cmp.Compare(a.Name, b.Name) })
}

// DeleteSecurityGroup removes one.
func (r *Registry) DeleteSecurityGroup(guid string) error {
	return r.update(func(r *Registry) error {
		if _, err := r.SecurityGroup(guid); err != nil {
			return err
		}
		if err := r.records.rules.Delete(guid); err != nil {
			return fmt.Errorf("cannot delete security group %s: %w", guid, err)
		}
		return nil
	})
}

// leaveSecurityGroups takes a space that goes out of all groups.
func (r *Registry) leaveSecurityGroups(space string) error {
	all, err := r.SecurityGroups()
	for _, g := range all {
		if !slices.Contains(g.Runs, space) && !slices.Contains(g.Stages, space) {
			continue
		}
		g.Runs, g.Stages = without(g.Runs, space), without(g.Stages, space)
		err = errors.Join(err, r.records.rules.Put(g.GUID, g))
	}
	return err
}

func distinct(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}

func (g SecurityGroup) check() error {
	var ps problems
	ps.name("name", g.Name)
	for i, rule := range g.Rules {
		rule.check(&ps, fmt.Sprintf("rules[%d]", i))
	}
	return ps.err()
}

// ruleProtocols are what a rule can allow, and whether it has ports.
var ruleProtocols = map[string]bool{"tcp": true, "udp": true, "icmp": false, "icmpv6": false, "all": false}

func (s SecurityRule) check(ps *problems, at string) {
	ported, known := ruleProtocols[s.Protocol]
	switch {
	case !known:
		ps.add(at+".protocol", "must be 'tcp', 'udp', 'icmp', 'icmpv6' or 'all', not %q", shorten(s.Protocol))
	case ported && !portList(s.Ports):
		ps.add(at+".ports", "must be a port, ports with commas between them, or a range such as 8080-8090, not %q", shorten(s.Ports))
	case !ported && s.Ports != "":
		ps.add(at+".ports", "are not allowed for protocol '%s'", s.Protocol)
	}
	icmp := strings.HasPrefix(s.Protocol, "icmp")
	for _, n := range []struct {
		key   string
		value *int
	}{{at + ".type", s.Type}, {at + ".code", s.Code}} {
		switch {
		case icmp && n.value == nil:
			ps.add(n.key, "is required for protocol '%s'", s.Protocol)
		case n.value != nil && (*n.value < -1 || *n.value > 255):
			ps.add(n.key, "must be -1 to 255, not %d", *n.value)
		case n.value != nil && known && !icmp:
			ps.add(n.key, "is not allowed for protocol '%s'", s.Protocol)
		}
	}
	for one := range strings.SplitSeq(s.Destination, ",") {
		if !destinationRange(strings.TrimSpace(one)) {
			ps.add(at+".destination", "must be an address, a network such as 10.0.0.0/8, or a range such as 10.0.0.1-10.0.0.9, not %q", shorten(one))
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
