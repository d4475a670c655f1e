package netpolicy

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, addr(text))
	}
	return out
}

// desiredState has two spaces with two apps and a database.
func desiredState() State {
	return State{
		Apps:     map[string]App{"front": {"front", "dev"}, "back": {"back", "dev"}, "far": {"far away", "prod"}},
		Spaces:   map[string]Space{"dev": {"dev", "acme"}, "prod": {"prod", "acme"}},
		Services: map[string]string{"db": "orders"},
	}
}

func endpoints() []Endpoint {
	return []Endpoint{
		{Instance: "f1", Index: 1, Kind: Running, App: "front", Address: addr("10.0.0.3")},
		{Instance: "f0", Kind: Running, App: "front", Address: addr("10.0.0.2")},
		{Instance: "b0", Kind: Running, App: "back", Address: addr("10.0.0.4")},
		{Instance: "x0", Kind: Running, App: "far", Address: addr("10.0.0.5")},
		{Instance: "fs", Kind: Staging, App: "front", Address: addr("10.0.0.6")},
		{Instance: "d0", Kind: Service, App: "db", Address: addr("10.0.0.7"), Ports: []int{5432}},
	}
}

func TestPeers(t *testing.T) {
	t.Parallel()
	front := addrs("10.0.0.2", "10.0.0.3", "10.0.0.6") // with its build
	tests := []struct {
		name   string
		change func(s *State)
		want   []Peers
	}{
		{"nothing is open", func(*State) {}, nil},
		{"a policy", func(s *State) {
			s.Policies = []Policy{{Source: "front", Destination: "back", Protocol: "tcp", Ports: Ports{8080, 8090}}}
		}, []Peers{{front, []PeerAllow{{addrs("10.0.0.4"), TCP, Ports{8080, 8090}}}}}},
		{"a policy to itself", func(s *State) {
			s.Policies = []Policy{{Source: "back", Destination: "back", Protocol: "udp", Ports: Ports{53, 53}}}
		}, []Peers{{addrs("10.0.0.4"), []PeerAllow{{addrs("10.0.0.4"), UDP, Ports{53, 53}}}}}},
		{"a policy of a deleted app", func(s *State) {
			s.Policies = []Policy{{Source: "front", Destination: "gone", Protocol: "tcp", Ports: Ports{1, 2}}, {Source: "gone", Destination: "back", Protocol: "tcp", Ports: Ports{1, 2}}}
		}, nil},
		{
			"a binding", func(s *State) { s.Openings = []Opening{{App: "front", Service: "db"}} },
			[]Peers{{front, []PeerAllow{{addrs("10.0.0.7"), TCP, Ports{5432, 5432}}}}},
		},
		{
			"a service key", func(s *State) { s.Openings = []Opening{{Space: "dev", Service: "db"}} },
			[]Peers{{addrs("10.0.0.4"), []PeerAllow{{addrs("10.0.0.7"), TCP, Ports{5432, 5432}}}}, {front, []PeerAllow{{addrs("10.0.0.7"), TCP, Ports{5432, 5432}}}}},
		},
		{"a binding of a service of a broker", func(s *State) { s.Openings = []Opening{{App: "front", Service: "elsewhere"}} }, nil},
	}
	for _, tt := range tests {
		s := desiredState()
		tt.change(&s)
		if diff := cmp.Diff(Rules(s, endpoints()).Peers, tt.want, compareAddrs); diff != "" {
			t.Errorf("%s (-got +want):\n%s", tt.name, diff)
		}
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	web := app.SecurityGroup{GUID: "web", Name: "web", Rules: []app.SecurityRule{{Protocol: "tcp", Destination: "192.0.2.0/24, 198.51.100.7", Ports: "80,8000-8010"}}}
	allowed := []Allow{
		{addr("192.0.2.0"), addr("192.0.2.255"), TCP, Ports{80, 80}, -1, -1},
		{addr("192.0.2.0"), addr("192.0.2.255"), TCP, Ports{8000, 8010}, -1, -1},
		{addr("198.51.100.7"), addr("198.51.100.7"), TCP, Ports{80, 80}, -1, -1},
		{addr("198.51.100.7"), addr("198.51.100.7"), TCP, Ports{8000, 8010}, -1, -1},
	}
	service := Outside{addrs("10.0.0.7"), []Allow{everywhere}}
	tests := []struct {
		name   string
		change func(g *app.SecurityGroup)
		want   []Outside
	}{
		{"bound nowhere", func(*app.SecurityGroup) {}, []Outside{service}},
		{"running in a space", func(g *app.SecurityGroup) { g.Runs = []string{"dev"} }, []Outside{service, {addrs("10.0.0.2", "10.0.0.3", "10.0.0.4"), allowed}}},
		{"staging in a space", func(g *app.SecurityGroup) { g.Stages = []string{"dev"} }, []Outside{service, {addrs("10.0.0.6"), allowed}}},
		{"running everywhere", func(g *app.SecurityGroup) { g.Running = true }, []Outside{service, {addrs("10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"), allowed}}},
		{"a group without rules", func(g *app.SecurityGroup) { g.Running, g.Rules = true, nil }, []Outside{service}},
	}
	for _, tt := range tests {
		s, g := desiredState(), web
		tt.change(&g)
		s.Groups = []app.SecurityGroup{g}
		if diff := cmp.Diff(Rules(s, endpoints()).Outside, tt.want, compareAddrs); diff != "" {
			t.Errorf("%s (-got +want):\n%s", tt.name, diff)
		}
	}
}

func TestAllows(t *testing.T) {
	t.Parallel()
	eight, zero := 8, 0
	for _, tt := range []struct {
		rule app.SecurityRule
		want []Allow
	}{
		{app.SecurityRule{Protocol: "all", Destination: "0.0.0.0/0"}, []Allow{everywhere}},
		{app.SecurityRule{Protocol: "all", Destination: "10.0.0.1-10.0.0.9"}, []Allow{{addr("10.0.0.1"), addr("10.0.0.9"), 0, Ports{}, -1, -1}}},
		{app.SecurityRule{Protocol: "icmp", Destination: "10.0.0.1", Type: &eight, Code: &zero}, []Allow{{addr("10.0.0.1"), addr("10.0.0.1"), ICMP, Ports{}, 8, 0}}},
		{app.SecurityRule{Protocol: "icmpv6", Destination: "10.0.0.1"}, nil},
		{app.SecurityRule{Protocol: "tcp", Destination: "2001:db8::/32", Ports: "80"}, nil},
		{app.SecurityRule{Protocol: "udp", Destination: "10.0.0.1", Ports: "53"}, []Allow{{addr("10.0.0.1"), addr("10.0.0.1"), UDP, Ports{53, 53}, -1, -1}}},
	} {
		if diff := cmp.Diff(allows(tt.rule), tt.want, compareAddrs); diff != "" {
			t.Errorf("%+v (-got +want):\n%s", tt.rule, diff)
		}
	}
}

// The default group allows every address outside 169.254.0.0/16, and no other.
func TestDefaultGroup(t *testing.T) {
	t.Parallel()
	g := DefaultGroup()
	if err := g.Validate(); err != nil || !g.Running || !g.Staging {
		t.Fatalf("%+v: %v", g, err)
	}
	allowed := func(text string) bool {
		for _, r := range g.Rules {
			for _, a := range allows(r) {
				if !addr(text).Less(a.First) && !a.Last.Less(addr(text)) && a.Protocol == 0 {
					return true
				}
			}
		}
		return false
	}
	for text, want := range map[string]bool{
		"0.0.0.0": true, "10.1.2.3": true, "169.253.255.255": true, "169.254.0.0": false, "169.254.169.254": false,
		"169.254.255.255": false, "169.255.0.0": true, "192.168.1.1": true, "255.255.255.255": true,
	} {
		if got := allowed(text); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func FuzzRules(f *testing.F) {
	f.Add("tcp", "10.0.0.0/8,1.2.3.4-1.2.3.9", "80,443-444")
	f.Add("all", "::/0", "")
	f.Add("icmp", "1.2.3.4/33", "-")
	f.Fuzz(func(t *testing.T, protocol, destination, ports string) {
		for _, a := range allows(app.SecurityRule{Protocol: protocol, Destination: destination, Ports: ports}) {
			if !a.First.Is4() || !a.Last.Is4() || a.Last.Less(a.First) || a.Ports.First > a.Ports.Last || a.Ports.Last > maxPort || a.Ports.First < 0 {
				t.Errorf("%q %q %q allows %+v", protocol, destination, ports, a)
			}
		}
	})
}
