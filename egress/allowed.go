package egress

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Allowed are hosts and networks that an administrator has allowed for all users.
type Allowed struct {
	hosts    []string // in lower case
	networks []netip.Prefix
}

var hostForm = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?$`)

// UnmarshalText parses hosts, addresses and networks (CIDR), separated by commas.
func (l *Allowed) UnmarshalText(b []byte) error {
	var out Allowed
	for item := range strings.SplitSeq(string(b), ",") {
		item = hostName(strings.TrimSpace(item))
		if item == "" {
			continue
		}
		if p, ok := network(item); ok {
			out.networks = append(out.networks, p)
			continue
		}
		if !hostForm.MatchString(item) {
			return fmt.Errorf("%q is not a valid host, address or network; examples: broker.example.com, 192.0.2.0/24", item)
		}
		out.hosts = append(out.hosts, item)
	}
	*l = out
	return nil
}

// String returns the format that UnmarshalText parses.
func (l *Allowed) String() string {
	all := append([]string(nil), l.hosts...)
	for _, p := range l.networks {
		all = append(all, p.String())
	}
	return strings.Join(all, ",")
}

// network parses an address or a network.
func network(s string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), true
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.Prefix{}, false
	}
	a = a.WithZone("").Unmap()
	return netip.PrefixFrom(a, a.BitLen()), true
}

// hostName returns a host in the form that is compared.
func hostName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

func (l *Allowed) hasHost(host string) bool {
	host = hostName(host)
	for _, h := range l.hosts {
		if h == host {
			return true
		}
	}
	return false
}

func (l *Allowed) hasAddress(a netip.Addr) bool {
	for _, p := range l.networks {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
