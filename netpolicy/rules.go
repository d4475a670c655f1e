package netpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/app"
)

// Kind is the purpose of a container, as far as network rules depend on it.
type Kind string

// The kinds of endpoints.
const (
	Running Kind = "running" // an instance or a task of an app
	Staging Kind = "staging" // a build of an app
	Service Kind = "service" // the server of a built-in service
)

// Endpoint is a container with its address.
type Endpoint struct {
	Instance string // id
	Index    int    // of an instance of an app
	Kind     Kind
	App      string // guid of the app, or of the service instance
	Address  netip.Addr
	Ports    []int // of a service
}

// State is the part of the desired state that rules depend on.
type State struct {
	Apps     map[string]App
	Spaces   map[string]Space
	Services map[string]string // names of service instances
	Groups   []app.SecurityGroup
	Policies []Policy
	Openings []Opening
}

// App is an app of the desired state.
type App struct{ Name, Space string }

// Space is a space of the desired state, with the name of its org.
type Space struct{ Name, Org string }

// Opening opens a built-in service to one app, because of a service binding, or to all
// apps of a space, because of a service key.
type Opening struct{ App, Space, Service string }

// The protocols of rules, as in the header of a packet.
const (
	ICMP byte = 1
	TCP  byte = 6
	UDP  byte = 17
)

// Ruleset has all connections that instances can open. All others are refused.
type Ruleset struct {
	Outside []Outside
	Peers   []Peers
}

// Outside are the connections to other machines that some containers can open.
type Outside struct {
	From  []netip.Addr
	Allow []Allow
}

// Allow allows connections to a range of addresses.
type Allow struct {
	First, Last netip.Addr
	Protocol    byte // 0: all
	Ports       Ports
	Type, Code  int // of ICMP; -1: all
}

// Peers are the connections to other containers that some containers can open.
type Peers struct {
	From  []netip.Addr
	Allow []PeerAllow
}

// PeerAllow allows connections to ports of some containers.
type PeerAllow struct {
	To       []netip.Addr
	Protocol byte
	Ports    Ports
}

// everywhere are all IPv4 addresses. The firewall closes link-local addresses and the
// machine itself before it looks at a Ruleset.
var everywhere = Allow{First: netip.AddrFrom4([4]byte{}), Last: netip.AddrFrom4([4]byte{255, 255, 255, 255}), Type: -1, Code: -1}

// Rules returns the connections that endpoints can open.
func Rules(s State, endpoints []Endpoint) Ruleset {
	endpoints = slices.SortedFunc(slices.Values(endpoints), func(a, b Endpoint) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Instance, b.Instance))
	})
	return Ruleset{Outside: outside(s, endpoints), Peers: peers(s, endpoints)}
}

// outside groups the endpoints by the security groups that apply to them.
func outside(s State, endpoints []Endpoint) []Outside {
	found := map[string]*Outside{}
	for _, e := range endpoints {
		key, allow := "service", []Allow{everywhere}
		if e.Kind != Service {
			key, allow = "", nil
			for _, g := range s.groupsOf(e) {
				key += g.GUID + " "
				for _, r := range g.Rules {
					allow = append(allow, allows(r)...)
				}
			}
		}
		if len(allow) == 0 {
			continue
		}
		if found[key] == nil {
			found[key] = &Outside{Allow: allow}
		}
		found[key].From = append(found[key].From, e.Address)
	}
	return sortedValues(found)
}

