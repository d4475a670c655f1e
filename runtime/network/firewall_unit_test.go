package network

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// foreign returns a chain of another program's table. Without a policy it is not a base
// chain.
func foreign(family nftables.TableFamily, table, name string, policy ...nftables.ChainPolicy) *nftables.Chain {
	ch := &nftables.Chain{Name: name, Table: &nftables.Table{Family: family, Name: table}}
	if len(policy) > 0 {
		ch.Policy = &policy[0]
	}
	return ch
}

func TestForeignChain(t *testing.T) {
	t.Parallel()
	const ip4, drop, accept = nftables.TableFamilyIPv4, nftables.ChainPolicyDrop, nftables.ChainPolicyAccept
	dropping, accepting := foreign(ip4, "filter", "FORWARD", drop), foreign(ip4, "filter", "FORWARD", accept)
	user := foreign(ip4, "filter", "DOCKER-USER")
	others := []*nftables.Chain{
		foreign(ip4, "filter", "INPUT", drop), foreign(ip4, "filter", "OUTPUT", accept),
		foreign(ip4, "filter", "DOCKER"), foreign(ip4, "nat", "POSTROUTING", accept),
	}
	tests := []struct {
		name   string
		chains []*nftables.Chain
		want   *nftables.Chain
	}{
		{"no chains", nil, nil},
		{"others only", others, nil},
		{"accepts", append(others, accepting), nil},
		{"drops", append(others, dropping), dropping},
		{"drops, listed first", append([]*nftables.Chain{dropping}, others...), dropping},
		{"drops, with Docker", append(others, dropping, user), user},
		{"drops, with Docker listed first", append([]*nftables.Chain{user}, append(others, dropping)...), user},
		{"accepts, with Docker", append(others, accepting, user), nil},
		{"Docker's chain alone", []*nftables.Chain{user}, nil},
		{"no base chain", []*nftables.Chain{foreign(ip4, "filter", "FORWARD")}, nil},
		{"another table", []*nftables.Chain{foreign(ip4, "mangle", "FORWARD", drop)}, nil},
		{"another table's user chain", []*nftables.Chain{dropping, foreign(ip4, "nat", "DOCKER-USER")}, dropping},
		{"another family", []*nftables.Chain{foreign(nftables.TableFamilyIPv6, "filter", "FORWARD", drop)}, nil},
		{"another family's user chain", []*nftables.Chain{dropping, foreign(nftables.TableFamilyIPv6, "filter", "DOCKER-USER")}, dropping},
	}
	for _, tt := range tests {
		if got := foreignChain(tt.chains); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// Packets to the bridge from outside must be answers. No chain is empty, because an
// empty one would never count as whole.
func TestOwnChains(t *testing.T) {
	t.Parallel()
	f := &Firewall{
		Table: "dew", Bridge: "dew0", Subnet: netip.MustParsePrefix("10.201.16.0/20"), Host: netip.MustParseAddr("10.201.16.1"),
		Ports: []uint16{8484},
	}
	in := append(matchName(expr.MetaKeyOIFNAME, expr.CmpOpEq, "dew0"), matchName(expr.MetaKeyIIFNAME, expr.CmpOpNeq, "dew0")...)
	want := [][]expr.Any{
		append(append(in[:len(in):len(in)], matchAnswers()...), &expr.Verdict{Kind: expr.VerdictAccept}),
		append(in[:len(in):len(in)], &expr.Verdict{Kind: expr.VerdictDrop}),
	}
	if diff := cmp.Diff(f.forward().rules, want); diff != "" {
		t.Errorf("forward (-got +want):\n%s", diff)
	}
	for open, want := range map[bool][]string{false: {"prerouting", "postrouting", "forward", "input"}, true: {"prerouting", "postrouting", "forward"}} {
		f.Open = open
		var got []string
		for _, own := range f.chains() {
			got = append(got, own.chain.Name)
			if len(own.rules) == 0 || own.chain.Hooknum == nil || own.chain.Table.Name != "dew" {
				t.Errorf("chain %+v with %d rules, want a base chain of the own table with rules", own.chain, len(own.rules))
			}
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("chains with open=%v (-got +want):\n%s", open, diff)
		}
	}
}