// groupsOf returns the security groups that apply to an endpoint, by name.
func (s State) groupsOf(e Endpoint) []app.SecurityGroup {
	a, ok := s.Apps[e.App]
	if !ok {
		return nil
	}
	var out []app.SecurityGroup
	for _, g := range s.Groups {
		global, spaces := g.Running, g.Runs
		if e.Kind == Staging {
			global, spaces = g.Staging, g.Stages
		}
		if global || slices.Contains(spaces, a.Space) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b app.SecurityGroup) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// peers returns the connections between containers, by the app that opens them.
func peers(s State, endpoints []Endpoint) []Peers {
	at := map[string][]Endpoint{}
	for _, e := range endpoints {
		at[e.App] = append(at[e.App], e)
	}
	found := map[string]*Peers{}
	add := func(source string, allow PeerAllow) {
		if len(allow.To) == 0 || len(at[source]) == 0 {
			return
		}
		if found[source] == nil {
			found[source] = &Peers{From: addresses(at[source])}
		}
		found[source].Allow = append(found[source].Allow, allow)
	}
	for _, p := range s.Policies {
		add(p.Source, PeerAllow{To: addresses(at[p.Destination]), Protocol: protocolNumber(p.Protocol), Ports: p.Ports})
	}
	for source := range at {
		for _, service := range s.servicesOf(source) {
			for _, e := range at[service] {
				for _, port := range e.Ports {
					add(source, PeerAllow{To: []netip.Addr{e.Address}, Protocol: TCP, Ports: Ports{port, port}})
				}
			}
		}
	}
	return sortedValues(found)
}

// servicesOf returns the service instances that are open to an app.
func (s State) servicesOf(guid string) []string {
	a, ok := s.Apps[guid]
	if !ok {
		return nil
	}
	open := map[string]bool{}
	for _, o := range s.Openings {
		if o.App == guid || o.App == "" && o.Space == a.Space {
			open[o.Service] = true
		}
	}
	return slices.Sorted(maps.Keys(open))
}

func addresses(es []Endpoint) []netip.Addr {
	var out []netip.Addr
	for _, e := range es {
		out = append(out, e.Address)
	}
	return out
}

func sortedValues[T any](m map[string]*T) []T {
	var out []T
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, *m[key])
	}
	return out
}

func protocolNumber(name string) byte {
	switch name {
	case "tcp":
		return TCP
	case "udp":
		return UDP
	case "icmp":
		return ICMP
	}
	return 0
}

// allows returns what a rule of a security group allows. Instances have no IPv6
// addresses outside their own network, so rules for IPv6 allow nothing.
func allows(r app.SecurityRule) []Allow {
	if r.Protocol == "icmpv6" {
		return nil
	}
	a := Allow{Protocol: protocolNumber(r.Protocol), Type: -1, Code: -1}
	if a.Protocol == ICMP {
		a.Type, a.Code = valueOf(r.Type), valueOf(r.Code)
	}
	ranges := []Ports{{}}
	if a.Protocol == TCP || a.Protocol == UDP {
		ranges = parsePorts(r.Ports)
	}
	var out []Allow
	for one := range strings.SplitSeq(r.Destination, ",") {
		first, last, ok := parseDestination(strings.TrimSpace(one))
		if !ok {
			continue
		}
		for _, ports := range ranges {
			a.First, a.Last, a.Ports = first, last, ports
			out = append(out, a)
		}
	}
	return out
}

func valueOf(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}

// parsePorts parses "443,80,8080-8090". Stored rules are valid, so it skips the rest.
func parsePorts(text string) []Ports {
	var out []Ports
	for one := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(one), "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
		last, err2 := strconv.ParseUint(strings.TrimSpace(to), 10, 16)
		if err1 == nil && err2 == nil && first <= last {
			out = append(out, Ports{int(first), int(last)})
		}
	}
	return out
}

// parseDestination parses an IPv4 address, a network, or a range of addresses.
func parseDestination(text string) (first, last netip.Addr, ok bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked().Addr(), lastAddress(p), p.Addr().Is4()
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err1 := netip.ParseAddr(strings.TrimSpace(from))
	last, err2 := netip.ParseAddr(strings.TrimSpace(to))
	return first, last, err1 == nil && err2 == nil && first.Is4() && last.Is4() && !last.Less(first)
}

func lastAddress(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b) // a valid length
	return last
}

// DefaultGroup is the security group that new roots have. It allows everything outside
// the machine except link-local addresses.
func DefaultGroup() app.SecurityGroup {
	return app.SecurityGroup{
		Name: "default", Running: true, Staging: true,
		Rules: []app.SecurityRule{
			{Protocol: "all", Destination: "0.0.0.0-169.253.255.255", Description: "everything outside this machine below the link-local addresses"},
			{Protocol: "all", Destination: "169.255.0.0-255.255.255.255", Description: "everything outside this machine above the link-local addresses"},
		},
	}
}
